"""Rules of resampling to another size."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from blockdsl.graph import op
from blockdsl.graph.value import Value


def repeated(x: Value, factors: Sequence[int]) -> Value:
    """Every element repeated along the axes after the first two; for opset 11 and later."""
    return op.Resize(
        x,
        np.zeros(0, np.float32),
        np.array([1, 1, *factors], np.float32),
        mode="nearest",
        coordinate_transformation_mode="asymmetric",
        nearest_mode="floor",
    )
