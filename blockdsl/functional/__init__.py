"""Functions of Values that mean the same in every opset."""
