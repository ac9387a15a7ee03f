"""One contender in a process of its own: a request and an answer are one line of JSON each."""

from __future__ import annotations

import json
import os
import sys
import warnings
from typing import Any


def contender(name: str) -> Any:
    """A contender by its name; only its own libraries are imported."""
    if name == "pytorch":
        from pytorch import PyTorch

        return PyTorch()
    from drop_in import DropIn

    return DropIn(None if name == "upstream" else name)


def main() -> None:
    answers = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)  # what the libraries print is no answer
    warnings.simplefilter("ignore")
    serves = None
    for line in sys.stdin:
        request = json.loads(line)
        try:
            serves = serves or contender(sys.argv[1])
            answer = {"result": getattr(serves, request.pop("do"))(**request)}
        except Exception as error:  # whatever a contender cannot do is a result, too
            answer = {"error": f"{type(error).__name__}: {error}"}
        print(json.dumps(answer), file=answers, flush=True)


if __name__ == "__main__":
    main()
