"""ONNX's reference evaluator, with what it gets wrong put right.

It is the oracle of every gradient: independent of ONNX Runtime, and all of it runs in float64.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterable, Mapping
from itertools import count
from typing import Any

import numpy as np
from onnx import ModelProto, NodeProto
from onnx.reference import ReferenceEvaluator

from blockdsl.testing.reference import (
    attention,
    control,
    corrections,
    fused,
    fused_attention,
    fused_layers,
    layers,
    likelihood,
    normalization,
    recurrent,
    sampling,
)

OPERATORS = [
    *attention.OPERATORS,
    *control.OPERATORS,
    *corrections.OPERATORS,
    *fused.OPERATORS,
    *fused_attention.OPERATORS,
    *fused_layers.OPERATORS,
    *layers.OPERATORS,
    *likelihood.OPERATORS,
    *normalization.OPERATORS,
    *recurrent.OPERATORS,
    *sampling.OPERATORS,
]
"""The operators that replace those of `onnx.reference`, or that it lacks."""


def evaluate(model: ModelProto) -> Callable[[Mapping[str, Any]], list[Any]]:
    """A function from feeds to the outputs of a model, computed by the reference evaluator.

    Feeds may name initializers as well as inputs; what the model does not have is ignored.

    Example:
        >>> import blockdsl
        >>> import numpy as np
        >>> with blockdsl.empty_base() as handle:
        ...     x = blockdsl.input("x", shape=(2,))
        ...     blockdsl.graph.current().set_outputs([-x])
        >>> evaluate(handle.model)({"x": np.array([1, 2], np.float32)})
        [array([-1., -2.], dtype=float32)]
    """
    copy = ModelProto()
    copy.CopyFrom(model)
    _name_all_outputs(copy.graph.node, (f"left out {i}" for i in count()))
    session = ReferenceEvaluator(copy, new_ops=OPERATORS)
    known = {i.name for i in model.graph.input} | {t.name for t in model.graph.initializer}

    def run(feeds: Mapping[str, Any]) -> list[Any]:
        with np.errstate(all="ignore"), warnings.catch_warnings():
            warnings.simplefilter("ignore", RuntimeWarning)
            outputs = session.run(None, {k: v for k, v in feeds.items() if k in known})
        return [np.asarray(o) if isinstance(o, np.generic) else o for o in outputs]

    return run


def _name_all_outputs(nodes: Iterable[NodeProto], names: Iterable[str]) -> None:
    """Name the outputs that a node leaves out.

    The evaluator stores them under the empty name otherwise, which is where every operator later
    on looks for the inputs that it leaves out.
    """
    fresh = iter(names)
    for node in nodes:
        node.output[:] = [output or next(fresh) for output in node.output]
        for attribute in node.attribute:
            for graph in (*([attribute.g] if attribute.HasField("g") else ()), *attribute.graphs):
                _name_all_outputs(graph.node, fresh)
