"""A training model and its eval model over onnxruntime-training's C `Module`."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np

from blockdsl.backend.buffer import wrap
from blockdsl.backend.engine import Array
from blockdsl.backend.export import export_for_inference
from blockdsl.backend.files import StrPath
from blockdsl.backend.flat import flat_dtype, flatten, unflatten
from blockdsl.backend.providers import Device, require_provider
from blockdsl.backend.sessions import quiet_options
from blockdsl.backend.training.interface import Interface, check_fit, read_interface
from blockdsl.backend.training.native import native, native_device, reporting
from blockdsl.backend.training.state import TrainingParameter, TrainingState
from blockdsl.backend.training.step import Pass
from blockdsl.errors import UnsupportedTypeError


class TrainingModule:
    """Trains and evaluates by the C `Module`."""

    def __init__(
        self,
        state: TrainingState,
        train_model: str,
        eval_model: str | None,
        device: str = "cpu",
        options: Any = None,
    ) -> None:
        self.state = state
        self.device = Device.parse(device)
        self.options = quiet_options() if options is None else options
        require_provider(self.device)
        training = read_interface(train_model, "training model", self.options)
        self.artifacts = training.artifacts
        check_fit(training, state, training=True)
        evaluation = None
        if eval_model is not None:
            evaluation = read_interface(eval_model, "eval model", self.options)
            check_fit(evaluation, state, training=False)
        self._train_model, self._eval_model = train_model, eval_model
        self._own: dict[str, Array] | None = None
        for other in state.modules:
            other.keep_gradients()
        with reporting(f"Loading the training model '{train_model}'"):
            self._native = native().Module(
                train_model, state.native, eval_model, native_device(self.device), self.options
            )
        known = set(state.parameter_names())
        self._parameters = [spec.name for spec in training.inputs if spec.name in known]
        self._passes = {True: self._pass(training, training=True)}
        if evaluation is not None:
            self._passes[False] = self._pass(evaluation, training=False)
        for other in list(state.modules)[:1]:
            _copy(other.gradients(), self.gradients())
        state.modules.add(self)

    def train_step(self, inputs: Sequence[Any]) -> list[Any]:
        """Run forward and backward and add to the gradients, which all modules share."""
        outputs = self._passes[True](inputs)
        if len(self.state.modules) > 1:
            for other in self.state.modules:
                _copy(self.gradients(), other.gradients())
        return outputs

    def gradients(self) -> dict[str, Array]:
        """The memory of the gradients of this module."""
        if self._own is not None:
            return self._own
        if self.state.nominal:
            return {}
        found = {p.name: p.grad for p in self.parameters(trainable_only=True)}
        return {name: gradient for name, gradient in found.items() if gradient is not None}

    def keep_gradients(self) -> None:
        """Note where they are, before another module takes their place in the state."""
        self._own = self.gradients()

    def eval_step(self, inputs: Sequence[Any]) -> list[Any]:
        """Run the evaluation model."""
        return self._passes[False](inputs)

    def lazy_reset_grad(self) -> None:
        """Make the next training step overwrite the gradients."""
        self._native.lazy_reset_grad()

    def input_names(self, training: bool) -> list[str]:
        """What a step is fed, in order; nothing if there is no such model."""
        return list(self._passes[training].input_names) if training in self._passes else []

    def output_names(self, training: bool) -> list[str]:
        """What a step returns, in order; nothing if there is no such model."""
        return list(self._passes[training].output_names) if training in self._passes else []

    def parameters(self, trainable_only: bool) -> Iterator[TrainingParameter]:
        """The parameters in the order of the training model's inputs."""
        parameters = map(self.state.parameter, self._parameters)
        return (p for p in parameters if p.requires_grad or not trainable_only)

    def parameters_size(self, trainable_only: bool) -> int:
        """The number of elements of all parameters; known of a nominal state too."""
        if self.state.nominal:
            return int(self._native.get_parameters_size(trainable_only))
        return sum(parameter.data.size for parameter in self.parameters(trainable_only))

    def parameters_dtype(self, trainable_only: bool) -> np.dtype:
        """The element type of a flat copy of the parameters; known of a nominal state too."""
        dtypes = self.state.dtypes()
        names = self._parameters if not trainable_only else []  # trained ones are float32
        return flat_dtype(dtypes[name] for name in names)

    def read_parameters(self, trainable_only: bool) -> Array:
        """A flat copy of the parameters, in the order of the model's inputs."""
        return flatten([parameter.data for parameter in self.parameters(trainable_only)])

    def write_parameters(self, flat: Array, trainable_only: bool) -> None:
        """Set the parameters from one flat array; complete a nominal state."""
        if self.state.nominal:
            self._complete(flat, trainable_only)
            return
        # Not by the C class, which refuses when a frozen parameter is not float32.
        parameters = list(self.parameters(trainable_only))
        like = [(parameter.data.dtype, parameter.data.shape) for parameter in parameters]
        for parameter, part in zip(parameters, unflatten(flat, like), strict=True):
            parameter.data = part

    def _complete(self, flat: Array, trainable_only: bool) -> None:
        for name, dtype in self.state.dtypes().items():
            if dtype != np.float32:
                raise UnsupportedTypeError(
                    "The training engine completes nominal states of float32 parameters only; "
                    f"'{name}' is {dtype}. Load the checkpoint with engine='session'."
                )
        buffer = wrap(np.require(flat, requirements=["C", "A"]))
        with reporting("Copying the buffer to the parameters"):
            self._native.copy_buffer_to_parameters(buffer._ortvalue, trainable_only)
        self.state.complete()

    def export_model_for_inferencing(self, path: StrPath, output_names: Sequence[str]) -> None:
        """Write the part of the eval model that some outputs need, with the current parameters.

        Without an eval model it is made of the training model.
        """
        export_for_inference(
            self._eval_model or self._train_model,
            path,
            output_names,
            self.state.parameter_names(),
            lambda name: self.state.parameter(name).data,
        )

    def _pass(self, model: Interface, *, training: bool) -> Pass:
        by_name = {spec.name: spec for spec in model.inputs}
        module, kind = self._native, "train" if training else "eval"
        return Pass(
            "training model" if training else "eval model",
            [by_name[name] for name in module.input_names(training)],
            module.output_names(training),
            getattr(module, f"{kind}_step"),
            getattr(module, f"{kind}_step_with_ort_values"),
            self._parameters,
        )


def _copy(source: dict[str, Array], target: dict[str, Array]) -> None:
    for name in source.keys() & target.keys():
        if source[name] is not target[name]:
            np.copyto(target[name], source[name])
