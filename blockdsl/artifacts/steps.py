"""A model as one flat list of steps: bodies of control flow and local functions in their places.

Every tensor has one name in the list, so that whoever follows tensors through a model need not know
of scopes. A constant of a function is one tensor, however often the function is called.
"""

from __future__ import annotations

from collections import ChainMap, Counter
from collections.abc import Collection, Iterable, Iterator, MutableMapping, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

from onnx import (
    AttributeProto,
    FunctionProto,
    GraphProto,
    ModelProto,
    NodeProto,
    SparseTensorProto,
    TensorProto,
    ValueInfoProto,
    helper,
)

from blockdsl.graph.check import check_calls
from blockdsl.graph.walk import all_nodes, subgraphs

Owner = GraphProto | FunctionProto
Names = MutableMapping[str, str]


class Step(NamedTuple):
    """A node with the names that its tensors have in the whole model, "" for missing inputs."""

    op_type: str
    domain: str
    inputs: tuple[str, ...]
    outputs: tuple[str, ...]


@dataclass(frozen=True, eq=False)
class Source:
    """A tensor whose value the model holds.

    Attributes:
        name: Its name in the list of steps.
        elem_type: Its element type.
        shape: Its shape.
        tensor: Its value; None if it is stored sparse.
        in_node: Whether a Constant node holds it, and no initializer.
        owner: The graph, body or function that it belongs to.
        local: Its name there.
        function: The function that it belongs to, itself or as part of a body; None if none.
        is_outermost: Whether it belongs to the graph itself.
    """

    name: str
    elem_type: int
    shape: tuple[int, ...]
    tensor: TensorProto | None
    in_node: bool
    owner: Owner
    local: str
    function: FunctionProto | None
    is_outermost: bool

    @property
    def is_initializer(self) -> bool:
        """Whether it is an initializer of the graph itself."""
        return self.is_outermost and not self.in_node

    @property
    def size(self) -> int:
        """Number of its values."""
        count = 1
        for dim in self.shape:
            count *= dim
        return count


@dataclass
class Steps:
    """The steps of a model in order, its sources by their names, and its inputs' element types."""

    steps: list[Step] = field(default_factory=list)
    sources: dict[str, Source] = field(default_factory=dict)
    inputs: dict[str, int] = field(default_factory=dict)


def steps_of(model: ModelProto, held: Collection[str] = ()) -> Steps:
    """Return the flat form of a model.

    Args:
        model: The model.
        held: Inputs whose values are held elsewhere: the parameters of artifacts.

    Raises:
        GraphError: A function of the model calls itself.
    """
    check_calls(model)
    return _Flattening(model, held).result


def constant_tensor(node: NodeProto) -> TensorProto | SparseTensorProto | None:
    """Return the tensor of a Constant node; None for texts and for attributes of a function."""
    attribute = node.attribute[0] if node.attribute else AttributeProto()
    if attribute.ref_attr_name or attribute.name in ("value_string", "value_strings"):
        return None
    if attribute.name in ("value", "sparse_value"):
        return attribute.t if attribute.HasField("t") else attribute.sparse_tensor
    value = helper.get_attribute_value(attribute)
    kind = TensorProto.FLOAT if attribute.name.startswith("value_float") else TensorProto.INT64
    dims = [] if attribute.name in ("value_float", "value_int") else [len(value)]
    return helper.make_tensor(attribute.name, kind, dims, value if dims else [value])


@dataclass(frozen=True)
class _Scope:
    """Names in a graph, body or call of a function.

    Attributes:
        names: The names in the list of the tensors that have others there.
        path: Where it stands in the model, "" for the graph itself.
        home: The same for where its text stands: calls of a function have one home.
        function: The function whose text it is part of.
    """

    names: Names
    path: str = ""
    home: str = ""
    function: FunctionProto | None = None

    def inside(self, node: NodeProto, attribute: str = "") -> _Scope:
        """Return the scope of a body of a node."""
        own = node.name or next(filter(None, node.output), node.op_type)
        place = f"{own}/{attribute}" if attribute else own
        path, home = (f"{base}/{place}" if base else place for base in (self.path, self.home))
        return _Scope(ChainMap({}, self.names), path, home, self.function)


