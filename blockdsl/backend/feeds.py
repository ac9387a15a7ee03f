"""What a model is fed: checked against its declared inputs before the runtime sees it.

Both engines check here, so that a wrong array is named with the model's own words instead of the
runtime's, and never reaches a kernel that would read past its end.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import onnx

from blockdsl.backend.engine import Array
from blockdsl.backend.values import as_array, as_ort_value, is_ort_value, is_text
from blockdsl.errors import FeedError
from blockdsl.graph.class_labels import Classes, fed_labels
from blockdsl.graph.tensor import TensorType


@dataclass(frozen=True)
class InputSpec:
    """A declared input.

    Attributes:
        name: Its name.
        type: Its type.
        labels: What the losses take that read it as labels.
    """

    name: str
    type: TensorType
    labels: tuple[Classes, ...] = ()

    def __str__(self) -> str:
        return f"{self.name}: {_named(self.type)}"


def input_specs(model: onnx.ModelProto, names: Iterable[str] | None = None) -> list[InputSpec]:
    """The tensor inputs of a model, in the order of `names`, or all in the graph's order.

    An input that is no tensor (a sequence, an optional) is left out: there is nothing to check.
    """
    specs, labels = {}, fed_labels(model)
    for value in model.graph.input:
        tensor = TensorType.of(value.type)
        if tensor is not None:
            specs[value.name] = InputSpec(value.name, tensor, labels.get(value.name, ()))
    return list(specs.values()) if names is None else [specs[n] for n in names if n in specs]


def by_position(names: Sequence[str], inputs: Any, what: str) -> dict[str, Any]:
    """Inputs that are given in order, or the only one, by their names.

    Args:
        names: The names.
        inputs: A list or tuple of inputs, or the only one.
        what: What takes them, for an error message: "model".

    Raises:
        FeedError: They are not as many, or two of one name differ.
    """
    values = inputs if isinstance(inputs, list | tuple) else [inputs]
    if len(values) != len(names):
        raise FeedError(
            f"The {what} takes {len(names)} input{'s' * (len(names) != 1)} ({', '.join(names)}) "
            f"but was given {len(values)}."
        )
    found: dict[str, Any] = {}
    for name, value in zip(names, values, strict=True):
        if name in found and not _same(found[name], value):
            raise FeedError(
                f"The {what} reads '{name}' more than once and was given different values for it. "
                "Name its inputs differently."
            )
        found[name] = value
    return found


def _same(a: Any, b: Any) -> bool:
    if a is b:
        return True
    if isinstance(a, list | tuple) and isinstance(b, list | tuple):
        return len(a) == len(b) and all(map(_same, a, b))
    a, b = (as_array(value) if is_ort_value(value) else np.asarray(value) for value in (a, b))
    if a.dtype != b.dtype or a.shape != b.shape:
        return False
    # Not by value but bit by bit: a NaN is the same as itself.
    return np.array_equal(a, b) if a.dtype.kind == "O" else a.tobytes() == b.tobytes()


def check_feeds(
    specs: Sequence[InputSpec], values: Sequence[Any], model: str = "model"
) -> list[Any]:
    """The values as contiguous arrays or OrtValues, after a check against the declared inputs.

    Args:
        specs: The declared inputs.
        values: One value per input: an array, an OrtValue, a (nested) list of numbers, or whatever
            turns into an array by `__array__` or `__dlpack__` (a torch tensor on the CPU).
        model: What to call the model in an error message.

    Raises:
        FeedError: The number of values, an element type, a rank or a dimension does not fit.

    Example:
        >>> spec = InputSpec("x", TensorType(onnx.TensorProto.FLOAT, ("batch", 2)))
        >>> check_feeds([spec], [[[1.0, 2.0]]])
        [array([[1., 2.]], dtype=float32)]
        >>> check_feeds([spec], [np.zeros(2, np.float32)], "training model")
        Traceback (most recent call last):
        blockdsl.errors.FeedError: Input 'x' of the training model is declared as float32[batch, 2]\
 but was given float32[2], of rank 1 instead of 2.
    """
    if len(values) != len(specs):
        declared = ", ".join(map(str, specs)) or "no inputs"
        raise FeedError(
            f"The {model} takes {len(specs)} input{'s' * (len(specs) != 1)} ({declared}) but was "
            f"given {len(values)}."
        )
    feeds = [_as_tensor(spec, value, model) for spec, value in zip(specs, values, strict=True)]
    sizes: dict[str, tuple[int, str]] = {}
    for spec, feed in zip(specs, feeds, strict=True):
        given = _given(feed)
        _check_type(spec, given, feed, model)
        _check_text(spec, feed, model)
        _check_shape(spec, given, model, sizes)
        for classes in spec.labels:
            _check_labels(spec, feed, classes, model)
    return feeds


def _as_tensor(spec: InputSpec, value: Any, model: str) -> Any:
    if is_ort_value(value):
        value = as_ort_value(value)
        if not (value.has_value() and value.is_tensor()):
            raise FeedError(
                f"Input '{spec.name}' of the {model} was given an OrtValue that holds no tensor. "
                "Give one of a tensor, or an array."
            )
        return value
    try:
        array = _as_array(spec, value)
    except FeedError:
        raise
    except Exception as error:
        raise FeedError(
            f"Input '{spec.name}' of the {model} was given a {type(value).__name__} that does not "
            f"turn into an array: {error}"
        ) from error
    return array if array.flags.c_contiguous else array.copy(order="C")


def _as_array(spec: InputSpec, value: Any) -> Array:
    if isinstance(value, np.ndarray):
        return value
    if hasattr(value, "__array__"):
        return np.asarray(value)
    if hasattr(value, "__dlpack__"):
        return np.from_dlpack(value)
    if isinstance(value, list | tuple | bool | int | float | str):
        # Python's numbers have no element type of their own: they take the declared one, unless
        # that would change their kind (a float given for an int64 label).
        array = np.asarray(value)
        wanted = spec.type.dtype
        return array.astype(wanted) if np.can_cast(array.dtype, wanted, "same_kind") else array
    raise FeedError(
        f"Input '{spec.name}' is {_named(spec.type)} but was given a {type(value).__name__}. Give "
        "a NumPy array or an OrtValue."
    )


def _given(feed: Any) -> TensorType:
    if not isinstance(feed, np.ndarray):
        return TensorType(int(feed._ortvalue.element_type()), tuple(feed.shape()))
    if is_text(feed):
        return TensorType(onnx.TensorProto.STRING, feed.shape)
    try:
        elem_type = onnx.helper.np_dtype_to_tensor_dtype(feed.dtype)
    except ValueError:
        elem_type = onnx.TensorProto.UNDEFINED
    return TensorType(int(elem_type), feed.shape)


def _check_type(spec: InputSpec, given: TensorType, feed: Any, model: str) -> None:
    if given.elem_type == spec.type.elem_type:
        return
    if given.elem_type == onnx.TensorProto.UNDEFINED:
        raise FeedError(f"{_declared(spec, model)} but was given an array of {feed.dtype}.")
    is_text = spec.type.elem_type == onnx.TensorProto.STRING
    dtype = spec.type.dtype
    kind = "str" if is_text else f"{'np' if dtype.isbuiltin == 1 else 'ml_dtypes'}.{dtype.name}"
    raise FeedError(
        f"{_declared(spec, model)} but was given {_named(given)}. Convert it: `.astype({kind})`."
    )


def _check_text(spec: InputSpec, feed: Any, model: str) -> None:
    """Strings are what the runtime takes over as they are: it writes 'None' and cuts at a NUL."""
    if not is_text(feed):
        return
    for text in feed.flat:
        if not isinstance(text, str):
            raise FeedError(
                f"{_declared(spec, model)} but was given {text!r} in it, which is no string."
                + (" Decode it: `.astype(str)`." if isinstance(text, bytes) else "")
            )
        if "\0" in text:
            raise FeedError(
                f"{_declared(spec, model)} but was given {str(text)!r} in it: the runtime ends a "
                "string at a NUL character."
            )


def _check_labels(spec: InputSpec, feed: Any, classes: Classes, model: str) -> None:
    """Kernels of losses count negative labels from the end, or read memory that is not theirs."""
    if not isinstance(feed, np.ndarray) and feed.device_name().lower() != "cpu":
        return  # copying them to the host would take longer than the step
    labels, count = as_array(feed), classes.count
    unsigned = labels.view(f"u{labels.dtype.itemsize}")  # in which a negative label is a large one
    if unsigned.max(initial=0) < count:
        return
    wrong = (labels < 0) | (labels >= count)
    if classes.ignored is not None:
        wrong &= labels != classes.ignored
    if not wrong.any():
        return
    position = [int(i) for i in np.argwhere(wrong)[0]]
    label = labels[tuple(position)]
    ignored = "" if classes.ignored is None else f", and ignores {classes.ignored}"
    raise FeedError(
        f"Input '{spec.name}' of the {model} has the label {label} at position {position}: the "
        f"loss has {count} classes, 0 to {count - 1}{ignored}. For labels that do not count, "
        f"make the loss with ignore_index={label}."
    )


def _check_shape(
    spec: InputSpec, given: TensorType, model: str, sizes: dict[str, tuple[int, str]]
) -> None:
    """Check rank and dimensions; `sizes` has the sizes of the named dimensions so far."""
    declared, shape = spec.type.shape, given.shape
    if declared is None or shape is None:
        return
    if len(shape) != len(declared):
        raise FeedError(
            f"{_declared(spec, model)} but was given {given}, of rank {len(shape)} instead of "
            f"{len(declared)}."
        )
    for axis, (wanted, size) in enumerate(zip(declared, shape, strict=True)):
        if isinstance(wanted, str):
            known, owner = sizes.setdefault(wanted, (int(size or 0), spec.name))
            if known != size:
                raise FeedError(
                    f"{_declared(spec, model)} but was given {given}: axis {axis} is '{wanted}', "
                    f"which is {known} in input '{owner}'."
                )
        elif wanted is not None and wanted != size:
            any_size = (
                " To feed any size (a last, smaller batch), give that axis a name in the forward "
                "model and generate the artifacts again: "
                "`input.type.tensor_type.shape.dim[0].dim_param = 'batch'`."
            )
            raise FeedError(
                f"{_declared(spec, model)} but was given {given}: axis {axis} must be {wanted}, "
                f"not {size}.{any_size if axis == 0 else ''}"
            )


def _declared(spec: InputSpec, model: str) -> str:
    return f"Input '{spec.name}' of the {model} is declared as {_named(spec.type)}"


def _named(kind: TensorType) -> str:
    """A type as ONNX names it: NumPy's arrays of strings are arrays of objects."""
    text = str(kind)
    is_text = kind.elem_type == onnx.TensorProto.STRING
    return text.replace("object", "string", 1) if is_text else text
