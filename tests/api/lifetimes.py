"""Calls that make no sense: `python -m tests.api.lifetimes <group> <folder> <engine>`.

Calls with wrong arguments, in a wrong order, after what they need is gone, and in threads. Each
must return or raise a BlockError. It is printed before it is made, so that the parent knows the
last one of a process that died.
"""

from __future__ import annotations

import gc
import os
import sys
import threading
import time
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any

import numpy as np
import onnxruntime

from blockdsl.api import CheckpointState, LinearLRScheduler, Module, Optimizer, set_seed
from blockdsl.errors import BlockError
from tests.api.hostile import ONES, Calls, Run, types, use_state
from tests.api.mlp import batch

Action = Callable[[Run], Any]
SECONDS = 1.5


def fill_freed_memory() -> None:
    gc.collect()
    for _ in range(50):
        np.full(20000, 7, np.float32)


def use_after_module(run: Run) -> None:
    run.step()
    views = use_state(run.state, run.folder)
    run.close()
    fill_freed_memory()
    for view in views + use_state(run.state, run.folder):
        view += view.sum()


def use_after_state(run: Run) -> None:
    run.step()
    every = [parameter for _, parameter in run.state.parameters]
    parameters, properties = run.state.parameters, run.state.properties
    run.close()
    del run.state
    fill_freed_memory()
    for parameter in every:
        parameter.data = parameter.data + 1
        assert parameter.grad is None or np.isfinite(parameter.grad).all()
    parameters["fc1.weight"] = ONES
    properties["epoch"] = 3
    repr((list(parameters), list(properties)))


def use_views_alone(run: Run) -> None:
    run.step()
    values = [parameter.data for _, parameter in run.state.parameters]
    gradients = [parameter.grad for _, parameter in run.state.parameters]
    results = run.module(*batch())
    flat = run.module.get_contiguous_parameters().numpy()
    expected = [array.copy() for array in (*values, *results, flat)]
    run.close()
    del run.state
    fill_freed_memory()
    for array, value in zip((*values, *results, flat), expected, strict=True):
        np.testing.assert_array_equal(array, value)
    for array in values + [gradient for gradient in gradients if gradient is not None]:
        array[...] = 2


def use_optimizer_alone(run: Run) -> None:
    run.step()
    optimizer = run.optimizer
    run.close()
    del run.state
    fill_freed_memory()
    optimizer.step()
    LinearLRScheduler(optimizer, 1, 5, 0.1).step()
    repr((optimizer.get_learning_rate(), optimizer.step_count))


def use_module_alone(run: Run) -> None:
    module = run.module
    run.close()
    del run.state
    fill_freed_memory()
    for mode in (True, False):
        module.train(mode)(*batch())
    module.get_contiguous_parameters()
    module.export_model_for_inferencing(run.folder / "alone.onnx", ["output"])


def use_without_optimizer(run: Run) -> None:
    run.step()
    del run.optimizer
    fill_freed_memory()
    use_state(run.state, run.folder)
    run.open_optimizer()
    run.step()
    use_state(run.state, run.folder)


def use_several_modules(run: Run) -> None:
    first, optimizer = run.module, run.optimizer
    for _ in range(2):
        run.open_module()
        run.module(*batch())
    first(*batch())
    optimizer.step()
    del first
    fill_freed_memory()
    optimizer.step()
    run.module(*batch())
    use_state(run.state, run.folder)


def open_wrong_files(run: Run) -> None:
    files = ["training_model.onnx", "eval_model.onnx", "optimizer_model.onnx", "checkpoint"]
    for one in files:
        with suppress(BlockError):
            Optimizer(run.folder / one, run.module).step()
        with suppress(BlockError):
            CheckpointState.load_checkpoint(run.folder / one, engine=run.engine)
        for two in files:
            with suppress(BlockError):
                Module(run.folder / one, run.state, run.folder / two)(*batch())


def step_before_training(run: Run) -> None:
    run.optimizer.step()
    run.module.lazy_reset_grad()
    run.optimizer.step()
    run.step()


def evaluate_without_model(run: Run) -> None:
    Module(run.train_model, run.state).eval()(*batch())


def step_of_another(run: Run) -> None:
    other = Run(run.folder, run.engine)
    run.module(*batch())
    other.optimizer.step()
    other.module(*batch())
    other.optimizer.step()


LIVE: list[Action] = [
    use_after_module,
    use_after_state,
    use_views_alone,
    use_optimizer_alone,
    use_module_alone,
    use_without_optimizer,
    use_several_modules,
    open_wrong_files,
    step_before_training,
    evaluate_without_model,
    step_of_another,
]
NOMINAL: dict[str, Action] = {
    "state": lambda run: use_state(run.state, run.folder),
    "training": lambda run: run.module(*batch()),
    "evaluation": lambda run: run.module.eval()(*batch()),
    "step": lambda run: run.optimizer.step(),
    "step after the module": lambda run: (delattr(run, "module"), run.optimizer.step()),
    "rate": lambda run: run.optimizer.get_learning_rate(),
    "count": lambda run: run.optimizer.step_count,
    "scheduler": lambda run: LinearLRScheduler(run.optimizer, 1, 2, 0.1),
    "buffer": lambda run: run.module.get_contiguous_parameters(),
    "size": lambda run: run.module.get_parameters_size(),
    "reset": lambda run: run.module.lazy_reset_grad(),
    "export": lambda run: run.module.export_model_for_inferencing("e.onnx", ["output"]),
    "names": lambda run: (run.module.input_names(), run.module.output_names()),
    "completion": lambda run: (complete(run), run.step(), use_state(run.state, run.folder)),
    "completion over two modules": lambda run: (run.open_module(), complete(run), run.step()),
    "completion by another's module": lambda run: (
        complete(Run(run.folder, run.engine, nominal=True)),
        run.step(),
    ),
}


