"""Operators of `com.microsoft` that ONNX Runtime fuses activations and products into."""

from blockdsl.testing import Case, R

DOMAIN = "com.microsoft"

CASES = [
    Case("Gelu", [R(2, 3)], domain=DOMAIN, name="microsoft"),
    Case("BiasGelu", [R(2, 3), R(3)], domain=DOMAIN),
    Case("FastGelu", [R(2, 3)], domain=DOMAIN),
    Case("FastGelu", [R(2, 3), R(3)], domain=DOMAIN),
    Case("QuickGelu", [R(2, 3)], domain=DOMAIN),
    Case("QuickGelu", [R(2, 3)], domain=DOMAIN, alpha=-1.3),
    Case("FusedMatMul", [R(2, 3), R(3, 4)], domain=DOMAIN, alpha=0.5),
    Case("FusedMatMul", [R(2, 3, 2), R(2, 4, 3)], domain=DOMAIN, transA=1, transB=1),
    Case("FusedMatMul", [R(2, 3), R(2, 4, 3)], domain=DOMAIN, transB=1, alpha=2.0),
    Case("FusedMatMul", [R(3), R(3, 4)], domain=DOMAIN, transA=1),
    Case("FusedMatMul", [R(3, 2, 2, 5), R(2, 2, 5, 4)], domain=DOMAIN, transBatchA=1),
    Case(
        "FusedMatMul",
        [R(2, 3, 5), R(4, 2, 5)],
        domain=DOMAIN,
        transBatchB=1,
        transB=1,
        alpha=0.3,
    ),
]
