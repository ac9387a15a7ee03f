"""The handle that base and empty_base give, and what a block sees of it."""

import onnx
import onnxruntime.training.onnxblock as onnxblock

from tests.upstream.models import error_of, mlp, names


class Looking(onnxblock.Block):
    def __init__(self):
        super().__init__(temp_file_name="looking.onnx")
        self.seen = None

    def build(self, name):
        self.seen = len(self.base.graph.node)
        self.typed = self.infer_shapes_on_base()
        return name


onnx.save(mlp(), "mlp.onnx")
model = mlp()
looking = Looking()
with onnxblock.base(model, "mlp.onnx") as handle:
    path, has_path = handle.path, handle.has_path
with onnxblock.base(model) as handle:
    onnxblock.blocks.Neg()("logits")
    returned = looking("logits")
    copied = handle.model is not model
    no_path = [handle.has_path, error_of(lambda: handle.path)]
with onnxblock.empty_base() as empty:
    domains = sorted(o.domain for o in empty.model.opset_import)

results = {
    "path": [path, has_path],
    "no path": no_path,
    "copied": copied,
    "returned": returned,
    "seen": looking.seen,
    "typed": sorted(set(names(looking.typed.graph.value_info)) & {"a", "h"}),
    "extended": [len(model.graph.node), len(handle.model.graph.node)],
    "empty": [domains, empty.model.graph.name, len(empty.model.graph.node)],
}
