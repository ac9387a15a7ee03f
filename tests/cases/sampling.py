"""Reading images at computed positions."""

from blockdsl.testing import Case, R

IMAGE, GRID = R(2, 2, 4, 3), R(2, 2, 3, 2, low=-1.4, high=1.4)

CASES = [
    *[
        Case(
            "GridSample",
            [IMAGE, GRID],
            mode=mode,
            padding_mode=padding,
            align_corners=align,
            opset=opset,
        )
        for mode, opset in (("bilinear", 16), ("linear", 20), ("cubic", 20))
        for padding in ("zeros", "border", "reflection")
        for align in (0, 1)
    ],
    *[
        Case("GridSample", [IMAGE, GRID], mode="nearest", padding_mode=padding, opset=[16, 22])
        for padding in ("zeros", "border", "reflection")
    ],
    Case("GridSample", [IMAGE, GRID], mode="bicubic", opset=16),
    Case("GridSample", [R(1, 2, 2, 3, 2), R(1, 2, 1, 2, 3, low=-1.2, high=1.2)], opset=20),
    Case("GridSample", [R(1, 1, 2, 3, 2), R(1, 1, 2, 2, 3)], mode="nearest", opset=20),
    Case("AffineGrid", [R(2, 2, 3, static=True), [2, 1, 3, 4]]),
    Case(
        "AffineGrid",
        [R(2, 2, 3, static=True), R(values=[2, 1, 3, 4], static=True)],
        align_corners=1,
    ),
    Case("AffineGrid", [R(1, 3, 4, static=True), [1, 2, 2, 3, 2]]),
]
