"""Optimizers: chains of named steps, each with its slots per parameter."""

from blockdsl.optim.adamw import AdamW
from blockdsl.optim.chain import AbstractChain, Chain
from blockdsl.optim.clip import ClipGradNorm
from blockdsl.optim.decay import AddDecayedWeights, DecayAfterUpdate
from blockdsl.optim.optimizer import AbstractOptimizer, Optimizer
from blockdsl.optim.sgd import SGD
from blockdsl.optim.steps import ScaleByAdam, ScaleByLearningRate, Step, Trace
from blockdsl.optim.update import Context, Update

__all__ = [
    "SGD",
    "AbstractChain",
    "AbstractOptimizer",
    "AdamW",
    "AddDecayedWeights",
    "Chain",
    "ClipGradNorm",
    "Context",
    "DecayAfterUpdate",
    "Optimizer",
    "ScaleByAdam",
    "ScaleByLearningRate",
    "Step",
    "Trace",
    "Update",
]
