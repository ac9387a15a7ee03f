"""A model that trains: forward and backward passes over a training state."""

from __future__ import annotations

import os
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from blockdsl.api.checkpoint_state import CheckpointState
from blockdsl.backend.engine import Array
from blockdsl.backend.engines import open_module
from blockdsl.backend.files import text_of
from blockdsl.backend.values import as_array, contiguous, flat_array, is_ort_value
from blockdsl.errors import EngineError, StateError, as_flag

if TYPE_CHECKING:
    from blockdsl.backend.values import OrtValue, SessionOptions

NO_VALUES = (
    "Cannot {what} with a nominal state: it has the names of the parameters, but no values. Please "
    "load the model parameters first. "
    "Write `Module.copy_buffer_to_parameters(buffer, trainable_only=False)`."
)


class Module:
    """Runs a training model and its evaluation model over one training state.

    The files are those that `blockdsl.artifacts.generate_artifacts` writes, or
    onnxruntime-training's own. A new module is in training mode; `train()` and `eval()` switch.

    Args:
        train_model_uri: The training model.
        state: The parameters and everything else that training changes. Modules may share one.
        eval_model_uri: The evaluation model; needed for evaluation.
        device: Where to run: `"cpu"`, `"cuda"` or `"cuda:1"`.
        session_options: ONNX Runtime's options (threads, optimization, custom operators).

    Attributes:
        training: Whether a call trains (accumulates gradients) or evaluates.
    """

    training: bool

    def __init__(
        self,
        train_model_uri: str | os.PathLike[str],
        state: CheckpointState,
        eval_model_uri: str | os.PathLike[str] | None = None,
        device: str = "cpu",
        session_options: SessionOptions | None = None,
    ) -> None:
        if not isinstance(state, CheckpointState):
            raise StateError(
                f"The state of a module is a CheckpointState, not a {type(state).__name__}: "
                "`CheckpointState.load_checkpoint(path)`."
            )
        if not (session_options is None or hasattr(session_options, "add_session_config_entry")):
            raise StateError(
                "The options of a module are onnxruntime's SessionOptions, not a "
                f"{type(session_options).__name__}."
            )
        self.training = True
        self._state = state
        self._lock = state._lock
        self._device = device
        self._has_eval_model = eval_model_uri is not None
        train_model = text_of(train_model_uri, "training model")
        eval_model = None if eval_model_uri is None else text_of(eval_model_uri, "eval model")
        with self._lock:
            self._model = open_module(
                state._state, train_model, eval_model, device, session_options
            )

    def __call__(
        self, *user_inputs: Any
    ) -> tuple[Array, ...] | Array | tuple[OrtValue, ...] | OrtValue:
        """Run one training or evaluation step, by the mode the module is in.

        Args:
            *user_inputs: One value per input of the model (`input_names()`): arrays, OrtValues,
                lists of numbers, or tensors of other libraries that turn into arrays.

        Returns:
            The output, or a tuple of them if there are several: OrtValues if all inputs are
            OrtValues, else arrays.

        Raises:
            FeedError: The inputs do not fit the model.
        """
        training = self.training
        self._check("run a training step" if training else "run an evaluation step")
        if not training:
            self._check_eval()
        step = self._model.train_step if training else self._model.eval_step
        with self._lock:
            outputs = step(user_inputs)
        if not user_inputs or not all(map(is_ort_value, user_inputs)):
            outputs = [as_array(output) for output in outputs]
        return outputs[0] if len(outputs) == 1 else tuple(outputs)

    def train(self, mode: bool = True) -> Module:
        """Switch to training mode, or to evaluation mode if `mode` is false; return the module."""
        self.training = as_flag("mode", mode)
        return self

    def eval(self) -> Module:
        """Switch to evaluation mode; return the module."""
        return self.train(False)

    def lazy_reset_grad(self) -> None:
        """Make the next training step overwrite the gradients instead of adding to them."""
        with self._lock:
            self._model.lazy_reset_grad()

    def get_contiguous_parameters(self, trainable_only: bool = False) -> Any:
        """Copy the parameters into one flat buffer, in the order of the training model's inputs.

        Its elements are float32, which holds half precision and small integers exactly too; they
        are float64 if a parameter in it is float64 or an integer of 32 bits or more.

        Args:
            trainable_only: Whether to leave the frozen parameters out.

        Returns:
            An OrtValue of one dimension, of the C extension's class as in onnxruntime-training:
            `numpy()`, `shape()`, `data_type()` and `device_name()` are its methods.
        """
        self._check("copy the parameters")
        with self._lock:
            flat = self._model.read_parameters(as_flag("trainable_only", trainable_only))
        return contiguous(flat, self._device)

    def get_parameters_size(self, trainable_only: bool = True) -> int:
        """The number of elements of the parameters.

        Args:
            trainable_only: Whether to leave the frozen parameters out.
        """
        return self._model.parameters_size(as_flag("trainable_only", trainable_only))

    def copy_buffer_to_parameters(self, buffer: Any, trainable_only: bool = True) -> None:
        """Set the parameters from one flat buffer.

        This completes a state that was loaded from a nominal checkpoint.

        Args:
            buffer: What `get_contiguous_parameters` returns, or another OrtValue or array of that
                element type. Each parameter gets its own type back.
            trainable_only: Whether the buffer holds the trainable parameters only.
        """
        trainable_only = as_flag("trainable_only", trainable_only)
        if trainable_only and self._state.nominal:
            raise StateError(
                "For nominal checkpoint state, all parameters need to be loaded: give a buffer of "
                "all of them and `trainable_only=False`."
            )
        flat = flat_array(buffer)
        size = self.get_parameters_size(trainable_only)
        if flat.size != size:
            which = "trainable parameters have" if trainable_only else "parameters have"
            raise StateError(
                f"Parameters buffer size incorrect. Expected:{size}, Actual:{flat.size}. The "
                f"{which} {size} elements (`get_parameters_size(trainable_only={trainable_only})`)."
            )
        dtype = self._model.parameters_dtype(trainable_only)
        if flat.dtype != dtype:
            raise StateError(f"Parameters buffer type incorrect: it is {dtype}, not {flat.dtype}.")
        with self._lock:
            self._model.write_parameters(flat, trainable_only)

    def export_model_for_inferencing(
        self, inference_model_uri: str | os.PathLike[str], graph_output_names: Sequence[str]
    ) -> None:
        """Write an inference model with the current parameters.

        It is the part of the evaluation model that the outputs need: parameters are initializers,
        and inputs that only the loss needs are gone. A module without an evaluation model takes the
        training model, leaves the gradients out, turns dropout off and normalises by the running
        statistics.

        Args:
            inference_model_uri: The file to write.
            graph_output_names: The outputs of the inference model: any tensors of the evaluation
                model, in the order in which it shall return them.

        Raises:
            UnknownNameError: There is no such tensor; the message lists near ones and the outputs.
        """
        self._check("export the model")
        path = text_of(inference_model_uri, "inference model")
        with self._lock:
            self._model.export_model_for_inferencing(path, graph_output_names)

    def input_names(self) -> list[str]:
        """The inputs that a call takes in the present mode; none if there is no such model."""
        return self._model.input_names(self.training)

    def output_names(self) -> list[str]:
        """The outputs that a call gives in the present mode; none if there is no such model."""
        return self._model.output_names(self.training)

    def _check(self, what: str) -> None:
        if self._state.nominal:
            raise StateError(NO_VALUES.format(what=what))

    def _check_eval(self) -> None:
        if not self._has_eval_model:
            raise EngineError(
                "Eval model was not provided. Cannot evaluate. Make the module with "
                "`Module(..., eval_model_uri=...)`."
            )
