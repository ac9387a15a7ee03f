"""New inputs like those there are."""

import onnxruntime.training.onnxblock as onnxblock

from tests.upstream.models import error_of, mlp, names

with onnxblock.base(mlp()) as accessor:
    of_input = onnxblock.blocks.InputLike("x")("mask")
    of_output = onnxblock.blocks.InputLike("logits")("goal")
    unnamed = onnxblock.blocks.InputLike("x")()
    unknown = error_of(
        lambda: onnxblock.blocks.InputLike("nothing")("goal2"),
        "Could not find input or output with name nothing",
    )
    model = accessor.model

results = {
    "inputs": names(model.graph.input)[:3],
    "returned": [of_input, of_output],
    "unnamed is an input": unnamed == model.graph.input[3].name,
    "shapes": [
        [d.dim_param or d.dim_value for d in i.type.tensor_type.shape.dim]
        for i in model.graph.input
    ],
    "unknown": unknown,
}
