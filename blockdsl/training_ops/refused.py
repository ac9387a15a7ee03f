"""Operators that gradients of onnxruntime-training can hold and that mean nothing elsewhere."""

from __future__ import annotations

from blockdsl.training_ops.registry import refuse

refuse(
    "MegatronF",
    "MegatronG",
    "NcclAllReduce",
    "Recv",
    "Send",
    reason="it passes tensors between the processes of a cluster",
)
refuse("PythonOp", "PythonOpGrad", reason="it calls back into a Python program")
refuse("ATen", reason="it calls PyTorch", domain="org.pytorch.aten")
refuse(
    "FlattenAndUnpad",
    "PadAndUnflatten",
    reason="only ORTModule writes it, which trains inside PyTorch and leaves no artifacts",
)
refuse(
    "BiasSoftmaxDropout",
    "BitmaskBiasDropout",
    "BitmaskDropout",
    "BitmaskDropoutGrad",
    "SoftmaxDropoutGrad",
    reason="it exists on CUDA alone; artifacts that are generated without a GPU hold Dropout",
)
