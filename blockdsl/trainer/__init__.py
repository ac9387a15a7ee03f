"""`Trainer`: a training loop over artifacts, with checkpoints that continue bit for bit."""

from blockdsl.evaluation import AccumulatingMetric
from blockdsl.trainer.checkpoints import CHECKPOINTS, latest_checkpoint
from blockdsl.trainer.fit import History
from blockdsl.trainer.trainer import Trainer

__all__ = ["CHECKPOINTS", "AccumulatingMetric", "History", "Trainer", "latest_checkpoint"]
