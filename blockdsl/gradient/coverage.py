"""The table of which operators have a gradient, made from the rules themselves.

`python -m blockdsl.gradient.coverage docs/reference/op_coverage.md` refreshes the page.
"""

from __future__ import annotations

import sys
from collections import Counter
from dataclasses import dataclass
from pathlib import Path

import onnx
from onnx import defs

from blockdsl.gradient.composites import COMPOSITES
from blockdsl.gradient.registry import NO_GRADIENT, RULES
from blockdsl.graph.microsoft import OPERATORS
from blockdsl.graph.schema import MICROSOFT, Operator, newest, operator_names

GAPS: dict[str, str] = {}
"""Operators of the default domain that could have a gradient and have none, with the reason."""

_HEADER = """# Operator coverage

Which operators of ONNX {version} (default domain, opset {opset}) have a gradient, and those of
`com.microsoft` that have one.

- *rule*: a rule of its own, with its formula (g is the cotangent of y).
- *body*: differentiated through what it is made of.
- *none*: no derivative, or nothing of floating point to differentiate.
- *gap*: no gradient yet.

This page is made by `python -m blockdsl.gradient.coverage docs/reference/op_coverage.md`; a test
holds it fresh.

{counts}

| operator | since opset | gradient | how |
|---|---|---|---|
"""


@dataclass(frozen=True)
class Coverage:
    """How an operator is differentiated.

    Attributes:
        name: The operator, with its domain unless that is the default one.
        since: The opset that brought it.
        kind: "rule", "body", "none" or "gap".
        how: The formula or the reason.
    """

    name: str
    since: int
    kind: str
    how: str


def coverage() -> list[Coverage]:
    """Every operator of the default domain, and those of `com.microsoft` that have a gradient.

    Example:
        >>> next(row for row in coverage() if row.name == "Div").how
        'y = a / b        da = g / b        db = -g y / b'
    """
    first: dict[str, int] = {}
    for schema in defs.get_all_schemas_with_history():
        if not schema.domain:
            first[schema.name] = min(schema.since_version, first.get(schema.name, 10**6))
    rows = [_row("", name, first[name]) for name in operator_names() if newest(name) is not None]
    known = {name for domain, name in (*RULES, *COMPOSITES) if domain == MICROSOFT}
    rows += [_row(MICROSOFT, name, 1) for name in sorted(known & set(OPERATORS))]
    return rows


def _row(domain: str, name: str, since: int) -> Coverage:
    shown = f"{domain}::{name}" if domain else name
    if (domain, name) in RULES:
        return Coverage(shown, since, "rule", RULES[domain, name].formula)
    if (domain, name) in NO_GRADIENT:
        return Coverage(shown, since, "none", NO_GRADIENT[domain, name])
    if not domain and name in GAPS:
        return Coverage(shown, since, "gap", GAPS[name])
    if (domain, name) in COMPOSITES:
        return Coverage(shown, since, "body", COMPOSITES[domain, name].formula)
    form = newest(name, domain)
    schema = form.schema if form else None
    if form is not None and not _takes_and_gives_floats(form):
        return Coverage(shown, since, "none", "it does not map floating-point to floating-point")
    if schema is not None and (
        getattr(schema, "has_function", False)
        or getattr(schema, "has_context_dependent_function", False)
    ):
        return Coverage(shown, since, "body", "the function body of its schema")
    return Coverage(shown, since, "gap", "not written yet")


def _takes_and_gives_floats(form: Operator) -> bool:
    tensors = [f"tensor({name})" for name in ("float", "float16", "double", "bfloat16")]
    floats = {*tensors, *(f"seq({tensor})" for tensor in tensors)}
    return all(
        any(floats & form.types_of(parameter) for parameter in side)
        for side in (form.inputs, form.outputs)
    )


def page() -> str:
    """The page, in Markdown."""
    rows = coverage()
    counts = Counter(row.kind for row in rows)
    total = ", ".join(f"{counts[k]} {k}" for k in ("rule", "body", "none", "gap"))
    header = _HEADER.format(
        version=".".join(onnx.__version__.split(".")[:2]),
        opset=defs.onnx_opset_version(),
        counts=f"{len(rows)} operators: {total}.",
    )
    lines = [f"| {r.name} | {r.since} | {r.kind} | {_cell(r.how)} |" for r in rows]
    return header + "\n".join(lines) + "\n"


def _cell(text: str) -> str:
    return text.replace("|", "\\|").replace("        ", " ; ").replace("*", "\\*")


if __name__ == "__main__":
    import blockdsl.gradient  # noqa: F401  the rules register when they are imported

    if len(sys.argv) > 1:
        Path(sys.argv[1]).write_text(page(), encoding="utf-8")
    else:
        sys.stdout.write(page())
