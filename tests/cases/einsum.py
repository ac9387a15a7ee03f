"""Einsum: every kind of equation."""

from blockdsl.testing import Case, R

CASES = [
    *[
        Case("Einsum", inputs, equation=equation)
        for equation, inputs in (
            ("ij,jk->ik", [R(2, 3), R(3, 4)]),
            ("ij,jk", [R(2, 3), R(3, 4)]),
            ("ji , kj -> ik", [R(3, 2), R(4, 3)]),
            ("bij,bjk->bik", [R(2, 2, 3), R(2, 3, 4)]),
            ("bhid,bhjd->bhij", [R(2, 2, 3, 2), R(2, 2, 4, 2)]),
            ("ij->ji", [R(2, 3)]),
            ("ij->j", [R(2, 3)]),
            ("ij->", [R(2, 3)]),
            ("ij,j->", [R(2, 3), R(3)]),
            ("i,i->", [R(3), R(3)]),
            ("i,j->ij", [R(2), R(3)]),
            ("ij,ij->ij", [R(2, 3), R(2, 3)]),
            ("ij,kl->ik", [R(2, 3), R(2, 4)]),
            ("ij,jk,kl->il", [R(2, 3), R(3, 2), R(2, 4)]),
            (",ij->ij", [R(), R(2, 3)]),
            ("...ij,...jk->...ik", [R(2, 2, 3), R(2, 3, 4)]),
            ("...ij,jk->...ik", [R(2, 2, 3), R(3, 4)]),
            ("i...j,j->i...", [R(2, 3, 2, 4), R(4)]),
            ("i...,i...->...", [R(2, 3), R(2, 1)]),
            ("...->...", [R(2, 3)]),
            ("ii->i", [R(3, 3)]),
            ("ii->", [R(3, 3)]),
            ("bii->b", [R(2, 3, 3)]),
            ("...ii->...i", [R(2, 3, 3)]),
            ("iji,j->i", [R(2, 3, 2), R(3)]),
            ("iii->", [R(2, 2, 2)]),
        )
    ],
    # ONNX infers the first of two names for axes that broadcast: not with symbolic shapes.
    Case("Einsum", [R(2, 1, 2, 3), R(1, 3, 3, 4)], equation="...ij,...jk", symbolic=False),
    Case("Einsum", [R(2, 3), R(1, 3)], equation="ij,ij->j", symbolic=False),
]
