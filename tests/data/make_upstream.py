"""Write upstream/<name>/: artifacts of onnxruntime-training 1.19.2, and its run over them.

Run it where `onnxruntime.training` imports, which needs torch:
`PYTHONPATH=. python tests/data/make_upstream.py [names]`. The tests need the files alone.

A folder holds the artifacts, a nominal checkpoint, and run.npz: the losses of some steps, every
parameter after them as `after.<name>`, and the loss of the evaluation model then.
"""

import sys
from pathlib import Path

import numpy as np

from tests.upstream.forwards import FORWARDS
from tests.upstream.theirs import generate, train

HERE = Path(__file__).parent / "upstream"

if __name__ == "__main__":
    for forward in FORWARDS:
        if len(sys.argv) == 1 or forward.name in sys.argv[1:]:
            generate(forward, HERE / forward.name)
            np.savez_compressed(
                HERE / forward.name / "run.npz", **train(forward, HERE / forward.name)
            )
