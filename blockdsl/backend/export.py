"""The inference model: what the wanted outputs need of an eval model, with the trained weights."""

from __future__ import annotations

import os
from collections.abc import Callable, Collection, Sequence, Set
from pathlib import Path

import onnx
from onnx import helper, numpy_helper

from blockdsl.backend import writing
from blockdsl.backend.engine import Array
from blockdsl.backend.files import StrPath, is_ort_format, read_model
from blockdsl.backend.foreign import replace_foreign_operators
from blockdsl.backend.forward import forward_model, is_training_model
from blockdsl.backend.identity import KEY
from blockdsl.backend.walk import ancestors, called_functions
from blockdsl.errors import (
    EngineError,
    GradientError,
    GraphError,
    StateError,
    UnknownNameError,
    near,
)
from blockdsl.graph.walk import all_nodes, reads

_SMALL = 4096  # bytes: tensors below this may be shapes, which type inference looks into


def export_for_inference(
    source: StrPath,
    path: StrPath,
    output_names: Sequence[str],
    parameter_names: Collection[str],
    value_of: Callable[[str], Array],
) -> None:
    """Write the inference model of an eval model or of a training model.

    Args:
        source: The file of the eval model, or of the training model where there is none.
        path: The file to write; an old one is replaced when the new one is complete.
        output_names: What the inference model returns: any tensors of the source, in order.
        parameter_names: The inputs of the source that are parameters.
        value_of: Gives the current value of a parameter.

    Raises:
        EngineError: The source is in the `.ort` format, or cannot be turned to inference.
        UnknownNameError: The source has no such tensor.
    """
    if is_ort_format(source):
        raise EngineError(
            f"The model '{os.fspath(source)}' is in the .ort format, whose graph is fixed, so that "
            "no inference model can be made of it. Make the module with the .onnx file that lies "
            "beside it."
        )
    model = read_model(source)
    if Path(path).exists() and Path(path).samefile(source):
        raise EngineError(
            f"'{os.fspath(path)}' is the model that the inference model is made of. Choose another "
            "name, or the next export finds the weights of this one."
        )
    if is_training_model(model.graph):
        model = forward_model(model, parameter_names)
    made = inference_model(model, output_names, parameter_names, value_of)
    try:
        replace_foreign_operators(made)
    except (GradientError, GraphError) as error:
        raise EngineError(
            f"No inference model can be made of '{os.fspath(source)}': {error} Make the module "
            "with the eval model: `Module(..., eval_model_uri='eval_model.onnx')`."
        ) from error
    types = _types(made, output_names)  # which pass through more operators now
    for output in made.graph.output:
        output.CopyFrom(types[output.name])
    write_model(made, path)


def inference_model(
    model: onnx.ModelProto,
    output_names: Sequence[str],
    parameter_names: Collection[str],
    value_of: Callable[[str], Array],
) -> onnx.ModelProto:
    """The part of a model that the named tensors need, its parameters turned into initializers.

    Raises:
        StateError: `output_names` is a string instead of a list of strings.
        EngineError: `output_names` is empty.
        UnknownNameError: The model has no such tensor.
    """
    _check_names(model.graph, output_names)
    needed = ancestors(model.graph.node, output_names)
    nodes = [node for index, node in enumerate(model.graph.node) if index in needed]
    used = {name for node in nodes for name in reads(node)} | set(output_names)

    result = onnx.ModelProto()
    result.ir_version = max(model.ir_version, 4)  # since 4, initializers need not be inputs
    result.producer_name = "blockdsl"
    result.model_version = model.model_version
    result.metadata_props.extend(entry for entry in model.metadata_props if entry.key != KEY)
    result.functions.extend(called_functions(model, nodes))
    domains = {node.domain for node in all_nodes(nodes)} | {"", "ai.onnx"}
    for function in result.functions:
        domains |= {node.domain for node in all_nodes(function.node)}
    result.opset_import.extend(o for o in model.opset_import if o.domain in domains)

    graph = result.graph
    graph.name = model.graph.name
    graph.node.extend(nodes)
    graph.input.extend(
        i for i in model.graph.input if i.name in used and i.name not in parameter_names
    )
    graph.initializer.extend(i for i in model.graph.initializer if i.name in used)
    graph.sparse_initializer.extend(
        i for i in model.graph.sparse_initializer if i.values.name in used
    )
    graph.initializer.extend(
        numpy_helper.from_array(value_of(i.name), i.name)
        for i in model.graph.input
        if i.name in used and i.name in parameter_names
    )
    made = {name for node in nodes for name in node.output}
    graph.value_info.extend(
        v for v in model.graph.value_info if v.name in made and v.name not in output_names
    )
    types = _types(model, output_names)
    graph.output.extend(types[name] for name in output_names)
    return result