def complete(run: Run) -> None:
    size = run.module.get_parameters_size(False)
    run.module.copy_buffer_to_parameters(np.ones(size, np.float32), trainable_only=False)


def lifetimes(folder: Path, engine: str) -> Calls:
    """Calls before a module exists, after it or its state is gone, in a wrong order."""
    yield "use_before_module", lambda: use_state(Run(folder, engine, opened=False).state, folder)
    for action in LIVE:
        yield action.__name__, lambda action=action: action(Run(folder, engine))
    for name, action in NOMINAL.items():
        yield (
            f"nominal: {name}",
            lambda action=action: action(Run(folder, engine, nominal=True)),
        )


def together(*actions: Callable[[], Any]) -> None:
    """Call each over and over in a thread of its own; raise what is no BlockError."""
    end, errors = time.monotonic() + SECONDS, []

    def repeat(action: Callable[[], Any]) -> None:
        try:
            while time.monotonic() < end:
                with suppress(BlockError):
                    action()
        except Exception as error:
            errors.append(error)

    running = [threading.Thread(target=repeat, args=[action]) for action in actions]
    for thread in running:
        thread.start()
    for thread in running:
        thread.join()
    if errors:
        raise errors[0]


def evaluate_together(run: Run) -> None:
    """Batches of different sizes: each thread gets the results of its own."""
    module = run.module.eval()
    batches = [batch(seed, 3 + 50 * seed) for seed in range(4)]
    expected = [module(*inputs)[1].copy() for inputs in batches]

    def check(i: int, feed: Callable[[np.ndarray], Any]) -> None:
        output = module(*map(feed, batches[i]))[1]
        array = output if isinstance(output, np.ndarray) else output.numpy()
        np.testing.assert_array_equal(array, expected[i])

    wrap = onnxruntime.OrtValue.ortvalue_from_numpy
    together(*(lambda i=i: check(i, wrap if i % 2 else np.asarray) for i in range(4)))


def do_everything_together(run: Run) -> None:
    module, folder = run.module, run.folder

    def evaluate() -> None:
        module.eval()(*batch(1, 9))
        module.train()

    together(
        lambda: module(*batch()),
        run.optimizer.step,
        evaluate,
        module.lazy_reset_grad,
        lambda: set_seed(1),
        lambda: use_state(run.state, folder),
        lambda: complete(run),
        lambda: module.export_model_for_inferencing(folder / "together.onnx", ["output"]),
    )


def replace_while_running(run: Run) -> None:
    together(
        lambda: (run.open_module(), gc.collect()),
        run.open_optimizer,
        lambda: run.module(*batch()),
        lambda: run.optimizer.step(),
        lambda: use_state(run.state, run.folder),
    )


def drop_while_running(run: Run) -> None:
    def train(module: Module, optimizer: Optimizer) -> None:
        for i in range(200):
            module(*batch(i % 5))
            optimizer.step()

    thread = threading.Thread(target=train, args=[run.module, run.optimizer])
    thread.start()
    run.close()
    del run.state
    fill_freed_memory()
    thread.join()


def load_together(run: Run) -> None:
    together(*[lambda: Run(run.folder, run.engine).step()] * 3)


def run_at_exit(run: Run) -> None:
    """The process ends while the step of a daemon thread runs."""
    module = run.module
    work = threading.Thread(
        target=lambda: [module(*batch(i % 5, 500)) for i in range(10**6)], daemon=True
    )
    work.start()
    time.sleep(0.2)


def threads(folder: Path, engine: str) -> Calls:
    """One run in several threads; the last one is still running when the process ends."""
    for action in (
        evaluate_together,
        do_everything_together,
        replace_while_running,
        drop_while_running,
        load_together,
        run_at_exit,
    ):
        yield action.__name__, lambda action=action: action(Run(folder, engine))


GROUPS = {"types": types, "lifetimes": lifetimes, "threads": threads}


def main(group: str, folder: Path, engine: str) -> None:
    for name, call in GROUPS[group](folder, engine):
        print(name, flush=True)
        try:
            call()
        except BlockError:
            continue
        except Exception as error:
            print(f"REFUSED BY {type(error).__name__}: {error}", flush=True)
    print("done", flush=True)


if __name__ == "__main__":
    os.chdir(sys.argv[2])  # some arguments are taken for paths
    main(sys.argv[1], Path(sys.argv[2]), sys.argv[3])
