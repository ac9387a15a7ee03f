"""`generate_artifacts`: from a forward model to the files that train it."""

from __future__ import annotations

import contextlib
import inspect
import os
import warnings
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import onnx

from blockdsl import backend, optim
from blockdsl import loss as losses
from blockdsl.artifacts.checkpoints import write_checkpoint
from blockdsl.artifacts.checks import (
    check_optimizer_names,
    check_runnable,
    check_training_names,
)
from blockdsl.artifacts.fingerprint import new_identity
from blockdsl.artifacts.inspection import Subject, concerns, export_findings
from blockdsl.artifacts.kinds import LossType, OptimType
from blockdsl.artifacts.loading import load_forward
from blockdsl.artifacts.parameters import Request, Selection, lift_parameters, resolve
from blockdsl.artifacts.staging import staged
from blockdsl.artifacts.summary import announce, describe, surprises
from blockdsl.artifacts.weight_sharing import separate_weights, tie_weights
from blockdsl.backend import writing
from blockdsl.backend.files import StrPath, read_model
from blockdsl.backend.identity import set_identity
from blockdsl.backend.limits import runtime_limits
from blockdsl.backend.ort_format import convert_to_ort
from blockdsl.blocks import Block, PassThrough
from blockdsl.blocks.block import ModelBlock, as_names, is_block
from blockdsl.errors import (
    ArtifactError,
    ArtifactTypeError,
    BlockWarning,
    EngineError,
    GraphError,
    UnknownNameError,
    near,
)
from blockdsl.graph import Graph, current, empty_base
from blockdsl.graph import custom_op_library as library_of
from blockdsl.graph.check import check_model, skeleton
from blockdsl.graph.context import adopt, ir_version_of
from blockdsl.graph.walk import opset_of
from blockdsl.loss.base import Loss
from blockdsl.training import Parameters, TrainingBlock


def generate_artifacts(
    model: onnx.ModelProto | StrPath,
    requires_grad: Sequence[str] | str | None = None,
    frozen_params: Sequence[str] | None = None,
    loss: LossType | Block | None = None,
    optimizer: OptimType | Block | None = None,
    artifact_directory: StrPath | None = None,
    prefix: str = "",
    ort_format: bool = False,
    custom_op_library: StrPath | None = None,
    additional_output_names: Sequence[str] | None = None,
    nominal_checkpoint: bool = False,
    loss_input_names: Sequence[str] | None = None,
    separate_merged: bool | Sequence[str] = False,
    tie: bool | Sequence[tuple[str, str]] = False,
) -> None:
    """Write what training needs: the training, evaluation and optimizer models and a checkpoint.

    The files are `training_model.onnx`, `eval_model.onnx`, `optimizer_model.onnx`, `checkpoint`
    and, if asked for, `nominal_checkpoint`, each with the prefix. They run on either engine of
    `blockdsl.api` and in the training API of onnxruntime-training 1.19.2. All are written or none.

    Args:
        model: The forward model, or the path of its file; it is never changed.
        requires_grad: Names and globs (`"classifier.*"`) of the parameters that are trained;
            "all" or left out: every parameter that the loss depends on. A tensor is a parameter by
            what operators do with it, be it an initializer, in a Constant node, in a body or in a
            function; masks, settings, running statistics and tables of positions are none, but
            can be named. Without an optimizer float inputs of the model can be named, too.
        frozen_params: Names and globs of parameters that are kept as they are: inputs of the
            models, and in the checkpoint. A name that the model does not have is a warning.
        loss: A `LossType`, or a block that takes the model's outputs and returns the loss; None
            if the model's first output is the loss.
        optimizer: An `OptimType` or a block of `blockdsl.optim`; None for no optimizer model.
        artifact_directory: Where to write, made if need be; the current directory by default.
        prefix: What the names of the files begin with.
        ort_format: Whether to write `.ort` files beside the `.onnx` files.
        custom_op_library: The library of the custom operators that the model uses.
        additional_output_names: Tensors that the models put out after the loss, each once.
        nominal_checkpoint: Whether to write a checkpoint without the values, too.
        loss_input_names: The tensors that the loss takes, if not the outputs of the model. The
            names of its targets may follow, `["scores", "target"]`: the loss adds an input for each
            that the model does not have.
        separate_merged: True to give every module a weight of its own where the exporter merged
            equal ones (`blockdsl.inspect` finds them), or names and globs of those weights.
        tie: True to make weights one that the exporter stored twice, or pairs of names: the second
            of a pair becomes the first, transposed if need be.

    Raises:
        ArtifactError: The arguments do not fit each other or the model.
        ModelFileError: The model's file is missing or is not an ONNX model.
        UnknownNameError: A name is not in the model; the message lists near ones.
        GradientError: The loss has no gradient by a trained parameter.

    Example:
        >>> import tempfile, blockdsl
        >>> from blockdsl import artifacts
        >>> with blockdsl.empty_base() as handle:
        ...     x = blockdsl.input("x", shape=("batch", 3))
        ...     y = blockdsl.blocks.Linear(3, 2)(x)
        ...     blockdsl.graph.current().set_outputs([y])
        >>> with tempfile.TemporaryDirectory() as folder:
        ...     artifacts.generate_artifacts(
        ...         handle.model,
        ...         loss=artifacts.LossType.MSELoss,
        ...         optimizer=artifacts.OptimType.AdamW,
        ...         artifact_directory=folder,
        ...     )
        ...     sorted(os.listdir(folder))
        ['checkpoint', 'eval_model.onnx', 'optimizer_model.onnx', 'training_model.onnx']
    """
    loss_block = _loss_block(loss)
    optimizer_block = _optimizer_block(optimizer)
    extra = _names("additional_output_names", additional_output_names or ())
    loss_inputs = _names("loss_input_names", loss_input_names or ())
    wanted = _patterns("requires_grad", "all" if requires_grad is None else requires_grad)
    frozen = _patterns("frozen_params", frozen_params or ())
    target = _target(artifact_directory, prefix)
    request = Request(wanted, frozen, inputs=optimizer_block is None)
    proto, path, weights = load_forward(model)
    library = (
        contextlib.nullcontext() if custom_op_library is None else library_of(custom_op_library)
    )
    check_runnable(proto)
    separate_weights(proto, weights, separate_merged)
    tie_weights(proto, weights, tie)
    findings = [f for f in export_findings(Subject(proto, weights)) if f.changes_training]
    training = _Training(loss_block, loss_inputs, extra, request, weights, optimizer_block)
    inputs = [output.name for output in proto.graph.output]
    try:
        lift_parameters(proto, request, weights)
        with adopt(proto, path), library:
            training(*inputs)
    except Exception:
        _check_forward(model)
        raise
    training_model, eval_model = training.to_model_proto()
    parameters = training.parameters()
    considered = {tensor.name for tensor in parameters[0]}
    if request.is_default:
        considered |= {tensor.name for tensor in proto.graph.initializer}
    for finding in findings:
        if concerns(finding, considered.difference(tensor.name for tensor in parameters[1])):
            warnings.warn(str(finding), BlockWarning, stacklevel=2)
    models = {"training_model": training_model, "eval_model": eval_model}
    if optimizer_block is not None:
        models["optimizer_model"] = _optimizer_model(optimizer_block, proto, parameters)
    identity = new_identity(
        models.values(), parameters, weights, target / f"{prefix}training_model.onnx"
    )
    with staged(target) as folder:
        for name, made in models.items():
            file = folder / f"{prefix}{name}.onnx"
            _follow_runtime(made)
            set_identity(made, identity)
            writing.write(made, file, weights)
            if ort_format:
                convert_to_ort(file, custom_op_library)
        for kind in ("", "nominal_") if nominal_checkpoint else ("",):
            write_checkpoint(
                parameters,
                folder / f"{prefix}{kind}checkpoint",
                nominal=bool(kind),
                weights=weights,
                artifacts=identity,
            )


