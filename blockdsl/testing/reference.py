"""ONNX's reference evaluator, with what it gets wrong put right.

Every class here replaces one operator of `onnx.reference` and says what is wrong with that one.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
import numpy.typing as npt
from onnx import ModelProto
from onnx.reference import ReferenceEvaluator
from onnx.reference.op_run import OpRun

Array = npt.NDArray[Any]

OPERATORS: list[type[OpRun]] = []
"""The operators that replace those of `onnx.reference`."""


def evaluate(model: ModelProto) -> Callable[[Mapping[str, Any]], list[Any]]:
    """A function from feeds to the outputs of a model, computed by the reference evaluator.

    Feeds may name initializers as well as inputs; what the model does not read is ignored.

    Example:
        >>> import blockdsl, numpy as np
        >>> with blockdsl.empty_base() as handle:
        ...     x = blockdsl.input("x", shape=(2,))
        ...     blockdsl.graph.current().set_outputs([-x])
        >>> evaluate(handle.model)({"x": np.array([1, 2], np.float32)})
        [array([-1., -2.], dtype=float32)]
    """
    session = ReferenceEvaluator(model, new_ops=OPERATORS)
    known = {i.name for i in model.graph.input} | {t.name for t in model.graph.initializer}

    def run(feeds: Mapping[str, Any]) -> list[Any]:
        with np.errstate(all="ignore"), warnings.catch_warnings():
            warnings.simplefilter("ignore", RuntimeWarning)
            outputs = session.run(None, {k: v for k, v in feeds.items() if k in known})
        return [np.asarray(o) if isinstance(o, np.generic) else o for o in outputs]

    return run
