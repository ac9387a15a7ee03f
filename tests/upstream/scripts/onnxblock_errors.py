"""What blocks refuse, in the words that programs look for."""

import onnxruntime.training.onnxblock as onnxblock

from tests.upstream.models import error_of, mlp


class Forward(onnxblock.ForwardBlock):
    def build(self, name):
        return name


class Training(onnxblock.TrainingBlock):
    def build(self, name):
        return name


def nested():
    with onnxblock.base(mlp()), onnxblock.empty_base():
        pass


def no_model():
    with onnxblock.base(None):
        pass


def unknown_output():
    with onnxblock.base(mlp()):
        Forward()("nothing")


def no_library():
    with onnxblock.custom_op_library("missing.so"):
        pass


def nested_library():
    with onnxblock.custom_op_library("."), onnxblock.custom_op_library("."):
        pass


before = "Please build the"
results = {
    "nested": error_of(nested, "Base onnx model already exists. Cannot create multiple Model"),
    "no model": error_of(no_model, "empty_base"),
    "no base": error_of(lambda: onnxblock.blocks.Neg()("x")),
    "forward model before it is built": error_of(lambda: Forward().to_model_proto(), before),
    "models before they are built": error_of(
        lambda: Training().to_model_proto(),
        "Please build the training and eval models first before trying to retrieve them.",
    ),
    "parameters before they are built": error_of(
        lambda: Training().parameters(),
        "Please build the training model first before trying to retrieve the parameters.",
    ),
    "unknown output": error_of(
        unknown_output, "The provided name nothing is not a graph value info or a graph output."
    ),
    "no library": error_of(no_library, "Custom op library path missing.so does not exist."),
    "two libraries": error_of(nested_library, "CustomOp library already set."),
    "absolute path": error_of(
        lambda: onnxblock.blocks.PassThrough("/temp.onnx"), "Please pass in a relative path"
    ),
}
for loss in ("MSELoss", "L1Loss", "BCEWithLogitsLoss", "CrossEntropyLoss"):
    results[loss] = error_of(
        lambda loss=loss: getattr(onnxblock.loss, loss)(reduction="median"),
        "Reduction median not supported.",
    )
