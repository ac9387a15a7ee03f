"""Checkpoint files: replaced whole or not at all, and read with errors that name the mistake.

A flatbuffer holds at most 2 GB. The tensors of larger checkpoints stand in a second file, which
the format calls `<path>.data`. Its name being fixed, the two files cannot be renamed in one stroke,
and renaming one after the other would leave, for a moment, an old file that points into new data.
So the data file is not renamed at all. New tensors are written to a place in it that the present
checkpoint file does not point to (before its tensors if they fit there, else after them); then the
checkpoint file is replaced; then what is no longer needed at the end is cut off. At every moment
the checkpoint on the disk is the old one or the new one. The price is a data file of up to twice
the size.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager, nullcontext, suppress
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from blockdsl.backend.checkpoint.decode import (
    ReadExternal,
    UnsupportedError,
    decode,
    first_external,
)
from blockdsl.backend.checkpoint.encode import Encoded, encode
from blockdsl.backend.checkpoint.flatbuffer import Bytes, FlatbufferError
from blockdsl.backend.checkpoint.format import IDENTIFIER, Array, Checkpoint
from blockdsl.backend.checkpoint.sniff import looks_like
from blockdsl.backend.files import StrPath, replacing
from blockdsl.errors import CheckpointError, CheckpointNotFoundError, near

EXTERNAL_DATA_THRESHOLD = 1800 * 2**20  # bytes of tensors, as in onnxruntime-training 1.19.2
_HIGHEST_THRESHOLD = 2_000_000_000  # leaves the rest of a flatbuffer for names and shapes


def load(path: StrPath, *, mapped: bool = False) -> Checkpoint:
    """Read a checkpoint.

    The file is read once, into memory of which the arrays are writable views: they keep all of it
    alive until the last of them is gone.

    Args:
        path: The checkpoint file. The `.data` file of a large one is found beside it.
        mapped: Whether to map the files into memory instead: for a look at what they hold, as the
            next save may change what is mapped.

    Raises:
        CheckpointNotFoundError: There is no such file.
        CheckpointError: It is no checkpoint, or a damaged one, or one of another version.
    """
    name = os.fsdecode(path)
    if Path(name).is_dir():
        inside = Path(name, "checkpoint")
        hint = f" Did you mean '{inside}'?" if inside.is_file() else ""
        raise CheckpointError(f"Cannot read the checkpoint '{name}': it is a folder.{hint}")
    read = _map if mapped else np.fromfile
    try:
        buffer = read(name, np.uint8)
    except FileNotFoundError as error:
        raise CheckpointNotFoundError(_missing(Path(name))) from error
    except OSError as error:
        raise CheckpointError(f"Cannot read the checkpoint '{name}': {error.strerror}.") from error
    return _decode(buffer, f"the checkpoint '{name}'", _reader(_external(name), read))


def loads(buffer: bytes | bytearray | memoryview) -> Checkpoint:
    """Read a checkpoint from memory; see `load`.

    Args:
        buffer: The contents of a checkpoint file. They are copied.

    Raises:
        CheckpointError: They are no checkpoint, or refer to a `.data` file.

    Example:
        >>> checkpoint = Checkpoint({"w": np.float32([1, 2])}, {}, properties={"epoch": 3})
        >>> loads(dumps(checkpoint)).properties
        {'epoch': 3}
    """

    def read_external(offset: int, size: int) -> Bytes:
        raise UnsupportedError("its tensors stand in a second file: load it from its path")

    return _decode(np.array(np.frombuffer(buffer, np.uint8)), "the checkpoint", read_external)


def dumps(checkpoint: Checkpoint) -> bytes:
    """The contents of the file that `save` would write, for a checkpoint of less than 2 GB.

    Raises:
        CheckpointError: Something in the checkpoint has no place in the format.
    """
    return b"".join(encode(checkpoint).chunks)


def save(
    checkpoint: Checkpoint,
    path: StrPath,
    *,
    external_data_threshold: int = EXTERNAL_DATA_THRESHOLD,
) -> None:
    """Write a checkpoint. What stood at `path` stays, whole, until the new one is on the disk.

    Args:
        checkpoint: What to write.
        path: The file. Its folder must exist.
        external_data_threshold: From this number of bytes on, tensors go to a second file, the
            path with `.data` appended.

    Raises:
        CheckpointNotFoundError: The folder does not exist.
        CheckpointError: The file cannot be written, or something has no place in the format.

    Example:
        >>> import tempfile
        >>> with tempfile.TemporaryDirectory() as folder:
        ...     save(Checkpoint({"w": np.float32([1, 2])}, {}), f"{folder}/checkpoint")
        ...     print(load(f"{folder}/checkpoint").trainable)
        {'w': array([1., 2.], dtype=float32)}
    """
    name = os.fsdecode(path)
    target = Path(name).resolve()  # a link stays a link: what it stands for is replaced
    if os.path.isdir(target):
        raise CheckpointError(f"Cannot write the checkpoint '{name}': it is a folder.")
    if not os.path.isdir(target.parent):
        raise CheckpointNotFoundError(
            f"Cannot write the checkpoint '{name}': its folder does not exist. Create it first."
        )
    data = _external(name)
    size = sum(np.asarray(array).nbytes for array in _arrays(checkpoint))
    in_two = size >= min(external_data_threshold, _HIGHEST_THRESHOLD)
    try:
        used_from = _used_from(target, data)
        encoded = encode(checkpoint, 0 if in_two else None)
        if used_from is not None and encoded.external_end > used_from:
            encoded = encode(checkpoint, data.stat().st_size)
        involved = encoded.external or used_from is not None
        with (
            _placed(data, encoded, used_from) if involved else nullcontext(),
            replacing(target) as fresh,
            fresh.open("wb") as file,
        ):
            file.writelines(encoded.chunks)
    except OSError as error:
        old = " The old one is unchanged." if os.path.isfile(target) else ""
        raise CheckpointError(
            f"Cannot write the checkpoint '{name}': {error.strerror}.{old}"
        ) from error


def _missing(path: Path) -> str:
    folder = path.parent
    if not folder.is_dir():
        return f"There is no checkpoint '{path}': the folder '{folder}' does not exist."
    return f"There is no checkpoint '{path}'. {near(path.name, sorted(os.listdir(folder)))}"


def _external(name: str) -> Path:
    return Path(f"{name}.data")


def _arrays(checkpoint: Checkpoint) -> Iterator[Array]:
    if not checkpoint.nominal:
        yield from checkpoint.trainable.values()
        yield from checkpoint.frozen.values()
    for group in checkpoint.groups.values():
        for slots in group.slots.values():
            yield from slots.values()


def _used_from(path: Path, data: Path) -> int | None:
    """Where the tensors of the checkpoint on the disk begin in its data file, `None`: nowhere."""
    if not (data.is_file() and path.is_file()):
        return None
    try:
        return first_external(np.fromfile(path, np.uint8))
    except (FlatbufferError, UnsupportedError):
        return None  # nothing that could be read, so nothing that could be lost


@contextmanager
def _placed(data: Path, encoded: Encoded, used_from: int | None) -> Iterator[None]:
    """Write external data beside those in use; when the block ends, it is they that are in use."""
    end = None if used_from is None else data.stat().st_size
    try:
        if encoded.external:
            with data.open("r+b" if data.exists() else "w+b") as file:
                end = end or 0
                for offset, chunk in encoded.external:
                    file.seek(offset)
                    file.write(chunk)
                file.flush()
                os.fsync(file.fileno())
        yield
        end = encoded.external_end
    finally:
        with suppress(OSError):  # what is left over does no harm
            if end == 0:
                data.unlink()
            elif end:
                os.truncate(data, end)


def _map(
    path: StrPath, dtype: npt.DTypeLike, count: int | None = None, offset: int = 0
) -> npt.NDArray[Any]:
    """As `np.fromfile`, but the bytes are read when they are looked at."""
    if count == 0 or not os.path.getsize(path):  # which cannot be mapped
        return np.empty(0, dtype)
    return np.memmap(path, dtype, "c", offset, None if count is None else (count,))


def _reader(data: Path, read_from: Callable[..., npt.NDArray[Any]]) -> ReadExternal:
    def read(offset: int, size: int) -> Bytes:
        try:
            there = data.stat().st_size
            if offset + size > there:
                raise FlatbufferError(
                    f"it needs {offset + size} bytes of '{data}', which has {there}"
                )
            return read_from(data, np.uint8, size, offset=offset)
        except FileNotFoundError as error:
            raise CheckpointNotFoundError(
                f"The file '{data}' is missing. It holds the tensors of the checkpoint: large "
                "checkpoints are two files, which must be kept together."
            ) from error
        except OSError as error:
            raise CheckpointError(f"Cannot read '{data}': {error.strerror}.") from error

    return read


def _decode(buffer: Bytes, what: str, read_external: ReadExternal) -> Checkpoint:
    if bytes(buffer[4:8]) != IDENTIFIER:
        raise CheckpointError(f"Cannot read {what}: it is {looks_like(bytes(buffer[:512]))}.")
    try:
        return decode(buffer, read_external)
    except UnsupportedError as error:
        raise CheckpointError(f"Cannot read {what}: {error}.") from error
    except FlatbufferError as error:
        raise CheckpointError(
            f"Cannot read {what}: it is damaged ({error}). It was cut short or changed after it "
            "was written: load an older one."
        ) from error
