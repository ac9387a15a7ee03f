"""How long it takes to make artifacts, and how much memory.

`python benchmarks/build.py --peer session=PYTHON --peer upstream=PYTHON`
"""

from __future__ import annotations

import argparse
import json
import statistics
import sys
import tempfile
from collections.abc import Mapping, Sequence
from typing import Any

from pool import ContenderError, Worker, add_peer_option, peers
from workloads import NODES, TERMS

BUILDERS = ("session", "upstream")
"""Who makes artifacts; which engine runs them makes no difference to it."""

ROWS = {
    **{f"wide/{terms}": ("wide", 0, terms) for terms in TERMS},
    **{f"chain/{nodes}": ("chain", nodes, 1) for nodes in NODES},
}
"""For every row the model, its nodes and the terms of its loss."""


def measure(
    interpreters: Mapping[str, str], rounds: int, limit: float, rows: Sequence[str] = tuple(ROWS)
) -> dict[str, Any]:
    """Make the artifacts of every row: one contender after the other, round by round.

    Args:
        interpreters: The interpreter of each contender.
        rounds: How often.
        limit: The seconds after which a contender is stopped.
        rows: Which rows, the smaller ones of a model first.

    Returns:
        For every row and contender the median seconds and the peak of memory, or its failure.
    """
    builders = {name: interpreters[name] for name in BUILDERS if name in interpreters}
    results: dict[str, Any] = {}
    failures: dict[tuple[str, str], dict[str, str]] = {}
    for row in rows:
        model, nodes, terms = ROWS[row]
        print(f"build {row}", file=sys.stderr)
        with tempfile.TemporaryDirectory() as folder:
            path = f"{folder}/forward.onnx"
            with Worker("session", builders["session"]) as writer:
                parameters = writer.ask("write", model=model, nodes=nodes, path=path)
            trials: dict[str, list[Any]] = {name: [] for name in builders}
            for name in [*builders] * rounds:
                # What fails once fails again, and on the larger models, too.
                if (name, model) not in failures:
                    made = _trial(name, builders[name], limit, path, parameters, terms)
                    if "failure" in made:
                        failures[name, model] = made
                    trials[name].append(made)
        results[row] = {
            name: failures.get((name, model)) or _summary(trials[name]) for name in builders
        }
    return results


def _trial(
    name: str, python: str, limit: float, model: str, parameters: list[str], terms: int
) -> dict[str, Any]:
    """Make artifacts in a process of their own, whose peak of memory is theirs."""
    with Worker(name, python, limit) as worker, tempfile.TemporaryDirectory() as folder:
        try:
            made: dict[str, Any] = worker.ask(
                "build", model=model, parameters=parameters, terms=terms, folder=folder
            )
        except ContenderError as error:
            return {"failure": str(error)}
        return made


def _summary(trials: list[dict[str, float]]) -> dict[str, float]:
    return {key: statistics.median(trial[key] for trial in trials) for key in trials[0]}


def add_options(parser: argparse.ArgumentParser) -> None:
    """How long to measure."""
    parser.add_argument("--build-rounds", type=int, default=3, metavar="N")
    parser.add_argument(
        "--limit", type=float, default=600, help="seconds after which a contender is stopped"
    )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    add_peer_option(parser)
    add_options(parser)
    parser.add_argument("--rows", nargs="+", choices=ROWS, default=list(ROWS), metavar="ROW")
    options = parser.parse_args()
    results = measure(peers(options), options.build_rounds, options.limit, options.rows)
    print(json.dumps(results, indent=1))


if __name__ == "__main__":
    main()
