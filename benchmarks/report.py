"""The page of the figures: docs/reference/performance.md.

`python benchmarks/report.py` prints it as the last measurement left it; with `--write` it measures
anew, everything or the parts that are named, and writes the page.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import re
from pathlib import Path
from typing import Any

import build
import step
from pool import CONTENDERS, HERE, Worker, add_peer_option, peers
from workloads import NODES, STEPS, TERMS

RESULTS = HERE / "results.json"
PAGE = HERE.parent / "docs" / "reference" / "performance.md"

COMMAND = """\
python benchmarks/report.py --write --peer session=PYTHON --peer training=PYTHON \\
    --peer upstream=PYTHON --peer pytorch=PYTHON"""

TITLES = {
    **{f"wide/{terms}": f"449 MB MLP, loss of {terms} term{'s' * (terms > 1)}" for terms in TERMS},
    **{f"chain/{nodes}": f"graph of {nodes:,} nodes" for nodes in NODES},
}

TEXT = (HERE / "page.md").read_text("utf-8")
"""The page, with names in braces where figures go."""


def page(results: dict[str, Any]) -> str:
    """The page of some results.

    Raises:
        KeyError: A row that the benchmarks have is missing from the results.
    """
    contenders = results["versions"]
    failures: list[str] = []
    return TEXT.format(
        command=COMMAND,
        machine=results["machine"],
        versions="\n".join(
            f"| {CONTENDERS[name]} | {', '.join(f'{k} {v}' for k, v in found.items())} |"
            for name, found in contenders.items()
        ),
        build=_table(
            {TITLES[row]: results["build"][row] for row in build.ROWS},
            [name for name in build.BUILDERS if name in contenders],
            lambda cell: (
                f"{cell['seconds']:.2f} s ({cell['cpu_seconds']:.2f}), {cell['peak_mb']:.0f} MB"
            ),
            failures,
            {"session": "blockdsl"},
        ),
        step=_table(
            {f"{w.title}; batch {w.batch[0]}": results["step"][w.name] for w in STEPS.values()},
            list(contenders),
            lambda cell: f"{cell['step_ms']:.2f} ms × {cell['ratio']:.2f}",
            failures,
        ),
        update=_table(
            {workload.name: results["step"][workload.name] for workload in STEPS.values()},
            list(contenders),
            lambda cell: f"{cell['update_ms']:.2f} ms",
            failures,
        ),
        failures="".join(f"\n[{i}] {text}\n" for i, text in enumerate(failures, start=1)),
        **results["settings"],
    )


def _table(
    rows: dict[str, dict[str, Any]],
    contenders: list[str],
    shown: Any,
    failures: list[str],
    titles: dict[str, str] | None = None,
) -> str:
    titles = CONTENDERS | (titles or {})
    lines = [f"| | {' | '.join(titles[name] for name in contenders)} |"]
    lines.append("|---" * (len(contenders) + 1) + "|")
    for title, cells in rows.items():
        texts = [_cell(cells.get(name), shown, failures) for name in contenders]
        lines.append(f"| {title} | {' | '.join(texts)} |")
    return "\n".join(lines)


def _cell(cell: dict[str, Any] | None, shown: Any, failures: list[str]) -> str:
    if cell is None:
        return "not measured"
    if "failure" not in cell:
        return str(shown(cell))
    reason = re.sub(r"\S*/\S+", "…", cell["failure"]).strip()[:300]  # paths say nothing here
    if reason not in failures:
        failures.append(reason)
    return f"fails [{failures.index(reason) + 1}]"


def measure(options: argparse.Namespace, old: dict[str, Any]) -> dict[str, Any]:
    """New results; the parts that are not measured stay as they were."""
    interpreters = peers(options)
    results = dict(old)
    results["machine"] = _machine()
    results["versions"] = {name: _versions(name, p) for name, p in interpreters.items()}
    settings = results["settings"] = dict(old.get("settings", {}))
    if "build" in options.parts:
        settings["build_rounds"] = options.build_rounds
        results["build"] = build.measure(interpreters, options.build_rounds, options.limit)
    if "step" in options.parts:
        settings |= {"step_rounds": options.step_rounds, "threads": options.threads}
        results["step"] = step.measure(interpreters, options.step_rounds, options.threads)
    return results


def _versions(name: str, python: str) -> dict[str, str]:
    with Worker(name, python) as worker:
        found: dict[str, str] = worker.ask("versions")
        return found


def _machine() -> str:
    cores, memory = os.cpu_count(), os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    return f"{_processor()}, {cores} cores, {memory / 2**30:.0f} GB; {platform.system()}."


def _processor() -> str:
    listing = Path("/proc/cpuinfo")
    text = listing.read_text("utf-8") if listing.is_file() else ""
    found = re.search(r"^model name\s*:\s*(.+)$", text, re.MULTILINE)
    return found[1] if found else platform.processor() or platform.machine()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--write", action="store_true", help="measure and write the page")
    parser.add_argument("--parts", nargs="+", choices=("build", "step"), default=("build", "step"))
    add_peer_option(parser)
    build.add_options(parser)
    step.add_options(parser)
    options = parser.parse_args()
    results = json.loads(RESULTS.read_text("utf-8")) if RESULTS.is_file() else {}
    if options.write:
        results = measure(options, results)
        RESULTS.write_text(json.dumps(results, indent=1) + "\n", encoding="utf-8")
        PAGE.write_text(page(results), encoding="utf-8")
    else:
        print(page(results), end="")


if __name__ == "__main__":
    main()
