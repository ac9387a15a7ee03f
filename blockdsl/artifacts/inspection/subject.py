"""A model with its values at hand, and the nodes that read each of its initializers."""

from __future__ import annotations

from collections.abc import Mapping
from functools import cached_property
from typing import NamedTuple

import numpy as np
from onnx import ModelProto, NodeProto, TensorProto

from blockdsl.artifacts.exporter import Exporter
from blockdsl.artifacts.roles import Role, roles
from blockdsl.artifacts.slots import STATISTIC
from blockdsl.artifacts.steps import constant_tensor
from blockdsl.graph.tensor import FLOATS, array_of
from blockdsl.graph.walk import opset_of


class Reader(NamedTuple):
    """A node that reads an initializer.

    Attributes:
        node: The node.
        slot: The place of the initializer among its inputs.
        parameter: The parameter of the exported module that it reads there, "" if not known.
        alias: The other name by which it reads the initializer, "" if it has none.
    """

    node: NodeProto
    slot: int
    parameter: str
    alias: str


class Subject:
    """A forward model that is inspected.

    Args:
        model: The model.
        weights: The values of initializers that lie in other files.

    Attributes:
        initializers: The float initializers of the graph, by their names.
        exporter: The records of the exporter.
        aliases: The initializers that Identity nodes give another name, by that name.
    """

    def __init__(self, model: ModelProto, weights: Mapping[str, np.ndarray] = {}) -> None:
        self.model = model
        self.opset = opset_of(model) or 1
        self._weights = weights
        self.initializers = {t.name: t for t in model.graph.initializer if t.data_type in FLOATS}
        self.exporter = Exporter(model)
        self.nodes = [node for node, _ in self.exporter.calls]
        self.aliases: dict[str, str] = {}
        for node in model.graph.node:
            if node.op_type == "Identity" and self.source(node.input[0]) in self.initializers:
                self.aliases[node.output[0]] = self.source(node.input[0])

    def source(self, name: str) -> str:
        """Return the initializer that a tensor is another name of, or the name itself."""
        return self.aliases.get(name, name)

    def array(self, name: str) -> np.ndarray | None:
        """Return the values of an initializer, None if they are not at hand."""
        tensor = self.initializers[name]
        if name in self._weights:
            return self._weights[name]
        return None if tensor.data_location == TensorProto.EXTERNAL else array_of(tensor)

    def is_uniform(self, name: str) -> bool:
        """Whether all values of an initializer are one number."""
        array = self.array(name)
        return array is not None and array.size > 0 and bool((array == array.reshape(-1)[0]).all())

    @cached_property
    def roles(self) -> dict[str, Role]:
        """The roles of the tensors of the model."""
        return roles(self.model, self._weights)

    @cached_property
    def trained(self) -> set[str]:
        """The tensors that are parameters."""
        return {name for name, role in self.roles.items() if role.trained}

    def is_trained(self, name: str) -> bool:
        """Whether an initializer is a parameter, or would be if it were no statistic, too."""
        role = self.roles.get(name)
        return role is not None and (role.trained or role.kind == STATISTIC)

    @cached_property
    def readers(self) -> dict[str, list[Reader]]:
        """The nodes that read each float initializer, nodes that alias it left out."""
        found: dict[str, list[Reader]] = {}
        for node, call in self.exporter.calls:
            if node.op_type == "Identity" and node.output[0] in self.aliases:
                continue
            for slot, name in enumerate(node.input):
                source = self.source(name)
                if source in self.initializers:
                    alias = name if name != source else ""
                    parameter = self.exporter.parameter(node, call, slot, source)
                    found.setdefault(source, []).append(Reader(node, slot, parameter, alias))
        return found

    @cached_property
    def constants(self) -> dict[str, TensorProto]:
        """The tensors of Constant nodes, and the initializers of any type, by their names."""
        found = {tensor.name: tensor for tensor in self.model.graph.initializer}
        for node in self.nodes:
            if node.op_type == "Constant":
                tensor = constant_tensor(node)
                if isinstance(tensor, TensorProto):
                    found[node.output[0]] = tensor
        return found