class _Training(TrainingBlock):
    """The loss on top of the model, and what is trained."""

    def __init__(
        self,
        loss: Block,
        loss_inputs: Sequence[str],
        extra: Sequence[str],
        request: Request,
        weights: Mapping[str, np.ndarray],
        optimizer: ModelBlock | None,
    ) -> None:
        self._loss = loss
        self._loss_inputs = loss_inputs
        self._extra = extra
        self._request = request
        self._weights = weights
        self._optimizer = optimizer

    def build(self, *outputs: str) -> Any:
        graph = current()
        inputs = self._loss_inputs or outputs
        _check_loss_inputs(self._loss, inputs, bool(self._loss_inputs))
        with graph.names.root():
            try:
                made = as_names(self._loss(*inputs))
            except UnknownNameError:
                _check_names(graph, self._loss_inputs, "loss_input_names")
                raise
        # The loss adds inputs for its targets: all names are known only now.
        _check_names(graph, self._loss_inputs, "loss_input_names")
        _check_names(graph, self._extra, "additional_output_names")
        chosen = resolve(graph, made[0], self._request, self._weights)
        self._report(chosen, made[0], graph)
        check_training_names(graph.known_names(), chosen.trained)
        if self._optimizer is not None:
            check_optimizer_names(chosen.trained, getattr(self._optimizer, "slots", ()))
        for name in chosen.trained:
            self.requires_grad(name)
        for name in chosen.frozen:
            self.requires_grad(name, False)
        return tuple(dict.fromkeys((*made, *self._extra)))

    def _report(self, chosen: Selection, loss: str, graph: Graph) -> None:
        """Say what is trained.

        Raises:
            ArtifactError: Nothing is, by the default choice and for an optimizer.
        """
        summary, notes = describe(chosen, graph.constants_made), surprises(chosen)
        if self._request.is_default and not chosen.trained:
            problem = (
                f"The model has no parameter to train: the loss {str(loss)!r} depends on no "
                f"floating-point parameter that is not frozen."
            )
            if self._optimizer is not None:
                advice = "Name one in requires_grad, or leave the optimizer out."
                raise ArtifactError(" ".join([problem, *notes, f"It {summary}. {advice}"]))
            notes = [f"{problem} The artifacts train nothing.", *notes]
        for note in notes:
            warnings.warn(note, BlockWarning, stacklevel=2)
        announce(summary)


