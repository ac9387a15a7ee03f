"""`Name`: the string side of a tensor, without the parts of `str` that would mislead.

A tensor is its name, so that whatever takes names takes it. A string can do much that reads like
arithmetic on a tensor and is none. Here each method of `str` either works on the name, because its
arguments are strings, or is refused with the spelling that is right.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NoReturn

import numpy as np

from blockdsl.errors import NameComparisonError, OpError

_NUMBERS = (bool, int, float, complex, np.generic, np.ndarray)


class NameComparison:
    """Whether two tensors have the same name, the result of `==` and `!=`: true or false.

    It is no tensor and no number, so that it is refused where an operand was meant.

    Args:
        left: A name.
        right: Another one.
        same: Whether the names are equal.
        holds: Whether the comparison is true.
    """

    __slots__ = ("_asked", "_holds")

    def __init__(self, left: str, right: str, same: bool, holds: bool) -> None:
        self._asked = (str(left), str(right), same == holds)
        self._holds = holds

    def __bool__(self) -> bool:
        return self._holds

    def __repr__(self) -> str:
        return repr(self._holds)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, bool | NameComparison) and self._holds == bool(other)

    def __hash__(self) -> int:
        return hash(self._holds)

    def __getattr__(self, name: str) -> NoReturn:
        if name.startswith("__"):
            raise AttributeError(name)
        raise self.error()

    def error(self) -> NameComparisonError:
        """The error for using it as a tensor or a number."""
        left, right, equal = self._asked
        sign, spelling = ("==", "x.equal(y)") if equal else ("!=", "~x.equal(y)")
        return NameComparisonError(
            f"{left!r} {sign} {right!r} compares the names of two tensors, once, while the model "
            f"is built: it is {self._holds}. For their elements write {spelling}."
        )


def _refuse_as_operand(self: NameComparison, *_: Any, **__: Any) -> NoReturn:
    raise self.error()


_OPERAND = (
    *("add", "sub", "mul", "truediv", "floordiv", "mod", "divmod", "pow", "matmul"),
    *("radd", "rsub", "rmul", "rtruediv", "rfloordiv", "rmod", "rdivmod", "rpow", "rmatmul"),
    *("and", "or", "xor", "rand", "ror", "rxor", "lshift", "rshift", "lt", "le", "gt", "ge"),
    *("neg", "pos", "abs", "invert", "int", "float", "complex", "index", "round"),
    *("array", "array_ufunc", "array_function", "getitem", "len", "iter"),
)
for _operator in _OPERAND:
    setattr(NameComparison, f"__{_operator}__", _refuse_as_operand)


class Name(str):
    """The name of a tensor."""

    def __reduce__(self) -> tuple[type[str], tuple[str]]:
        return str, (str(self),)

    def __copy__(self) -> Name:
        return self

    def __deepcopy__(self, _: Any) -> Name:
        return self

    def __str__(self) -> str:
        return str.__str__(self)

    def __format__(self, spec: str) -> str:
        try:
            return str.__format__(self, spec)
        except ValueError as error:
            raise self._unknown(f"a format {spec!r}", "print what the model returns") from error

    __hash__ = str.__hash__

    def __eq__(self, other: object) -> Any:
        return self._compared_as_name(other, True)

    def __ne__(self, other: object) -> Any:
        return self._compared_as_name(other, False)

    def _compared_as_name(self, other: object, wanted: bool) -> Any:
        if _holds_numbers(other):
            raise OpError(
                f"{str(self)!r} is a tensor whose elements are not known while the model is built, "
                f"and == and != compare names: write x.equal({other!r}), or ~x.equal({other!r})."
            )
        same = str.__eq__(self, other)
        if same is NotImplemented:
            return same
        if not isinstance(other, Name):  # code that handles names expects a truth value
            return same is wanted
        return NameComparison(self, other, same, same is wanted)

    def __contains__(self, other: object) -> bool:
        if isinstance(other, str) and not isinstance(other, Name):
            return str.__contains__(self, other)
        raise OpError(
            f"`in` compares names, and {str(self)!r} is a tensor: whether it holds an element is "
            f"x.equal(y).cast(np.int64).max(). Look a name up in a list, or in str(x)."
        )

    def __bool__(self) -> bool:
        raise OpError(
            f"Whether {str(self)!r} is true is not known while the model is built: choose with "
            f"op.Where(condition, a, b); write & and | and ~ for `and`, `or` and `not`, and "
            f"(a < x) & (x < b) for a < x < b; the larger of two tensors is op.Max(a, b), the "
            f"smaller op.Min(a, b). For None write `x is None`; sort names with key=str."
        )

    def __iter__(self) -> NoReturn:
        raise OpError(
            f"{str(self)!r} is one tensor, which cannot be iterated over or unpacked. Its parts "
            f"are x[0], x[1], ...; an operator gives several tensors with outputs=2."
        )

    def __reversed__(self) -> NoReturn:
        raise OpError(f"{str(self)!r} is one tensor: its elements in reverse are x[::-1].")

    def __setitem__(self, key: Any, value: Any) -> NoReturn:
        raise OpError(
            f"{str(self)!r} is a tensor, which is computed once and not changed: write "
            f"op.Where(condition, new, x), or op.ScatterND(x, indices, updates)."
        )

    def __delitem__(self, key: Any) -> NoReturn:
        raise OpError(f"{str(self)!r} is a tensor, which is not changed: select what stays, x[1:].")

    def __float__(self) -> NoReturn:
        raise self._unknown("float(x)", "x.cast(np.float32); math.exp(x) is x.exp()")

    def __int__(self) -> NoReturn:
        raise self._unknown("int(x)", "x.cast(np.int64)")

    def __index__(self) -> NoReturn:
        raise self._unknown("a Python integer", "x.shape for a size, or op.Loop, or op.Gather")

    def __trunc__(self) -> NoReturn:
        raise self._unknown("math.trunc(x)", "x.cast(np.int64)")

    def _unknown(self, asked: str, spelling: str) -> OpError:
        return OpError(
            f"{str(self)!r} is a tensor whose elements are not known while the model is built, and "
            f"{asked} needs them. Write {spelling}."
        )


def _holds_numbers(other: object) -> bool:
    if isinstance(other, list | tuple):
        return bool(other) and all(map(_holds_numbers, other))
    return isinstance(other, _NUMBERS)


def _method_of_strings(name: str, spelling: str) -> Callable[..., Any]:
    """A method of `str` that works on the name if it is given strings, and is refused if not."""
    method = getattr(str, name)

    def call(self: Name, *args: Any, **kwargs: Any) -> Any:
        if args and _is_text(args[0]) and not any(isinstance(a, Name) for a in args):
            return method(self, *args, **kwargs)
        if name == "encode":
            return str(self).encode(*args, **kwargs)
        raise OpError(
            f"{str(self)!r} is a tensor: {spelling}. Of its name it is str(x).{name}(...)."
        )

    call.__name__ = name
    call.__doc__ = f"As `str.{name}`, of the name, which takes strings."
    return call


def _refused(name: str) -> Callable[..., NoReturn]:
    def refuse(self: Name, *_: Any, **__: Any) -> NoReturn:
        raise OpError(
            f"{str(self)!r} is a tensor, and {name} is a method of strings: of its name it is "
            f"str(x).{name}(...)."
        )

    refuse.__name__ = name
    refuse.__doc__ = "Refused: write `str(x)` for the name."
    return refuse


def _is_text(argument: Any) -> bool:
    if isinstance(argument, tuple):
        return all(map(_is_text, argument))
    return isinstance(argument, str) and not isinstance(argument, Name)


_SPLIT = "its parts are op.Split(x, axis=0, num_outputs=n, outputs=n), or x[:k] and x[k:]"
_FIND = "where its elements have a value is op.NonZero(x.equal(value)), or op.ArgMax(x)"
_PLAIN = "it has no such method, and names are compared with strings"

OF_STRINGS = {
    "count": "how many elements have a value is x.equal(value).cast(np.int64).sum()",
    "encode": "",
    "endswith": _PLAIN,
    "find": _FIND,
    "index": _FIND,
    "lstrip": _PLAIN,
    "partition": _SPLIT,
    "removeprefix": _PLAIN,
    "removesuffix": _PLAIN,
    "replace": "elements are replaced by op.Where(x.equal(old), new, x)",
    "rfind": _FIND,
    "rindex": _FIND,
    "rpartition": _SPLIT,
    "rsplit": _SPLIT,
    "rstrip": _PLAIN,
    "split": _SPLIT,
    "startswith": _PLAIN,
    "strip": _PLAIN,
}
"""The methods of `str` that code which handles names calls on them, and what tensors have."""

REFUSED = frozenset(
    name
    for name in vars(str)
    if not name.startswith("_") and name not in OF_STRINGS and name != "maketrans"
)
"""The methods of `str` that work on no tensor, and that hardly anybody calls on a name."""

for _name, _spelling in OF_STRINGS.items():
    setattr(Name, _name, _method_of_strings(_name, _spelling))
for _name in REFUSED:
    setattr(Name, _name, _refused(_name))
