"""Which tensors of a model are parameters, decided by what operators do with them.

One table says which slots of operators take parameters (`blockdsl.artifacts.slots`); a role passes
through operators that only move elements, through functions and through bodies. The operands of
elementwise arithmetic are told apart by what they meet and by their values. A name is a hint at the
very end, for an operand that could be either: PyTorch's exporters name constants `val_3`.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, replace

import numpy as np
from onnx import ModelProto, TensorProto

from blockdsl.artifacts import fixed_values as fixed
from blockdsl.artifacts.exporter import recorded_parameters
from blockdsl.artifacts.slots import (
    ADD,
    ADDED,
    ARITHMETIC,
    BIAS,
    CLASS_WEIGHT,
    EMBEDDING,
    LOOKUPS,
    QUANTIZATION,
    SCALE,
    SLOPE,
    STATE,
    STATISTIC,
    TABLE,
    TOKEN,
    WEIGHT,
    WINDOW,
)
from blockdsl.artifacts.steps import Source, steps_of
from blockdsl.artifacts.tensor_names import is_anonymous
from blockdsl.artifacts.uses import (
    ANGLE,
    CUSTOM,
    DATA,
    EXPONENT,
    FILLER,
    OPERAND,
    SETTING,
    Flow,
    Origin,
    Use,
)
from blockdsl.graph.marks import PARAMETER, mark_of
from blockdsl.graph.model import Graph
from blockdsl.graph.tensor import FLOATS, array_of

SCALAR, MASK, PREPROCESSING, INTEGER = "scalar", "mask", "preprocessing", "integer weight"
NEUTRAL, CONSTANT, UNUSED = "neutral", "constant", "unused"

TRAINED = (WEIGHT, EMBEDDING, SCALE, BIAS, SLOPE, TOKEN, STATE, SCALAR)
"""The kinds that are trained, the most telling first: a tensor has the first of its uses."""

_GUESSED = (CONSTANT, PREPROCESSING, STATISTIC)
"""Kinds of tensors that are constants by what they meet, and not by their values."""

_FOLDED = re.compile(r"(exp|sigmoid|softmax|softplus|tanh)(_\d+)?")
"""How PyTorch's exporter names what it folds of functions that learned numbers go through."""


@dataclass(frozen=True)
class Role:
    """The role of a tensor in a model.

    Attributes:
        kind: "weight", "bias", "scale", "embedding", "mask", "table" and so on.
        reason: Why it has the role, in words.
        operators: The operators that it ends in.
        values: Number of its values.
        source: The tensor in the model.
        resembles: The kind of values that a parameter has although nobody trains such: "" for most.
    """

    kind: str
    reason: str
    operators: tuple[str, ...]
    values: int
    source: Source
    resembles: str = ""

    @property
    def trained(self) -> bool:
        """Whether such a tensor is a parameter."""
        return self.kind in TRAINED


def roles(model: ModelProto | Graph, weights: Mapping[str, np.ndarray] = {}) -> dict[str, Role]:
    """Return the role of every float tensor that a model holds, and of integers that stand for one.

    They are its initializers, dense and sparse, and the tensors of its Constant nodes, those of
    bodies and local functions included. No large value is copied.

    Args:
        model: The model.
        weights: The values of initializers that lie in other files, as far as they are at hand, and
            of inputs that are parameters: those of artifacts.

    Returns:
        The roles by names, in the order of the model. A tensor of a body or function has its name
        there, after the place of the body where several tensors of the model have one name.
    """
    constants = model.constants_made if isinstance(model, Graph) else ()
    proto: ModelProto = model.proto if isinstance(model, Graph) else model
    flat = steps_of(proto, weights)
    flow = Flow(flat)
    records = recorded_parameters(proto)
    names_tell = proto.producer_name == "pytorch"
    found = {}
    for name, source in flat.sources.items():
        role = _Decision(source, weights.get(name), names_tell=names_tell).role(flow.uses(name))
        if role is not None:
            role = _respect_exporter(role, records.get(name))
            found[name] = _respect_blocks(role, name in constants)
    return found


def _respect_exporter(role: Role, is_parameter: bool | None) -> Role:
    """Follow the exporter in what is a parameter, and what a buffer, of the module.

    The Fourier basis of a learned front end is a buffer by one exporter, and a weight like any
    other by the next: it is trained after either.
    """
    is_guess = role.trained or role.kind in _GUESSED
    is_front_end = role.kind == WEIGHT and role.resembles and "Conv" in role.operators
    if (
        is_parameter in (None, role.trained)
        or not is_guess
        or is_front_end
        or "BatchNormalization" in role.operators
    ):
        return role
    kind, what = (WEIGHT, "parameter") if is_parameter else (CONSTANT, "buffer")
    return replace(role, kind=kind, reason=f"a {what} of the exported module")


