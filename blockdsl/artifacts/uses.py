"""What a model does with its tensors: where they come from, and which slots they end in."""

from __future__ import annotations

from collections.abc import Iterable
from enum import Enum, auto
from typing import NamedTuple

from blockdsl.artifacts.slots import (
    ADD,
    ALL_DATA,
    ARITHMETIC,
    BIAS,
    COMPUTED,
    EMBEDDING,
    LAYOUT,
    LOOKUPS,
    MULTIPLY,
    NORMALIZATIONS,
    PRODUCTS,
    SLOTS,
    TOKEN,
    WEIGHT,
    Slots,
)
from blockdsl.artifacts.steps import Step, Steps
from blockdsl.graph.schema import MICROSOFT, ML
from blockdsl.graph.tensor import FLOATS

OPERAND, EXPONENT, FILLER = "operand", "exponent", "filler"
ANGLE, CUSTOM, SETTING, DATA = "angle", "custom", "setting", "data"


class Origin(Enum):
    """How a tensor comes about, as far as it tells what a constant that meets it is."""

    CONSTANT = auto()  # from what the model holds alone
    POSITION = auto()  # from integers, booleans and shapes
    INPUT = auto()  # a float input, moved about at most
    PREPROCESSED = auto()  # a float input that met constants alone
    PRODUCT = auto()  # a product with a weight
    NORMALIZED = auto()
    DEVIATION = auto()  # a root or norm of activations, which normalisations divide by
    ACTIVATION = auto()  # anything else


class Use(NamedTuple):
    """A slot that a tensor ends in, layout operators between left out.

    Attributes:
        role: The role of a constant there, or one of the constants above.
        op_type: The operator.
        other: What arithmetic combines it with.
        computed: Whether a function of it, Exp or Sigmoid, goes there.
        layered: Whether an operator with a weight follows.
        combined: The operator that combines it with other constants on the way, "" if none does.
        dequantized: Whether integers become floats on the way.
    """

    role: str
    op_type: str
    other: Origin = Origin.ACTIVATION
    computed: bool = False
    layered: bool = False
    combined: str = ""
    dequantized: bool = False


_FILLERS = {"Where": (1, 2), "ScatterElements": (0, 2), "ScatterND": (0, 2), "Scatter": (0, 2)}
_RANDOM = frozenset(
    {
        "Bernoulli",
        "Multinomial",
        "RandomNormal",
        "RandomNormalLike",
        "RandomUniform",
        "RandomUniformLike",
    }
)
_ROOTS = frozenset({"Sqrt", "ReduceL1", "ReduceL2", "GlobalLpPool", "LpPool"})
_KEEPS_DEVIATION = frozenset({"Add", "Clip", "Max", "Reciprocal"})
_INPUTS = frozenset({Origin.INPUT, Origin.PREPROCESSED})
_SCALED = frozenset({Origin.PRODUCT, Origin.NORMALIZED})
_KNOWN = frozenset({Origin.CONSTANT, Origin.POSITION})
_STANDARD = frozenset({"", MICROSOFT, ML})


