"""Attention as ONNX Runtime fuses it."""

import numpy as np

from blockdsl.testing import Case, R

DOMAIN = "com.microsoft"

HEADS = {"domain": DOMAIN, "num_heads": 2}
SEQUENCE, PROJECTION = R(2, 3, 4), [R(4, 12, static=True), R(12)]
QKV = [R(2, 3, 4), R(2, 5, 4), R(2, 5, 4)]


def integers(values):
    return R(values=np.array(values, np.int32))


MASKS = [
    integers([[1, 1, 0], [1, 0, 0]]),
    R(values=np.array([2, 3], np.int32), static=True),
    integers([[[1, 0, 0], [1, 1, 0], [1, 1, 1]], [[1, 1, 1]] * 3]),
]

ATTENTION = [
    Case("Attention", [SEQUENCE, *PROJECTION], **HEADS),
    Case("Attention", [SEQUENCE, PROJECTION[0]], **HEADS, unidirectional=1, scale=0.3),
    *[Case("Attention", [SEQUENCE, *PROJECTION, mask], **HEADS) for mask in MASKS[::2]],
    *[
        Case("Attention", [SEQUENCE, *PROJECTION, mask], **HEADS, symbolic=False)
        for mask in (MASKS[1], integers([3, 3, 0, 1]))
    ],
    Case(
        "Attention",
        [SEQUENCE, *PROJECTION, MASKS[0], None, R(1, 2, 3, 3)],
        **HEADS,
        mask_filter_value=-3.0,
    ),
    Case(
        "Attention",
        [SEQUENCE, R(4, 14, static=True), R(14)],
        **HEADS,
        qkv_hidden_sizes=[4, 4, 6],
        wrt=[0, 1, 2],
    ),
    Case(
        "Attention",
        [SEQUENCE, *PROJECTION, None, R(2, 2, 2, 4, 2)],
        **HEADS,
        unidirectional=1,
        outputs=2,
    ),
]

MULTI_HEAD = [
    Case("MultiHeadAttention", QKV, **HEADS),
    Case("MultiHeadAttention", [*QKV, R(12)], **HEADS, scale=0.7, symbolic=False),
    Case("MultiHeadAttention", [R(2, 3, 4), R(2, 3, 4), R(2, 3, 6)], **HEADS, unidirectional=1),
    Case("MultiHeadAttention", [R(2, 3, 2, 3, 4)], **HEADS, engines=False),
    Case("MultiHeadAttention", [R(2, 3, 8), R(2, 5, 2, 2, 4)], **HEADS, engines=False),
    Case("MultiHeadAttention", [R(2, 3, 4), R(2, 2, 5, 2), R(2, 2, 5, 2)], **HEADS),
    Case(
        "MultiHeadAttention",
        [*QKV, None, integers([[1, 1, 1, 0, 0], [1, 1, 1, 1, 0]]), R(2, 2, 3, 5)],
        **HEADS,
    ),
    Case("MultiHeadAttention", [*QKV, None, integers([2, 5])], **HEADS, symbolic=False),
    Case(
        "MultiHeadAttention",
        [*[R(2, 3, 4)] * 3, None, None, None, R(2, 2, 4, 2), R(2, 2, 4, 2)],
        **HEADS,
        outputs=3,
        unidirectional=1,
    ),
]

ANGLES = [R(8, 2, static=True), R(8, 2, static=True)]
PLACES = R(2, 3, ints=8)

ROTARY = [
    Case("RotaryEmbedding", [R(2, 3, 8), PLACES, *ANGLES], domain=DOMAIN),
    Case("RotaryEmbedding", [R(2, 2, 3, 4), PLACES, *ANGLES], domain=DOMAIN, interleaved=1),
    Case("RotaryEmbedding", [R(2, 3, 8), R(values=np.array([2])), *ANGLES], domain=DOMAIN),
    Case(
        "RotaryEmbedding",
        [R(2, 3, 12), PLACES, *ANGLES],
        domain=DOMAIN,
        num_heads=2,
        rotary_embedding_dim=4,
    ),
]

GROUPED = {"domain": DOMAIN, "num_heads": 4, "kv_num_heads": 2, "outputs": 3}
STEPS = [R(2, 3, 64), R(2, 3, 32), R(2, 3, 32)]
TURNS = [R(8, 8, static=True), R(8, 8, static=True)]
FIRST = [None, None, integers([2, 2]), integers([3])]
CACHED = [R(1, 2, 4, 16), R(1, 2, 4, 16), integers([6]), integers([7])]

GROUP_QUERY = [
    *[
        Case("GroupQueryAttention", [*STEPS, *FIRST, *angles], **GROUPED, of=[0], **settings)
        for angles, settings in (
            ([], {}),
            ([], {"local_window_size": 2}),
            ([], {"softcap": 0.5}),
            ([], {"smooth_softmax": 1}),
            (TURNS, {"do_rotary": 1}),
            (TURNS, {"do_rotary": 1, "rotary_interleaved": 1}),
        )
    ],
    Case(
        "GroupQueryAttention",
        [*STEPS, None, None, integers([2, 1]), integers([3])],
        **GROUPED,
        causal=0,
        of=[0],
        engines=False,  # only the newest runtimes know it
    ),
    Case(
        "GroupQueryAttention",
        [*STEPS, *FIRST, *[None] * 7, R(16), R(16)],
        **GROUPED,
        of=[0],
        engines=False,  # not on a CPU
    ),
    Case("GroupQueryAttention", [R(2, 3, 128), None, None, *FIRST], **GROUPED, of=[0], scale=0.4),
    Case(
        "GroupQueryAttention",
        [R(1, 3, 64), R(1, 3, 32), R(1, 3, 32), *CACHED, *TURNS],
        **GROUPED,
        do_rotary=1,
    ),
    Case(
        "GroupQueryAttention",
        [
            R(2, 1, 64),
            R(2, 1, 32),
            R(2, 1, 32),
            *[R(2, 2, 4, 16)] * 2,
            integers([4, 2]),
            integers([5]),
            *TURNS,
        ],
        **GROUPED,
        do_rotary=1,
        local_window_size=3,
        of=[0],
        name="caches of different lengths",
    ),
    Case(
        "GroupQueryAttention",
        [*STEPS, *FIRST, None, None, None, R(1, 4, 3, 3), R(4)],
        **GROUPED,
        of=[0],
    ),
]

CASES = [*ATTENTION, *MULTI_HEAD, *ROTARY, *GROUP_QUERY]
