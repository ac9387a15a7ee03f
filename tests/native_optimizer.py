"""The C optimizer of onnxruntime-training, fed with gradients of our choosing."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import onnx
import onnxruntime
from onnx import ModelProto, TensorProto, helper
from onnxruntime.capi import _pybind_state as native

from blockdsl.backend import checkpoint as codec


class NativeOptimizer:
    """Steps of an optimizer model by onnxruntime-training's own classes.

    Args:
        model: The optimizer model.
        parameters: The parameters, of float32.
        folder: Where to write the files that the C classes read.
    """

    def __init__(self, model: ModelProto, parameters: dict[str, np.ndarray], folder: Path) -> None:
        self._folder = folder
        onnx.save(gradient_model(parameters), folder / "training.onnx")
        onnx.save(model, folder / "optimizer.onnx")
        codec.save(codec.Checkpoint(dict(parameters), {}), folder / "checkpoint")
        device, options = native.OrtDevice(0, 0, 0), onnxruntime.SessionOptions()
        self._state = native.load_checkpoint(str(folder / "checkpoint"))
        training = str(folder / "training.onnx")
        self._module = native.Module(training, self._state, None, device, options)
        optimizer = str(folder / "optimizer.onnx")
        self._optimizer = native.Optimizer(optimizer, self._state, device, options)

    def step(self, gradients: dict[str, np.ndarray], rate: float) -> dict[str, np.ndarray]:
        """Takes a step; gives the parameters and slots."""
        self._module.lazy_reset_grad()
        self._module.train_step(list(gradients.values()), native.OrtValueVector())
        self._optimizer.set_learning_rate(rate)
        self._optimizer.optimizer_step()
        saved = self._folder / "saved"
        native.save_checkpoint(self._state, str(saved), True)
        loaded = codec.load(saved)
        state = dict(loaded.trainable)
        for name, slots in loaded.groups["group0"].slots.items():
            state |= {f"{name}.{slot}": value for slot, value in slots.items()}
        return state


def gradient_model(parameters: dict[str, np.ndarray]) -> ModelProto:
    """A training model whose user feeds it the gradients."""

    def info(name, elem_type=TensorProto.FLOAT, shape=()):
        return helper.make_tensor_value_info(name, elem_type, shape)

    def of_each(pattern):
        return [info(pattern.format(name), shape=v.shape) for name, v in parameters.items()]

    first = next(iter(parameters))
    nodes = [helper.make_node("ReduceSum", [f"{first}.fed"], ["loss"], keepdims=0)]
    outputs = [info("loss")]
    for name in parameters:
        inputs = [f"{name}_grad.accumulation.buffer", f"{name}.fed", "lazy_reset_grad"]
        output = f"{name}_grad.accumulation.out"
        node = helper.make_node("InPlaceAccumulatorV2", inputs, [output], domain="com.microsoft")
        nodes.append(node)
        outputs.append(info(output, TensorProto.BOOL, [1]))
    inputs = [*of_each("{}.fed"), *of_each("{}"), *of_each("{}_grad.accumulation.buffer")]
    inputs.append(info("lazy_reset_grad", TensorProto.BOOL, [1]))
    graph = helper.make_graph(nodes, "gradients", inputs, outputs)
    opsets = [helper.make_opsetid("", 17), helper.make_opsetid("com.microsoft", 1)]
    return helper.make_model(graph, opset_imports=opsets, ir_version=8)
