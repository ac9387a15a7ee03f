"""Any model in a session, run as ONNX's backend protocol runs models."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from copy import deepcopy
from pathlib import Path
from typing import Any

import numpy as np
import onnxruntime as ort
from onnx import ModelProto, ValueInfoProto
from onnx.backend.base import BackendRep, namedtupledict

from blockdsl.backend.buffer import is_native, to_array, wrap
from blockdsl.backend.feeds import by_position, check_feeds
from blockdsl.backend.files import StrPath, is_ort_format
from blockdsl.backend.providers import Device
from blockdsl.backend.reason import reason
from blockdsl.backend.session.load import OpenSession, load_rewritable, open_session, spec_of
from blockdsl.backend.session.nested_feeds import check_nested
from blockdsl.backend.sessions import is_training_batch_norm
from blockdsl.backend.values import is_text
from blockdsl.errors import EngineError, FeedError, ModelFileError, near

MODEL = "model"


def open_model(
    model: ModelProto | StrPath, device: Device, options: ort.SessionOptions | None = None
) -> PreparedModel:
    """Open a model, or the file of one, in a session.

    Raises:
        ModelFileError: The file is missing or no model.
        EngineError: The runtime lacks the device or refuses the model or the options.
    """
    if not (options is None or isinstance(options, ort.SessionOptions)):
        raise EngineError(
            f"session_options are onnxruntime's SessionOptions, not a {type(options).__name__}."
        )
    if isinstance(model, ModelProto):
        own = ModelProto()
        own.CopyFrom(model)
        return _prepare(own, device, options, Path())
    try:
        path = Path(model)
    except TypeError as error:
        raise ModelFileError(
            f"A model is an onnx.ModelProto or the path of a file, not a {type(model).__name__}. "
            "Write `onnx.load_from_string` for bytes."
        ) from error
    if is_ort_format(path, MODEL):
        return PreparedModel(open_session(path, MODEL, device, options))
    return _prepare(load_rewritable(path, MODEL), device, options, path.parent)


def _prepare(
    model: ModelProto, device: Device, options: ort.SessionOptions | None, folder: Path
) -> PreparedModel:
    outputs = [value.name for value in model.graph.output]
    _keep_statistics(model)
    return PreparedModel(open_session(model, MODEL, device, options, folder), outputs)


def _keep_statistics(model: ModelProto) -> None:
    """Make the new statistics of every BatchNormalization that trains outputs of the graph.

    The runtime writes all others over the old ones: over an array that was fed, or a constant.
    """
    outputs = {value.name for value in model.graph.output}
    for node in filter(is_training_batch_norm, model.graph.node):
        for name in filter(None, node.output[1:]):
            if name not in outputs:
                model.graph.output.append(ValueInfoProto(name=name))


class PreparedModel(BackendRep):
    """A model in a session: what `blockdsl.backend.prepare` returns.

    Args:
        opened: The session.
        outputs: The outputs to return; by default all.
    """

    def __init__(self, opened: OpenSession, outputs: Sequence[str] | None = None) -> None:
        self._opened = opened
        inputs = opened.session.get_inputs()
        self._inputs = {value.name: spec_of(value, opened.labels) for value in inputs}
        self._kinds = {value.name: value.type for value in inputs}
        kinds = {value.name: spec_of(value) for value in opened.session.get_outputs()}
        self._outputs = list(kinds if outputs is None else outputs)
        specs = [kinds[name] for name in self._outputs]
        types = [spec.type.dtype for spec in specs if spec is not None]
        # The runtime makes no arrays of types that NumPy has not: it gives them as OrtValues.
        self._as_values = not all(map(is_native, types))

    def run(self, inputs: Any, **kwargs: Any) -> tuple[Any, ...]:
        """Run the model once.

        Args:
            inputs: The inputs in the model's order, or by their names. A tensor is an array or
                whatever turns into one, a sequence a list of tensors, an empty optional `None`.
            **kwargs: What other backends are told; nothing here.

        Returns:
            The outputs, as a named tuple that also takes names as indices.

        Raises:
            FeedError: The inputs do not fit the model.
            EngineError: The runtime fails.
        """
        feeds = self._feeds(inputs)
        session = self._opened.session
        try:
            if self._as_values:
                values = session.run_with_ort_values(
                    self._outputs, {name: _as_value(feed) for name, feed in feeds.items()}
                )
                results = [to_array(value) for value in values]
            else:
                results = session.run(
                    self._outputs, {name: _as_feed(feed) for name, feed in feeds.items()}
                )
        except Exception as error:  # the runtime's classes have no common base
            raise EngineError(f"ONNX Runtime failed in the {MODEL}: {reason(error)}") from error
        # An output that is an input shares its memory, which is the caller's.
        own = [
            deepcopy(result) if name in feeds else result
            for name, result in zip(self._outputs, results, strict=True)
        ]
        outputs: tuple[Any, ...] = namedtupledict("Outputs", self._outputs)(*own)
        return outputs

    def _feeds(self, inputs: Any) -> dict[str, Any]:
        """The inputs by name, checked."""
        feeds = self._by_name(inputs)
        for name, spec in self._inputs.items():
            if spec is None:
                feeds[name] = check_nested(name, self._kinds[name], feeds[name], MODEL)
        specs = [spec for spec in self._inputs.values() if spec is not None]
        tensors = check_feeds(specs, [feeds[spec.name] for spec in specs], MODEL)
        return feeds | {spec.name: value for spec, value in zip(specs, tensors, strict=True)}

    def _by_name(self, inputs: Any) -> dict[str, Any]:
        names = list(self._inputs)
        if isinstance(inputs, Mapping):
            for name in names:
                if name not in inputs:
                    raise FeedError(f"The {MODEL} is not given its input '{name}'.")
            defaults = [v.name for v in self._opened.session.get_overridable_initializers()]
            for name in inputs:
                if name not in self._inputs and name not in defaults:
                    raise FeedError(
                        f"The {MODEL} has no input '{name}'. {near(str(name), names + defaults)}"
                    )
            return dict(inputs)
        return by_position(names, inputs, MODEL)


def _as_feed(value: Any) -> Any:
    """What `InferenceSession.run` takes: it makes no tensors of types that NumPy has not."""
    native = not isinstance(value, np.ndarray) or is_text(value) or is_native(value.dtype)
    return value if native else wrap(value)


def _as_value(value: Any) -> ort.OrtValue:
    return wrap(value) if isinstance(value, np.ndarray) else value
