"""A process that dies while it trains, and a run that goes on as if it had not: bit for bit."""

# %% A model and data; every process that runs this file makes the same ones.
import os
import subprocess
import sys
import tempfile

import numpy as np

import blockdsl
from blockdsl import artifacts, blocks


class Net(blockdsl.ForwardBlock):
    def build(self, x):
        return blocks.Linear(16, 1)(blocks.Linear(8, 16)(x).relu())


def write_artifacts(folder):
    with blockdsl.empty_base():
        net = Net()
        net(blockdsl.input("x", shape=("batch", 8)))
        forward = net.to_model_proto()
    artifacts.generate_artifacts(
        forward,
        loss=artifacts.LossType.MSELoss,
        optimizer=artifacts.OptimType.AdamW,
        artifact_directory=folder,
    )


rng = np.random.default_rng(0)
x = rng.normal(size=(300, 8)).astype(np.float32)
target = np.tanh(x.sum(axis=1, keepdims=True))
settings = {
    "data": blockdsl.Batches(x, target, size=20),
    "epochs": 6,
    "learning_rate": 0.01,
    "warmup_steps": 10,
    "decay": True,
    "checkpoint_every": 10,
    "progress": False,
}


def crash(step, loss):
    if step == 47:  # in the middle of an epoch, and not at a checkpoint
        os._exit(9)  # no exception, no cleaning up: the process is gone


# %% A process of its own trains, and dies.
if sys.argv[1:]:
    blockdsl.Trainer(sys.argv[1]).fit(**settings, on_step=crash)
    sys.exit("not reached")

# %% Another one resumes from the last checkpoint. A third was never disturbed.
with tempfile.TemporaryDirectory() as broken, tempfile.TemporaryDirectory() as whole:
    write_artifacts(broken)
    write_artifacts(whole)
    died = subprocess.run([sys.executable, __file__, broken], check=False)
    resumed = blockdsl.Trainer.resume(broken)
    print(f"the process died with code {died.returncode}; resuming after step {resumed.step}")
    assert died.returncode == 9
    assert resumed.step == 40
    rest = resumed.fit(**settings)

    undisturbed = blockdsl.Trainer(whole)
    history = undisturbed.fit(**settings)

print(f"last losses: {rest.losses[-1]!r} and {history.losses[-1]!r}")
assert rest.losses == history.losses[40:]
for name, parameter in resumed.state.parameters:
    assert np.array_equal(parameter.data, undisturbed.state.parameters[name].data)
