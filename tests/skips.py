"""Reads skips.toml and marks the tests that it names: they must fail, or the entry is stale.

What is a `kink` there gets the marker `kink`: the test itself sees to it.
"""

from __future__ import annotations

import re
import sys
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path

import onnxruntime
import pytest
from packaging.specifiers import SpecifierSet

if sys.version_info >= (3, 11):
    import tomllib
else:
    import tomli as tomllib

TABLE = Path(__file__).with_name("skips.toml")


@dataclass(frozen=True)
class Skip:
    """One entry of the table."""

    test: str
    reason: str
    run: bool = True
    runtime: str = ""
    kink: bool = False

    def __post_init__(self) -> None:
        if not self.reason:
            raise ValueError(f"skips.toml: {self.test!r} has no reason")

    @property
    def file(self) -> str:
        return self.test.split("::")[0]

    @property
    def mark(self) -> pytest.MarkDecorator:
        if self.kink:
            return pytest.mark.kink(self.reason)
        return pytest.mark.xfail(reason=self.reason, strict=True, run=self.run)

    @property
    def applies(self) -> bool:
        """Whether it is meant for the installed runtime."""
        return onnxruntime.__version__ in SpecifierSet(self.runtime)

    def matches(self, test: str) -> bool:
        # Not fnmatch: the ids of parametrised tests have brackets, which are no sets here.
        parts = (re.escape(part).replace(r"\?", ".") for part in self.test.split("*"))
        return re.fullmatch(".*".join(parts), test) is not None


@lru_cache(maxsize=1)
def load() -> tuple[Skip, ...]:
    """The entries that are meant for the installed runtime."""
    table = tomllib.loads(TABLE.read_text(encoding="utf-8"))
    rows = [Skip(**row) for row in table["skip"]] + [
        Skip(**row, kink=True) for row in table["kink"]
    ]
    return tuple(skip for skip in rows if skip.applies)


def apply(config, items) -> None:
    """Mark what is collected, and remember which entries matched nothing."""
    unmatched = set(load())
    names = [item.nodeid.removeprefix("tests/") for item in items]
    for item, name in zip(items, names, strict=True):
        for skip in load():
            if skip.matches(name):
                unmatched.discard(skip)
                item.add_marker(skip.mark)
    complete = not any("::" in argument for argument in config.args)
    files = {name.split("::")[0] for name in names} if complete else set()
    config.stash[STALE] = [skip.test for skip in unmatched if skip.file in files]


STALE = pytest.StashKey[list[str]]()
