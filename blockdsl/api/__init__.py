"""Training on a device: the classes of `onnxruntime.training.api`, on any ONNX Runtime.

Example:
    A training loop over artifacts that `blockdsl.artifacts.generate_artifacts` wrote::

        state = CheckpointState.load_checkpoint("checkpoint")
        module = Module("training_model.onnx", state, "eval_model.onnx")
        optimizer = Optimizer("optimizer_model.onnx", module)
        for inputs, labels in batches:
            loss = module(inputs, labels)
            optimizer.step()
            module.lazy_reset_grad()
        CheckpointState.save_checkpoint(state, "checkpoint", include_optimizer_state=True)
        module.export_model_for_inferencing("inference_model.onnx", ["output"])
"""

from blockdsl.api.checkpoint_state import CheckpointState
from blockdsl.api.lr_scheduler import LinearLRScheduler
from blockdsl.api.module import Module
from blockdsl.api.optimizer import Optimizer
from blockdsl.api.parameters import Parameter, Parameters
from blockdsl.api.properties import Properties
from blockdsl.backend.seed import set_seed

__all__ = [
    "CheckpointState",
    "LinearLRScheduler",
    "Module",
    "Optimizer",
    "Parameter",
    "Parameters",
    "Properties",
    "set_seed",
]
