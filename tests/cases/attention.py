"""Attention and its relatives, which are differentiated through their function bodies."""

import numpy as np

from blockdsl.graph import op
from blockdsl.testing import Case, R

HEADS = [R(2, 2, 3, 4), R(2, 2, 5, 4), R(2, 2, 5, 4)]
SHARED = [R(2, 4, 3, 4), R(2, 2, 3, 4), R(2, 2, 3, 4)]
FLAT = {"q_num_heads": 2, "kv_num_heads": 2}
SEES_NOTHING = R(values=np.array([[1, 1, 0], [0, 0, 0], [1, 1, 1]], bool))


def guarded(name):
    """Scores of which a whole row is masked; what is NaN then is replaced."""

    def build(x, mask):
        scores = op.Where(mask, x, -np.inf)
        share = getattr(op, name)(scores)
        return op.Where(op.IsNaN(share) | ~mask, 0.0, share)

    return build


ATTENTION = [
    Case("Attention", HEADS, opset=[23, 24, 25]),
    Case("Attention", HEADS, is_causal=1, scale=0.3),
    Case("Attention", [R(2, 3, 8), R(2, 3, 8), R(2, 3, 8)], **FLAT, softcap=0.7, symbolic=False),
    Case("Attention", SHARED, is_causal=1),
    Case("Attention", [*SHARED, SEES_NOTHING], opset=[23, 24, 25]),
    Case("Attention", [*HEADS, R(3, 9), R(2, 2, 4, 4), R(2, 2, 4, 4)], outputs=3),
    Case("Attention", [*HEADS[:1], R(2, 2, 5, 4), R(2, 2, 5, 6), R(1, 2, 3, 5)]),
    Case("Attention", [*SHARED], left_window_size=1, right_window_size=0, opset=25),
]

OTHERS = [Case("SwiGLU", [R(2, 3), R(2, 3)], alpha=1.3, engines=False)]

MASKED = [
    Case(
        name, [R(3, 3), SEES_NOTHING], build=guarded(name), opset=[11, 13, 17], name="guarded rows"
    )
    for name in ("Softmax", "LogSoftmax")
]

CASES = [*ATTENTION, *OTHERS, *MASKED]
