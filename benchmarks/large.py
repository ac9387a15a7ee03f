"""How much memory a model takes whose weights pass 2 GB: its artifacts, and a training step.

`python benchmarks/large.py --peer session=PYTHON --peer training=PYTHON`. It needs four times the
weights of memory and of disk; what it writes is deleted at the end.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from pool import HERE, add_peer_option, peers

LAYERS = 16


def write(folder: Path, gigabytes: float) -> None:
    """A model of linear layers with ReLU, in a small file with the weights beside it."""
    import numpy as np
    from onnx import TensorProto, helper, numpy_helper

    size = round((gigabytes * 1e9 / 4 / LAYERS) ** 0.5)
    rng = np.random.default_rng(0)
    weight = rng.normal(0, 1.4 / size**0.5, (size, size)).astype(np.float32)
    nodes, tensors, x = [], [], "x"
    with open(folder / "weights.bin", "wb") as file:
        for i in range(LAYERS):
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
    inputs = [helper.make_tensor_value_info("x", TensorProto.FLOAT, ["batch", size])]
    outputs = [helper.make_tensor_value_info(x, TensorProto.FLOAT, ["batch", size])]
    graph = helper.make_graph(nodes, "large", inputs, outputs, tensors)
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)
    (folder / "model.onnx").write_bytes(model.SerializeToString())


class Meter:
    """Seconds and the peak of memory, in multiples of the weights, since the libraries' import."""

    def __init__(self, weights: Path) -> None:
        self._weights = weights.stat().st_size
        self._before = self._peak()
        self.results: dict[str, dict[str, float]] = {}

    def __call__(self, what: str, work: Callable[[], Any]) -> Any:
        """Do some work, and note what it takes."""
        start = time.perf_counter()
        result = work()
        peak = (self._peak() - self._before) / self._weights
        seconds = time.perf_counter() - start
        self.results[what] = {"seconds": round(seconds, 1), "peak": round(peak, 2)}
        return result

    @staticmethod
    def _peak() -> int:
        import resource

        unit = 1 if sys.platform == "darwin" else 1024
        return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * unit


def build(folder: Path) -> dict[str, Any]:
    """Make the artifacts."""
    import onnxruntime  # noqa: F401  what a first call imports is no memory of the weights

    import blockdsl.loss
    import blockdsl.optim  # noqa: F401
    from blockdsl import artifacts

    meter = Meter(folder / "weights.bin")
    meter(
        "artifacts",
        lambda: artifacts.generate_artifacts(
            folder / "model.onnx",
            loss=artifacts.LossType.MSELoss,
            optimizer=artifacts.OptimType.SGD,
            artifact_directory=folder / "run",
        ),
    )
    return meter.results


def train(folder: Path, engine: str) -> dict[str, Any]:
    """Load the artifacts, take a step, save and load again."""
    import numpy as np

    from blockdsl.api import CheckpointState, Module, Optimizer
    from blockdsl.backend.engines import select_engine

    select_engine(engine)
    meter, run = Meter(folder / "weights.bin"), folder / "run"

    def load(checkpoint: Path) -> tuple[CheckpointState, Module, Optimizer]:
        state = CheckpointState.load_checkpoint(checkpoint, engine=engine)
        module = Module(run / "training_model.onnx", state)
        return state, module, Optimizer(run / "optimizer_model.onnx", module)

    def step() -> float:
        loss = float(module(x, x))
        optimizer.step()
        module.lazy_reset_grad()
        return loss

    state, module, optimizer = meter("load", lambda: load(run / "checkpoint"))
    size = state.parameters["0.bias"].data.size
    x = np.random.default_rng(0).normal(size=(2, size)).astype(np.float32)
    losses = [meter("step", step), step()]
    saved = folder / f"saved.{engine}"
    meter("save", lambda: CheckpointState.save_checkpoint(state, saved, True))
    expected = step()
    del state, module, optimizer
    state, module, optimizer = meter("resume", lambda: load(saved))
    if not losses[1] < losses[0] or step() != expected:
        raise SystemExit(f"{engine}: the losses {losses} do not fall, or the run does not resume")
    for file in folder.glob(f"saved.{engine}*"):
        file.unlink()
    return meter.results


def ask(python: str, *request: str) -> dict[str, Any]:
    """What a process of its own measures: its peak of memory is its own."""
    done = subprocess.run(
        [python, str(HERE / "large.py"), "--do", *request],
        env=os.environ | {"PYTHONPATH": str(HERE.parent)},
        check=True,
        stdout=subprocess.PIPE,
        text=True,
    )
    result: dict[str, Any] = json.loads(done.stdout)
    return result


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    add_peer_option(parser)
    parser.add_argument("--gigabytes", type=float, default=2.3, help="of weights; default: 2.3")
    parser.add_argument("--do", nargs="+", help=argparse.SUPPRESS)
    options = parser.parse_args()
    match options.do:
        case ["write", folder, gigabytes]:
            write(Path(folder), float(gigabytes))
            print("{}")
        case ["build", folder]:
            print(json.dumps(build(Path(folder))))
        case ["train", folder, engine]:
            print(json.dumps(train(Path(folder), engine)))
        case _:
            engines = {n: p for n, p in peers(options).items() if n in ("session", "training")}
            with tempfile.TemporaryDirectory() as folder:
                python = next(iter(engines.values()))
                ask(python, "write", folder, str(options.gigabytes))
                results = {"build": ask(python, "build", folder)}
                results |= {name: ask(engines[name], "train", folder, name) for name in engines}
            print(json.dumps(results, indent=1))


if __name__ == "__main__":
    main()
