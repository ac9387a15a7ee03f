"""Calls of training operators, and what they are fed."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, TypeAlias

import numpy as np
from onnx import ModelProto, NodeProto, TensorProto, helper

from blockdsl.graph.schema import MICROSOFT


@dataclass(frozen=True)
class Call:
    """One node, with what it is fed.

    Attributes:
        op: The operator.
        inputs: Its inputs, None where one is left out; a text is the name of an output of `before`.
        outputs: How many outputs it has, or for each whether it is declared.
        attributes: Its attributes.
        domain: Its domain.
        opset: The opset of the model.
        before: Nodes in front of it, whose inputs are named `i0`, `i1`, ... as those of the node.
        more: What they are fed beside these.
        declared: The shape of its first output, where the model has to say it.
        note: What sets it apart from other calls of the operator.
        symbolic: Which inputs have symbolic shapes: none, those of "floats", or "all".
        expected: Its outputs, where the training build has no kernel for the CPU or a faulty one.
    """

    op: str
    inputs: list[Any]
    outputs: Any = 1
    attributes: dict[str, Any] = field(default_factory=dict)
    domain: str = MICROSOFT
    opset: int = 17
    before: tuple[NodeProto, ...] = ()
    more: dict[str, np.ndarray] = field(default_factory=dict)
    declared: tuple[int, ...] | None = None
    note: str = ""
    symbolic: str = ""
    expected: list[np.ndarray] | None = None

    def __str__(self) -> str:
        return "-".join(filter(None, [self.op, self.note, "symbolic" if self.symbolic else ""]))

    @property
    def feeds(self) -> dict[str, np.ndarray]:
        own = {f"i{i}": a for i, a in enumerate(self.inputs) if isinstance(a, np.ndarray)}
        return own | self.more

    @property
    def model(self) -> ModelProto:
        """A model of the node alone."""
        flags = [True] * self.outputs if isinstance(self.outputs, int) else self.outputs
        names = [f"o{i}" if flag else "" for i, flag in enumerate(flags)]
        given = [
            f"i{i}" if isinstance(a, np.ndarray) else a or "" for i, a in enumerate(self.inputs)
        ]
        node = helper.make_node(
            self.op, given, names, "call", domain=self.domain, **self.attributes
        )
        infos = []
        for name, array in self.feeds.items():
            symbolic = self.symbolic == "all" or (self.symbolic and array.dtype.kind == "f")
            shape = [f"{name}_{k}" for k in range(array.ndim)] if symbolic else array.shape
            kind = helper.np_dtype_to_tensor_dtype(array.dtype)
            infos.append(helper.make_tensor_value_info(name, kind, shape))
        outputs = [helper.ValueInfoProto(name=name) for name in filter(None, names)]
        if self.declared is not None:
            outputs[0] = helper.make_tensor_value_info("o0", TensorProto.FLOAT, self.declared)
        graph = helper.make_graph([*self.before, node], "call", infos, outputs)
        opsets = [helper.make_opsetid("", self.opset), helper.make_opsetid(MICROSOFT, 1)]
        return helper.make_model(graph, opset_imports=opsets, ir_version=8)


Draw: TypeAlias = Callable[..., np.ndarray]


def drawing(seed: int) -> tuple[Draw, Draw]:
    """What draws tensors: of numbers, and of logarithms of probabilities along axis 1."""
    rng = np.random.default_rng(seed)

    def numbers(*shape: int, low: float = -1.0, high: float = 1.0) -> np.ndarray:
        return rng.uniform(low, high, shape).astype(np.float32)

    def logarithms(*shape: int) -> np.ndarray:
        x = numbers(*shape)
        return (x - np.log(np.exp(x).sum(1, keepdims=True))).astype(np.float32)

    return numbers, logarithms


def F(value: float) -> np.ndarray:  # noqa: N802
    """A scalar of float32."""
    return np.array(value, np.float32)


def I(*values: Any) -> np.ndarray:  # noqa: E743, N802
    """A vector of int64."""
    return np.array(values, np.int64)
