"""The page of parity: every public name of onnxruntime-training, and what blockdsl makes of it.

    python -m tests.upstream.parity docs/reference/parity.md

refreshes the page; with BLOCKDSL_UPSTREAM_PYTHON (see `tests.upstream.runner`) the record of
onnxruntime-training's names as well.
"""

from __future__ import annotations

import ast
import json
import os
import sys
from collections import Counter
from dataclasses import dataclass
from functools import cache
from pathlib import Path

from tests.upstream.runner import PYTHON, ROOT, SCRIPTS, ask
from tests.upstream.signatures import ours

if sys.version_info >= (3, 11):
    import tomllib
else:
    import tomli as tomllib

RECORD = ROOT / "tests" / "data" / "upstream_signatures.json"

HEADER = """# Parity with onnxruntime-training

Every public name of onnxruntime-training 1.19.2 (`onnxblock`, `artifacts` and `api`; classes with
their methods, properties and public attributes), and what stands under it in blockdsl:

- *same*: the same parameters and defaults, and the same behaviour as far as it is known;
- *better*: that and more, or without a fault that is there;
- *differs*: something else, for the reason given.

*Programs* is how many of the {programs} programs in `tests/upstream/scripts` use the name. They are
written in onnxblock's words, run after the three import swaps, and must give the numbers, names and
errors that onnxruntime-training gives, but for [what is listed below](#results-that-differ).

This page is made by `python -m tests.upstream.parity docs/reference/parity.md` from the packages
themselves; a test holds it fresh.

{counts}
"""

TITLES = {
    "onnxblock": "`onnxruntime.training.onnxblock` is `blockdsl`",
    "onnxblock.blocks": "`onnxblock.blocks` is `blockdsl.blocks`",
    "onnxblock.loss": "`onnxblock.loss` is `blockdsl.loss`",
    "onnxblock.optim": "`onnxblock.optim` is `blockdsl.optim`",
    "artifacts": "`onnxruntime.training.artifacts` is `blockdsl.artifacts`",
    "api": "`onnxruntime.training.api` is `blockdsl.api`",
}

SPOKEN_OF = {
    # how programs come by an object of a class that they do not name
    "ModelAccessor": {"base", "empty_base"},
    "Parameters": {"parameters"},
    "Parameter": {"parameters"},
    "Properties": {"properties"},
}


@dataclass(frozen=True)
class Row:
    """One public name, its parameters or kind there, and how blockdsl's compares."""

    name: str
    theirs: object
    verdict: str
    reason: str

    @property
    def place(self) -> str:
        return max((p for p in TITLES if self.name.startswith(f"{p}.")), key=len)

    @property
    def shown(self) -> str:
        name = self.name.removeprefix(f"{self.place}.")
        if isinstance(self.theirs, list):
            return f"`{name}({', '.join(self.theirs)})`"
        return f"`{name}`, {self.theirs}"


def rows() -> list[Row]:
    """All names, in the order of the page."""
    said = notes()
    return [_row(name, there, said.get(name)) for name, there in recorded().items()]


def _row(name: str, there: object, note: dict[str, str] | None) -> Row:
    here = ours(name)
    fits, more = compare(there, here)
    if note is not None:
        return Row(name, there, note["verdict"], note["reason"])
    if not fits:
        return Row(name, there, "differs", "")
    return Row(name, there, "better" if more else "same", f"also takes {more}" if more else "")


def compare(there: object, here: object) -> tuple[bool, str]:
    """Whether what is here can be used as what is there, and which parameters it has beyond."""
    if not (isinstance(there, list) and isinstance(here, list)):
        by_kind = {"attribute": ("attribute", "property, can be set")}
        return here in by_kind.get(str(there), (there,)), ""
    same = all(map(_same, there, here)) and len(here) >= len(there)
    beyond = here[len(there) :]
    optional = all("=" in parameter or parameter.startswith("*") for parameter in beyond)
    return same and optional, ", ".join(f"`{p.split('=')[0]}`" for p in beyond)


def _same(there: str, here: str) -> bool:
    """Whether two parameters are the same; no caller uses the names of those like `*args`."""
    return there == here or (there.startswith("*") and here.startswith("*"))


def notes() -> dict[str, dict[str, str]]:
    """What is said of names by hand."""
    text = Path(__file__).with_name("parity.toml").read_text("utf-8")
    return {row["name"]: row for row in tomllib.loads(text)["name"]}


def differences() -> list[dict[str, str]]:
    """The results of programs that differ."""
    text = Path(__file__).with_name("differences.toml").read_text("utf-8")
    return tomllib.loads(text)["difference"]


def recorded() -> dict[str, object]:
    """The names of onnxruntime-training, as they were read there."""
    return json.loads(RECORD.read_text("utf-8"))


def ask_theirs() -> dict[str, object]:
    """The same, from the interpreter that has it."""
    return ask("from tests.upstream import signatures; answer = signatures.theirs()")


@cache
def spoken() -> tuple[frozenset[str], ...]:
    """The identifiers of each program."""
    return tuple(
        frozenset(
            node.attr if isinstance(node, ast.Attribute) else node.id
            for node in ast.walk(ast.parse(script.read_text("utf-8")))
            if isinstance(node, ast.Attribute | ast.Name)
        )
        for script in SCRIPTS
    )


def programs(name: str) -> str:
    """How many programs use a name; nothing for what is used without being named."""
    *owners, last = name.split(".")
    if last.startswith("__") or last == "build":  # calling a block builds it
        return ""
    words = SPOKEN_OF.get(last, {last})
    owner = owners[-1]
    owner_words = SPOKEN_OF.get(owner, {owner} if owner[:1].isupper() else set())
    return str(
        sum(bool(words & p) and (not owner_words or bool(owner_words & p)) for p in spoken())
    )


def page() -> str:
    """The page, in Markdown."""
    every = rows()
    counts = Counter(row.verdict for row in every)
    total = ", ".join(f"{counts[kind]} {kind}" for kind in ("same", "better", "differs"))
    parts = [HEADER.format(programs=len(SCRIPTS), counts=f"{len(every)} names: {total}.")]
    for place, title in TITLES.items():
        parts.append(f"\n## {title}\n\n| name | | why | programs |\n|---|---|---|---|\n")
        parts += [
            f"| {_cell(row.shown)} | {row.verdict} | {_cell(row.reason)} | {programs(row.name)} |\n"
            for row in every
            if row.place == place
        ]
    parts.append("\n## Results that differ\n\n| program | result | why |\n|---|---|---|\n")
    parts += [
        f"| `{row['script']}` | {_cell(row['result'])} | {_cell(row['reason'])} |\n"
        for row in differences()
    ]
    return "".join(parts)


def _cell(text: str) -> str:
    return text.replace("|", "\\|")


if __name__ == "__main__":
    if PYTHON in os.environ:
        lines = (f"{json.dumps(k)}: {json.dumps(v)}" for k, v in ask_theirs().items())
        RECORD.write_text("{\n" + ",\n".join(lines) + "\n}\n", encoding="utf-8")
    Path(sys.argv[1]).write_text(page(), encoding="utf-8")
