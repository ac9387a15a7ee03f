"""The optimizer models of AdamW and SGD: inputs, nodes and attributes."""

import onnx
import onnxruntime.training.onnxblock as onnxblock

from tests.upstream.models import mlp, names

CLIP = onnxblock.optim.ClipGradNorm(2.5)
BLOCKS = {
    "AdamW": onnxblock.optim.AdamW(),
    "AdamW with settings": onnxblock.optim.AdamW(
        bias_correction=False, betas=(0.8, 0.95), eps=1e-7, weight_decay=0.01
    ),
    "AdamW, clipped": onnxblock.optim.AdamW(clip_grad=CLIP),
    "SGD": onnxblock.optim.SGD(),
    "SGD, clipped": onnxblock.optim.SGD(clip_grad=CLIP),
}
results = {}
parameters = list(mlp().graph.initializer)
for name, block in BLOCKS.items():
    with onnxblock.empty_base(opset_version=17):
        returned = block((parameters, []))
    model = block.to_model_proto()
    results[name] = {
        "inputs": names(model.graph.input),
        "sequences": [i.type.HasField("sequence_type") for i in model.graph.input],
        "returned is the output": [returned] == names(model.graph.output),
        "nodes": [[n.domain, n.op_type, list(n.input)[:3]] for n in model.graph.node][-1][:2],
        "clipped": [n.op_type for n in model.graph.node][:-1],
        "attributes": {
            a.name: onnx.helper.get_attribute_value(a) for a in model.graph.node[-1].attribute
        },
        "opset": [o.version for o in model.opset_import if o.domain == ""],
    }
