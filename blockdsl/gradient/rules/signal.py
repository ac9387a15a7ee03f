"""Rules of Fourier transforms: the transpose of a transform is one in the other direction."""

from __future__ import annotations

from onnx import TensorProto

from blockdsl.errors import GradientError
from blockdsl.functional.padding import Count, length_of, numbers_to, padded
from blockdsl.functional.scatter_sums import add_along
from blockdsl.gradient.registry import vjp
from blockdsl.graph import op
from blockdsl.graph.shapes import concat_shape, dims_of, reshape, reshape_exactly, typed_as
from blockdsl.graph.value import Value, known_to_be


@vjp("DFT")
def dft(
    g: Value,
    y: Value,
    x: Value,
    dft_length: Value | None,
    axis: Value | None,
    *,
    inverse: bool,
    onesided: bool,
) -> tuple[Value, None, None]:
    """yk = sum of xt e^(-2 pi i k t / n)        dxt = sum of gk e^(2 pi i k t / n)"""
    if axis is not None and axis.constant is None:
        raise GradientError(f"The axis of DFT, {str(axis)!r}, is computed: make it a constant.")
    along = -2 if axis is None or axis.constant is None else int(axis.constant.reshape(()))
    along %= x.rank
    half = bool(onesided and inverse)
    given = length_of(x, along)
    length = _number(dft_length) if dft_length is not None else given
    if dft_length is None and half:
        length = 2 * (given - 1)
    dx = _of_real_inverse(g, along, length) if half else _of_transform(g, along, length, inverse)
    dx = padded(dx, [along], [0], [given - length_of(dx, along)])
    return typed_as(_as_parts(dx, x), x), None, None


@vjp("STFT")
def stft(
    g: Value,
    y: Value,
    signal: Value,
    frame_step: Value,
    window: Value | None,
    frame_length: Value | None,
) -> tuple[Value, None, Value | None, None]:
    """y = DFT of frames times window        dsignal = overlapping sum        dwindow = their sum"""
    if window is not None:
        length = length_of(window, 0)
    else:
        length = length_of(signal, 1) if frame_length is None else _number(frame_length)
    frames = length_of(y, 1)
    starts = numbers_to(frames, g.graph) * _number(frame_step)
    places = starts.unsqueeze(1) + numbers_to(length, g.graph).unsqueeze(0)
    dframes = _as_parts(_of_transform(g, 2, length, inverse=False), signal)
    dwindow = None
    if window is not None:
        dwindow = (dframes * op.Gather(signal, places, axis=1)).sum([0, 1, 3])
        dframes = dframes * window.unsqueeze(1)
    shape = concat_shape(dims_of(signal, [0]), frames * length, dims_of(signal, [2]))
    terms = reshape_exactly(dframes, shape)
    dsignal = add_along(terms, reshape(places, [-1]), length_of(signal, 1), 1)
    return typed_as(dsignal, signal), None, dwindow, None


def _number(x: Value) -> Count:
    """A number that a node takes as a scalar."""
    if x.constant is not None:
        return int(x.constant.reshape(()))
    return reshape(x, [1]).cast(TensorProto.INT64)


def _as_parts(x: Value, like: Value) -> Value:
    """The real parts where a signal is real, else these and the imaginary parts."""
    parts = length_of(like, like.rank - 1)
    return (
        x if known_to_be(parts, 2) else op.Slice(x, starts=[0], ends=concat_shape(parts), axes=[-1])
    )


def _of_transform(g: Value, axis: int, length: Count, inverse: bool) -> Value:
    """The transpose of a transform, of which only the first half may have been kept."""
    g = padded(g, [axis], [0], [length - length_of(g, axis)])
    dx = op.DFT(g, axis=axis, inverse=int(not inverse))
    return dx / _float(length, g) if inverse else dx * _float(length, g)


def _of_real_inverse(g: Value, axis: int, length: Count) -> Value:
    """The transpose of the transform of half a spectrum to a real signal."""
    spectrum = op.DFT(g, axis=axis, onesided=1)
    numbers = numbers_to(length_of(spectrum, axis), g.graph)
    once = op.Equal(numbers, 0) | op.Equal(numbers * 2, length)  # all others stand for two
    weights = (2 - once.cast(g.elem_type)) / _float(length, g)
    return spectrum * reshape(weights, [-1, *[1] * (g.rank - axis - 1)])


def _float(number: Count, like: Value) -> Value | float:
    return float(number) if isinstance(number, int) else number.cast(like.elem_type)
