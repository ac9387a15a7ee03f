"""The one place where inference sessions are created."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from onnx import ModelProto, NodeProto

from blockdsl.backend.providers import CPU, load_runtime
from blockdsl.graph.walk import nodes_of

if TYPE_CHECKING:
    from onnxruntime import InferenceSession, SessionOptions

_FATAL = 4  # the log severity of what ends the process; all else is raised as an exception anyway
_GLOBAL_THREADS = "use_per_session_threads must be false"


def quiet_options() -> SessionOptions:
    """Session options that leave talking to us: what goes wrong is raised, not printed."""
    options = load_runtime().SessionOptions()
    options.log_severity_level = _FATAL
    return options


def create_session(
    source: str | bytes,
    options: SessionOptions | None = None,
    providers: Sequence[Any] = (CPU.provider,),
    disabled_optimizers: Sequence[str] = (),
) -> InferenceSession:
    """Create an inference session on the thread pool that the application has chosen.

    Args:
        source: The bytes of a model, or the path of its file.
        options: The user's options; they are left as they are.
        providers: As `onnxruntime.InferenceSession` takes them.
        disabled_optimizers: The optimizers of graphs to leave out.

    Raises:
        Exception: What the runtime raises; its classes have no common base.
    """
    own = quiet_options() if options is None else options

    def create() -> InferenceSession:
        # Without `enable_fallback=0` the runtime prints each refusal and tries once more.
        return load_runtime().InferenceSession(
            source,
            own,
            providers=list(providers),
            disabled_optimizers=list(disabled_optimizers),
            enable_fallback=0,
        )

    try:
        return create()
    except RuntimeError as error:
        if _GLOBAL_THREADS not in str(error):
            raise
    # `onnxruntime.set_global_thread_pool_sizes` was called. Whether it was can only be tried.
    threads = own.intra_op_num_threads, own.inter_op_num_threads
    own.use_per_session_threads = False
    own.intra_op_num_threads = own.inter_op_num_threads = 0  # of which the runtime would warn
    try:
        return create()
    finally:
        own.use_per_session_threads = True
        own.intra_op_num_threads, own.inter_op_num_threads = threads


def harmful_optimizers(model: ModelProto) -> list[str]:
    """The optimizers of graphs that change what a model computes in training.

    `EliminateDropout` removes a dropout whose mask nothing reads, though it trains.
    `CommonSubexpressionElimination` makes one draw of two Bernoullis of equal probabilities. A
    BatchNormalization that trains writes its new statistics over the old ones:
    `ConstantSharing` gives it other constants of equal values in their place.
    """
    nodes = list(nodes_of(model))
    harmful = {
        "EliminateDropout": any(map(_is_training_dropout, nodes)),
        "CommonSubexpressionElimination": any(n.op_type == "Bernoulli" for n in nodes),
        "ConstantSharing": any(map(is_training_batch_norm, nodes)),
    }
    return [name for name, applies in harmful.items() if applies]


def is_training_batch_norm(node: NodeProto) -> bool:
    """Whether a BatchNormalization of opset 14 or newer normalizes by the batch."""
    return node.op_type == "BatchNormalization" and any(
        attribute.name == "training_mode" and attribute.i for attribute in node.attribute
    )


def _is_training_dropout(node: NodeProto) -> bool:
    return node.op_type == "Dropout" and any(node.input[2:])
