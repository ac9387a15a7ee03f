"""All that touches a runtime: the two engines, checkpoints, and what goes in and out of them."""
