"""Opens inference sessions, and says in our words why one cannot be opened."""

from __future__ import annotations

import os
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

import onnxruntime as ort
from onnx import ModelProto, TensorProto, numpy_helper

from blockdsl.backend.buffer import wrap
from blockdsl.backend.engine import Array
from blockdsl.backend.feeds import InputSpec
from blockdsl.backend.files import StrPath, is_ort_format, read_model
from blockdsl.backend.limits import runtime_limits
from blockdsl.backend.providers import Device
from blockdsl.backend.reason import reason
from blockdsl.backend.sessions import (
    create_session,
    harmful_optimizers,
    quiet_options,
)
from blockdsl.backend.weights import external_weights, read_inner
from blockdsl.errors import EngineError
from blockdsl.graph.class_labels import Classes, fed_labels
from blockdsl.graph.tensor import FLOATS, TensorType, known_dim, np_dtype
from blockdsl.graph.walk import all_nodes

INLINE_BYTES = 1024  # shapes and axes must stand in the model; weights are better left outside


@dataclass(frozen=True)
class OpenSession:
    """A session.

    Attributes:
        session: The session.
        what: What its model is to the user.
        weights: The memory that it reads weights from.
        labels: The inputs that are labels, and what the losses that read them take.
    """

    session: ort.InferenceSession
    what: str
    weights: Mapping[str, Array] = field(default_factory=dict)
    labels: Mapping[str, tuple[Classes, ...]] = field(default_factory=dict)


def load_rewritable(path: StrPath, what: str) -> ModelProto:
    """Read a model that the session engine rewrites before it runs it.

    Large weights of the graph in separate files stay there: `open_session` hands them to the
    runtime. Those in bodies are read.

    Raises:
        ModelFileError: The file is missing or no model.
        EngineError: The model is in the `.ort` format, whose graph is fixed.
    """
    if Path(path).is_file() and is_ort_format(path):
        raise EngineError(
            f"The {what} '{os.fspath(path)}' is in the .ort format, whose graph is fixed; the "
            "session engine has to adapt it. Give the .onnx file that lies beside it, or use the "
            "training engine (engine='training')."
        )
    model = read_model(path, what, weights=False)
    for tensor, array in external_weights(model, Path(path).parent):
        if array.nbytes <= INLINE_BYTES:
            tensor.CopyFrom(numpy_helper.from_array(array, tensor.name))
    read_inner(model, Path(path).parent)
    return model


def open_session(
    model: ModelProto | StrPath,
    what: str,
    device: Device,
    options: ort.SessionOptions | None = None,
    folder: StrPath = ".",
) -> OpenSession:
    """Open a session.

    Args:
        model: The model, or the file of one that is run as it is.
        what: What the model is to the user ("training model"), for error messages.
        device: Where it runs.
        options: The user's options; they are left as they are.
        folder: The folder to which the locations of external weights refer.

    Raises:
        EngineError: The runtime refuses the model.
    """
    own_options = quiet_options() if options is None else options
    mapped: dict[str, Array] = {}
    source: str | bytes
    if isinstance(model, ModelProto):
        graph: ModelProto | None = model
        # What blockdsl makes uses nothing that a newer IR version has brought.
        model.ir_version = min(model.ir_version, runtime_limits().ir_version)
        for tensor, array in external_weights(model, Path(folder)):
            if options is None:
                mapped[tensor.name] = array
            else:  # a user's options are not ours to add weights to
                tensor.CopyFrom(numpy_helper.from_array(array, tensor.name))
        if mapped:
            own_options.add_external_initializers(list(mapped), [wrap(a) for a in mapped.values()])
        source = model.SerializeToString()
    else:
        source = os.fspath(model)
        graph = None if is_ort_format(model, what) else read_model(model, what, weights=False)
    disabled = [] if graph is None else harmful_optimizers(graph)
    try:
        session = _create(source, own_options, device, disabled)
    except EngineError:
        raise
    except Exception as error:  # the runtime's classes have no common base
        raise EngineError(_refusal(graph, what, device, error)) from error
    labels = {} if graph is None else fed_labels(graph)
    return OpenSession(session, what, mapped, labels)


def _create(
    source: str | bytes, options: ort.SessionOptions, device: Device, disabled: list[str]
) -> ort.InferenceSession:
    try:
        return create_session(source, options, device.providers(), disabled)
    except Exception as error:
        if "Failed to find kernel for com.microsoft." not in str(error):
            raise
    # The runtime's optimizer has fused operators into one that it has no kernel of: 1.19 does so
    # with a product of a transposed matrix in float64, which every gradient of MatMul is.
    level = options.graph_optimization_level
    options.graph_optimization_level = ort.GraphOptimizationLevel.ORT_ENABLE_BASIC
    try:
        return create_session(source, options, device.providers(), disabled)
    finally:
        options.graph_optimization_level = level


