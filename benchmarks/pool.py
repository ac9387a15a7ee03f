"""The contenders and the processes they run in."""

from __future__ import annotations

import argparse
import json
import os
import select
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

HERE = Path(__file__).parent

CONTENDERS = {
    "session": "blockdsl, session engine",
    "training": "blockdsl, training engine",
    "upstream": "onnxruntime-training",
    "pytorch": "PyTorch, eager",
}


class ContenderError(Exception):
    """A contender cannot do what it was asked for."""


class Worker:
    """A process that serves one contender.

    Args:
        name: The contender.
        python: The interpreter of its environment.
        limit: The seconds that one request may take.
    """

    def __init__(self, name: str, python: str, limit: float = 600) -> None:
        self.name, self.limit = name, limit
        self._log = tempfile.TemporaryFile("w+")  # noqa: SIM115  closed with the worker
        self._process = subprocess.Popen(
            [python, str(HERE / "worker.py"), name],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=self._log,
            env=os.environ | {"PYTHONPATH": str(HERE.parent)},
            text=True,
            bufsize=1,
        )

    def __enter__(self) -> Worker:
        return self

    def __exit__(self, *exception: object) -> None:
        self._process.kill()
        self._process.communicate()
        self._log.close()

    def ask(self, do: str, **request: Any) -> Any:
        """What the contender answers to a request.

        Raises:
            ContenderError: It refuses, takes too long or dies.
        """
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._process.stdin.write(json.dumps({"do": do, **request}) + "\n")
        ready, _, _ = select.select([self._process.stdout], [], [], self.limit)
        if not ready:
            raise ContenderError(f"more than {self.limit:.0f} s")
        line = self._process.stdout.readline()
        if not line:
            raise ContenderError(f"the process died: {self._last_words()}")
        answer = json.loads(line)
        if "error" in answer:
            raise ContenderError(answer["error"])
        return answer["result"]

    def _last_words(self) -> str:
        self._log.seek(0)
        return "".join(self._log.readlines()[-1:]).strip() or "without a word"


def add_peer_option(parser: argparse.ArgumentParser) -> None:
    """`--peer NAME=PYTHON`: which contenders run, and in which environments."""
    parser.add_argument(
        "--peer",
        action="append",
        default=[],
        type=_peer,
        metavar="NAME=PYTHON",
        help=f"a contender ({', '.join(CONTENDERS)}) and the interpreter of its environment; "
        f"session=<this interpreter> if none is given",
    )


def peers(options: argparse.Namespace) -> dict[str, str]:
    """The interpreter of each contender, in the order of the tables."""
    given = dict(options.peer) or {"session": sys.executable}
    return {name: given[name] for name in CONTENDERS if name in given}


def _peer(text: str) -> tuple[str, str]:
    name, _, python = text.partition("=")
    if name not in CONTENDERS or not python:
        raise argparse.ArgumentTypeError(f"{text!r} is not one of {', '.join(CONTENDERS)}=PYTHON")
    return name, python
