"""The models of tests/data/exported, which two exporters made of freshly initialised modules."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import onnx

FOLDER = Path(__file__).parent / "data" / "exported"
NAMES = sorted(path.stem for path in FOLDER.glob("*.npz"))
WAYS = ("dynamo", "dynamo_plain", "legacy", "legacy_plain")


def path_of(name, way):
    return FOLDER / f"{name}.{way}.onnx"


def load(name, way):
    return onnx.load(path_of(name, way))


class Golden:
    """The module's input, and its loss and gradients in evaluation or training mode."""

    def __init__(self, name, mode):
        with np.load(FOLDER / f"{name}.npz") as file:
            arrays = {key: file[key] for key in file.files}
        start = f"{mode}/"
        self.x = arrays["x"]
        self.gradients = {
            k.removeprefix(start): a for k, a in arrays.items() if k.startswith(start)
        }
        self.loss = float(self.gradients.pop("loss"))

    @property
    def size(self):
        return sum(array.size for array in self.gradients.values())

    def check(self, loss, gradients):
        """Check a loss and gradients, those of folded parameters by their values alone."""
        np.testing.assert_allclose(loss, self.loss, rtol=1e-5)
        assert sum(array.size for array in gradients.values()) == self.size
        np.testing.assert_allclose(
            _sorted(gradients), _sorted(self.gradients), rtol=1e-3, atol=1e-6
        )
        for name, gradient in gradients.items():
            expected = self.gradients.get(name)
            if expected is not None and expected.shape == gradient.shape:
                np.testing.assert_allclose(gradient, expected, rtol=1e-3, atol=1e-6, err_msg=name)


def _sorted(arrays):
    return np.sort(np.concatenate([array.ravel() for array in arrays.values()]))