def _check_names(graph: Graph, names: Sequence[str], argument: str) -> None:
    for name in names:
        if name not in graph:
            raise UnknownNameError(
                f"{argument}: The provided name {name} is not a graph value info or a graph "
                f"output. {near(name, list(graph.known_names()))}"
            )


def _check_loss_inputs(loss: Block, inputs: Sequence[str], named: bool) -> None:
    shown = ", ".join(repr(str(name)) for name in inputs)
    if isinstance(loss, Loss) and len(inputs) > 1 and not named:
        raise ArtifactError(
            f"The model has {len(inputs)} outputs ({shown}), and {type(loss).__name__} takes one. "
            f"Name it: loss_input_names=[{str(inputs[0])!r}]; or write a loss block that takes all."
        )
    try:
        inspect.signature(loss.build).bind(*inputs)
    except TypeError as error:
        raise ArtifactError(
            f"{type(loss).__name__}.build cannot take the tensors {shown}: {error}. Name the ones "
            f"it takes, in order, with loss_input_names."
        ) from error


def _loss_block(loss: Any) -> Block:
    if loss is None:
        return PassThrough()
    if isinstance(loss, LossType):
        made: Block = getattr(losses, loss.name)()
        return made
    if is_block(loss):
        return loss
    hint = f" Make an instance: {loss.__name__}()." if isinstance(loss, type) else ""
    raise ArtifactError(
        f"Unknown loss provided {type(loss)}. Expected a blockdsl.artifacts.LossType, a "
        f"blockdsl.Block or None.{hint}"
    )


def _optimizer_block(optimizer: Any) -> Any:
    """A block that has `to_model_proto`, be it one of onnxblock's."""
    if optimizer is None or isinstance(optimizer, ModelBlock):
        return optimizer
    if isinstance(optimizer, OptimType):
        return getattr(optim, optimizer.name)()
    makes_a_model = is_block(optimizer) and hasattr(optimizer, "to_model_proto")
    if makes_a_model and not isinstance(optimizer, TrainingBlock):
        return optimizer
    hint = ""
    if isinstance(optimizer, type):
        hint = f" Make an instance: {optimizer.__name__}()."
    elif isinstance(optimizer, optim.ClipGradNorm):
        hint = f" Clipping belongs to an optimizer: AdamW(clip_grad={optimizer})."
    raise ArtifactTypeError(
        f"Unknown optimizer provided {type(optimizer)}. Expected a blockdsl.artifacts.OptimType, "
        f"an optimizer block or None.{hint}"
    )


def _patterns(argument: str, given: Any) -> list[str]:
    """Names and globs in any collection; one alone may stand for itself."""
    one = isinstance(given, str | bytes) or not isinstance(given, Iterable)
    return _names(argument, [given] if one else list(given))


def _names(argument: str, given: Any) -> list[str]:
    if not isinstance(given, list | tuple) or not all(isinstance(name, str) for name in given):
        raise ArtifactTypeError(
            f"Unknown type provided for {argument}: {given!r}. Expected a list of strings."
        )
    return list(given)


def _target(directory: Any, prefix: Any) -> Path:
    """The directory to write to, after a check that the files can have these names."""
    if not isinstance(directory, str | os.PathLike | None) or "\0" in str(directory):
        raise ArtifactTypeError(f"artifact_directory is a path, not {directory!r}.")
    if not isinstance(prefix, str) or "\0" in prefix or os.path.basename(prefix) != prefix:
        raise ArtifactError(
            f"prefix={prefix!r} cannot begin the names of the files. Another folder goes into "
            f"artifact_directory."
        )
    return Path.cwd() if directory is None else Path(directory)


def _check_forward(model: onnx.ModelProto | StrPath) -> None:
    """The full check of the forward model, whose faults show in whatever is built on it.

    Raises:
        GraphError: It is not valid, and the runtime refuses it, too, if there is one.
    """
    proto = model if isinstance(model, onnx.ModelProto) else read_model(model, weights=False)
    graph = Graph(skeleton(proto))
    graph.set_outputs(output.name for output in proto.graph.output)  # with their shapes
    try:
        check_model(graph.proto, "forward model")
    except GraphError:
        if not backend.is_compatible(graph.proto):
            raise


def _optimizer_model(optimizer: Any, model: onnx.ModelProto, parameters: Parameters) -> Any:
    with empty_base(opset_version=opset_of(model)):
        optimizer(parameters)
        return optimizer.to_model_proto()


def _follow_runtime(model: onnx.ModelProto) -> None:
    """Lower an IR version that is newer than the opset if the installed runtime refuses it.

    Whoever makes models with the newest onnx gets its newest IR version, whatever is in them.
    """
    needed = ir_version_of(opset_of(model) or 1)
    if model.ir_version > needed:
        with contextlib.suppress(EngineError):  # no runtime is installed: there is none to follow
            model.ir_version = min(model.ir_version, max(needed, runtime_limits().ir_version))
