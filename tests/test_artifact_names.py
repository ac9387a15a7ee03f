"""Names that artifacts need for something else, and models that no runtime takes: told at once."""

import os

import numpy as np
import pytest

from blockdsl import optim
from blockdsl.artifacts import LossType, generate_artifacts
from blockdsl.errors import ArtifactError
from tests.runs import Run, forward, normal, weight

OPTIMIZERS = {
    "native": optim.AdamW(),
    "plain": optim.AdamW(weight_decay_groups={"*": 0.5}),
    "momentum": optim.SGD(momentum=0.9),
}


def model(first, second, opset=17):
    def net(x):
        return (x @ weight(first, 4, 4)) @ weight(second, 4, 2)

    return forward(net, ("n", 4), opset=opset)


def generate(folder, made, **settings):
    generate_artifacts(made, loss=LossType.MSELoss, artifact_directory=folder, **settings)


@pytest.mark.parametrize("optimizer", OPTIMIZERS)
@pytest.mark.parametrize(
    ("names", "message"),
    [
        (("step", "w"), "'step' .* the number of the step, and the parameter 'step'. Rename"),
        (("w", "learning_rate"), "the learning rate, and the parameter 'learning_rate'"),
        (("w", "w_grad"), "the gradient of 'w', and the parameter 'w_grad'"),
        (("w_grad", "w"), "the parameter 'w_grad', and the gradient of 'w'"),
        (("w", "w.momentum0"), "the momentum0 of 'w', and the parameter 'w.momentum0'"),
        (("w", "w_grad.out"), "the clipped gradient of 'w', and the parameter 'w_grad.out'"),
        (("w", "w.out"), "the new value of 'w', and the parameter 'w.out'"),
        (("w", "lazy_reset_grad"), "a tensor of the forward model, and the input that resets"),
        (("w", "w_grad.accumulation.buffer"), "input that the gradient of 'w' is added to"),
        (("w", "w_grad.accumulation.out"), "the output that says so of 'w'. Rename one"),
    ],
)
def test_two_tensors_of_one_name(tmp_path, names, message, optimizer):
    with pytest.raises(ArtifactError, match=message):
        generate(tmp_path, model(*names), optimizer=OPTIMIZERS[optimizer])
    assert os.listdir(tmp_path) == []


@pytest.mark.parametrize("optimizer", OPTIMIZERS)
@pytest.mark.parametrize(
    ("names", "trained"),
    [
        (("w", "w_grad"), ["w"]),
        (("step", "w"), ["w"]),
        (("params", "gradients"), None),
        (("w.b", "w"), None),
        (("x_grad", "first_order_moments"), None),
    ],
)
def test_names_that_do_no_harm(tmp_path, names, trained, optimizer, engine):
    settings = {"optimizer": OPTIMIZERS[optimizer], "requires_grad": trained}
    generate(tmp_path, model(*names), **settings)
    Run(tmp_path, engine).train(normal(8, 4), np.zeros((8, 2), np.float32))


def test_parameters_of_any_name_without_an_optimizer(tmp_path):
    generate(tmp_path, model("step", "w_grad"))


@pytest.mark.parametrize("opset", [1, 6])
def test_an_old_opset(tmp_path, opset):
    old = model("v", "w")
    next(o for o in old.opset_import if not o.domain).version = opset
    with pytest.raises(ArtifactError, match=f"of opset {opset}, .* 7 or newer: convert it"):
        generate(tmp_path, old)