def input_specs(opened: OpenSession) -> dict[str, InputSpec]:
    """The inputs of a session, in its order.

    Raises:
        EngineError: One of them is no tensor.
    """
    specs = {}
    for value in opened.session.get_inputs():
        spec = spec_of(value, opened.labels)
        if spec is None:
            raise EngineError(
                f"The input '{value.name}' of the {opened.what} is a {value.type}; only tensors "
                "can be fed."
            )
        specs[value.name] = spec
    return specs


def spec_of(
    value: ort.NodeArg, labels: Mapping[str, tuple[Classes, ...]] | None = None
) -> InputSpec | None:
    """An input or output of a session; `None` for one that is no tensor."""
    elem_type = elem_type_named(value.type)
    if elem_type is None:
        return None
    shape = None if value.shape is None else tuple(known_dim(dim or None) for dim in value.shape)
    known = () if labels is None else labels.get(value.name, ())
    return InputSpec(value.name, TensorType(elem_type, shape), known)


def elem_type_named(kind: str) -> int | None:
    """The element type of a tensor type as the runtime writes it, `None` for other types."""
    match = re.fullmatch(r"tensor\((\w+)\)", kind)
    return None if match is None else TensorProto.DataType.Value(match[1].upper())


def _refusal(model: ModelProto | None, what: str, device: Device, error: Exception) -> str:
    """Why the runtime refuses a model, and what helps; a model in the .ort format is None."""
    message = str(error)
    head = f"ONNX Runtime {ort.__version__} cannot run the {what} on '{device}'"
    if match := re.search(r"([\w.]*):?(\w+)\(-?\d+\) is not a registered function/op", message):
        return (
            f"{head}: it has no operator {_located(model, match[1], match[2])}, of which blockdsl "
            "knows no plain form either. What blockdsl.artifacts.generate_artifacts makes runs "
            "everywhere; models of another program may need its own wheel. For a custom operator, "
            "register its library in the session options."
        )
    if "should be 1 when Training_mode = False" in message:
        return (
            f"{head}: a BatchNormalization in it evaluates and declares the outputs of training. "
            "onnxruntime-training 1.19.2 writes it so from opset 14 on, and cannot load it either. "
            "Open the training model without it, or generate the artifacts again with blockdsl."
        )
    if match := re.search(
        r"Could not find an implementation for (\w+)\((\d+)\)( node with name '[^']+')?", message
    ):
        node = (match[3] or "").replace(" node with name", ", node")
        return (
            f"{head}: it has no kernel of {match[1]} (opset {match[2]}{node}) for "
            f"{_float_types(model) or 'the element types in this model'}. {_CAST}, or use another "
            "device."
        )
    if match := re.search(
        r"Type 'tensor\((\w+)\)' of input parameter \((.*?)\) of operator \((\w+)\)", message
    ):
        return (
            f"{head}: {match[3]} takes no {match[1]} in the opset of the model, and its input "
            f"'{match[2]}' is {match[1]}. {_CAST}, or export it at an opset whose operator does."
        )
    if match := re.search(r"IR version: (\d+), max supported IR version: (\d+)", message):
        return (
            f"{head}: the file has IR version {match[1]} and this runtime reads up to {match[2]}. "
            "Generate the artifacts again, or install a newer onnxruntime."
        )
    if match := re.search(r"domain (\S+) is till opset (\d+)", message):
        return (
            f"{head}: the model needs a newer opset than {match[2]}, the last of this runtime. "
            "Export the forward model at that opset, or install a newer onnxruntime."
        )
    return f"{head}: {reason(error)}"


_CAST = "Cast the model, or the inputs of this operator, to float32"


def _float_types(model: ModelProto | None) -> str:
    """The floating-point types of a model beside float32."""
    if model is None:
        return ""
    graph = model.graph
    values = [TensorType.of(v.type) for v in (*graph.input, *graph.output, *graph.value_info)]
    found = {value.elem_type for value in values if value is not None}
    found |= {tensor.data_type for tensor in graph.initializer}
    return " or ".join(np_dtype(t).name for t in sorted(found & FLOATS - {TensorProto.FLOAT}))


def _located(model: ModelProto | None, domain: str, op_type: str) -> str:
    """An operator, and the first node of a model that is one."""
    shown = f"{domain}::{op_type}" if domain else op_type
    for node in () if model is None else all_nodes(model.graph.node):
        if node.op_type == op_type and node.domain in (domain, "" if domain else "ai.onnx"):
            return f"{shown} (node {node.name!r})"
    return shown
