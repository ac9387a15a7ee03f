"""Matrix products."""

import numpy as np

from blockdsl.testing import Case, R

CASES = [
    *[
        Case("MatMul", [R(*a), R(*b)], expected=np.matmul)
        for a, b in (
            [(2, 3), (3, 4)],
            [(3,), (3,)],
            [(3,), (3, 4)],
            [(2, 3), (3,)],
            [(2, 2, 3), (3, 4)],
            [(2, 3), (2, 3, 4)],
            [(2, 1, 2, 3), (3, 3, 4)],
            [(3,), (2, 3, 4)],
            [(2, 2, 3), (3,)],
        )
    ],
    *[
        Case("Gemm", [a, b, R(4)], transA=ta, transB=tb, alpha=0.5, beta=2.0)
        for ta, a in enumerate([R(2, 3), R(3, 2)])
        for tb, b in enumerate([R(3, 4), R(4, 3)])
    ],
    Case("Gemm", [R(2, 3), R(3, 4), R(2, 4)], opset=[7, 9]),
    Case("Gemm", [R(2, 3), R(3, 4)]),
    Case("Gemm", [R(2, 3), R(3, 4), R(1)]),
    Case("Gemm", [R(2, 3), R(3, 4), R(2, 1)]),
    Case("Gemm", [R(0, 3), R(3, 4), R(4)]),
    Case("MatMul", [R(0, 2, 3), R(3, 4)]),
]
