"""ONNX's own backend protocol, `onnx.backend.base.Backend`, over sessions of ONNX Runtime."""

from __future__ import annotations

import importlib
from collections.abc import Sequence
from typing import Any

import numpy as np
from onnx import ModelProto, NodeProto, TypeProto, ValueInfoProto, defs, helper
from onnx.backend.base import Backend, BackendRep

from blockdsl.backend.engine import Array
from blockdsl.backend.feeds import by_position
from blockdsl.backend.files import StrPath
from blockdsl.backend.limits import runtime_limits
from blockdsl.backend.providers import Device, load_runtime
from blockdsl.backend.values import as_array, is_ort_value, is_text
from blockdsl.errors import BlockError, EngineError, FeedError
from blockdsl.graph.tensor import elem_type_of
from blockdsl.graph.walk import all_nodes


class OnnxBackend(Backend):
    """Runs any ONNX model on the installed ONNX Runtime.

    Devices are named as the protocol names them: `"CPU"`, `"CUDA"` or `"CUDA:1"`.
    """

    @classmethod
    def supports_device(cls, device: str) -> bool:
        """Whether the installed runtime can run models on a device.

        Args:
            device: `"CPU"`, `"CUDA"` or `"CUDA:<index>"`.

        Example:
            >>> supports_device("CPU"), supports_device("TPU")
            (True, False)
        """
        try:
            return Device.parse(device).provider in load_runtime().get_available_providers()
        except EngineError:
            return False

    @classmethod
    def is_compatible(cls, model: ModelProto | StrPath, device: str = "CPU", **kwargs: Any) -> bool:
        """Whether `prepare` takes a model: the runtime knows its opset and has its kernels.

        Args:
            model: The model or its file.
            device: Where it shall run.
            **kwargs: As of `prepare`.
        """
        try:
            cls.prepare(model, device, **kwargs)
        except BlockError:
            return False
        return True

    @classmethod
    def prepare(cls, model: ModelProto | StrPath, device: str = "CPU", **kwargs: Any) -> BackendRep:
        """Load a model.

        Args:
            model: The model, which stays as it is, or the file of one: `.onnx`, with its weights
                in it or beside it, or `.ort`.
            device: Where it shall run.
            **kwargs: `session_options` are ONNX Runtime's; what else backends are told (the
                tolerances of ONNX's test suite) means nothing here.

        Returns:
            The model, ready to `run` on inputs in its own order or by their names.

        Raises:
            ModelFileError: The file is missing or no model.
            EngineError: The runtime lacks the device or refuses the model.

        Example:
            >>> from onnx import parser
            >>> model = parser.parse_model(
            ...     '<ir_version: 8, opset_import: ["" : 17]>'
            ...     'g (float[2] x) => (float[2] y) { y = Neg(x) }'
            ... )
            >>> prepared = prepare(model)
            >>> prepared.run([np.float32([1, 2])])
            Outputs(y=array([-1., -2.], dtype=float32))
            >>> prepared.run({"x": [3, 4]})["y"]
            array([-3., -4.], dtype=float32)
        """
        # Imported here and not above because it imports onnxruntime.
        prepared = importlib.import_module("blockdsl.backend.session.prepared")
        rep: BackendRep = prepared.open_model(
            model, Device.parse(device), kwargs.get("session_options")
        )
        return rep

    @classmethod
    def run_model(
        cls, model: ModelProto | StrPath, inputs: Any, device: str = "CPU", **kwargs: Any
    ) -> tuple[Any, ...]:
        """Load a model and run it once.

        Args:
            model: The model or its file.
            inputs: The inputs in the model's order, or by their names.
            device: Where it shall run.
            **kwargs: As of `prepare`.

        Returns:
            The outputs, as a named tuple that also takes names as indices.

        Raises:
            ModelFileError: The file is missing or no model.
            EngineError: The runtime lacks the device, refuses the model or fails.
            FeedError: The inputs do not fit the model.
        """
        return cls.prepare(model, device, **kwargs).run(inputs)

    @classmethod
    def run_node(
        cls,
        node: NodeProto,
        inputs: Any,
        device: str = "CPU",
        outputs_info: Sequence[tuple[np.dtype, tuple[int, ...]]] | None = None,
        **kwargs: Any,
    ) -> tuple[Any, ...]:
        """Run one node.

        Args:
            node: The node, of any operator that the runtime has.
            inputs: One tensor for each input that the node is given, or for each of their names.
            device: Where it shall run.
            outputs_info: The element types and shapes of the outputs; left out, they follow from
                the operator.
            **kwargs: `opset_version` is the opset of the node, by default the newest that the
                runtime knows; the rest as of `prepare`.

        Returns:
            The outputs that the node has a name for, as a named tuple.

        Raises:
            FeedError: There is another number of inputs, or one that is no tensor or sequence.
            EngineError: The runtime lacks the device or the operator, or fails.

        Example:
            >>> node = helper.make_node("TopK", ["x", "k"], ["values", "indices"])
            >>> run_node(node, [np.float32([1, 3, 2]), np.int64([2])]).values
            array([3., 2.], dtype=float32)
        """
        if not isinstance(node, NodeProto):
            raise FeedError(f"A node is an onnx.NodeProto, not a {type(node).__name__}.")
        names = list(dict.fromkeys(name for name in node.input if name))
        if not isinstance(inputs, dict):
            taken = [name for name in node.input if name]
            inputs = by_position(taken, inputs, f"node {node.op_type}")
        for name in names:
            if name not in inputs:
                raise FeedError(f"The node {node.op_type} is not given its input '{name}'.")
        given = [ValueInfoProto(name=n, type=_type_of(inputs[n], n)) for n in names]
        made = [ValueInfoProto(name=name) for name in node.output if name]
        for value, (dtype, shape) in zip(made, outputs_info or (), strict=False):
            value.type.CopyFrom(helper.make_tensor_type_proto(elem_type_of(dtype), shape))
        opset = int(kwargs.get("opset_version") or runtime_limits().opset)
        model = helper.make_model(
            helper.make_graph([node], "node", given, made),
            opset_imports=_opsets(node, opset),
            ir_version=runtime_limits().ir_version,
        )
        return cls.run_model(model, inputs, device, **kwargs)


