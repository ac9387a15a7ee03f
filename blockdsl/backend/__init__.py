"""All that touches a runtime: the two engines, checkpoints, and what goes in and out of them.

The module itself is a backend as ONNX's protocol has it (`onnx.backend.base.Backend`), beside
`onnxruntime.backend` and `onnx.reference`: whatever runs models on one of those runs them here.
"""

from blockdsl.backend.protocol import (
    OnnxBackend,
    is_compatible,
    prepare,
    run_model,
    run_node,
    supports_device,
)

__all__ = [
    "OnnxBackend",
    "is_compatible",
    "prepare",
    "run_model",
    "run_node",
    "supports_device",
]
