"""A training model and its evaluation model in inference sessions over one state."""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import onnxruntime as ort

from blockdsl.backend.buffer import Buffer
from blockdsl.backend.engine import Array
from blockdsl.backend.export import export_for_inference
from blockdsl.backend.feeds import check_feeds
from blockdsl.backend.files import StrPath
from blockdsl.backend.flat import flat_dtype, flatten, unflatten
from blockdsl.backend.identity import identity_of
from blockdsl.backend.in_place import InPlaceCheck
from blockdsl.backend.providers import Device, require_provider
from blockdsl.backend.session.binding import BoundSession
from blockdsl.backend.session.graph import accumulate_form, overwrite_form
from blockdsl.backend.session.load import input_specs, open_session
from blockdsl.backend.session.state import SessionParameter, SessionState
from blockdsl.backend.session.training_model import TRAINING, load_training_model
from blockdsl.errors import ArtifactError, EngineError, StateError
from blockdsl.graph.random import draws_by_itself
from blockdsl.graph.walk import nodes_of

EVAL = "eval model"
_TOGETHER = "The checkpoint and the models must come from one call of `generate_artifacts`."


class SessionModule:
    """Trains and evaluates in inference sessions, whose state stays in place between steps.

    Args:
        state: The parameters; modules may share one.
        train_model: The training model.
        eval_model: The evaluation model, needed for evaluation.
        device: Where everything runs.
        options: The user's session options.
    """

    def __init__(
        self,
        state: SessionState,
        train_model: StrPath,
        eval_model: StrPath | None = None,
        device: str | Device = "cpu",
        options: ort.SessionOptions | None = None,
    ) -> None:
        self.state = state
        self.device = Device.parse(device)
        require_provider(self.device)  # before the state is moved there
        self.options = options
        self._folder = Path(train_model).parent
        self._train_model = train_model
        model = load_training_model(train_model)
        self.artifacts = identity_of(model)
        self._graph = overwrite_form(model, state.parameter_names())
        self._check_trained(train_model)
        state.settle(self.device, self._graph.types())
        self._values = {name: state.value(name) for name in self._graph.parameters}
        self._gradients = {name: state.gradient(name) for name in self._graph.gradients}
        opened = open_session(self._graph.model, TRAINING, self.device, options, self._folder)
        specs = input_specs(opened)
        self._specs = {TRAINING: [specs[name] for name in self._graph.inputs], EVAL: []}
        self._outputs = {TRAINING: self._graph.outputs, EVAL: []}
        self._overwriting = BoundSession(
            opened,
            self.device,
            self._graph.inputs,
            self._graph.outputs,
            self._values,
            self._results(self._graph.gradients),
            InPlaceCheck(self._graph.model.graph) if self._graph.updates else None,
        )
        self._accumulating: BoundSession | None = None
        self._accumulates = False
        # Each session has generators of its own, which draw what those of the other one drew.
        self._draws = any(map(draws_by_itself, nodes_of(self._graph.model)))
        self._evaluation = None if eval_model is None else self._open_eval(eval_model)
        self._eval_model = eval_model

    def train_step(self, inputs: Sequence[Any]) -> list[Any]:
        """Run forward and backward; the gradients are written or, if not reset, added to."""
        self._check_values()
        feeds = check_feeds(self._specs[TRAINING], inputs, TRAINING)
        session = self._overwriting
        if self._accumulates or self._draws:
            if self._accumulating is None:
                self._accumulating = self._open_accumulating()
            session = self._accumulating
            if not self._accumulates:
                for gradient in self._gradients.values():
                    gradient.write(np.zeros(gradient.shape, gradient.dtype))
        outputs = session.run(feeds, on_device=_all_ort_values(feeds))
        self._accumulates = True
        return outputs

    def eval_step(self, inputs: Sequence[Any]) -> list[Any]:
        """Run the evaluation model."""
        if self._evaluation is None:
            raise EngineError(
                "Eval model was not provided. Make the module with an eval model to evaluate."
            )
        self._check_values()
        feeds = check_feeds(self._specs[EVAL], inputs, EVAL)
        return self._evaluation.run(feeds, on_device=_all_ort_values(feeds))

    def lazy_reset_grad(self) -> None:
        """Make the next training step overwrite the gradients."""
        self._accumulates = False

    def input_names(self, training: bool) -> list[str]:
        """What a step is fed, in order."""
        return [spec.name for spec in self._specs[TRAINING if training else EVAL]]

    def output_names(self, training: bool) -> list[str]:
        """What a step returns, in order."""
        return list(self._outputs[TRAINING if training else EVAL])

    def parameters(self, trainable_only: bool) -> Iterator[SessionParameter]:
        """The parameters in the order of the training model's inputs."""
        for name in self._names(trainable_only):
            yield self.state.parameter(name)

    def parameters_size(self, trainable_only: bool) -> int:
        """The number of elements of all parameters; known of a nominal state too."""
        return sum(_size(self._values[name]) for name in self._names(trainable_only))

    def parameters_dtype(self, trainable_only: bool) -> np.dtype:
        """The element type of a flat copy of the parameters; known of a nominal state too."""
        return flat_dtype(self._values[name].dtype for name in self._names(trainable_only))

    def read_parameters(self, trainable_only: bool) -> Array:
        """A flat copy of the parameters, in the order of the model's inputs."""
        self._check_values()
        return flatten([self._values[name].array for name in self._names(trainable_only)])

    def write_parameters(self, flat: Array, trainable_only: bool) -> None:
        """Set the parameters from what `read_parameters` gives; complete a nominal state."""
        if trainable_only and self.state.nominal:
            raise StateError(
                "For nominal checkpoint state, all parameters need to be loaded: give a buffer of "
                "all of them and trainable_only=False."
            )
        size = self.parameters_size(trainable_only)
        if flat.size != size:
            raise StateError(
                f"Parameters buffer size incorrect. Expected:{size}, Actual:{flat.size}."
            )
        values = [self._values[name] for name in self._names(trainable_only)]
        parts = unflatten(flat.reshape(-1), [(value.dtype, value.shape) for value in values])
        for value, part in zip(values, parts, strict=True):
            value.write(part)
        if not trainable_only:
            self.state.nominal = False

    def export_model_for_inferencing(self, path: StrPath, output_names: Sequence[str]) -> None:
        """Write the part of the eval model that some outputs need, with the current parameters.

        Without an eval model it is made of the training model.
        """
        self._check_values()
        export_for_inference(
            self._eval_model or self._train_model,
            path,
            output_names,
            self.state.parameter_names(),
            lambda name: self.state.value(name).array,
        )

    def _names(self, trainable_only: bool) -> list[str]:
        trainable = self.state.is_trainable
        return [n for n in self._graph.parameters if not trainable_only or trainable(n)]

    def _results(self, gradients: dict[str, str]) -> dict[str, Buffer]:
        """The outputs that go to the state: gradients and running statistics."""
        bound = {output: self._gradients[name] for name, output in gradients.items()}
        bound.update((output, self._values[name]) for name, output in self._graph.updates.items())
        return bound

    def _open_accumulating(self) -> BoundSession:
        """The second session, for those who add gradients up: made when the first one does."""
        model, old, new = accumulate_form(self._graph)
        inputs = self._values | {old[name]: self._gradients[name] for name in old}
        return BoundSession(
            open_session(model, TRAINING, self.device, self.options, self._folder),
            self.device,
            self._graph.inputs,
            self._graph.outputs,
            inputs,
            self._results(new),
            InPlaceCheck(model.graph),
        )

    def _open_eval(self, path: StrPath) -> BoundSession:
        opened = open_session(path, EVAL, self.device, self.options)
        specs = input_specs(opened)
        known = set(self.state.parameter_names())
        for name in self._graph.parameters:
            if name not in specs:
                raise ArtifactError(
                    f"The eval model '{os.fspath(path)}' has no input for the parameter '{name}': "
                    f"it would not follow the training. {_TOGETHER}"
                )
        self._specs[EVAL] = [spec for spec in specs.values() if spec.name not in known]
        self._outputs[EVAL] = [output.name for output in opened.session.get_outputs()]
        self.state.settle(self.device, {n: s.type for n, s in specs.items() if n in known})
        values = {name: self.state.value(name) for name in specs if name in known}
        feeds = [spec.name for spec in self._specs[EVAL]]
        return BoundSession(opened, self.device, feeds, self._outputs[EVAL], values)

    def _check_trained(self, train_model: StrPath) -> None:
        gradients = self._graph.gradients
        for name in gradients:
            if not self.state.is_trainable(name):
                raise ArtifactError(
                    f"The training model trains '{name}', which is frozen in the checkpoint. "
                    f"{_TOGETHER}"
                )
        trainable = filter(self.state.is_trainable, self.state.parameter_names())
        without = [name for name in trainable if name not in gradients]
        if without and not gradients:
            raise ArtifactError(
                f"The model '{os.fspath(train_model)}' is not a training model: it computes no "
                "gradients. Is it the eval model, or the model that the artifacts were generated "
                "from?"
            )
        if without:
            raise ArtifactError(
                f"The checkpoint says that '{without[0]}' is trained, but the training model "
                f"'{os.fspath(train_model)}' has no gradient of it. {_TOGETHER}"
            )

    def _check_values(self) -> None:
        if self.state.nominal:
            raise EngineError(
                "Please load the model parameters first. The state is nominal: it has the names of "
                "the parameters, but no values."
            )


def _all_ort_values(feeds: Sequence[Any]) -> bool:
    return bool(feeds) and not any(isinstance(feed, np.ndarray) for feed in feeds)


def _size(buffer: Buffer) -> int:
    return int(np.prod(buffer.shape, dtype=np.int64))
