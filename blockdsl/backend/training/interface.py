"""The inputs of a training or eval model, and whether they belong to a checkpoint."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import onnx

from blockdsl.backend.feeds import InputSpec, input_specs
from blockdsl.backend.files import is_ort_format, read_model
from blockdsl.backend.identity import KEY, identity_of
from blockdsl.backend.sessions import create_session
from blockdsl.backend.training.native import reporting
from blockdsl.backend.training.state import TrainingState
from blockdsl.errors import ArtifactError, near
from blockdsl.graph.layout import BUFFER, RESET
from blockdsl.graph.tensor import TensorType, elem_type_of, known_dim


@dataclass(frozen=True)
class Interface:
    """The declared inputs of a model, in order, and the identity of its artifacts."""

    file: str = ""
    inputs: list[InputSpec] = field(default_factory=list)
    artifacts: str = ""


def read_interface(path: str, what: str, options: Any) -> Interface:
    """Read the inputs of an ONNX model or of one in ONNX Runtime's own format."""
    name = f"The {what} '{path}'"
    if is_ort_format(path, what):
        with reporting(f"Loading the {what} '{path}'"):
            session = create_session(path, options)
        inputs = [InputSpec(i.name, _type(i.type, i.shape)) for i in session.get_inputs()]
        metadata = session.get_modelmeta().custom_metadata_map
        return Interface(name, inputs, metadata.get(KEY, ""))
    model = read_model(path, what, weights=False)
    return Interface(name, input_specs(model), identity_of(model))


def check_fit(model: Interface, state: TrainingState, *, training: bool) -> None:
    """Check that a model is what it is taken for and that its parameters are the state's.

    Raises:
        ArtifactError: The training and the eval model are confused, or the model and the
            checkpoint come from different calls of `generate_artifacts`.
    """
    inputs = {spec.name: spec.type for spec in model.inputs}
    if training and RESET not in inputs:
        raise ArtifactError(
            f"{model.file} is not a training model: it has no input '{RESET}'. Is it the eval "
            "model, or the model that the artifacts were generated from?"
        )
    if not training and RESET in inputs:
        raise ArtifactError(f"{model.file} is a training model: it has an input '{RESET}'.")
    together = "The checkpoint and the models must come from one call of `generate_artifacts`."
    names = state.parameter_names()
    for name in names:
        if name not in inputs:
            raise ArtifactError(
                f"{model.file} has no parameter '{name}', which the checkpoint holds. "
                f"{near(name, [n for n in inputs if not n.endswith(BUFFER)])} {together}"
            )
    for name in inputs:
        parameter = name.removesuffix(BUFFER)
        if parameter != name and parameter not in names:
            raise ArtifactError(
                f"{model.file} trains a parameter '{parameter}', which the checkpoint does not "
                f"hold. {near(parameter, names)} {together}"
            )
    if state.nominal:
        return
    for name in names:
        value, declared = state.parameter(name), inputs[name]
        data = value.data
        if declared.elem_type != elem_type_of(data.dtype) or not declared.admits(data.shape):
            given = TensorType(elem_type_of(data.dtype), data.shape)
            raise ArtifactError(
                f"{model.file} declares the parameter '{name}' as {declared}, the checkpoint holds "
                f"{given}. {together}"
            )
        if training and value.requires_grad and name + BUFFER not in inputs:
            raise ArtifactError(
                f"The checkpoint says that '{name}' is trained, but {model.file} has no gradient "
                f"of it (no input '{name}{BUFFER}'). {together}"
            )


def _type(text: str, shape: list[Any]) -> TensorType:
    """A type as an InferenceSession tells it: 'tensor(float)'."""
    name = text.removeprefix("tensor(").removesuffix(")").upper()
    return TensorType(onnx.TensorProto.DataType.Value(name), tuple(map(known_dim, shape)))
