"""The decision about parameters in words: one line, and warnings of what may surprise."""

from __future__ import annotations

import logging
from collections import Counter
from collections.abc import Iterable, Mapping

from blockdsl.artifacts.parameters import Selection
from blockdsl.artifacts.roles import INTEGER, UNUSED, Role

_log = logging.getLogger(__name__)
_LISTED = 5


def summarize(trained: Iterable[str], frozen: Iterable[str], found: Mapping[str, Role]) -> str:
    """Return one line about what is trained, frozen and left constant.

    Args:
        trained: The names of what is trained.
        frozen: The names of what is frozen.
        found: The roles of all float tensors of the model.
    """
    trained, frozen = set(trained), set(frozen)
    shown = {name: role for name, role in found.items() if role.kind != UNUSED}
    total = sum(role.values for role in shown.values())
    count = sum(role.values for name, role in shown.items() if name in trained)
    known = sum(name in shown for name in trained)
    parts = [f"trains {known} of {len(shown)} tensors, {count:,} of {total:,} values"]
    held = [role.values for name, role in shown.items() if name in frozen]
    if held:
        parts.append(f"frozen: {len(held)} ({_count(sum(held))})")
    idle = {n: r for n, r in shown.items() if r.trained and n not in trained | frozen}
    fixed = {n: r for n, r in shown.items() if not r.trained and n not in trained | frozen}
    odd = {n: r for n, r in shown.items() if r.resembles and n in trained}
    for title, others in (
        ("not trained", idle),
        ("left as constants", fixed),
        ("trained although fixed by their looks (frozen_params leaves them out)", odd),
    ):
        if others:
            parts.append(f"{title}: {_list(others)}")
    return "; ".join(parts)


def describe(selection: Selection, made: Iterable[str] = ()) -> str:
    """Return the line about a selection, without the constants that blocks made."""
    own = set(made)
    found = {name: role for name, role in selection.roles.items() if name not in own}
    return summarize(selection.trained, selection.frozen, found)


def announce(text: str) -> None:
    """Log a line about a selection."""
    _log.info("%s", text[0].upper() + text[1:])


def surprises(selection: Selection) -> list[str]:
    """Return what may surprise: parameters left out by default, and weights that are integers."""
    found, texts = selection.roles, []
    for op_type, count in Counter(n.op_type for n in selection.blocked.values()).items():
        names = [name for name, node in selection.blocked.items() if node.op_type == op_type]
        texts.append(
            f"{_tensors(count)} not trained: {_list({name: found[name] for name in names})}. The "
            f"loss depends on them through {op_type}, which has no gradient."
        )
    integers = {name: role for name, role in found.items() if role.kind == INTEGER}
    if integers:
        texts.append(
            f"{_tensors(len(integers))} stored as integers and not trained, nor are their scales: "
            f"{_list(integers)}. Train the model before it is quantised."
        )
    if selection.left_out:
        texts.append(
            f"{_tensors(len(selection.left_out))} not trained: "
            f"{_list({name: found[name] for name in selection.left_out})}. Name what is to be "
            f"trained in requires_grad, or what is not in frozen_params."
        )
    return texts


def _tensors(count: int) -> str:
    return "1 tensor is" if count == 1 else f"{count} tensors are"


def _count(values: int) -> str:
    return "1 value" if values == 1 else f"{values:,} values"


def _list(found: Mapping[str, Role]) -> str:
    """Return the largest of some tensors, with their roles."""
    by_size = sorted(found.items(), key=lambda item: -item[1].values)
    texts = [f"{name} ({_count(r.values)}: {r.kind})" for name, r in by_size[:_LISTED]]
    rest = by_size[_LISTED:]
    if rest:
        texts.append(f"and {len(rest)} more ({_count(sum(r.values for _, r in rest))})")
    return ", ".join(texts)
