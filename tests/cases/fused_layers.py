"""Layers that ONNX Runtime's optimisers fuse."""

import numpy as np
from onnx import helper

from blockdsl.graph import current
from blockdsl.testing import Case, R

DOMAIN = "com.microsoft"


def written(name, outputs, domain, attributes):
    """A node as ONNX Runtime's optimisers write it; an output that is left out has no name."""

    def build(*inputs):
        current().proto.graph.node.append(
            helper.make_node(name, inputs, outputs, domain=domain, name=name, **attributes)
        )
        current().sync()
        return [current().value(output) for output in outputs if output]

    return build


def without_domain(name, *outputs, **attributes):
    """In the default domain, which does not know it."""
    return written(name, ["y", *outputs], "", attributes)


def with_sum(name, **attributes):
    return written(name, ["y", "", "", "sum"], DOMAIN, attributes)


def packed(*shape):
    return R(*shape, ints=256, dtype=np.uint8)


IDS = [R(2, 3, ints=5, dtype=np.int32), R(2, 3, ints=2, dtype=np.int32)]
TABLES = [R(5, 4), R(6, 4), R(2, 4), R(4), R(4)]
QUANTIZED = {"K": 20, "N": 3, "bits": 4, "block_size": 16}
PACKED = packed(3, 2, 8)

CASES = [
    *[
        Case("FusedGemm", [R(2, 3), R(3, 4), R(4)], domain=DOMAIN, **settings)
        for settings in (
            {"activation": "Tanh"},
            {"activation": "LeakyRelu", "activation_alpha": 0.3, "alpha": 0.5, "beta": 2.0},
            {
                "activation": "HardSigmoid",
                "activation_alpha": 0.3,
                "activation_beta": 0.4,
            },
        )
    ],
    Case("FusedGemm", [R(3, 2), R(4, 3)], domain=DOMAIN, activation="Sigmoid", transA=1, transB=1),
    Case(
        "FusedConv",
        [R(1, 2, 5, 5), R(3, 2, 3, 3, static=True), R(3)],
        domain=DOMAIN,
        activation="Relu",
        pads=[1, 1, 1, 1],
        strides=[2, 2],
    ),
    Case(
        "FusedConv",
        [R(1, 4, 5, 5), R(4, 2, 3, 3, static=True), R(4), R(1, 4, 3, 3)],
        domain=DOMAIN,
        group=2,
        activation="Relu",
    ),
    Case(
        "FusedConv",
        [R(1, 2, 4, 4), R(3, 2, 2, 2, static=True)],
        domain=DOMAIN,
        activation="LeakyRelu",
        activation_params=[0.2],
    ),
    Case(
        "FusedConv",
        [R(1, 2, 4, 4), R(3, 2, 2, 2, static=True)],
        domain=DOMAIN,
        activation="Clip",
        activation_params=[-0.7, 0.9],
    ),
    *[
        Case("SkipLayerNormalization", inputs, domain=DOMAIN, opset=opset, epsilon=1e-5)
        for inputs, opset in (
            ([R(2, 3, 4), R(2, 3, 4), R(4), R(4), R(4)], [12, 17]),
            ([R(2, 3, 4), R(2, 3, 4), R(4)], [12, 17]),
            ([R(2, 3, 4), R(2, 3, 4), R(4), None, R(4)], 17),
            ([R(2, 3, 4), R(1, 3, 4), R(4), R(4)], 17),
            ([R(2, 3, 4), R(3, 4), R(4), R(4)], 17),
        )
    ],
    Case(
        "SkipLayerNormalization",
        [R(2, 3, 4), R(2, 3, 4), R(4), R(4)],
        build=with_sum("SkipLayerNormalization"),
        name="with its sum",
    ),
    *[
        Case("SkipSimplifiedLayerNormalization", inputs, domain=DOMAIN)
        for inputs in (
            [R(2, 3, 4), R(2, 3, 4), R(4), R(4)],
            [R(2, 3, 4), R(2, 3, 4), R(4)],
            [R(3, 4), R(3, 4), R(4)],
        )
    ],
    Case(
        "SkipSimplifiedLayerNormalization",
        [R(2, 3, 4), R(2, 3, 4), R(4)],
        build=with_sum("SkipSimplifiedLayerNormalization", epsilon=0.1),
        name="with its sum",
    ),
    *[
        Case(
            "SimplifiedLayerNormalization",
            [R(2, 3, 4), R(*scale)],
            build=without_domain("SimplifiedLayerNormalization", *outputs, **settings),
            of=[0],
            opset=opset,
            name=f"{settings}{outputs}",
        )
        for settings, outputs, scale, opset in (
            ({}, (), (4,), [12, 17]),
            ({"axis": 1, "epsilon": 0.1}, (), (3, 4), 17),
            ({}, ("root",), (4,), 17),
        )
    ],
    Case(
        "LayerNormalization",
        [R(2, 3, 4), R(4), R(4)],
        build=without_domain("LayerNormalization", axis=-1, epsilon=0.1),
        opset=[11, 16],
        name="before it was ONNX's",
    ),
    Case("EmbedLayerNormalization", [*IDS, *TABLES], domain=DOMAIN, epsilon=0.1, outputs=2, of=[0]),
    Case(
        "EmbedLayerNormalization",
        [
            IDS[0],
            None,
            *TABLES[:2],
            None,
            *TABLES[3:],
            R(values=np.array([[1, 1, 0], [1, 0, 0]], np.int32)),
            R(2, 3, ints=6, dtype=np.int32),
        ],
        domain=DOMAIN,
        epsilon=0.1,
        outputs=3,
        of=[0, 2],
    ),
    Case("MatMulNBits", [R(4, 20), PACKED, R(3, 2)], domain=DOMAIN, **QUANTIZED),
    Case(
        "MatMulNBits",
        [R(2, 4, 20), PACKED, R(6), packed(3, 1), None, R(3, static=True)],
        domain=DOMAIN,
        **QUANTIZED,
    ),
    Case(
        "MatMulNBits",
        [R(4, 20), packed(3, 2, 16), R(3, 2), packed(3, 2)],
        domain=DOMAIN,
        **QUANTIZED | {"bits": 8},
    ),
    Case(
        "MatMulNBits",
        [R(4, 32), PACKED, R(3, 2), R(3, 2)],
        domain=DOMAIN,
        wrt=[0, 2],
        **QUANTIZED | {"K": 32},
    ),
]