def _respect_blocks(role: Role, is_constant: bool) -> Role:
    """Follow blocks in what they made as a parameter, as a buffer or as a constant."""
    tensor = role.source.tensor
    made_as = CONSTANT if is_constant else None if tensor is None else mark_of(tensor)
    if (
        made_as is None
        or role.kind in (INTEGER, STATISTIC)
        or role.trained == (made_as == PARAMETER)
    ):
        return role
    kind = WEIGHT if made_as == PARAMETER else made_as
    return replace(role, kind=kind, reason=f"a {made_as} of a block")


Verdict = tuple[str, str]
"""A kind and the reason for it."""


class _Decision:
    """The decision about one tensor.

    Args:
        source: The tensor.
        array: Its values if they lie outside the model and are at hand.
        names_tell: Whether the exporter names parameters and nothing else.
    """

    def __init__(self, source: Source, array: np.ndarray | None, *, names_tell: bool) -> None:
        self._source = source
        self._values = _values_of(source) if array is None else array
        self._named = not source.in_node and not is_anonymous(source.name)
        self._names_tell = names_tell
        self._is_folded = names_tell and _FOLDED.fullmatch(source.name) is not None

    def role(self, uses: Iterable[Use]) -> Role | None:
        """Return the role, None for integers that are shapes, indices or the like."""
        uses = [use for use in uses if use.role != DATA]
        if self._source.elem_type not in FLOATS:
            return self._integer_role(uses)
        verdicts = sorted(
            (_rank(v[0]), *v, use.op_type) for use in uses for v in [self._verdict(use)]
        )
        operators = tuple(dict.fromkeys(op for *_, op in verdicts))
        _, kind, reason, _ = verdicts[0] if verdicts else (0, UNUSED, "nothing reads it", "")
        resembles = self._looks_fixed(16) if kind == WEIGHT else ""
        return Role(kind, reason, operators, self._source.size, self._source, resembles)

    def _integer_role(self, uses: Iterable[Use]) -> Role | None:
        """Return the role of integers that stand for a weight, None for all others."""
        if self._source.elem_type == TensorProto.BOOL:
            return None
        found = {
            use.op_type: use.role
            for use in uses
            if use.role == WEIGHT
            or (use.role == EMBEDDING and (use.dequantized or use.op_type not in LOOKUPS))
        }
        if not found:
            return None
        reason = f"a {next(iter(found.values()))} that is stored as integers"
        return Role(INTEGER, reason, tuple(sorted(found)), self._source.size, self._source)

    def _verdict(self, use: Use) -> Verdict:
        """Return the kind that a use makes of the tensor, and the reason."""
        if use.combined:
            setting = self._combined(use)
            if setting is not None:
                return setting
        if use.role == OPERAND:
            return self._operand(use)
        if use.role in _SETTINGS:
            kind, reason = _SETTINGS[use.role]
            return kind, reason.format(use.op_type)
        if use.role in (EXPONENT, FILLER, ADDED, CUSTOM):
            return self._ambiguous(use)
        return self._in_slot(use)

    def _combined(self, use: Use) -> Verdict | None:
        """Return the verdict on what only sets how other constants are combined."""
        if use.combined == "MatMul" and self._test(fixed.is_mesh):
            return TABLE, "coordinates"
        if use.combined not in ARITHMETIC:
            if len(self._source.shape) == 1:
                return STATISTIC, "a vector that a weight is normalised by"
            if use.role in _SETTINGS:
                return None
            return self._in_slot(use._replace(role=WEIGHT, op_type=use.combined))
        if self._source.size == 1 and not use.computed:
            return CONSTANT, "scales or shifts other constants"
        return (MASK, "zeros and ones") if self._test(fixed.is_zero_one) else None

    def _in_slot(self, use: Use) -> Verdict:
        """Return the verdict on a slot that takes a parameter."""
        kind, reason = use.role, f"the {use.role} of {use.op_type}"
        if kind in (WEIGHT, EMBEDDING):
            looks_fixed = self._looks_fixed(16 if kind == WEIGHT else 6)
            # Convolutions with a Fourier basis are how learned front ends begin.
            return (
                (TABLE, looks_fixed)
                if looks_fixed and "Conv" not in use.op_type
                else (kind, reason)
            )
        if self._test(fixed.is_mask):
            return MASK, "infinite or huge negative values"
        if kind == TOKEN and self._test(fixed.is_sinusoid):
            return TABLE, "sines and cosines"
        if not self._named and self._is_neutral(kind):
            return NEUTRAL, "leaves out what the operator requires"
        return kind, reason

    def _looks_fixed(self, least: int) -> str:
        """Return the way in which the values look like those of no parameter, "" if they do not."""
        if self._test(fixed.is_sinusoid, least):
            return "sines and cosines"
        return "a filter bank" if self._test(fixed.is_filter_bank) else ""

    def _is_neutral(self, kind: str) -> bool:
        """Whether a slot has what makes no difference there: exporters fill in ones and zeros."""
        if kind == TOKEN:
            return self._test(fixed.is_constant)
        return kind in (SCALE, BIAS, STATE) and self._test(fixed.is_constant, float(kind == SCALE))

    def _operand(self, use: Use) -> Verdict:
        """Return the verdict on an operand of elementwise arithmetic."""
        kind = BIAS if ARITHMETIC[use.op_type] == ADD else SCALE
        if self._test(fixed.is_mask):
            return MASK, "infinite or huge negative values"
        neutral = self._source.in_node and self._test(fixed.is_constant, 0.0, 1.0)
        is_slot = use.other in _AFTER and self._source.size > 1 and not neutral
        if is_slot and not self._is_wave():
            return kind, f"the {kind} after a {_AFTER[use.other]}"
        if use.other is Origin.POSITION:
            return TABLE, "meets positions or sizes"
        if use.layered and self._is_preprocessing(use):
            return PREPROCESSING, "applied to an input of the model"
        return self._ambiguous(use)

    def _is_preprocessing(self, use: Use) -> bool:
        """Whether it is a mean or deviation, one a channel, of an input that goes into layers."""
        channels = sum(dim > 1 for dim in self._source.shape) < 2
        if not channels or use.op_type in ("Add", "Sum"):
            return False
        if use.other is Origin.INPUT and use.op_type == "Mul":
            return self._test(fixed.is_positive) and not self._test(fixed.is_constant)
        return use.other in (Origin.INPUT, Origin.PREPROCESSED)

    def _ambiguous(self, use: Use) -> Verdict:
        """Return the verdict where values and, at the very end, the name decide."""
        if self._test(fixed.is_mask) or self._test(fixed.is_zero_one):
            return MASK, "zeros and ones, or infinite values"
        if self._source.size == 1:
            return self._scalar(use)
        if self._is_table():
            return TABLE, "sines, cosines or coordinates"
        kind, reason = _AMBIGUOUS.get(use.role) or _AMBIGUOUS.get(use.op_type, _ADDED)
        plain = self._test(fixed.is_constant) or self._test(fixed.is_regular, 2**-6)
        if self._named or self._is_folded or not plain:
            return kind, reason.format(use.op_type)
        return CONSTANT, f"an unnamed constant of {use.op_type}"

    def _scalar(self, use: Use) -> Verdict:
        """Return the verdict on a single number."""
        if use.role in (OPERAND, EXPONENT):
            if (use.computed and self._named) or self._is_folded:
                return SCALAR, f"a learned function of it goes into {use.op_type}"
            if self._named and (self._source.shape or self._names_tell):
                return SCALAR, f"a named number of {use.op_type}"
        return CONSTANT, f"a number of {use.op_type}"

    def _is_table(self) -> bool:
        integers = self._test(fixed.is_regular) and not self._test(fixed.is_constant)
        if integers and self._values is not None and np.abs(self._values).max() >= 8:
            return True
        return self._is_wave() or self._test(fixed.is_grid) or self._test(fixed.is_mesh)

    def _is_wave(self) -> bool:
        """Whether it holds sines and cosines: of one frequency, too, if an exporter folded it."""
        is_matrix = sum(dim > 1 for dim in self._source.shape) > 1
        one = not self._named and is_matrix
        return self._test(fixed.is_wave if one else fixed.is_sinusoid)

    def _test(self, test: Callable[..., bool], *arguments: float) -> bool:
        return self._values is not None and test(self._values, *arguments)


