"""What operators return for which the training build has no kernel on a CPU, by NumPy."""

from __future__ import annotations

from typing import Any

import numpy as np
from onnx import TensorProto, helper
from onnx.reference import ReferenceEvaluator


def layer_norm_back(
    dy: np.ndarray, z: np.ndarray, root: np.ndarray, scale: np.ndarray, axis: int
) -> list[np.ndarray]:
    """The gradients of x, scale and bias, z being what x was normalised to."""
    axes, lead = tuple(range(axis % z.ndim, z.ndim)), tuple(range(axis % z.ndim))
    h = dy * scale
    means = [t.mean(axes, keepdims=True) for t in (h, h * z)]
    return [root * (h - means[0] - z * means[1]), (dy * z).sum(lead), dy.sum(lead)]


def adjoint(
    op: str, inputs: list[np.ndarray | None], of: int, dy: np.ndarray, attributes: dict[str, Any]
) -> np.ndarray:
    """The gradient by an input in which an operator is linear: <dy, op(unit)> for every unit."""
    names = [f"x{i}" if x is not None else "" for i, x in enumerate(inputs)]
    feeds = {n: x for n, x in zip(names, inputs, strict=True) if x is not None}
    infos = [
        helper.make_tensor_value_info(n, helper.np_dtype_to_tensor_dtype(x.dtype), x.shape)
        for n, x in feeds.items()
    ]
    y = helper.make_tensor_value_info("y", TensorProto.FLOAT, None)
    graph = helper.make_graph([helper.make_node(op, names, ["y"], **attributes)], "g", infos, [y])
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)
    evaluator = ReferenceEvaluator(model)
    varied = feeds[names[of]]
    units = np.eye(varied.size, dtype=np.float32).reshape(-1, *varied.shape)
    found = [(evaluator.run(None, {**feeds, names[of]: u})[0] * dy).sum() for u in units]
    return np.array(found, np.float32).reshape(varied.shape)
