"""`op.X(...)`: every operator of the ONNX schema, typed and checked as it is called.

Inputs are given in the schema's order or by their names, attributes by their names. What is an
attribute in one opset and an input in another (the axes of a reduction, the bounds of `Clip`) is
written the same way for both. Numbers and arrays become constants of the type of what they meet.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import cache
from typing import Any, overload

import numpy as np
from onnx import TensorProto, defs

from blockdsl.errors import GraphError, OpError, near
from blockdsl.graph import microsoft
from blockdsl.graph.context import current
from blockdsl.graph.model import Graph
from blockdsl.graph.name import NameComparison
from blockdsl.graph.older_forms import REQUIRED_INPUTS, is_implied
from blockdsl.graph.schema import (
    MICROSOFT,
    ML,
    Operator,
    attribute_kind,
    newest,
    operator_names,
    require,
)
from blockdsl.graph.tensor import FLOATS, elem_type_of, np_dtype
from blockdsl.graph.value import Value


class OpNamespace:
    """The operators of one domain as attributes.

    Example:
        >>> import blockdsl
        >>> with blockdsl.empty_base(opset_version=13):
        ...     x = blockdsl.input("x", shape=("batch", 4))
        ...     y = blockdsl.op.ReduceSum(x, axes=[1], keepdims=0)
        ...     print(y.type)
        float32[batch]
    """

    def __init__(self, domain: str = "") -> None:
        self._domain = domain

    def __getattr__(self, name: str) -> _Caller:
        if name.startswith("_"):
            raise AttributeError(name)
        return _Caller(self._domain, name)

    def __dir__(self) -> list[str]:
        names = microsoft.OPERATORS if self._domain == MICROSOFT else operator_names(self._domain)
        return sorted([*names, *(["ml", "microsoft"] if not self._domain else [])])


class _Caller:
    """One operator, ready to be called."""

    def __init__(self, domain: str, name: str) -> None:
        self._domain, self._name = domain, name

    @overload
    def __call__(self, *inputs: Any, outputs: None = None, **named: Any) -> Value: ...

    @overload
    def __call__(self, *inputs: Any, outputs: int, **named: Any) -> tuple[Value, ...]: ...

    def __call__(self, *inputs: Any, outputs: int | None = None, **named: Any) -> Any:
        """Append a node.

        Args:
            *inputs: Tensors, numbers or arrays; None leaves an optional input out.
            outputs: How many outputs, when it is not the number of required ones.
            **named: Attributes, and inputs by name.

        Returns:
            The output; a tuple if there are several or their number was given.
        """
        return emit(current(), self._domain, self._name, inputs, named, outputs)

    def __repr__(self) -> str:
        return f"<operator {self._domain}::{self._name}>" if self._domain else self._name


class _Root(OpNamespace):
    """The default domain, with the others beneath it: `op.ml.X`, `op.microsoft.X`."""

    ml = OpNamespace(ML)
    microsoft = OpNamespace(MICROSOFT)


op = _Root()


def emit(
    graph: Graph,
    domain: str,
    name: str,
    inputs: Sequence[Any],
    named: Mapping[str, Any],
    outputs: int | None = None,
) -> Any:
    """Append a node to a graph; see `OpNamespace` for how inputs and attributes are given.

    Raises:
        OpError: The operator does not exist in the model's opset, or does not take these inputs
            or attributes.
        GraphError: The types or shapes of the inputs do not fit.
    """
    for given in (*inputs, *named.values()):
        if isinstance(given, NameComparison):
            raise given.error()
    form = _form(graph, domain, name)
    most = None if form.outputs and form.outputs[-1].variadic else len(form.outputs)
    if outputs is not None and not (isinstance(outputs, int) and 1 <= outputs <= (most or outputs)):
        raise OpError(f"{form} has 1 to {most or 'any number of'} outputs, not {outputs!r}.")
    slots, attributes = _arrange(graph, form, inputs, named)
    names = _to_names(graph, form, slots)
    while names and not names[-1]:
        names.pop()
    made = graph.add_node(form, names, outputs or form.required_outputs, attributes)
    return made[0] if outputs is None and len(made) == 1 else tuple(made)


def open_graph(value: Value) -> Graph:
    """The graph that is open here, which a tensor is used in.

    Raises:
        UnknownNameError: The tensor exists only in the body of a branch or loop.
        GraphError: It belongs to another model: it was kept from an earlier build.
    """
    here = current()
    if value.graph in here.scopes:
        return here
    if value.graph.scopes[0] is not here.scopes[0]:
        raise GraphError(
            f"{str(value)!r} is a tensor of another model than the one that is open here. A block "
            f"makes its tensors anew in every build, and keeps none of them."
        )
    if value not in here:
        raise here.unknown(value)
    return here


def _form(graph: Graph, domain: str, name: str) -> Operator:
    if domain == MICROSOFT:
        if name not in microsoft.OPERATORS:
            raise OpError(
                f"The type of {MICROSOFT}::{name} is not known. {near(name, microsoft.OPERATORS)} "
                f"Append its node with onnx.helper.make_node and a value_info."
            )
        return microsoft.OPERATORS[name]
    return require(name, graph.opset(domain) or _newest_version(domain), domain)


@cache
def _newest_version(domain: str) -> int:
    return max(s.since_version for s in defs.get_all_schemas() if s.domain == domain)


def _arrange(
    graph: Graph, form: Operator, inputs: Sequence[Any], named: Mapping[str, Any]
) -> tuple[list[Any], dict[str, Any]]:
    """Sort what was given into the inputs and attributes of this version of the operator."""
    slots, attributes = list(inputs), {}
    for key, given in named.items():
        if given is None:
            continue
        if key in form.attributes:
            attributes[key] = _as_attribute(graph, form, key, given)
        elif key in form.input_names:
            index = form.input_names.index(key)
            slots.extend([None] * (index + 1 - len(slots)))
            if slots[index] is not None:
                raise OpError(f"{form} is given its input {key!r} twice.")
            slots[index] = given
        elif not is_implied(form.name, key, given):
            known = [*form.input_names, *form.attributes]
            raise OpError(f"{form} (opset {form.version}) takes no {key!r}. {near(key, known)}")
    limit = None if form.inputs and form.inputs[-1].variadic else len(form.inputs)
    if limit is not None and len(slots) > limit:
        slots = _overflow_to_attributes(graph, form, slots, attributes, limit)
    needed = [i for i, p in enumerate(form.inputs) if not (p.optional or p.variadic)]
    slots.extend([None] * (max(needed, default=-1) + 1 - len(slots)))
    for i in needed:
        if slots[i] is None:
            slots[i] = REQUIRED_INPUTS.get((form.name, form.input_names[i]))
    if any(slots[i] is None for i in needed):
        names = ", ".join(form.input_names[i] for i in needed)
        raise OpError(f"{form} needs the inputs {names}.")
    return slots, attributes


def _overflow_to_attributes(
    graph: Graph, form: Operator, slots: list[Any], attributes: dict[str, Any], limit: int
) -> list[Any]:
    """Inputs that this version has as attributes: the newest version says which they are."""
    latest = newest(form.name, form.domain)
    names = latest.input_names if latest else ()
    for index, given in enumerate(slots[limit:], start=limit):
        if given is None:
            continue
        if index >= len(names) or names[index] not in form.attributes:
            raise OpError(
                f"{form} (opset {form.version}) takes {limit} inputs, and {len(slots)} were given."
            )
        attributes[names[index]] = _as_attribute(graph, form, names[index], given)
    return slots[:limit]


def _as_attribute(graph: Graph, form: Operator, key: str, given: Any) -> Any:
    kind = attribute_kind(form, key)
    try:
        return _converted(graph, form, key, kind, given)
    except (TypeError, ValueError) as error:
        if isinstance(error, OpError):
            raise
        raise OpError(f"{form} takes {kind} for {key!r}, not {given!r}.") from error


def _converted(graph: Graph, form: Operator, key: str, kind: str, given: Any) -> Any:
    if isinstance(given, Value) and given not in graph:
        raise graph.unknown(given, str(form))
    if isinstance(given, str) and kind not in ("STRING", "STRINGS") and given in graph:
        constant = graph.constant_value(given)
        if constant is None:
            raise OpError(
                f"{key!r} of {form} is an attribute in opset {form.version}: it needs a constant, "
                f"and {str(given)!r} is computed. A newer opset takes it as an input."
            )
        given = constant
    if isinstance(given, np.ndarray):
        return given.item() if kind in ("INT", "FLOAT") else given.tolist()
    if isinstance(given, bool | np.generic):
        return given.item() if isinstance(given, np.generic) else int(given)
    return float(given) if kind == "FLOAT" else given


def _to_names(graph: Graph, form: Operator, slots: Sequence[Any]) -> list[str]:
    """The names of the inputs; what is not a tensor yet becomes a constant of the right type."""
    last = len(form.inputs) - 1
    kinds = [form.inputs[min(i, last)].type for i in range(len(slots))]
    bound: dict[str, np.dtype] = {}
    for kind, given in zip(kinds, slots, strict=True):
        if isinstance(given, str):
            if given not in graph:
                graph.sync()
            if given not in graph:
                raise graph.unknown(given, str(form))
            if kind not in bound and graph.is_tensor(given):
                bound[kind] = graph.type_of(given).dtype
    for kind, given in zip(kinds, slots, strict=True):
        if isinstance(given, np.ndarray | np.generic):
            bound.setdefault(kind, np.asarray(given).dtype)
    return [
        "" if g is None else str(g) if isinstance(g, str) else _constant(graph, g, k, bound)
        for k, g in zip(kinds, slots, strict=True)
    ]


def refuse_names(graph: Graph, given: Any, array: np.ndarray) -> None:
    """Refuse a list of tensors, of which NumPy would make an array of their names.

    Raises:
        OpError: It is one.
    """
    if array.dtype.kind == "U" and array.size and all(str(name) in graph for name in array.flat):
        raise OpError(
            f"{given!r} is a list of tensors, where one is needed: give them one by one, "
            f"op.Concat(a, b, axis=0), or join them with op.Concat."
        )


def _constant(graph: Graph, given: Any, kind: str, bound: Mapping[str, np.dtype]) -> str:
    try:
        array = np.asarray(given)
        refuse_names(graph, given, array)
        dtype = _constant_type(given, array.dtype, kind, bound)
        made = array.astype(dtype)
    except (TypeError, ValueError) as error:
        if isinstance(error, OpError):
            raise
        raise OpError(f"A tensor, a number or an array is needed here, not {given!r}.") from error
    if made.dtype.kind in "iub" and array.dtype.kind in "iuf" and np.any(made != array):
        raise OpError(
            f"{given!r} meets tensors of {made.dtype.name}, which cannot hold it: cast them first, "
            f"to a floating-point type with x.cast(np.float32)."
        )
    return str(graph.add_constant(made))


def _constant_type(
    given: Any, dtype: np.dtype, kind: str, bound: Mapping[str, np.dtype]
) -> np.dtype:
    """The type of a constant: that of what it meets, or what the schema leaves no choice about."""
    if kind in bound:
        return bound[kind]
    if kind in _CONCRETE:
        return _CONCRETE[kind]
    if isinstance(given, np.ndarray | np.generic) or dtype.kind != "f":
        return dtype
    floats = [d for d in bound.values() if elem_type_of(d) in FLOATS]
    return floats[0] if floats else np.dtype(np.float32)


_CONCRETE = {
    f"tensor({name})": np_dtype(elem_type)
    for name, elem_type in (
        ("float", TensorProto.FLOAT),
        ("double", TensorProto.DOUBLE),
        ("int64", TensorProto.INT64),
        ("int32", TensorProto.INT32),
        ("bool", TensorProto.BOOL),
        ("uint8", TensorProto.UINT8),
    )
}
"""Type strings of schemas that leave no choice."""