class _Flattening:
    """The walk that `steps_of` takes."""

    def __init__(self, model: ModelProto, held: Collection[str]) -> None:
        self.result = Steps()
        self._functions = {(f.domain, f.name): f for f in model.functions}
        self._sources: dict[tuple[str, str], str] = {}
        names = Counter(_names(model))
        self._taken = set(names)
        self._repeated = {name for name, count in names.items() if count > 1}
        self._graph(model.graph, _Scope({}))
        for value in model.graph.input:
            if value.name not in self.result.sources:
                self._input(value, model.graph, is_held=value.name in held)

    def _input(self, value: ValueInfoProto, graph: GraphProto, *, is_held: bool) -> None:
        name, tensor = value.name, value.type.tensor_type
        if is_held:
            shape = tuple(dim.dim_value for dim in tensor.shape.dim)
            self.result.sources[name] = Source(
                name, tensor.elem_type, shape, None, False, graph, name, None, is_outermost=True
            )
        else:
            self.result.inputs[name] = tensor.elem_type

    def _graph(self, graph: GraphProto, scope: _Scope) -> None:
        for tensor in graph.initializer:
            self._add_source(tensor, tensor.name, graph, scope, in_node=False)
        for sparse in graph.sparse_initializer:
            self._add_source(sparse, sparse.values.name, graph, scope, in_node=False)
        for node in graph.node:
            self._node(node, graph, scope)

    def _node(self, node: NodeProto, owner: Owner, scope: _Scope) -> None:
        domain = "" if node.domain == "ai.onnx" else node.domain
        tensor = constant_tensor(node) if node.op_type == "Constant" and not domain else None
        if tensor is not None:
            self._add_source(tensor, node.output[0], owner, scope, in_node=True)
            return
        inputs = tuple(scope.names.get(name, name) for name in node.input)
        outputs = tuple(self._define(name, scope) for name in node.output)
        function = self._functions.get((node.domain, node.op_type))
        if function is not None:
            self._call(function, inputs, outputs, scope.inside(node).path)
        elif any(True for _ in subgraphs(node)):
            self._bodies(node, inputs, outputs, scope)
        else:
            self.result.steps.append(Step(node.op_type, domain, inputs, outputs))

    def _call(
        self, function: FunctionProto, inputs: Sequence[str], outputs: Sequence[str], path: str
    ) -> None:
        given = [*inputs, *[""] * (len(function.input) - len(inputs))]
        names: Names = dict(zip(function.input, given, strict=False))
        scope = _Scope(names, path, function.name, function)
        for node in function.node:
            self._node(node, function, scope)
        self._bind(outputs, (names.get(name, name) for name in function.output))

    def _bodies(
        self, node: NodeProto, inputs: Sequence[str], outputs: Sequence[str], scope: _Scope
    ) -> None:
        if node.op_type == "If":
            self.result.steps.append(Step("If", "", tuple(inputs), ()))
        for attribute in node.attribute:
            for body in [attribute.g] if attribute.HasField("g") else attribute.graphs:
                inner = scope.inside(node, attribute.name)
                formals = [self._define(value.name, inner) for value in body.input]
                if node.op_type == "Loop":
                    self.result.steps.append(Step("Range", "", (), tuple(formals[:2])))
                    self._bind(formals[2:], inputs[2:])
                else:
                    self._bind(formals, inputs[len(inputs) - len(formals) :])
                self._graph(body, inner)
                results = [inner.names.get(value.name, value.name) for value in body.output]
                self._bind(outputs, results[1:] if node.op_type == "Loop" else results)

    def _bind(self, names: Iterable[str], values: Iterable[str]) -> None:
        for name, value in zip(names, values, strict=False):
            if name:
                self.result.steps.append(Step("Identity", "", (value,), (name,)))

    def _add_source(
        self,
        tensor: TensorProto | SparseTensorProto,
        local: str,
        owner: Owner,
        scope: _Scope,
        *,
        in_node: bool,
    ) -> None:
        key = scope.home, local
        if key in self._sources:
            scope.names[local] = self._sources[key]
            return
        name = local
        if scope.home and local in self._repeated:
            name = self._unique(f"{scope.home}/{local}")
        scope.names[local] = self._sources[key] = name
        dense = tensor if isinstance(tensor, TensorProto) else None
        elem_type = (tensor.values if isinstance(tensor, SparseTensorProto) else tensor).data_type
        self.result.sources[name] = Source(
            name,
            elem_type,
            tuple(tensor.dims),
            dense,
            in_node,
            owner,
            local,
            scope.function,
            is_outermost=not scope.path,
        )

    def _define(self, local: str, scope: _Scope) -> str:
        """Return a name of its own for a tensor of a scope that is computed."""
        if not local or not scope.path:
            return local
        scope.names[local] = self._unique(f"{scope.path}/{local}")
        return scope.names[local]

    def _unique(self, name: str) -> str:
        base, count = name, 0
        while name in self._taken:
            count += 1
            name = f"{base}_{count}"
        self._taken.add(name)
        return name


def _names(model: ModelProto) -> Iterator[str]:
    """Yield every name that the model gives to a tensor, once for every time that it does."""
    graphs: list[Owner] = [model.graph, *model.functions]
    for graph in graphs:
        yield from _own_names(graph)
        for node in all_nodes(graph.node):
            for body in subgraphs(node):
                yield from _own_names(body)


def _own_names(graph: Owner) -> Iterator[str]:
    if isinstance(graph, GraphProto):
        own = {tensor.name for tensor in graph.initializer}
        own |= {sparse.values.name for sparse in graph.sparse_initializer}
        yield from own
        yield from (value.name for value in graph.input if value.name not in own)
    else:
        yield from graph.input
    for node in graph.node:
        yield from filter(None, node.output)
