"""The operators that only onnxruntime-training has, by what they are made of.

Its training models hold the gradients of operators as operators of their own: `ConvGrad`,
`LayerNormalizationGrad` and so on. A stock ONNX Runtime has none of them. Each has a body here, of
plain ONNX, and a gradient has that of the very rule by which blockdsl differentiates the operator.
What they compute is what the CPU kernels of onnxruntime-training 1.19.2 do, less their faults.
"""

from importlib import import_module

from blockdsl.gradient.training_ops.expanding import replace_training_operators
from blockdsl.gradient.training_ops.registry import BODIES, REFUSED

__all__ = ["BODIES", "REFUSED", "replace_training_operators"]

for _family in (
    "activations",
    "arithmetic",
    "images",
    "indexing",
    "losses",
    "normalization",
    "recurrent",
    "refused",
):
    import_module(f"{__name__}.{_family}")
