"""Gradients of convolutions, pools and resampling."""

from __future__ import annotations

from collections.abc import Sequence

from blockdsl.errors import GradientError
from blockdsl.gradient.rules.convolution import conv, conv_transpose
from blockdsl.gradient.rules.pooling import average_pool, max_pool
from blockdsl.gradient.rules.resizing import resize
from blockdsl.graph import current
from blockdsl.graph.shapes import concat_shape, dims_of
from blockdsl.graph.tensor import TensorType
from blockdsl.graph.value import Value
from blockdsl.training_ops.registry import training_operator
from blockdsl.training_ops.stand_ins import of_shape

Ints = Sequence[int] | None


@training_operator("ConvGrad")
def conv_grad(
    dy: Value,
    x: Value,
    w: Value,
    *,
    auto_pad: str = "NOTSET",
    dilations: Ints = None,
    group: int = 1,
    kernel_shape: Ints = None,
    pads: Ints = None,
    strides: Ints = None,
) -> tuple[Value, Value, Value]:
    """dx = dy *ᵀ w        dw = dy · windows of x        db = dy summed"""
    dx, dw, _ = conv(
        dy,
        dy,
        x,
        w,
        None,
        auto_pad=auto_pad,
        dilations=dilations,
        group=group,
        kernel_shape=kernel_shape,
        pads=pads,
        strides=strides,
    )
    return dx, dw, _over_positions(dy)


@training_operator("ConvTransposeGrad")
def conv_transpose_grad(
    dy: Value,
    x: Value,
    w: Value,
    *,
    auto_pad: str = "NOTSET",
    dilations: Ints = None,
    group: int = 1,
    kernel_shape: Ints = None,
    output_padding: Ints = None,
    output_shape: Ints = None,
    pads: Ints = None,
    strides: Ints = None,
) -> tuple[Value, Value, Value]:
    """dx = dy * w        dw = x · windows of dy        db = dy summed"""
    dx, dw, _ = conv_transpose(
        dy,
        dy,
        x,
        w,
        None,
        auto_pad=auto_pad,
        dilations=dilations,
        group=group,
        kernel_shape=kernel_shape,
        output_padding=output_padding,
        output_shape=output_shape,
        pads=pads,
        strides=strides,
    )
    return dx, dw, _over_positions(dy)


def _over_positions(dy: Value) -> Value:
    return dy.sum([0, *range(2, dy.rank)])


@training_operator("AveragePoolGrad", domain="")
def average_pool_grad(
    dy: Value,
    *,
    declared: Sequence[TensorType | None],
    auto_pad: str = "NOTSET",
    ceil_mode: int = 0,
    count_include_pad: int = 0,
    dilations: Ints = None,
    kernel_shape: Sequence[int],
    pads: Ints = None,
    strides: Ints = None,
) -> Value:
    """dx = dy / n to every element of each window, summed"""
    return average_pool(
        dy,
        dy,
        _pooled(dy, declared[0]),
        auto_pad=auto_pad,
        ceil_mode=bool(ceil_mode),
        count_include_pad=bool(count_include_pad),
        dilations=dilations,
        kernel_shape=kernel_shape,
        pads=pads,
        strides=strides,
    )


def _pooled(dy: Value, declared: TensorType | None) -> Value:
    """What was pooled: the operator does not say, but for the type of its output."""
    spatial = declared.shape[2:] if declared is not None and declared.shape is not None else ()
    if len(spatial) != dy.rank - 2 or not all(isinstance(d, int) for d in spatial):
        raise GradientError(
            "Its output has no lengths along the spatial axes, which it has to restore. Give it a "
            "value_info with these."
        )
    return of_shape(concat_shape(dims_of(dy, [0, 1]), spatial), dy)


@training_operator("MaxPoolGrad", domain="")
def max_pool_grad(
    dy: Value,
    indices: Value,
    *,
    auto_pad: str = "NOTSET",
    ceil_mode: int = 0,
    dilations: Ints = None,
    kernel_shape: Sequence[int],
    pads: Ints = None,
    storage_order: int = 0,
    strides: Ints = None,
) -> Value:
    """dx = dy at the largest element of each window, summed"""
    pool = current().producer(indices)
    if pool is None or pool.op_type != "MaxPool":
        raise GradientError(f"Its second input {str(indices)!r} does not come from a MaxPool.")
    return max_pool(
        (dy,),
        (None, indices),
        current().value(pool.input[0]),
        auto_pad=auto_pad,
        ceil_mode=bool(ceil_mode),
        dilations=dilations,
        kernel_shape=kernel_shape,
        pads=pads,
        storage_order=storage_order,
        strides=strides,
    )


@training_operator("ResizeGrad")
def resize_grad(
    dy: Value,
    x: Value,
    roi: Value | None,
    scales: Value | None,
    *,
    antialias: int = 0,
    axes: Ints = None,
    coordinate_transformation_mode: str = "half_pixel",
    cubic_coeff_a: float = -0.75,
    exclude_outside: int = 0,
    extrapolation_value: float = 0.0,
    keep_aspect_ratio_policy: str = "stretch",
    mode: str = "nearest",
    nearest_mode: str = "round_prefer_floor",
) -> Value:
    """dx = Aᵀ dy along each axis, A what resampling is a product with"""
    return resize(
        dy,
        dy,
        x,
        roi,
        scales,
        None,
        antialias=antialias,
        axes=axes,
        coordinate_transformation_mode=coordinate_transformation_mode,
        cubic_coeff_a=cubic_coeff_a,
        exclude_outside=exclude_outside,
        keep_aspect_ratio_policy=keep_aspect_ratio_policy,
        mode=mode,
        nearest_mode=nearest_mode,
    )[0]
