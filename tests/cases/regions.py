"""Pools over regions of an image."""

from blockdsl.testing import Case, R

REGIONS = R(values=[[0.3, 0.2, 3.1, 2.4], [-0.6, 1.2, 2.0, 5.5], [1.0, 1.1, 1.2, 1.4]])
IMAGES = R(values=[1, 0, 1])
BOXES = R(values=[[0, 0, 0, 3, 2], [1, 1, 1, 9, 4], [1, -2, 0, 1, 1.6], [0, 2, 2, 1, 1.0]])

EMPTY = R(values=[[2.0, 1.0, 1.0, 0.5], [0.3, 0.2, 3.1, 2.4]])

# onnxruntime 1.32 has no kernels for these two at opset 22.
CASES = [
    Case(
        "RoiAlign",
        [R(2, 3, 4, 5), REGIONS, IMAGES],
        output_height=2,
        output_width=3,
        wrt=[0],
        opset=[10, 16],
    ),
    Case(
        "RoiAlign",
        [R(2, 2, 4, 5), REGIONS, IMAGES],
        output_height=3,
        output_width=1,
        sampling_ratio=2,
        spatial_scale=0.5,
        wrt=[0],
        opset=[10, 16],
    ),
    Case(
        "RoiAlign",
        [R(2, 2, 4, 5), REGIONS, IMAGES],
        output_height=2,
        output_width=2,
        coordinate_transformation_mode="output_half_pixel",
        wrt=[0],
        opset=16,
    ),
    Case("RoiAlign", [R(2, 2, 4, 5), REGIONS, IMAGES], wrt=[0], opset=22, engines=False),
    *[
        Case(
            "RoiAlign",
            [R(2, 2, 4, 5), REGIONS, IMAGES],
            mode="max",
            output_height=2,
            output_width=3,
            sampling_ratio=ratio,
            spatial_scale=scale,
            wrt=[0],
            opset=[10, 16],
        )
        for ratio, scale in ((0, 1.0), (2, 1.0), (3, 0.5))
    ],
    Case(
        "RoiAlign",
        [R(2, 2, 4, 5, high=-0.1), REGIONS, IMAGES],
        mode="max",
        coordinate_transformation_mode="output_half_pixel",
        wrt=[0],
        opset=16,
    ),
    Case(
        "RoiAlign",
        [R(1, 2, 4, 5), EMPTY, [0, 0]],
        mode="max",
        wrt=[0],
        opset=16,
        name="an empty region",
    ),
    Case(
        "MaxRoiPool", [R(2, 3, 4, 5), BOXES], pooled_shape=[2, 3], wrt=[0], order=1, opset=[9, 17]
    ),
    Case(
        "MaxRoiPool",
        [R(2, 3, 4, 5), BOXES],
        pooled_shape=[2, 1],
        spatial_scale=0.6,
        wrt=[0],
        order=1,
        opset=17,
    ),
    Case(
        "MaxRoiPool",
        [R(2, 3, 4, 5), BOXES],
        pooled_shape=[2, 2],
        wrt=[0],
        order=1,
        opset=22,
        engines=False,
    ),
]