def write_model(model: onnx.ModelProto, path: StrPath) -> None:
    """Write a model, atomically; weights too large for one protobuf go to `<path>.data`."""
    try:
        writing.write(model, path, whole=True)
    except OSError as error:
        raise EngineError(f"The model '{path}' cannot be written: {error.strerror}.") from error


def _check_names(graph: onnx.GraphProto, output_names: Sequence[str]) -> None:
    if isinstance(output_names, str | bytes):
        raise StateError(
            f"The output names are a list of strings, not a string: write ['{output_names}']."
        )
    if not isinstance(output_names, Sequence | Set | None):
        raise StateError(
            f"The output names are a list of strings, not a {type(output_names).__name__}."
        )
    strange = [n for n in output_names or () if not isinstance(n, str)]
    if strange:
        raise StateError(
            f"The output names are a list of strings; a {type(strange[0]).__name__} is among them."
        )
    if not output_names:
        raise EngineError(
            "Expected a non empty vector of output names: name at least one tensor that the "
            f"inference model shall return. {near('', [o.name for o in graph.output])}"
        )
    # Nearest to what is meant come the declared outputs, then the tensors from the last to the
    # first: this is the order in which an error message lists them.
    known = [o.name for o in graph.output]
    known += [name for node in reversed(graph.node) for name in node.output if name]
    known += [value.name for value in [*graph.input, *graph.initializer]]
    every = set(known)
    for name in output_names:
        if name not in every:
            raise UnknownNameError(
                f"Expected graph output for inference graph {name} could not be found in the "
                f"model. {near(str(name), list(dict.fromkeys(known)))} The model puts out "
                f"{', '.join(repr(o.name) for o in graph.output)}; any tensor of it can be named. "
                "Please regenerate the eval graph if it should be there."
            )


def _types(model: onnx.ModelProto, output_names: Sequence[str]) -> dict[str, onnx.ValueInfoProto]:
    """The types of some tensors, inferred where the model does not say them."""
    known = _declared(model.graph)
    if not known.keys() >= set(output_names):
        # Only types are wanted. Large weights stay behind as inputs: the whole model could be more
        # than inference, which goes through one protobuf, can take.
        bare = onnx.ModelProto(ir_version=model.ir_version)
        bare.opset_import.extend(model.opset_import)
        bare.functions.extend(model.functions)
        bare.graph.name = model.graph.name
        bare.graph.node.extend(model.graph.node)
        small = [t for t in model.graph.initializer if t.ByteSize() < _SMALL]
        bare.graph.initializer.extend(small)
        bare.graph.input.extend(known[v.name] for v in model.graph.input)
        named = {v.name for v in [*model.graph.input, *small]}
        bare.graph.input.extend(
            known[t.name] for t in model.graph.initializer if t.name not in named
        )
        known = _declared(onnx.shape_inference.infer_shapes(bare).graph) | known
    return {n: known.get(n, onnx.ValueInfoProto(name=n)) for n in output_names}


def _declared(graph: onnx.GraphProto) -> dict[str, onnx.ValueInfoProto]:
    weights = [
        helper.make_tensor_value_info(t.name, t.data_type, t.dims) for t in graph.initializer
    ]
    values = [*weights, *graph.value_info, *graph.output, *graph.input]
    return {value.name: value for value in values if value.type.WhichOneof("value")}
