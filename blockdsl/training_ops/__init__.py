"""Decompositions of the operators that only onnxruntime-training has into plain ONNX.

Its training models hold gradients of operators as operators: `ConvGrad`, `LayerNormalizationGrad`
and so on. A stock ONNX Runtime has none of them. Each is decomposed here; a gradient calls the rule
by which blockdsl differentiates the operator. The results are those of the CPU kernels of
onnxruntime-training 1.19.2, except for their faults.
"""

from importlib import import_module

from blockdsl.training_ops.registry import BODIES, REFUSED

__all__ = ["BODIES", "REFUSED"]

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
