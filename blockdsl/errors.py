"""Everything that blockdsl raises.

One root, `BlockError`, so that a caller can catch whatever blockdsl objects to, and beside it the
built-in type that onnxruntime-training raises in the same situation, so that code written for it
keeps catching what it caught. A message says what was asked, where, why it cannot be and what to
write instead.
"""

from __future__ import annotations

import difflib
import numbers
from collections.abc import Iterable


class BlockError(Exception):
    """The root of every error that blockdsl raises."""

    def __str__(self) -> str:
        """The message itself: `KeyError` would otherwise show it in quotes."""
        return str(self.args[0]) if self.args else ""


class BlockWarning(UserWarning):
    """Something that is probably not meant, and that has a right answer all the same."""


class GraphError(BlockError, RuntimeError):
    """The model under construction is misused: none is open, two are, or it is invalid."""


class NoBaseError(GraphError, AttributeError):
    """A block is used outside `base` or `empty_base`."""


class UnknownAttributeError(BlockError, AttributeError):
    """A block has neither an attribute nor, in the open model, a parameter of this name."""


class OpError(BlockError, TypeError, ValueError):
    """An operator is called with inputs or attributes that its schema does not allow."""


class NameComparisonError(OpError, AttributeError):
    """What `x == y` says of the names of two tensors is used as a tensor or a number."""


class UnknownNameError(BlockError, LookupError, RuntimeError):
    """A tensor name that the model does not have."""


class UnknownParameterError(BlockError, KeyError):
    """A parameter or property name that the state does not have."""


class LossError(BlockError, RuntimeError):
    """A loss is asked for a reduction that it has not, or given tensors that it cannot compare."""


class OptimizerError(BlockError, TypeError, ValueError):
    """An optimizer is given settings or parameters that it cannot work with."""


class GradientError(BlockError, RuntimeError):
    """No gradient can be built here."""


class ArtifactError(BlockError, RuntimeError):
    """`generate_artifacts` is asked for something that cannot be."""


class ArtifactTypeError(ArtifactError, TypeError):
    """`generate_artifacts` is given an object of the wrong type."""


class ModelFileError(ArtifactError, FileNotFoundError):
    """A model file that is missing or is not an ONNX model."""


class CheckpointError(BlockError, RuntimeError):
    """A checkpoint that cannot be read or written."""


class CheckpointNotFoundError(CheckpointError, FileNotFoundError):
    """No checkpoint lies at the given path."""


class EngineError(BlockError, RuntimeError):
    """The runtime that is installed cannot do what was asked."""


class UnsupportedTypeError(EngineError):
    """The training engine cannot hold or train parameters of some type; the session engine can."""


class FeedError(EngineError, ValueError):
    """A model is fed tensors of the wrong number, type, rank or shape."""


class DataError(BlockError, ValueError):
    """Training data that does not fit together or the model."""


class StateError(EngineError, TypeError):
    """A training state or one of its values is used in a way that cannot be."""


def near(name: str, known: Iterable[str], count: int = 3) -> str:
    """The clause of an error message that lists the known names nearest to an unknown one.

    Args:
        name: The name that was not found.
        known: The names that exist.
        count: How many to list.

    Returns:
        `"Did you mean 'a' or 'b'?"`, or the first known names when none is close.

    Example:
        >>> near("fc1.weigth", ["fc1.weight", "fc1.bias"])
        "Did you mean 'fc1.weight'?"
        >>> near("x", ["fc1.weight", "fc1.bias"])
        "Known names: 'fc1.weight', 'fc1.bias'."
        >>> near("x", [])
        'There are none.'
    """
    names = [str(n) for n in known]
    close = difflib.get_close_matches(str(name), names, n=count, cutoff=0.6)
    if close:
        return f"Did you mean {' or '.join(map(repr, close))}?"
    if not names:
        return "There are none."
    listed = ", ".join(map(repr, names[:10]))
    rest = f" and {len(names) - 10} more" if len(names) > 10 else ""
    return f"Known names: {listed}{rest}."


def is_number(given: object, *, whole: bool = False) -> bool:
    """Whether a setting is a number, a whole one if wanted; a truth value is none."""
    wanted = numbers.Integral if whole else numbers.Real
    return isinstance(given, wanted) and not isinstance(given, bool)


def as_flag(what: str, given: object) -> bool:
    """Return the truth value of a setting.

    Raises:
        StateError: It has none, as an array of several elements.

    Example:
        >>> as_flag("trainable_only", 1)
        True
    """
    try:
        return bool(given)
    except Exception as error:
        raise StateError(
            f"{what} must be True or False, got an object of type {type(given).__name__}."
        ) from error


def check_number(kind: type[BlockError], what: str, given: object, *, whole: bool = False) -> None:
    """Check that a setting is a number, of whatever size.

    Args:
        kind: The error to raise.
        what: What the setting is called.
        given: What it was set to.
        whole: Whether it must be a whole number.

    Example:
        >>> check_number(OptimizerError, "eps", 1e-8)
        >>> check_number(OptimizerError, "eps", "1e-8")
        Traceback (most recent call last):
        blockdsl.errors.OptimizerError: eps is '1e-8', of type str: it is a number.
    """
    if not is_number(given, whole=whole):
        raise kind(
            f"{what} is {given!r}, of type {type(given).__name__}: it is a "
            f"{'whole ' * whole}number."
        )
