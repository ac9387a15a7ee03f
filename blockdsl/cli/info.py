"""`blockdsl info`: what is installed, and what is in a file."""

from __future__ import annotations

import importlib.metadata
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Annotated

import numpy as np
import onnx
import typer

from blockdsl import __version__
from blockdsl.artifacts.roles import Role, roles
from blockdsl.artifacts.summary import summarize
from blockdsl.backend import checkpoint as codec
from blockdsl.backend.files import is_ort_format, read_model
from blockdsl.backend.select import describe
from blockdsl.backend.weights import read_mapped
from blockdsl.cli.app import app, console
from blockdsl.errors import ArtifactError, ModelFileError
from blockdsl.graph.layout import ACCUMULATED, BUFFER, RESET
from blockdsl.graph.sparse import densify
from blockdsl.graph.tensor import TensorType, elem_type_of

Rows = Iterable[tuple[str, ...]]

_OWN_CONSTANTS = "constant/"
"""How the names of the constants begin that a loss brings along."""


@app.command()
def info(
    path: Annotated[
        Path | None,
        typer.Argument(help="A model, a checkpoint or a directory of artifacts to look into."),
    ] = None,
) -> None:
    """Print what is installed and which engine is used, or what PATH holds."""
    if path is None:
        _print_installation()
    elif path.is_dir():
        _print_artifacts(path)
    elif path.is_file() and _is_checkpoint(path):
        _print_checkpoint(codec.load(path))
    elif path.is_file() and is_ort_format(path):
        raise ModelFileError(
            f"{str(path)!r} is in ONNX Runtime's own format, which only ONNX Runtime reads: look "
            f"at the .onnx file that it was made from."
        )
    else:
        _print_model(*read_mapped(path))


def _print_installation() -> None:
    facts = {"blockdsl": __version__, **describe()}
    for package in ("onnx", "onnxscript", "numpy", "tensorboardX"):
        facts[package] = _version(package)
    _print_rows(facts.items())


def _version(package: str) -> str:
    try:
        return importlib.metadata.version(package)
    except importlib.metadata.PackageNotFoundError:
        return "not installed"


def _print_artifacts(folder: Path) -> None:
    end = "training_model.onnx"
    found = sorted(folder.glob(f"*{end}"))
    if not found:
        checkpoints = [
            path for path in sorted(folder.iterdir()) if path.is_file() and _is_checkpoint(path)
        ]
        if checkpoints:
            raise ArtifactError(
                f"{str(folder)!r} has checkpoints and no {end}: look at one of them, with "
                f"`blockdsl info {checkpoints[-1]}`, or at the artifacts that it belongs to."
            )
        raise ArtifactError(
            f"{str(folder)!r} has no {end}: write it with `blockdsl generate MODEL --output "
            f"{folder}`."
        )
    for path in found:
        prefix = path.name.removesuffix(end)
        model = read_model(path, weights=False)
        state = codec.load(folder / f"{prefix}checkpoint")
        own = {*state.trainable, *state.frozen, RESET}
        buffers = tuple(f"{name}{BUFFER}" for name in state.trainable)
        inputs = [i for i in model.graph.input if i.name not in own and i.name not in buffers]
        outputs = [o for o in model.graph.output if not o.name.endswith(ACCUMULATED)]
        console.print(f"{path} ({_versions(model)})")
        _print_section("inputs", _typed(inputs))
        _print_section("loss", _typed(outputs[:1]))
        _print_section("other outputs", _typed(outputs[1:]))
        optimizer = folder / f"{prefix}optimizer_model.onnx"
        if optimizer.is_file():
            nodes = read_model(optimizer, weights=False).graph.node
            _print_section("optimizer", [(", ".join(node.op_type for node in nodes),)])
        _print_checkpoint(state)
        evaluation = folder / f"{prefix}eval_model.onnx"
        if evaluation.is_file():
            _print_what_is_trained(evaluation, state)


