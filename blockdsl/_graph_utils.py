"""The helper functions of `onnxruntime.training.onnxblock._graph_utils`, which custom blocks use.

Blocks written for blockdsl need none of them: tensors are values, and `blockdsl.op` names nodes.
"""

from __future__ import annotations

from collections.abc import Iterable

from onnx import ModelProto, ValueInfoProto

from blockdsl.errors import UnknownNameError, near
from blockdsl.graph.context import opened
from blockdsl.graph.model import Graph
from blockdsl.graph.naming import Namer

_names = Namer()
"""The names that are generated while no model is open."""


def get_output_from_output_name(onnx_model: ModelProto, output_name: str) -> ValueInfoProto:
    """Return an output of a model.

    Args:
        onnx_model: The model.
        output_name: The name of the output.

    Raises:
        UnknownNameError: The model has no such output.
    """
    return _find(onnx_model.graph.output, output_name, "output")


def get_input_from_input_name(onnx_model: ModelProto, input_name: str) -> ValueInfoProto:
    """Return an input of a model.

    Args:
        onnx_model: The model.
        input_name: The name of the input.

    Raises:
        UnknownNameError: The model has no such input.
    """
    return _find(onnx_model.graph.input, input_name, "input")


def generate_graph_name(token: str) -> str:
    """Return a name for a node or tensor that the open model does not have yet.

    Args:
        token: The end of the name.

    Example:
        >>> import blockdsl
        >>> with blockdsl.empty_base():
        ...     [generate_graph_name("scale"), generate_graph_name("scale")]
        ['scale', 'scale_1']
    """
    graph = opened()
    return (_names if graph is None else graph.names).unique(token)


def register_graph_outputs(model: ModelProto, output_names: list[str] | str) -> None:
    """Make tensors of a model its outputs, in place.

    Args:
        model: The model.
        output_names: The names of the tensors.

    Raises:
        UnknownNameError: The model has no such tensor.
    """
    names = [output_names] if isinstance(output_names, str) else output_names
    graph = opened()
    if graph is None or graph.proto is not model:
        graph = Graph(model)
    for name in names:
        if name not in graph:
            raise UnknownNameError(
                f"The provided name {name} is not a graph value info or a graph output. "
                f"{near(name, list(graph.known_names()))}"
            )
    graph.set_outputs(names)


def node_arg_exists(model: ModelProto, node_arg_name: str) -> bool:
    """Whether a node of the model reads or writes a tensor of that name."""
    return any(
        node_arg_name in node.input or node_arg_name in node.output for node in model.graph.node
    )


def _find(infos: Iterable[ValueInfoProto], name: str, kind: str) -> ValueInfoProto:
    found = {info.name: info for info in infos}
    if name not in found:
        raise UnknownNameError(
            f"The provided {kind} name {name} is not a graph {kind}. {near(name, found)}"
        )
    return found[name]