def _type_of(value: Any, name: str) -> TypeProto:
    """The ONNX type of an input."""
    if isinstance(value, list | tuple) and value and isinstance(value[0], np.ndarray):
        return helper.make_sequence_type_proto(_tensor_type(value[0], rank_only=True))
    if is_ort_value(value):
        value = as_array(value)
    array = np.asarray(value)
    if array.dtype.kind == "O" and not all(isinstance(item, str) for item in array.flat):
        raise FeedError(
            f"Input '{name}' of the node is a {type(value).__name__}, which is no tensor. Give a "
            "NumPy array, an OrtValue, or a list of arrays for a sequence."
        )
    return _tensor_type(array)


def _tensor_type(array: Array, rank_only: bool = False) -> TypeProto:
    elem_type = elem_type_of(np.dtype(object) if is_text(array) else array.dtype)
    return helper.make_tensor_type_proto(
        elem_type, [None] * array.ndim if rank_only else array.shape
    )


def _opsets(node: NodeProto, opset: int) -> list[Any]:
    """The default domain's, and of each other domain the newest version of the operators in it."""
    versions = {"": opset}
    for inner in all_nodes([node]):
        domain = inner.domain if inner.domain != "ai.onnx" else ""
        if domain and defs.has(inner.op_type, domain):
            since = defs.get_schema(inner.op_type, domain=domain).since_version
            versions[domain] = max(versions.get(domain, 1), since)
        versions.setdefault(domain, 1)
    return [helper.make_opsetid(domain, version) for domain, version in versions.items()]


is_compatible = OnnxBackend.is_compatible
prepare = OnnxBackend.prepare
run_model = OnnxBackend.run_model
run_node = OnnxBackend.run_node
supports_device = OnnxBackend.supports_device
