"""How the inputs and outputs of training and optimizer models are named.

Those of training models are the names of onnxruntime-training 1.19.2, which every on-device binding
goes by.
"""

BUFFER = "_grad.accumulation.buffer"
"""What follows the name of a parameter in the input that its gradient is added to."""

ACCUMULATED = ".accumulation.out"
"""What follows the name of a gradient in the output that says that it has been added."""

RESET = "lazy_reset_grad"
"""The input of a training model that says whether gradients are overwritten."""

NEW = ".out"
"""What follows the name of an input of a plain optimizer model in the output of its new value."""
DROPOUT_NOISE = "dropout_noise"
"""The end of the names of nodes that draw for a dropout that is written out."""
