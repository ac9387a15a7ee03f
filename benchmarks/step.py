"""How long a training step takes: forward, backward and update.

`python benchmarks/step.py --peer session=PYTHON --peer training=PYTHON --peer upstream=PYTHON
--peer pytorch=PYTHON`
"""

from __future__ import annotations

import argparse
import json
import statistics
import sys
import tempfile
import time
from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from math import ceil, isclose
from pathlib import Path
from typing import Any

from pool import ContenderError, Worker, add_peer_option, peers
from workloads import STEPS

SLOT = 0.3
"""The seconds that a contender has in a round."""

REST = 0.02
"""The seconds between two contenders: the threads of one spin for a while before they sleep."""


def measure(
    interpreters: Mapping[str, str], rounds: int, threads: int, rows: Sequence[str] = tuple(STEPS)
) -> dict[str, Any]:
    """Train every model with every contender: in turn, a slot each, round by round.

    Args:
        interpreters: The interpreter of each contender.
        rounds: How often each has its turn.
        threads: The threads of each.
        rows: The models.

    Returns:
        For every model and contender the median milliseconds of a step and of its two parts, and
        `ratio`: the median over the rounds of its time over that of the first contender; or its
        failure.

    Raises:
        ContenderError: Two contenders do not compute the same.
    """
    results = {}
    for row in rows:
        print(f"step {row}", file=sys.stderr)
        with ExitStack() as stack:
            folder = stack.enter_context(tempfile.TemporaryDirectory())
            path = f"{folder}/forward.onnx"
            workers = {n: stack.enter_context(Worker(n, p)) for n, p in interpreters.items()}
            parameters = workers["session"].ask("write", model=row, path=path)
            results[row] = _race(workers, rounds, folder, workload=row, model=path,
                                 parameters=parameters, threads=threads)  # fmt: skip
    return results


def _race(workers: Mapping[str, Worker], rounds: int, folder: str, **load: Any) -> dict[str, Any]:
    counts, losses, results = {}, {}, {}
    for name, worker in workers.items():
        own = Path(folder, name)
        own.mkdir()
        try:
            worker.ask("load", folder=str(own), **load)
            losses[name] = worker.ask("steps", count=1)["loss"]
            warm = worker.ask("steps", count=5)
        except ContenderError as error:
            results[name] = {"failure": str(error)}
            continue
        counts[name] = max(1, ceil(SLOT / min(_totals(warm))))
    _check_equal(losses)
    measured: dict[str, list[Any]] = {name: [] for name in counts}
    for _ in range(rounds):
        for name, count in counts.items():
            time.sleep(REST)
            measured[name].append(workers[name].ask("steps", count=count))
    first = next(iter(measured.values()))
    results |= {name: _summary(slots, first) for name, slots in measured.items()}
    return {name: results[name] for name in workers}


def _check_equal(losses: Mapping[str, float]) -> None:
    """The first losses agree, so that it is the same model that all of them train."""
    first = next(iter(losses.values()))
    if not all(isclose(loss, first, rel_tol=1e-4) for loss in losses.values()):
        raise ContenderError(f"the losses before the first step differ: {losses}")


def _summary(slots: list[Any], first: list[Any]) -> dict[str, float]:
    ratios = [
        statistics.median(_totals(mine)) / statistics.median(_totals(other))
        for mine, other in zip(slots, first, strict=True)
    ]
    passes = [seconds for slot in slots for seconds in slot["passes"]]
    updates = [seconds for slot in slots for seconds in slot["updates"]]
    totals = [seconds for slot in slots for seconds in _totals(slot)]
    return {
        "step_ms": 1e3 * statistics.median(totals),
        "pass_ms": 1e3 * statistics.median(passes),
        "update_ms": 1e3 * statistics.median(updates),
        "ratio": statistics.median(ratios),
    }


def _totals(slot: Mapping[str, Any]) -> list[float]:
    return [a + b for a, b in zip(slot["passes"], slot["updates"], strict=True)]


def add_options(parser: argparse.ArgumentParser) -> None:
    """How long to measure."""
    parser.add_argument("--step-rounds", type=int, default=15, metavar="N")
    parser.add_argument("--threads", type=int, default=2, help="of each contender")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    add_peer_option(parser)
    add_options(parser)
    parser.add_argument("--rows", nargs="+", choices=STEPS, default=list(STEPS), metavar="ROW")
    options = parser.parse_args()
    results = measure(peers(options), options.step_rounds, options.threads, options.rows)
    print(json.dumps(results, indent=1))


if __name__ == "__main__":
    main()