class Flow:
    """Origins and uses of all tensors of a model.

    Args:
        model: The model, flat.
    """

    def __init__(self, model: Steps) -> None:
        self._numbers = {s.name for s in model.sources.values() if s.size == 1}
        self._floats = {s.name for s in model.sources.values() if s.elem_type in FLOATS}
        self._origins = dict.fromkeys(model.sources, Origin.CONSTANT)
        for name, elem_type in model.inputs.items():
            self._origins[name] = Origin.INPUT if elem_type in FLOATS else Origin.POSITION
        for step in model.steps:
            origin = self._origin(step)
            for name in step.outputs:
                # The branches of an If write the same tensor.
                before = self._origins.get(name, origin)
                self._origins[name] = origin if before is origin else Origin.ACTIVATION
        self._layered: set[str] = set()
        self._uses: dict[str, set[Use]] = {}
        for step in reversed(model.steps):
            self._record(step)

    def uses(self, name: str) -> Iterable[Use]:
        """Return the uses of a tensor."""
        return self._uses.get(name, ())

    # -- forward -------------------------------------------------------------------------------

    def _origin(self, step: Step) -> Origin:
        if step.op_type in _RANDOM:
            return Origin.ACTIVATION
        given = [self._origins.get(name, Origin.ACTIVATION) for name in step.inputs if name]
        if step.op_type in ("Shape", "Size") or not given:
            return Origin.POSITION
        if step.op_type in LAYOUT:
            data = set(given if step.op_type in ALL_DATA else given[:1])
            return data.pop() if len(data) == 1 else _joined(data)
        if step.op_type in LOOKUPS:
            table = step.inputs[0] in self._floats and given[1] is not Origin.CONSTANT
            return Origin.ACTIVATION if table else given[0]
        if _KNOWN.issuperset(given):
            return _joined(set(given))
        if step.op_type in NORMALIZATIONS:
            return Origin.NORMALIZED
        if step.op_type in PRODUCTS:
            return _of_product(_slots(step), given)
        if step.op_type in ARITHMETIC and given[0] in _INPUTS and given[-1] is Origin.CONSTANT:
            return self._of_inputs(step, given[0])
        return _of_arithmetic(step.op_type, given)

    def _of_inputs(self, step: Step, origin: Origin) -> Origin:
        """Return the origin of an input that meets a constant: less a mean, over a deviation."""
        if step.inputs[-1] in self._numbers:
            return origin
        is_sum = step.op_type in ("Add", "Sum")
        preprocessed = not is_sum and (step.op_type != "Mul" or origin is Origin.PREPROCESSED)
        return Origin.PREPROCESSED if preprocessed else Origin.ACTIVATION

    # -- backward ------------------------------------------------------------------------------

    def _record(self, step: Step) -> None:
        """Add the uses of the inputs of a step, those of its outputs being known."""
        result = {use for name in step.outputs for use in self._uses.get(name, ())}
        if WEIGHT in _slots(step).values() or not self._layered.isdisjoint(step.outputs):
            self._layered.update(step.inputs)
        constant = all(self._is_constant(name) for name in step.inputs)
        for slot, name in enumerate(step.inputs):
            if name:
                found = self._at(step, slot, result, constant=constant)
                self._uses.setdefault(name, set()).update(found)

    def _is_constant(self, name: str) -> bool:
        return not name or self._origins.get(name) is Origin.CONSTANT

    def _at(self, step: Step, slot: int, result: set[Use], *, constant: bool) -> Iterable[Use]:
        """Return the uses of the tensor in a slot of a step.

        Args:
            step: The step.
            slot: The slot.
            result: The uses of the outputs.
            constant: Whether all inputs are constants.
        """
        op_type, role = step.op_type, _slots(step).get(slot)
        if op_type in LAYOUT and (slot == 0 or op_type in ALL_DATA):
            joins = op_type in ALL_DATA and not constant and self._is_constant(step.inputs[slot])
            if op_type == "DequantizeLinear":
                return {use._replace(dequantized=True) for use in result}
            return [Use(TOKEN, op_type)] if joins else result
        if op_type in ("Sin", "Cos"):
            return [Use(ANGLE, op_type)]
        if constant and (role == WEIGHT or op_type in ARITHMETIC):
            return {use._replace(combined=op_type) for use in result}
        if (role == WEIGHT or op_type == "Mul") and self._turns_positions(step, slot, result):
            return [Use(ANGLE, op_type)]
        if role is not None and not (constant and role == EMBEDDING):
            return [Use(role, op_type, dequantized=any(use.dequantized for use in result))]
        if op_type in ARITHMETIC:
            return self._operand(step, slot, result)
        if slot in _FILLERS.get(op_type, ()):
            return [Use(FILLER, op_type)]
        if constant and slot == 0:
            computed = op_type in COMPUTED
            return {use._replace(computed=use.computed or computed) for use in result}
        if step.domain not in _STANDARD:
            return [Use(CUSTOM, op_type)]
        return [Use(EXPONENT if op_type == "Pow" and slot == 1 else SETTING, op_type)]

    def _operand(self, step: Step, slot: int, result: set[Use]) -> Iterable[Use]:
        """Return the uses of an operand of arithmetic that is not of constants alone."""
        origin, other = self._origins.get(step.inputs[slot]), self._other(step, slot)
        if origin not in _KNOWN:
            return [Use(DATA, step.op_type)]
        if other in _KNOWN and ARITHMETIC[step.op_type] == ADD:  # a bias and a mask, say
            return {use._replace(combined=step.op_type) for use in result}
        layered = not self._layered.isdisjoint(step.outputs)
        return [Use(OPERAND, step.op_type, other, layered=layered)]

    def _turns_positions(self, step: Step, slot: int, result: set[Use]) -> bool:
        """Whether a product multiplies positions and only its sines and cosines are taken."""
        turned = {use.role for use in result} == {ANGLE}
        return turned and self._other(step, slot) in (Origin.POSITION, Origin.INPUT)

    def _other(self, step: Step, slot: int) -> Origin:
        """Return what the tensor in a slot meets there."""
        others = {
            self._origins.get(name, Origin.ACTIVATION)
            for i, name in enumerate(step.inputs)
            if name and i != slot
        }
        return _joined(others)


def _slots(step: Step) -> Slots:
    return SLOTS.get((step.domain, step.op_type), {})


def _joined(origins: set[Origin]) -> Origin:
    """Return the origin of what is made of tensors of several origins."""
    if len(origins) > 1:
        origins = origins - {Origin.CONSTANT}
    return origins.pop() if len(origins) == 1 else Origin.ACTIVATION


def _of_product(slots: Slots, given: list[Origin]) -> Origin:
    """Return PRODUCT for a product with a weight that has no bias of its own yet."""
    constant = [slots.get(i) for i, origin in enumerate(given) if origin is Origin.CONSTANT]
    return Origin.PRODUCT if constant and BIAS not in constant else Origin.ACTIVATION


def _of_arithmetic(op_type: str, given: list[Origin]) -> Origin:
    """Return the origin of what elementwise operators and reductions compute of activations."""
    other = _joined(set(given))
    if op_type in _ROOTS or (op_type in _KEEPS_DEVIATION and other is Origin.DEVIATION):
        return Origin.DEVIATION
    kind = ARITHMETIC.get(op_type)
    if kind == MULTIPLY and (
        given[-1] is Origin.DEVIATION or (op_type == "Mul" and Origin.DEVIATION in given)
    ):
        return Origin.NORMALIZED
    if kind == MULTIPLY and Origin.CONSTANT in given and other in _SCALED:
        return other
    return Origin.ACTIVATION
