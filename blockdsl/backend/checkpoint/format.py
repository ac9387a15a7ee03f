"""What a checkpoint of ONNX Runtime's on-device training holds, and the schema it is stored in.

The format is flatbuffers with the file identifier `ODTC`, version 2, and `SCHEMA` is the whole of
it; the field `artifacts` is ours, and other readers pass over it. What onnxruntime-training 1.19.2
does with the format (measured):

- It writes parameters in the order it is given them when artifacts are generated, and sorted by
  name when a running state is saved; properties sorted by name.
- It loads tensors of float32, float64, bool and the integers. It writes files with float16 and
  bfloat16 parameters too, but fails to load them.
- It trains with the optimizer group named `group0` and its slots `momentum0` and `momentum1`. Other
  groups, and other slots beside those two, it carries from file to file without looking at them.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import ml_dtypes
import numpy as np
import numpy.typing as npt

Array = npt.NDArray[Any]

IDENTIFIER = b"ODTC"
VERSION = 2
GROUP = "group0"  # the one optimizer group that onnxruntime-training reads and writes

SCHEMA = {
    "Checkpoint": {
        "version": "int32",
        "module_state": "ModuleState",
        "optimizer_groups": "[OptimizerGroup]",
        "property_bag": "PropertyBag",
        "artifacts": "string",  # ours: 1.19.2 reads over it
    },
    "ModuleState": {
        "requires_grad_params": "[Tensor]",
        "frozen_params": "[Tensor]",
        "is_nominal_state": "bool",
        "has_external_data": "bool",
    },
    "OptimizerGroup": {
        "group_name": "string",
        "step": "int64",
        "initial_learning_rate": "float",
        "optimizer_states": "[ParameterOptimizerState]",
    },
    "ParameterOptimizerState": {"param_name": "string", "momentums": "[Tensor]"},
    "PropertyBag": {
        "ints": "[IntProperty]",
        "floats": "[FloatProperty]",
        "strings": "[StringProperty]",
    },
    "IntProperty": {"name": "string", "value": "int64"},
    "FloatProperty": {"name": "string", "value": "float"},
    "StringProperty": {"name": "string", "value": "string"},
    "Tensor": {
        "name": "string",
        "doc_string": "string",
        "dims": "[int64]",
        "data_type": "int32",
        "raw_data": "[ubyte]",
        "string_data": "[string]",
        "external_data_offset": "int64",
    },
}

# The numbers are ONNX's. Text (8) is left out because 1.19.2 cannot load parameters of text, and
# types above 20 because the format ends there.
DTYPES: dict[int, np.dtype[Any]] = {
    number: np.dtype(getattr(ml_dtypes, name, name))
    for number, name in {
        1: "float32",
        2: "uint8",
        3: "int8",
        4: "uint16",
        5: "int16",
        6: "int32",
        7: "int64",
        9: "bool",
        10: "float16",
        11: "float64",
        12: "uint32",
        13: "uint64",
        14: "complex64",
        15: "complex128",
        16: "bfloat16",
        17: "float8_e4m3fn",
        18: "float8_e4m3fnuz",
        19: "float8_e5m2",
        20: "float8_e5m2fnuz",
    }.items()
}
DATA_TYPES = {dtype.name: number for number, dtype in DTYPES.items()}


@dataclass
class OptimizerGroup:
    """The state of one optimizer over a group of parameters.

    Attributes:
        name: The name of the group.
        step: How many steps have been taken.
        learning_rate: The learning rate that training began with.
        slots: For every parameter, its slots by name.
    """

    name: str
    step: int = 0
    learning_rate: float = 0.001
    slots: dict[str, dict[str, Array]] = field(default_factory=dict)


@dataclass
class Checkpoint:
    """Parameters, optimizer state and properties: everything a checkpoint holds.

    Attributes:
        trainable: The parameters that are trained, in the file's order.
        frozen: The parameters that are not.
        nominal: Whether the parameters are names and element types only. Neither values nor
            shapes are stored then; on loading, they are zeros of rank 0.
        groups: The optimizer groups by name.
        properties: What the user wants kept: 64-bit integers, 32-bit floats, text.
        artifacts: The identity of the artifacts that it belongs to, "" if that is not known.
    """

    trainable: dict[str, Array]
    frozen: dict[str, Array]
    nominal: bool = False
    groups: dict[str, OptimizerGroup] = field(default_factory=dict)
    properties: dict[str, int | float | str] = field(default_factory=dict)
    artifacts: str = ""
