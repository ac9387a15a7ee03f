"""The inference model: what is kept of an eval model, and how it is written."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import onnx
import onnxruntime as ort
import pytest
from onnx import TensorProto, helper, numpy_helper

from blockdsl.backend import writing
from blockdsl.backend.export import inference_model, write_model
from blockdsl.errors import EngineError, StateError, UnknownNameError

VALUES = {"w": np.arange(6, dtype=np.float32).reshape(2, 3), "b": np.float32([1, 2, 3])}
X = np.float32([[1, 2], [-3, 4]])


def eval_model() -> onnx.ModelProto:
    """output = relu(x @ w + b) * scale, loss = mean((output - target)²); w and b are parameters."""
    value = helper.make_tensor_value_info
    graph = helper.make_graph(
        [
            helper.make_node("MatMul", ["x", "w"], ["xw"]),
            helper.make_node("Add", ["xw", "b"], ["h"]),
            helper.make_node("Relu", ["h"], ["r"]),
            helper.make_node("Mul", ["r", "scale"], ["output"]),
            helper.make_node("Sub", ["output", "target"], ["d"]),
            helper.make_node("Mul", ["d", "d"], ["d2"]),
            helper.make_node("ReduceMean", ["d2"], ["loss"], keepdims=0),
        ],
        "eval",
        [
            value("x", TensorProto.FLOAT, ["batch", 2]),
            value("target", TensorProto.FLOAT, ["batch", 3]),
            value("w", TensorProto.FLOAT, [2, 3]),
            value("b", TensorProto.FLOAT, [3]),
        ],
        [value("loss", TensorProto.FLOAT, []), value("output", TensorProto.FLOAT, ["batch", 3])],
        [numpy_helper.from_array(np.float32(2), "scale")],
    )
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)


def exported(outputs: list[str], model: onnx.ModelProto | None = None) -> onnx.ModelProto:
    result = inference_model(model or eval_model(), outputs, VALUES, VALUES.__getitem__)
    onnx.checker.check_model(result, full_check=True)
    return result


def run(model: onnx.ModelProto | Path, **feeds: np.ndarray) -> list[np.ndarray]:
    source = str(model) if isinstance(model, Path) else model.SerializeToString()
    return ort.InferenceSession(source, providers=["CPUExecutionProvider"]).run(None, feeds)


def hidden() -> np.ndarray:
    return X @ VALUES["w"] + VALUES["b"]


def test_only_what_the_output_needs_is_kept() -> None:
    model = exported(["output"])
    assert [i.name for i in model.graph.input] == ["x"]
    assert sorted(t.name for t in model.graph.initializer) == ["b", "scale", "w"]
    assert [n.op_type for n in model.graph.node] == ["MatMul", "Add", "Relu", "Mul"]
    np.testing.assert_allclose(run(model, x=X)[0], 2 * np.maximum(hidden(), 0))


def test_an_intermediate_tensor_gets_its_inferred_type() -> None:
    model = exported(["h"])
    dims = model.graph.output[0].type.tensor_type.shape.dim
    assert [d.dim_param or d.dim_value for d in dims] == ["batch", 3]
    assert "scale" not in [t.name for t in model.graph.initializer]
    np.testing.assert_allclose(run(model, x=X)[0], hidden())


def test_outputs_keep_their_order_and_may_repeat() -> None:
    outputs = run(exported(["output", "h", "output"]), x=X)
    np.testing.assert_allclose(outputs[1], hidden())
    np.testing.assert_array_equal(outputs[0], outputs[2])


def test_the_loss_keeps_its_target() -> None:
    model = exported(["loss"])
    assert [i.name for i in model.graph.input] == ["x", "target"]
    target = np.zeros((2, 3), np.float32)
    expected = ((2 * np.maximum(hidden(), 0)) ** 2).mean()
    np.testing.assert_allclose(run(model, x=X, target=target)[0], expected, rtol=1e-6)


@pytest.mark.parametrize("name", ["x", "w", "scale"])
def test_inputs_parameters_and_constants_can_be_returned(name: str) -> None:
    model = exported([name])
    feeds = {"x": X} if name == "x" else {}
    expected = {"x": X, "scale": np.float32(2), **VALUES}[name]
    np.testing.assert_array_equal(run(model, **feeds)[0], expected)


def test_opset_and_ir_version_are_those_of_the_eval_model() -> None:
    model = eval_model()
    model.opset_import.append(helper.make_opsetid("com.microsoft", 1))
    result = exported(["output"], model)
    assert [(o.domain, o.version) for o in result.opset_import] == [("", 17)]
    assert result.ir_version == 8


def test_a_subgraph_keeps_what_it_reads_from_outside() -> None:
    model = eval_model()
    branch = helper.make_graph(
        [helper.make_node("Add", ["h", "b"], ["chosen"])],
        "then",
        [],
        [helper.make_tensor_value_info("chosen", TensorProto.FLOAT, None)],
    )
    other = helper.make_graph(
        [helper.make_node("Identity", ["h"], ["kept"])],
        "else",
        [],
        [helper.make_tensor_value_info("kept", TensorProto.FLOAT, None)],
    )
    condition = numpy_helper.from_array(np.array(True), "condition")
    model.graph.initializer.append(condition)
    model.graph.node.append(
        helper.make_node("If", ["condition"], ["picked"], then_branch=branch, else_branch=other)
    )
    result = exported(["picked"], model)
    assert sorted(t.name for t in result.graph.initializer) == ["b", "condition", "w"]
    np.testing.assert_allclose(run(result, x=X)[0], hidden() + VALUES["b"])


def test_only_functions_that_are_called_stay() -> None:
    def function(name: str, op: str, domain: str = "") -> onnx.FunctionProto:
        opsets = [helper.make_opsetid("", 17), helper.make_opsetid("ours", 1)]
        nodes = [helper.make_node(op, ["a"], ["c"], domain=domain)]
        return helper.make_function("ours", name, ["a"], ["c"], nodes, opsets)

    model = eval_model()
    functions = [
        function("Inner", "Neg"),
        function("Outer", "Inner", "ours"),
        function("Unused", "Abs"),
    ]
    model.functions.extend(functions)
    model.opset_import.append(helper.make_opsetid("ours", 1))
    model.graph.node.append(helper.make_node("Outer", ["output"], ["negative"], domain="ours"))
    result = exported(["negative"], model)
    assert [f.name for f in result.functions] == ["Inner", "Outer"]
    np.testing.assert_allclose(run(result, x=X)[0], -2 * np.maximum(hidden(), 0))
    assert not exported(["output"], model).functions


@pytest.mark.parametrize(
    ("outputs", "error", "message"),
    [
        (["outputs"], UnknownNameError, "inference graph outputs .* Did you mean 'output'"),
        (["nothing"], LookupError, "Known names: 'loss', 'output', 'd2'"),
        ([], EngineError, "Expected a non empty vector .* 'loss', 'output'"),
        ("output", StateError, r"list of strings, not a string: write \['output'\]"),
    ],
)
def test_wrong_names(outputs: list[str], error: type[Exception], message: str) -> None:
    with pytest.raises(error, match=message):
        inference_model(eval_model(), outputs, VALUES, VALUES.__getitem__)


def test_the_file_is_replaced_whole(tmp_path: Path) -> None:
    path = tmp_path / "inference.onnx"
    path.write_text("old")
    write_model(exported(["output"]), path)
    np.testing.assert_allclose(run(path, x=X)[0], 2 * np.maximum(hidden(), 0))
    assert [p.name for p in tmp_path.iterdir()] == ["inference.onnx"]


def test_a_failed_write_leaves_the_old_file(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "inference.onnx"
    path.write_text("old")

    def full(*_: object) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(writing, "_chunks", full)
    with pytest.raises(EngineError, match="cannot be written: No space left on device"):
        write_model(exported(["output"]), path)
    assert path.read_text() == "old"
    assert [p.name for p in tmp_path.iterdir()] == ["inference.onnx"]


def test_a_missing_folder_is_named(tmp_path: Path) -> None:
    with pytest.raises(EngineError, match=r"nowhere.*cannot be written: No such file"):
        write_model(exported(["output"]), tmp_path / "nowhere" / "inference.onnx")


def test_large_weights_go_to_a_file_of_their_own(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(writing, "_INLINE_LIMIT", 10)
    monkeypatch.setattr(writing, "_ALIGNMENT", 16)
    path = tmp_path / "inference.onnx"
    write_model(exported(["output"]), path)
    assert sorted(p.name for p in tmp_path.iterdir()) == ["inference.onnx", "inference.onnx.data"]
    np.testing.assert_allclose(run(path, x=X)[0], 2 * np.maximum(hidden(), 0))
