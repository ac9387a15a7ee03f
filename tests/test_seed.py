"""Random draws that follow from a seed: repeated, resumed, and what cannot be resumed."""

import numpy as np
import pytest

import blockdsl
from blockdsl.api import set_seed
from blockdsl.errors import BlockWarning, StateError
from blockdsl.graph import op
from blockdsl.trainer import Trainer
from tests.runs import Run, forward, generate, normal, weight

DROPOUTS = {
    "one": lambda x: _dropout(x @ weight("w", 6, 2)),
    "seeded": lambda x: _dropout(x @ weight("w", 6, 2), seed=7),
    "several": lambda x: _dropout(_dropout(_dropout(x) @ weight("v", 6, 6)) @ weight("w", 6, 2)),
    "parallel": lambda x: _dropout(x @ weight("w", 6, 2)) + _dropout(x @ weight("v", 6, 2)),
}
GENERATORS = {
    "RandomNormal": lambda x: op.RandomNormal(shape=[6]),
    "RandomUniform": lambda x: op.RandomUniform(shape=[6]),
    "RandomNormalLike": lambda x: op.RandomNormalLike(x),
    "RandomUniformLike": lambda x: op.RandomUniformLike(x),
    "Bernoulli": lambda x: op.Bernoulli(x * 0 + 0.5),
    "Multinomial": lambda x: op.Multinomial(x * 0, sample_size=6).cast(np.float32),
}


def _dropout(x, **attributes):
    return op.Dropout(x, 0.5, True, **attributes)


@pytest.fixture(params=DROPOUTS)
def dropout(request, tmp_path):
    return generate(tmp_path, forward(DROPOUTS[request.param], ("n", 6)))


@pytest.fixture(params=GENERATORS)
def generator(request, tmp_path):
    def build(x):
        return (x + GENERATORS[request.param](x)) @ weight("w", 6, 2)

    return generate(tmp_path, forward(build, ("n", 6)))


def losses(run, first, last, accumulation=1):
    """The losses of some steps, each of so many batches."""
    found = []
    for step in range(first, last):
        for part in range(accumulation):
            set_seed(5, step, part)
            found.append(float(run.module(normal(8, 6), normal(8, 2))))
        run.optimizer.step()
        run.module.lazy_reset_grad()
    return found


@pytest.mark.parametrize("accumulation", [1, 2])
def test_dropout_is_repeated_and_resumed(dropout, engine, accumulation):
    run = Run(dropout, engine)
    whole = losses(run, 0, 6, accumulation)
    assert len(set(whole)) == len(whole)
    begun = Run(dropout, engine)
    assert losses(begun, 0, 3, accumulation) == whole[: 3 * accumulation]
    begun.state.save_checkpoint(begun.state, dropout / "checkpoint", include_optimizer_state=True)
    assert losses(Run(dropout, engine), 3, 6, accumulation) == whole[3 * accumulation :]


def test_masks_of_steps_are_not_alike(tmp_path, engine):
    generate(tmp_path, forward(lambda x: _dropout(x * weight("w", 1000)), ("n", 1000)))
    run, ones = Run(tmp_path, engine), np.ones((1, 1000), np.float32)
    masks = []
    for step in range(8):
        set_seed(step)
        # The gradient of the mean square: zero where the mask is.
        masks.append(run.gradients(ones, ones * 0)["w"] != 0)
    equal = np.mean(np.array(masks)[:, None] == np.array(masks)[None], axis=2)
    assert np.all(np.abs(equal - np.where(np.eye(8), 1, 0.5)) < 0.1)


def data():
    return blockdsl.Batches(normal(40, 6), normal(40, 2), size=8)


def fit(trainer, **settings):
    return trainer.fit(data(), progress=False, epochs=3, gradient_accumulation=2, **settings).losses


def test_trainer_repeats_and_resumes_dropout(dropout, engine):
    whole = fit(Trainer(dropout, engine=engine, seed=3), checkpoint_every=4)
    assert fit(Trainer(dropout, engine=engine, seed=3)) == whole
    assert fit(Trainer(dropout, engine=engine, seed=4)) != whole
    fourth = dropout / "checkpoints" / "step-00000004"
    resumed = Trainer.resume(dropout, fourth, engine=engine)
    assert resumed.seed == 3
    assert fit(resumed) == whole[4:]


def test_trainer_repeats_every_generator_and_says_what_it_cannot_resume(generator, engine):
    whole = fit(Trainer(generator, engine=engine, seed=3), checkpoint_every=4)
    assert fit(Trainer(generator, engine=engine, seed=3)) == whole
    assert fit(Trainer(generator, engine=engine, seed=4)) != whole
    told = r"draws at random by (Random|Bernoulli|Multinomial).*not be bit for bit.*Dropout without"
    with pytest.warns(BlockWarning, match=told):
        Trainer.resume(generator, engine=engine)


@pytest.mark.parametrize("numbers", [(), (-1,), (1.5,), ("1",), (0, None), (2**63,)])
def test_what_no_seed_is_made_of(numbers):
    with pytest.raises(StateError, match=r"whole numbers from 0 to 2\*\*63 - 1, not of \("):
        set_seed(*numbers)
