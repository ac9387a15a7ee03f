"""The caller's model is not changed, whatever it carries."""

import onnx
from onnxruntime.training import artifacts

from tests.upstream.models import mlp

model = mlp()
model.producer_name = "somebody"
model.doc_string = "a model"
before = model.SerializeToString(deterministic=True)
artifacts.generate_artifacts(
    model,
    requires_grad=["fc1.weight"],
    loss=artifacts.LossType.BCEWithLogitsLoss,
    optimizer=artifacts.OptimType.AdamW,
)
made = onnx.load("eval_model.onnx")
results = {
    "kept": model.SerializeToString(deterministic=True) == before,
    "versions": [made.ir_version, [o.version for o in made.opset_import if o.domain == ""]],
    "parameters inside": [t.name for t in made.graph.initializer if t.name.startswith("fc")],
}
