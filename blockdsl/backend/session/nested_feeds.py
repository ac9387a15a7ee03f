"""Sequences and optionals that a model is fed, checked before the runtime sees them."""

from __future__ import annotations

import re
from typing import Any

from blockdsl.backend.feeds import InputSpec, check_feeds
from blockdsl.backend.session.load import elem_type_named
from blockdsl.backend.values import as_array, is_ort_value
from blockdsl.errors import FeedError
from blockdsl.graph.tensor import TensorType


def check_nested(name: str, kind: str, value: Any, model: str) -> Any:
    """A value for an input that is no tensor, as the runtime takes it.

    Args:
        name: The input, or what of it the value is.
        kind: Its type as the runtime writes it: `seq(tensor(float))`, `optional(tensor(int64))`.
        value: A list of tensors for a sequence, None for an empty optional.
        model: What to call the model in an error message.

    Raises:
        FeedError: The value does not fit.

    Example:
        >>> check_nested("s", "seq(tensor(float))", [[1.0], [2.0, 3.0]], "model")
        [array([1.], dtype=float32), array([2., 3.], dtype=float32)]
        >>> check_nested("s", "seq(tensor(float))", None, "model")
        Traceback (most recent call last):
        blockdsl.errors.FeedError: Input 's' of the model is seq(tensor(float)) but was given a\
 NoneType. Give a list of tensors.
    """
    if match := re.fullmatch(r"optional\((.*)\)", kind):
        return None if value is None else check_nested(name, match[1], value, model)
    if match := re.fullmatch(r"seq\((.*)\)", kind):
        if is_ort_value(value):
            return value
        if not isinstance(value, list | tuple):
            raise FeedError(
                f"Input '{name}' of the {model} is {kind} but was given a {type(value).__name__}. "
                "Give a list of tensors."
            )
        return [check_nested(f"{name}[{i}]", match[1], v, model) for i, v in enumerate(value)]
    elem_type = elem_type_named(kind)
    if elem_type is None:
        return value  # a map: the runtime looks into it itself
    (feed,) = check_feeds([InputSpec(name, TensorType(elem_type))], [value], model)
    return as_array(feed)
