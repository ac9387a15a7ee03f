"""ONNX's own node tests: models of one node with inputs, for every operator."""

from __future__ import annotations

import warnings
from dataclasses import dataclass, replace
from functools import lru_cache
from typing import Any

import numpy as np
from onnx import ModelProto, TensorProto, numpy_helper

from blockdsl.graph.schema import newest
from blockdsl.graph.tensor import FLOATS

SETTINGS = {
    ("CastLike", "target_type"),
    ("Dropout", "ratio"),
    ("OneHot", "depth"),
    ("MaxRoiPool", "rois"),
    ("Resize", "roi"),
    ("Resize", "scales"),
    ("RoiAlign", "rois"),
    ("Upsample", "scales"),
}
"""Float inputs that say what is computed; nobody, PyTorch included, differentiates by them."""


@dataclass(frozen=True, eq=False)
class NodeTest:
    """One test of the corpus."""

    name: str
    model: ModelProto
    feeds: dict[str, Any]

    @property
    def op_type(self) -> str:
        return self.model.graph.node[-1].op_type

    @property
    def domain(self) -> str:
        return self.model.graph.node[-1].domain

    @property
    def opset(self) -> int:
        return max(o.version for o in self.model.opset_import if o.domain in ("", "ai.onnx"))

    @property
    def float_inputs(self) -> list[str]:
        """The inputs by which the test is differentiated."""
        form = newest(self.op_type)
        formal = dict(zip(self.model.graph.node[-1].input, form.input_names, strict=False))
        return [
            i.name
            for i in self.model.graph.input
            if i.type.tensor_type.elem_type in FLOATS
            and np.size(self.feeds[i.name])
            and (self.op_type, formal.get(i.name)) not in SETTINGS
        ]

    @property
    def float_outputs(self) -> list[str]:
        outputs = self.model.graph.output
        return [o.name for o in outputs if o.type.tensor_type.elem_type in FLOATS]

    def moved(self, rng: np.random.Generator) -> NodeTest:
        """The same test, its float inputs a little larger."""
        feeds = {
            name: value + rng.uniform(0, 0.02, value.shape) if name in self.float_inputs else value
            for name, value in self.feeds.items()
        }
        return replace(self, feeds=feeds)

    def with_constants(self) -> NodeTest:
        """The same test, its integers and booleans constants of the model instead of inputs."""
        model = ModelProto.FromString(self.model.SerializeToString())
        fixed = {
            i.name
            for i in model.graph.input
            if i.type.HasField("tensor_type") and i.type.tensor_type.elem_type not in FLOATS
        }
        given = [i for i in model.graph.input if i.name not in fixed]
        del model.graph.input[:]
        model.graph.input.extend(given)
        model.graph.initializer.extend(
            numpy_helper.from_array(np.asarray(self.feeds[name]), name) for name in sorted(fixed)
        )
        feeds = {name: value for name, value in self.feeds.items() if name not in fixed}
        return replace(self, model=model, feeds=feeds)

    def __str__(self) -> str:
        return self.name.removeprefix("test_")


@lru_cache(maxsize=1)
def float_tests() -> tuple[NodeTest, ...]:
    """The tests that take and give floats in the default domain.

    Those that spell out a function's body are left out: their operators have tests of their own.
    """
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        from onnx.backend.test.loader import load_model_tests

        collected = load_model_tests(kind="node")
    found = []
    for test in collected:
        names = [i.name for i in test.model.graph.input]
        feeds = dict(zip(names, map(_as_array, test.data_sets[0][0]), strict=True))
        node_test = NodeTest(test.name, test.model, feeds)
        if (
            node_test.domain == ""
            and "_expanded" not in test.name
            and node_test.float_inputs
            and node_test.float_outputs
        ):
            found.append(node_test)
    return tuple(found)


def _as_array(given):
    """NumPy types that ONNX has and NumPy lacks come as protos."""
    return numpy_helper.to_array(given) if isinstance(given, TensorProto) else given
