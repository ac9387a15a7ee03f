"""Dropout in training and evaluation: off in the evaluation model."""

import numpy as np
import onnx
from onnxruntime.training import artifacts
from onnxruntime.training.api import CheckpointState, Module

from tests.upstream.models import batch, labels, mlp

model = mlp()
model.graph.initializer.append(onnx.numpy_helper.from_array(np.array(0.5, np.float32), "ratio"))
model.graph.initializer.append(onnx.numpy_helper.from_array(np.array(True), "training"))
nodes = list(model.graph.node)
nodes[2].input[0] = "dropped"
del model.graph.node[:]
dropout = onnx.helper.make_node("Dropout", ["h", "ratio", "training"], ["dropped", "mask"])
model.graph.node.extend([*nodes[:2], dropout, nodes[2]])
artifacts.generate_artifacts(
    model,
    requires_grad=["fc1.weight", "fc2.weight"],
    loss=artifacts.LossType.CrossEntropyLoss,
)
evaluation = onnx.load("eval_model.onnx")
state = CheckpointState.load_checkpoint("checkpoint")
module = Module("training_model.onnx", state, "eval_model.onnx")
trained = [float(module(batch(), labels())) for _ in range(2)]
results = {
    "training mode": [list(n.input) for n in evaluation.graph.node if n.op_type == "Dropout"],
    "evaluated": module.eval()(batch(), labels()),
    "random": trained[0] != trained[1],
}
