"""Pad in every mode."""

from blockdsl.testing import Case, R

CASES = [
    Case("Pad", [R(2, 3)], pads=[0, 1, 0, 2], opset=[7, 10, 11, 17]),
    Case("Pad", [R(2, 3), [1, 0, 0, 2], R()]),
    Case("Pad", [R(3, 4)], pads=[-1, 1, 2, -2], opset=[11, 17]),
    Case("Pad", [R(3, 4)], pads=[0, 0, 0, 0]),
    Case("Pad", [R(3, 4), R(values=[1, 0, -1, 2], static=True), R()]),
    Case("Pad", [R(2, 3, 4), [1, 2], R(), [-2]], opset=18),
    Case("Pad", [R(2, 3, 4), [1, 2], None, R(values=[1], static=True)], opset=18),
    Case("Pad", [R(2, 3, 4), [1, 2], None, [1]], mode="reflect", opset=18),
    *[
        Case("Pad", [R(3, 4)], pads=pads, mode=mode, opset=opset)
        for mode, opset in (("reflect", [9, 10, 11, 17]), ("edge", [10, 17]), ("wrap", 19))
        for pads in ([1, 2, 0, 3], [0, 1, 2, 0])
    ],
    Case("Pad", [R(3, 4)], pads=[1, 2, 0, 3], mode="reflect", opset=7),
    Case("Pad", [R(3, 4)], pads=[1, 2, 0, 3], mode="edge", opset=7),
    Case("Pad", [R(3, 4), R(values=[1, 0, 2, 1], static=True)], mode="edge"),
    Case("Pad", [R(3, 4)], pads=[5, 0, 0, 4], mode="edge"),
    Case("Pad", [R(3, 2)], pads=[4, 1, 3, 0], mode="wrap", opset=19, symbolic=False, engines=False),
    Case("Pad", [R(2, 3)], pads=[0, 0, 3, 0], mode="reflect", symbolic=False, engines=False),
]
