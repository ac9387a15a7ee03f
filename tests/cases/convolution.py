"""Convolutions and their transposes."""

from blockdsl.testing import Case, R


def weights(*shape):
    """Kernels: their shape is known even where everything else is symbolic."""
    return R(*shape, static=True)


CASES = [
    Case("Conv", [R(2, 3, 5), weights(4, 3, 2)], opset=[7, 11, 22]),
    Case("Conv", [R(2, 3, 5, 4), weights(4, 3, 3, 2), R(4)], opset=[7, 9, 17]),
    Case("Conv", [R(1, 2, 4, 3, 4), weights(3, 2, 2, 2, 2), R(3)], pads=[1, 0, 0, 0, 0, 1]),
    Case("Conv", [R(2, 2, 3, 3), weights(5, 2, 2, 2)], name="more channels than windows"),
    Case("Conv", [R(2, 3, 2), weights(4, 3, 1)], name="more channels than positions"),
    Case("Conv", [R(2, 2, 5, 4), R(4, 2, 3, 2)], kernel_shape=[3, 2]),
    Case("Conv", [R(2, 4, 5, 4), R(4, 2, 3, 2)], kernel_shape=[3, 2], group=2, name="symbolic"),
    Case("Conv", [R(2, 3, 4, 5), weights(4, 3, 1, 1), R(4)], opset=[7, 17]),
    Case("Conv", [R(2, 3, 4, 5), weights(4, 3, 1, 1)], strides=[2, 3], opset=[9, 17]),
    Case("Conv", [R(2, 3, 4, 5), weights(4, 3, 1, 1)], pads=[1, 0, 0, 2]),
    Case("Conv", [R(2, 2, 6, 7), weights(3, 2, 3, 3)], pads=[1, 1, 1, 1]),
    Case("Conv", [R(2, 2, 6, 7), weights(3, 2, 3, 3)], pads=[0, 2, 1, 0], dilations=[2, 1]),
    Case("Conv", [R(2, 2, 6, 7), weights(3, 2, 2, 2)], pads=[3, 0, 0, 2]),
    Case(
        "Conv",
        [R(2, 2, 6, 7), weights(3, 2, 3, 3)],
        pads=[1, 0, 2, 1],
        strides=[2, 3],
        opset=[9, 10, 17],
    ),
    Case("Conv", [R(2, 2, 8, 7), weights(3, 2, 2, 3)], strides=[3, 2], dilations=[2, 2]),
    Case("Conv", [R(2, 4, 5, 5), weights(6, 2, 3, 3), R(6)], group=2, pads=[1, 1, 1, 1]),
    Case("Conv", [R(2, 4, 6, 5), weights(6, 2, 3, 2)], group=2, strides=[2, 2], dilations=[1, 2]),
    Case("Conv", [R(2, 3, 5, 5), weights(3, 1, 3, 3)], group=3, pads=[1, 1, 1, 1], opset=[7, 17]),
    Case("Conv", [R(2, 3, 5, 5), weights(6, 1, 3, 3)], group=3, strides=[2, 2]),
    Case("Conv", [R(2, 3, 6, 5), weights(3, 1, 5, 5)], group=3, pads=[2, 2, 2, 2]),
    Case("Conv", [R(2, 3, 20), weights(3, 1, 17)], group=3, dilations=[1], pads=[3, 2]),
    Case("Conv", [R(2, 2, 40), weights(2, 1, 17)], group=2, dilations=[2], pads=[1, 0]),
    Case("Conv", [R(2, 2, 40), weights(2, 1, 33)], group=2, strides=[2], pads=[3, 0]),
    Case("Conv", [R(2, 4, 5), weights(4, 2, 1)], group=2, strides=[2]),
    *[
        Case("Conv", [R(2, 2, *size), weights(3, 2, 3, 2)], auto_pad=auto_pad, strides=strides)
        for auto_pad in ("SAME_UPPER", "SAME_LOWER", "VALID")
        for strides, size in (([1, 1], (4, 5)), ([2, 3], (5, 6)), ([2, 3], (6, 7)))
    ],
    Case("Conv", [R(2, 2, 6), weights(3, 2, 3)], auto_pad="SAME_UPPER", strides=[2], opset=11),
    Case("ConvTranspose", [R(2, 3, 4), weights(3, 2, 2)], opset=[7, 11, 22]),
    Case("ConvTranspose", [R(2, 3, 3, 4), weights(3, 2, 2, 3), R(2)], opset=[7, 17]),
    Case("ConvTranspose", [R(1, 2, 2, 3, 2), weights(2, 2, 2, 2, 2)], strides=[2, 1, 2]),
    Case("ConvTranspose", [R(2, 3, 3, 4), weights(3, 2, 2, 2)], strides=[2, 2], opset=[9, 17]),
    Case("ConvTranspose", [R(2, 3, 4), weights(3, 2, 2)], strides=[2], opset=7),
    Case("ConvTranspose", [R(2, 3, 3, 4), weights(3, 2, 4, 4)], strides=[2, 2], pads=[1, 1, 1, 1]),
    Case(
        "ConvTranspose",
        [R(2, 3, 3, 4), weights(3, 2, 3, 3)],
        strides=[2, 2],
        pads=[1, 0, 1, 2],
        output_padding=[1, 1],
    ),
    Case(
        "ConvTranspose",
        [R(2, 3, 4), weights(3, 2, 3)],
        strides=[3],
        output_padding=[2],
        pads=[0, 1],
    ),
    Case("ConvTranspose", [R(2, 3, 3, 4), weights(3, 2, 2, 3)], dilations=[2, 3], strides=[1, 2]),
    Case("ConvTranspose", [R(2, 4, 3, 4), weights(4, 3, 2, 3), R(6)], group=2, strides=[2, 1]),
    Case("ConvTranspose", [R(2, 3, 3, 4), weights(3, 1, 3, 3)], group=3, pads=[1, 1, 1, 1]),
    Case("ConvTranspose", [R(2, 3, 3, 4), weights(3, 2, 1, 1)]),
    *[
        Case(
            "ConvTranspose", [R(2, 2, 3, 4), weights(2, 2, 3, 4)], auto_pad=auto_pad, strides=[2, 2]
        )
        for auto_pad in ("SAME_UPPER", "SAME_LOWER", "VALID")
    ],
    *[
        Case(
            "ConvTranspose",
            [R(2, 2, 3, 4), weights(2, 2, 3, 4)],
            auto_pad=auto_pad,
            strides=[2, 3],
            output_shape=output_shape,
        )
        for auto_pad in ("SAME_UPPER", "SAME_LOWER", "NOTSET")
        for output_shape in ([6, 11], [7, 9])
    ],
    Case("Col2Im", [R(2, 4, 6), [4, 3], [2, 2]], symbolic=False),
    Case(
        "Col2Im", [R(1, 12, 8), [5, 6], [2, 3]], pads=[0, 1, 0, 1], strides=[2, 1], dilations=[1, 2]
    ),
    Case("Col2Im", [R(1, 8, 12), [3, 4, 3], [2, 2, 2]]),
    Case(
        "Col2Im",
        [R(2, 4, 6), R(values=[4, 3], static=True), R(values=[2, 2], static=True)],
        order=1,
    ),
    Case("DeformConv", [R(2, 2, 4, 5), weights(3, 2, 2, 2), R(2, 8, 3, 4)]),
    Case(
        "DeformConv",
        [R(1, 4, 5, 4), weights(4, 2, 3, 2), R(1, 24, 3, 2), R(4), R(1, 12, 3, 2)],
        group=2,
        offset_group=2,
        pads=[1, 0, 1, 1],
        strides=[2, 2],
    ),
    Case(
        "DeformConv",
        [R(1, 2, 5, 5), weights(2, 2, 2, 2), R(1, 8, 3, 3), None, R(1, 4, 3, 3)],
        dilations=[2, 2],
        opset=[19, 22],
    ),
    Case("Conv", [R(0, 2, 5), R(3, 2, 3, static=True), R(3)]),
]
