"""Models whose weights lie beside them: little memory to build, none of them lost on the way."""

import os
import subprocess
import sys

import ml_dtypes
import numpy as np
import onnx
import onnxruntime
import pytest
from onnx import TensorProto, helper, numpy_helper

from blockdsl import artifacts
from blockdsl.api import CheckpointState, Module, Optimizer
from blockdsl.backend import writing
from blockdsl.backend.checkpoint import storage
from blockdsl.backend.weights import read_mapped
from blockdsl.errors import ModelFileError

SIZE = 256  # of a layer: its weight is beyond what is read into the model


def write_model(folder, layers, size=SIZE):
    """x [batch, size] through linear layers with ReLU, whose weights lie in weights.bin."""
    rng = np.random.default_rng(0)
    nodes, tensors, x = [], [], "x"
    with open(folder / "weights.bin", "wb") as file:
        for i in range(layers):
            weight = rng.normal(0, 1.4 / np.sqrt(size), (size, size)).astype(np.float32)
            tensor = TensorProto(name=f"{i}.weight", data_type=TensorProto.FLOAT, dims=[size, size])
            tensor.data_location = TensorProto.EXTERNAL
            place = {"location": "weights.bin", "offset": file.tell(), "length": weight.nbytes}
            for key, value in place.items():
                tensor.external_data.add(key=key, value=str(value))
            file.write(weight.data)
            bias = numpy_helper.from_array(np.zeros(size, np.float32), f"{i}.bias")
            tensors += [tensor, bias]
            nodes.append(helper.make_node("Gemm", [x, f"{i}.weight", f"{i}.bias"], [f"h{i}"]))
            nodes.append(helper.make_node("Relu", [f"h{i}"], [f"r{i}"]))
            x = f"r{i}"
    graph = helper.make_graph(
        nodes,
        "mlp",
        [helper.make_tensor_value_info("x", TensorProto.FLOAT, ["batch", size])],
        [helper.make_tensor_value_info(x, TensorProto.FLOAT, ["batch", size])],
        tensors,
    )
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)
    path = folder / "model.onnx"
    path.write_bytes(model.SerializeToString())
    return path


def generate(model, folder, trained="all"):
    artifacts.generate_artifacts(
        model,
        requires_grad=trained,
        loss=artifacts.LossType.MSELoss,
        optimizer=artifacts.OptimType.SGD,
        artifact_directory=folder,
    )


def losses(folder, engine, steps=2):
    state = CheckpointState.load_checkpoint(folder / "checkpoint", engine=engine)
    module = Module(folder / "training_model.onnx", state, folder / "eval_model.onnx")
    optimizer = Optimizer(folder / "optimizer_model.onnx", module)
    optimizer.set_learning_rate(0.1)
    x = np.random.default_rng(1).normal(size=(2, SIZE)).astype(np.float32)
    found = []
    for _ in range(steps):
        found.append(float(module(x, x)))
        optimizer.step()
        module.lazy_reset_grad()
    return [*found, float(module.eval()(x, x))], state


def loaded(path):
    model = onnx.load(path)
    for tensor in model.graph.initializer:
        tensor.ClearField("data_location")  # onnx.load says of what it moved that it is inside
    return model


@pytest.mark.parametrize("trained", ["all", "1.*"])
def test_external_weights_make_the_same_artifacts_as_inline_ones(tmp_path, engine, trained):
    path = write_model(tmp_path, 3)
    generate(path, tmp_path / "external", trained)
    generate(onnx.load(path), tmp_path / "inline", trained)
    names = os.listdir(tmp_path / "inline")
    assert sorted(os.listdir(tmp_path / "external")) == sorted(names)
    for name in names:
        one, other = (tmp_path / kind / name for kind in ("external", "inline"))
        if name.endswith(".onnx"):
            assert loaded(one) == loaded(other)
        else:
            assert one.read_bytes() == other.read_bytes()
    assert losses(tmp_path / "external", engine)[0] == losses(tmp_path / "inline", engine)[0]


@pytest.mark.parametrize("trained", ["all", "1.*"])
def test_beyond_the_limits_of_one_file(tmp_path, engine, trained, monkeypatch):
    path = write_model(tmp_path, 3)
    generate(path, tmp_path / "one", trained)
    monkeypatch.setattr(writing, "_INLINE_LIMIT", 1000)
    monkeypatch.setattr(storage, "EXTERNAL_DATA_THRESHOLD", 1000)
    monkeypatch.setattr(storage.save, "__kwdefaults__", {"external_data_threshold": 1000})
    generate(path, tmp_path / "two", trained)
    expected = ["checkpoint", "eval_model.onnx", "optimizer_model.onnx", "training_model.onnx"]
    expected += ["checkpoint.data"]
    if trained != "all":
        expected += ["eval_model.onnx.data", "training_model.onnx.data"]
    assert sorted(os.listdir(tmp_path / "two")) == sorted(expected)
    found, state = losses(tmp_path / "two", engine)
    assert found == losses(tmp_path / "one", engine)[0]

    CheckpointState.save_checkpoint(state, tmp_path / "saved", include_optimizer_state=True)
    assert (tmp_path / "saved.data").stat().st_size >= SIZE * SIZE * 4
    again = CheckpointState.load_checkpoint(tmp_path / "saved", engine=engine)
    for name, parameter in state.parameters:
        np.testing.assert_array_equal(again.parameters[name].data, parameter.data)