def _print_what_is_trained(path: Path, state: codec.Checkpoint) -> None:
    model, outer = read_mapped(path)
    found = roles(model, {**outer, **state.trainable, **state.frozen})
    own = {name: role for name, role in found.items() if not name.startswith(_OWN_CONSTANTS)}
    _print_summary(state.trainable, state.frozen, own)


def _print_model(model: onnx.ModelProto, weights: Mapping[str, np.ndarray]) -> None:
    graph, found = model.graph, roles(model, weights)
    densify(model)
    held = {t.name: TensorType(t.data_type, tuple(t.dims)) for t in graph.initializer}
    inner = {
        name: TensorType(role.source.elem_type, role.source.shape)
        for name, role in found.items()
        if name not in held and (role.trained or role.values > 1)
    }
    console.print(f"{graph.name or 'model'} ({_versions(model)}, {len(graph.node)} nodes)")
    _print_section("inputs", _typed(i for i in graph.input if i.name not in held))
    _print_section("outputs", _typed(graph.output))
    for title, kinds in (
        ("initializers", held),
        ("tensors in Constant nodes, bodies and functions", inner),
    ):
        _print_section(
            f"{title}: {len(kinds)}, {_count(kinds.values()):,} values",
            [(name, str(kind), _purpose(found.get(name))) for name, kind in kinds.items()],
        )
    _print_summary((name for name, role in found.items() if role.trained), (), found)


def _purpose(role: Role | None) -> str:
    return "" if role is None else f"{role.kind}: {role.reason}"


def _print_summary(
    trained: Iterable[str], frozen: Iterable[str], found: Mapping[str, Role]
) -> None:
    if found:
        console.print(f"training: {summarize(trained, frozen, found)}", markup=False)


def _print_checkpoint(state: codec.Checkpoint) -> None:
    kinds = {
        name: TensorType(elem_type_of(array.dtype), array.shape)
        for name, array in {**state.trainable, **state.frozen}.items()
    }
    title = f"parameters: {len(state.trainable)} trained, {len(state.frozen)} frozen"
    if not state.nominal:
        title += f", {_count(kinds.values()):,} values"
    rows = [
        (
            name,
            kind.dtype.name if state.nominal else str(kind),
            "trained" if name in state.trainable else "frozen",
        )
        for name, kind in kinds.items()
    ]
    _print_section(f"{title} (nominal: no values)" if state.nominal else title, rows)
    for group in state.groups.values():
        slots = sorted({slot for held in group.slots.values() for slot in held})
        _print_section(
            f"optimizer state {group.name!r}",
            [
                ("step", str(group.step)),
                ("learning rate", f"{group.learning_rate:.6g}"),
                ("slots", ", ".join(slots)),
            ],
        )
    _print_section("properties", [(name, str(v)) for name, v in state.properties.items()])


def _is_checkpoint(path: Path) -> bool:
    with path.open("rb") as file:
        return file.read(8)[4:] == b"ODTC"


def _versions(model: onnx.ModelProto) -> str:
    opsets: Mapping[str, int] = {o.domain or "ai.onnx": o.version for o in model.opset_import}
    listed = ", ".join(f"{domain} {version}" for domain, version in opsets.items())
    return f"opset {listed}; IR version {model.ir_version}"


def _typed(values: Iterable[onnx.ValueInfoProto]) -> list[tuple[str, str]]:
    return [(value.name, _type(value.type)) for value in values]


def _type(given: onnx.TypeProto) -> str:
    tensor = TensorType.of(given)
    return str(given.WhichOneof("value")) if tensor is None else str(tensor)


def _count(kinds: Iterable[TensorType]) -> int:
    total = 0
    for kind in kinds:
        size = 1
        for dim in kind.shape or ():
            size *= int(dim or 0)
        total += size
    return total


def _print_section(title: str, rows: Rows) -> None:
    rows = list(rows)
    if rows:
        console.print(title)
        _print_rows(rows, indent="  ")


def _print_rows(rows: Rows, indent: str = "") -> None:
    """Columns as wide as what is in them."""
    rows = list(rows)
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    for row in rows:
        line = "  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True))
        console.print(indent + line.rstrip(), markup=False)
