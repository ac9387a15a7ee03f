"""Every step draws its own random numbers, whether or not it adds to the gradients.

The session engine has a session for either, whose generators begin alike: with accumulated
gradients the noise of two batches was the same.
"""

from __future__ import annotations

import numpy as np
import pytest

import blockdsl
from tests.runs import Run, forward, generate, weight

DRAWS = {
    "RandomNormalLike": lambda h: blockdsl.op.RandomNormalLike(h),
    "RandomUniformLike": lambda h: blockdsl.op.RandomUniformLike(h),
    "RandomNormal": lambda h: blockdsl.op.RandomNormal(shape=[1, 300]),
    "Bernoulli": lambda h: blockdsl.op.Bernoulli(h * 0 + np.float32(0.5)),
    "Dropout": lambda h: blockdsl.blocks.Dropout(0.5)(h + 1),
}


@pytest.mark.parametrize("name", DRAWS)
def test_no_two_steps_draw_the_same(tmp_path, engine, name):
    def net(x):
        hidden = x @ weight("w", 4, 300)
        return hidden + DRAWS[name](hidden)

    model = forward(net, (1, 4))
    output = model.graph.output[0].name
    generate(tmp_path, model, additional_output_names=[output])
    run = Run(tmp_path, engine)
    x, target = np.zeros((1, 4), np.float32), np.zeros((1, 300), np.float32)
    drawn = []
    for _ in range(3):
        drawn += [run.module(x, target)[1] for _ in range(2)]
        run.module.lazy_reset_grad()
    for i, first in enumerate(drawn):
        for second in drawn[:i]:
            assert not np.array_equal(first, second)


def test_gradients_of_a_model_that_draws_accumulate(tmp_path, engine):
    def net(x):
        return x @ weight("w", 4, 3) + 0 * blockdsl.op.RandomNormal(shape=[1, 3])

    generate(tmp_path, forward(net, (1, 4)))
    run = Run(tmp_path, engine)
    x, target = np.ones((1, 4), np.float32), np.zeros((1, 3), np.float32)
    sums = []
    for _ in range(2):
        for _ in range(2):
            run.module(x, target)
            sums.append(run.state.parameters["w"].grad.copy())
        run.module.lazy_reset_grad()
    np.testing.assert_allclose(sums[1], 2 * sums[0], rtol=1e-6)
    np.testing.assert_allclose(sums[2:], sums[:2], rtol=1e-6)