MEASURE = """
import os, resource, sys
from pathlib import Path
import onnxruntime
import blockdsl.loss, blockdsl.optim, blockdsl.training
from blockdsl import artifacts

def generate(model, folder, trained):
    artifacts.generate_artifacts(
        model, requires_grad=trained, loss=artifacts.LossType.MSELoss,
        optimizer=artifacts.OptimType.AdamW, artifact_directory=folder,
    )

# What a first call loads is no memory of the weights.
small, large, folder, trained = sys.argv[1:]
generate(small, folder + "/small", trained)
before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
generate(large, folder + "/large", trained)
unit = 1 if sys.platform == "darwin" else 1024
print((resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before) * unit)
"""


@pytest.mark.skipif(sys.platform == "win32", reason="Windows has no resource.getrusage")
@pytest.mark.parametrize("trained", ["all", "1.*"])
def test_building_holds_the_weights_once(tmp_path, trained):
    paths = []
    for name, size in (("small", 128), ("large", 2048)):
        (tmp_path / name).mkdir()
        paths.append(write_model(tmp_path / name, 4, size))
    weights = os.path.getsize(tmp_path / "large" / "weights.bin")
    assert weights == 4 * 2048 * 2048 * 4  # 64 MiB
    elsewhere = tmp_path / "elsewhere"
    elsewhere.mkdir()
    done = subprocess.run(
        [sys.executable, "-c", MEASURE, *map(str, paths), str(tmp_path / "out"), trained],
        capture_output=True,
        text=True,
        cwd=elsewhere,
        env=os.environ | {"PYTHONPATH": os.pathsep.join(sys.path)},
    )
    assert done.returncode == 0, done.stderr
    assert int(done.stdout) < 1.3 * weights
    assert os.listdir(elsewhere) == []
    assert not [p for p in (tmp_path / "out" / "large").iterdir() if p.name.startswith(".")]


def external(tensor, location, **more):
    tensor.data_location = TensorProto.EXTERNAL
    for key, value in {"location": location, **more}.items():
        tensor.external_data.add(key=key, value=str(value))
    return tensor


@pytest.mark.parametrize("location", ["../outside.bin", "absolute", "missing.bin", "short.bin"])
def test_weights_that_cannot_be_read(tmp_path, location):
    folder = tmp_path / "model"
    folder.mkdir()
    (tmp_path / "outside.bin").write_bytes(bytes(SIZE * SIZE * 4))
    (folder / "short.bin").write_bytes(bytes(100))
    path = write_model(folder, 1)
    model = onnx.load(path, load_external_data=False)
    place = str(tmp_path / "outside.bin") if location == "absolute" else location
    weight = TensorProto(name="0.weight", data_type=TensorProto.FLOAT, dims=[SIZE, SIZE])
    model.graph.initializer[0].CopyFrom(external(weight, place))
    path.write_bytes(model.SerializeToString())
    with pytest.raises(ModelFileError, match=r"The weight '0\.weight' lies in .* cannot be"):
        generate(path, tmp_path / "out")
    assert not (tmp_path / "out" / "checkpoint").exists()


def test_small_packed_and_nested_tensors_are_read(tmp_path):
    packed = numpy_helper.from_array(np.ones(2**18, ml_dtypes.int4), "packed")
    large = numpy_helper.from_array(np.ones(2**15, np.float32), "large")
    small = numpy_helper.from_array(np.ones(3, np.float32), "small")
    constant = numpy_helper.from_array(np.ones(2**15, np.float32), "constant")
    tensors = [packed, large, small, constant]
    data = [tensor.raw_data for tensor in tensors]
    (tmp_path / "w.bin").write_bytes(b"".join(data))
    for i, tensor in enumerate(tensors):
        tensor.ClearField("raw_data")
        external(tensor, "w.bin", offset=sum(map(len, data[:i])), length=len(data[i]))
    node = helper.make_node("Constant", [], ["c"], value=constant)
    y = helper.make_tensor_value_info("c", TensorProto.FLOAT, [2**15])
    graph = helper.make_graph([node], "g", [], [y], [packed, large, small])
    opset = [helper.make_opsetid("", 21)]
    model = helper.make_model(graph, opset_imports=opset, ir_version=10)
    (tmp_path / "m.onnx").write_bytes(model.SerializeToString())
    read, mapped = read_mapped(tmp_path / "m.onnx")
    assert list(mapped) == ["large"]
    np.testing.assert_array_equal(mapped["large"], np.ones(2**15))
    assert read.graph.initializer[0].raw_data == data[0]
    assert read.graph.initializer[2].raw_data == data[2]
    assert read.graph.node[0].attribute[0].t.raw_data == data[3]

    # What is written is one file again, which any reader of protobuf reads.
    writing.write(read, tmp_path / "one.onnx", mapped)
    whole = onnx.load(tmp_path / "one.onnx")
    assert [t.name for t in whole.graph.initializer] == ["packed", "large", "small"]
    assert whole.graph.initializer[1].raw_data == data[1]
    onnx.checker.check_model(whole, full_check=True)
    session = onnxruntime.InferenceSession(tmp_path / "one.onnx")
    np.testing.assert_array_equal(session.run(None, {})[0], np.ones(2**15))
