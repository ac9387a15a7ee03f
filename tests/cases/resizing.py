"""Resampling to another size."""

import numpy as np

from blockdsl.testing import Case, R

SCALES = np.array([1, 1, 2, 1.5], np.float32)
DOWN = np.array([1, 1, 0.6, 0.5], np.float32)
NOWHERE = np.zeros(0, np.float32)
IMAGE = R(1, 2, 5, 4)
CROP = [0.2, 0.3, 0.7, 1.2]


def scaled(*scales):
    return np.array(scales, np.float32)


CASES = [
    *[
        Case(
            "Resize",
            [IMAGE, None, scales],
            mode="nearest",
            coordinate_transformation_mode=coordinates,
            nearest_mode=rounding,
        )
        for scales, coordinates, rounding in (
            (SCALES, "half_pixel", "round_prefer_floor"),
            (SCALES, "half_pixel", "ceil"),
            (SCALES, "asymmetric", "floor"),
            (SCALES, "half_pixel_symmetric", "round_prefer_ceil"),
            (DOWN, "asymmetric", "round_prefer_ceil"),
            (DOWN, "align_corners", "round_prefer_floor"),
        )
    ],
    *[
        Case("Resize", [IMAGE, None, scales], mode=mode, coordinate_transformation_mode=coordinates)
        for mode in ("linear", "cubic")
        for scales in (SCALES, DOWN)
        for coordinates in ("half_pixel", "asymmetric", "align_corners", "pytorch_half_pixel")
    ],
    *[
        Case("Resize", [IMAGE, NOWHERE, scaled(1, 1, 2, 2)], opset=opset, **attributes)
        for opset in (11, 13, 19)
        for attributes in (
            {},
            {"coordinate_transformation_mode": "asymmetric", "nearest_mode": "floor"},
            {"mode": "linear"},
        )
    ],
    Case("Resize", [IMAGE, None, scaled(1, 1, 0.5, 0.5)], mode="linear", antialias=1, opset=18),
    Case("Resize", [IMAGE, None, scaled(1, 1, 0.7, 0.5)], mode="cubic", antialias=1, opset=18),
    Case("Resize", [IMAGE, None, DOWN], mode="cubic", exclude_outside=1, cubic_coeff_a=-0.5),
    Case("Resize", [IMAGE, None, None, np.array([1, 2, 7, 3])], mode="linear", opset=[13, 19]),
    Case("Resize", [IMAGE, None, None, np.array([1, 2, 10, 8])], mode="nearest", opset=[13, 19]),
    Case("Resize", [IMAGE, None, None, np.array([7, 3])], mode="linear", axes=[2, 3], opset=18),
    Case("Resize", [IMAGE, None, scaled(1.5, 2)], mode="nearest", axes=[3, 1], opset=18),
    Case("Resize", [IMAGE, None, scaled(1.5, 2)], axes=[-1, 1], opset=18, engines=False),
    *[
        Case(
            "Resize",
            [IMAGE, None, None, np.array([7, 6])],
            mode=mode,
            axes=[2, 3],
            keep_aspect_ratio_policy=policy,
            opset=18,
        )
        for policy in ("not_larger", "not_smaller")
        for mode in ("linear", "nearest")
    ],
    # ONNX Runtime takes another part of the image where it keeps the ratio, and fits the corners
    # otherwise where it filters; so do its gradients. What runs there is in test_gradient.py.
    *[
        Case(
            "Resize",
            [IMAGE, np.array(CROP, np.float32), None, np.array([4, 3])],
            mode=mode,
            axes=[2, 3],
            coordinate_transformation_mode="tf_crop_and_resize",
            keep_aspect_ratio_policy=policy,
            opset=18,
            engines=False,
        )
        for policy in ("not_larger", "not_smaller")
        for mode in ("linear", "nearest", "cubic")
    ],
    Case(
        "Resize",
        [IMAGE, R(values=CROP, dtype=np.float32), None, R(values=[7, 6], static=True)],
        mode="linear",
        axes=[2, 3],
        coordinate_transformation_mode="tf_crop_and_resize",
        keep_aspect_ratio_policy="not_larger",
        opset=19,
        engines=False,
        name="a computed region and the ratio kept",
    ),
    *[
        Case(
            "Resize",
            [IMAGE, None, scaled(0.7, 0.5)],
            mode=mode,
            antialias=1,
            axes=[2, 3],
            coordinate_transformation_mode=coordinates,
            opset=[18, 19],
            engines=coordinates != "align_corners",
        )
        for mode in ("linear", "cubic")
        for coordinates in (
            "half_pixel",
            "asymmetric",
            "align_corners",
            "pytorch_half_pixel",
            "half_pixel_symmetric",
        )
    ],
    *[
        Case(
            "Resize",
            [IMAGE, np.array(CROP, np.float32), None, np.array([3, 2])],
            mode=mode,
            antialias=1,
            axes=[2, 3],
            coordinate_transformation_mode="tf_crop_and_resize",
            opset=18,
        )
        for mode in ("linear", "cubic")
    ],
    *[
        Case(
            "Resize",
            [IMAGE, None, None, np.array([3, 2])],
            mode=mode,
            antialias=1,
            exclude_outside=1,
            axes=[2, 3],
            keep_aspect_ratio_policy="not_smaller",
            opset=18,
        )
        for mode in ("linear", "cubic")
    ],
    Case("Resize", [IMAGE, None, None, np.array([3])], mode="cubic", axes=[3], opset=[18, 19]),
    Case("Resize", [IMAGE, None, None, np.array([7, 3, 4])], axes=[3, 1, 2], opset=18),
    Case(
        "Resize",
        [
            IMAGE,
            np.array([0, 0, 0.2, 0.3, 1, 1, 0.7, 1.2], np.float32),
            None,
            np.array([1, 2, 4, 3]),
        ],
        mode="linear",
        coordinate_transformation_mode="tf_crop_and_resize",
        extrapolation_value=7.0,
    ),
    Case(
        "Resize",
        [IMAGE, NOWHERE, NOWHERE, np.array([1, 2, 7, 3])],
        mode="linear",
        opset=11,
        order=1,
    ),
    Case("Resize", [R(2, 3, 4), None, scaled(1, 2, 1.5)], mode="nearest"),
    Case("Resize", [R(3, 4), None, scaled(2, 1.5)], mode="linear"),
    Case("Resize", [R(1, 2, 2, 3, 2), None, scaled(1, 1, 2, 1, 1.5)], mode="linear"),
    Case("Resize", [R(1, 2, 2, 3, 2), None, scaled(1, 1, 2, 3, 2)], mode="nearest"),
    Case("Resize", [R(2, 2, 2, 3), None, scaled(2, 1, 1, 3)], mode="nearest"),
    Case(
        "Resize",
        [IMAGE, None, R(values=[1, 1, 2, 1.5], dtype=np.float32)],
        mode="linear",
        name="computed scales",
    ),
    Case("Resize", [IMAGE, None, None, R(values=[1, 2, 7, 3], static=True)], mode="linear"),
    Case("Resize", [IMAGE, SCALES], mode="linear", opset=10),
    Case("Resize", [IMAGE, scaled(1, 1, 2, 3)], mode="nearest", opset=10),
    # ONNX Runtime rounds up here, and so does its gradient; the evaluator rounds down.
    Case("Resize", [IMAGE, DOWN], mode="nearest", opset=10, engines=False),
    Case("Upsample", [IMAGE, SCALES], mode="linear", opset=9),
    Case("Upsample", [IMAGE, scaled(1, 1, 2, 3)], mode="nearest", opset=9),
    Case("Upsample", [IMAGE], scales=[1.0, 1.0, 2.0, 1.5], mode="linear", opset=7),
    Case("Upsample", [IMAGE], scales=[1.0, 1.0, 2.0, 3.0], mode="nearest", opset=7),
]
