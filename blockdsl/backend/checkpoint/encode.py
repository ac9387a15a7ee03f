"""From a checkpoint to the bytes of its files."""

from __future__ import annotations

import numbers
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from blockdsl.backend.checkpoint.flatbuffer import (
    ALIGNMENT,
    MAX_SIZE,
    Chunk,
    FlatbufferError,
    Table,
    pack,
)
from blockdsl.backend.checkpoint.format import (
    DATA_TYPES,
    DTYPES,
    IDENTIFIER,
    SCHEMA,
    VERSION,
    Array,
    Checkpoint,
    OptimizerGroup,
)
from blockdsl.errors import CheckpointError

INLINE_BELOW = 64  # bytes: smaller tensors never go to the external file, as in 1.19.2


@dataclass
class Encoded:
    """The bytes of a checkpoint.

    Attributes:
        chunks: The checkpoint file, piece by piece.
        external: What stands in the external data file, and where.
        external_end: Where the external data end.
    """

    chunks: list[Chunk]
    external: list[tuple[int, memoryview]]
    external_end: int


def encode(checkpoint: Checkpoint, external_from: int | None = None) -> Encoded:
    """Turn a checkpoint into bytes without copying its tensors.

    Args:
        checkpoint: What to write.
        external_from: Where the tensors begin in the external data file; `None` keeps them in the
            checkpoint file.

    Raises:
        CheckpointError: Something in the checkpoint has no place in the format.
    """
    for name in checkpoint.trainable.keys() & checkpoint.frozen.keys():
        raise CheckpointError(
            f"The parameter '{name}' is both trainable and frozen. A checkpoint holds a parameter "
            "once: take it out of one of the two."
        )
    tensors = _Tensors(external_from)
    parameter = tensors.nominal if checkpoint.nominal else tensors.full
    module: Table = {
        "requires_grad_params": [parameter(*item) for item in checkpoint.trainable.items()],
        "frozen_params": [parameter(*item) for item in checkpoint.frozen.items()],
        "is_nominal_state": checkpoint.nominal,
    }
    root: Table = {
        "version": VERSION,
        "module_state": module,
        "optimizer_groups": [_group(*item, tensors) for item in checkpoint.groups.items()],
        "property_bag": _property_bag(checkpoint.properties),
    }
    if checkpoint.artifacts:
        root["artifacts"] = checkpoint.artifacts
    # One flag for the whole file: 1.19.2 opens the external file only where it is set.
    module["has_external_data"] = bool(tensors.external)
    try:
        chunks = pack(SCHEMA, "Checkpoint", IDENTIFIER, root)
    except UnicodeEncodeError as error:
        raise CheckpointError(f"The text {error.object!r} is not valid Unicode.") from error
    except FlatbufferError as error:
        raise CheckpointError(
            f"A checkpoint in one piece holds at most {MAX_SIZE} bytes, and this one needs more. "
            "Save it to a file: its tensors then go to a second file beside it."
        ) from error
    return Encoded(chunks, tensors.external, tensors.end if tensors.external else 0)


@dataclass
class _Tensors:
    """Makes tables of tensors, and collects the data that go to the external file."""

    external_from: int | None
    external: list[tuple[int, memoryview]] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.end = self.external_from or 0

    def nominal(self, name: str, value: Array) -> Table:
        dtype = np.asarray(value).dtype
        if dtype.name not in DATA_TYPES:
            raise CheckpointError(
                f"'{name}' has the element type {dtype.name}, which a checkpoint cannot hold. "
                f"It holds {', '.join(DATA_TYPES)}."
            )
        data_type = DATA_TYPES[dtype.name]
        return {"name": name, "dims": (), "data_type": data_type, "raw_data": memoryview(b"")}

    def full(self, name: str, value: Array) -> Table:
        table = self.nominal(name, value)
        # Neither copies what is contiguous and in the machine's byte order already.
        array = np.asarray(value, dtype=DTYPES[table["data_type"]], order="C")
        data = array.reshape(-1).view(np.uint8).data
        table["dims"] = array.shape
        if self.external_from is None or len(data) < INLINE_BELOW:
            table["raw_data"] = data
            return table
        del table["raw_data"]  # 1.19.2 looks at the offset only where this is absent
        offset = self.end + -self.end % ALIGNMENT
        self.external.append((offset, data))
        self.end = offset + len(data)
        return table | {"external_data_offset": offset}


def _group(name: str, group: OptimizerGroup, tensors: _Tensors) -> Table:
    if name != group.name:
        raise CheckpointError(
            f"The optimizer group '{group.name}' is listed as '{name}'. Use one name for both."
        )
    return {
        "group_name": name,
        "step": _int64(group.step, f"The step of the optimizer group '{name}'"),
        "initial_learning_rate": _float32(group.learning_rate),
        "optimizer_states": [
            {"param_name": parameter, "momentums": [tensors.full(*slot) for slot in slots.items()]}
            for parameter, slots in group.slots.items()
        ],
    }


def _property_bag(properties: Mapping[str, object]) -> Table:
    bag: Table = {"ints": [], "floats": [], "strings": []}
    for name, value in properties.items():
        if isinstance(value, str):
            bag["strings"].append({"name": name, "value": value})
        elif isinstance(value, (numbers.Integral, np.bool_)):
            bag["ints"].append({"name": name, "value": _int64(value, f"The property '{name}'")})
        elif isinstance(value, numbers.Real):
            bag["floats"].append({"name": name, "value": _float32(value)})
        else:
            raise CheckpointError(
                f"The property '{name}' is of type {type(value).__name__}. A checkpoint holds "
                "integers, floats and text: turn other things into text, as json.dumps does."
            )
    return bag


def _int64(value: Any, what: str) -> int:
    if not -(2**63) <= int(value) < 2**63:
        raise CheckpointError(f"{what} is {value}, which does not fit into 64 bits.")
    return int(value)


def _float32(value: Any) -> float:
    # An exploded loss must not keep a run from saving: what is too large becomes infinite.
    with np.errstate(over="ignore"):
        return float(np.float32(value))
