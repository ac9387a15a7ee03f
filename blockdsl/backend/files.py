"""Files are replaced whole or not at all; models are read with errors that name the file."""

from __future__ import annotations

import os
import secrets
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

import onnx
from onnx.external_data_helper import load_external_data_for_model

from blockdsl.errors import ModelFileError, StateError

StrPath = str | os.PathLike[str]


def text_of(path: StrPath, what: str) -> str:
    """A path as text.

    Raises:
        StateError: It is no path.
    """
    if not isinstance(path, str | bytes | os.PathLike):
        raise StateError(f"The {what} is given by its path, not by a {type(path).__name__}.")
    return os.fsdecode(path)


@contextmanager
def replacing(path: StrPath) -> Iterator[Path]:
    """A path beside `path` to write to; it takes the place of `path` when the block ends well.

    Until then the old file stands untouched, and it keeps standing when the block raises or the
    process dies: only a complete file, flushed to the disk, is moved over it.

    Example:
        >>> import tempfile
        >>> with tempfile.TemporaryDirectory() as folder:
        ...     with replacing(f"{folder}/note") as fresh:
        ...         _ = fresh.write_text("done")
        ...     print(os.listdir(folder))
        ['note']
    """
    target = Path(path)
    fresh = target.with_name(f".{target.name}.{secrets.token_hex(4)}.tmp")
    fresh.touch(exist_ok=False)
    try:
        yield fresh
        _flush(fresh)
        fresh.replace(target)
        _flush_folder(target.parent)
    except BaseException:
        with suppress(OSError):
            fresh.unlink()
        raise


def is_ort_format(path: StrPath, what: str = "model") -> bool:
    """Whether a file is a model in ONNX Runtime's own format (`.ort`) and not a protobuf."""
    _check_exists(path, what)
    try:
        with Path(path).open("rb") as file:
            return file.read(8)[4:] == b"ORTM"
    except OSError as error:
        raise _unreadable(path, what, error.strerror or error) from error


def read_model(path: StrPath, what: str = "model", *, weights: bool = True) -> onnx.ModelProto:
    """Read an ONNX model.

    Args:
        path: The file.
        what: What the model is to the caller ("eval model"), for the error message.
        weights: Whether to load weights that lie in separate files.

    Raises:
        ModelFileError: The file is missing, unreadable or no ONNX model.
    """
    _check_exists(path, what)
    try:
        model = onnx.load(path, load_external_data=False)
    except OSError as error:
        raise _unreadable(path, what, error.strerror or error) from error
    except Exception as error:  # protobuf's DecodeError has no import with types
        raise ModelFileError(f"'{os.fspath(path)}' is not an ONNX model.") from error
    if not model.HasField("graph"):
        raise ModelFileError(f"'{os.fspath(path)}' is not an ONNX model: it has no graph.")
    if weights:
        try:
            load_external_data_for_model(model, os.path.dirname(os.path.abspath(path)))
        except Exception as error:  # OSError, ValueError, and classes of onnx's C++ part
            raise ModelFileError(
                f"The weights of the {what} '{os.fspath(path)}' lie in a file beside it, which "
                f"cannot be read: {error}"
            ) from error
    return model


def _check_exists(path: StrPath, what: str) -> None:
    if os.path.isdir(path):
        raise ModelFileError(f"The {what} '{os.fspath(path)}' is a folder, not a file.")
    if not os.path.isfile(path):
        raise ModelFileError(f"The {what} '{os.fspath(path)}' does not exist.")


def _unreadable(path: StrPath, what: str, why: object) -> ModelFileError:
    return ModelFileError(f"The {what} '{os.fspath(path)}' cannot be read: {why}.")


def _flush(path: Path) -> None:
    with path.open("rb+") as file:
        os.fsync(file.fileno())


def _flush_folder(folder: Path) -> None:
    """Make a rename durable; folders cannot be opened on Windows, where it is durable anyway."""
    with suppress(OSError):
        handle = os.open(folder, os.O_RDONLY)
        try:
            os.fsync(handle)
        finally:
            os.close(handle)