_AFTER = {Origin.PRODUCT: "product with a weight", Origin.NORMALIZED: "normalisation"}

_ADDED = EMBEDDING, "added to activations by {}"
_AMBIGUOUS = {
    CUSTOM: (WEIGHT, "an input of {}"),
    "Div": (SCALE, "scales activations in {}"),
    "Mul": (SCALE, "scales activations in {}"),
    "Pow": (SCALE, "the exponent of {}"),
    "ScatterElements": (TOKEN, "put in the place of activations by {}"),
    "ScatterND": (TOKEN, "put in the place of activations by {}"),
    "Where": (TOKEN, "put in the place of activations by {}"),
}

_SETTINGS: dict[str, Verdict] = {
    ANGLE: (TABLE, "the frequencies of {}"),
    CLASS_WEIGHT: (CONSTANT, "the class weights of {}"),
    QUANTIZATION: (QUANTIZATION, "the scale or zero point of {}"),
    SETTING: (CONSTANT, "a setting of {}"),
    STATISTIC: (STATISTIC, "the running statistics of {}"),
    TABLE: (TABLE, "the sines and cosines of {}"),
    WINDOW: (TABLE, "the window of {}"),
}


def _values_of(source: Source) -> np.ndarray | None:
    """Return the values of a tensor that lies in the model."""
    tensor = source.tensor
    if tensor is None or tensor.data_location == TensorProto.EXTERNAL:
        return None
    if tensor.data_type not in FLOATS:
        return None
    return array_of(tensor)


def _rank(kind: str) -> int:
    return TRAINED.index(kind) if kind in TRAINED else len(TRAINED)
