"""What may import what: the layers, the runtime's one importer, and how little an import loads."""

import ast
import statistics
import subprocess
import sys
from functools import cache
from pathlib import Path

import pytest

import blockdsl

PACKAGE = Path(blockdsl.__file__).parent
FILES = sorted(PACKAGE.rglob("*.py"))

LAYERS = {
    # layer: those right below it; what is below those may be imported too
    "errors": [],
    "graph": ["errors"],
    "_graph_utils": ["graph"],
    "functional": ["graph"],
    "blocks": ["functional"],
    "gradient": ["functional"],
    "loss": ["blocks", "gradient"],
    "optim": ["blocks", "gradient"],
    "training": ["loss", "optim"],
    "training_ops": ["gradient"],
    "passes": ["optim", "training_ops"],
    "backend": ["passes"],
    "artifacts": ["training", "backend"],
    "api": ["artifacts"],
    "data": ["errors"],
    "progress": ["errors"],
    "evaluation": ["api", "data"],
    "trainer": ["evaluation", "progress"],
    "cli": ["trainer"],
    "__main__": ["cli"],
    "testing": ["cli"],
}


@cache
def below(layer: str) -> frozenset[str]:
    """The layers that a layer may import."""
    return frozenset().union(*({other} | below(other) for other in LAYERS[layer]))


@cache
def imports(file: Path) -> frozenset[str]:
    """The modules that a file imports when it runs, inside functions too."""
    tree = ast.parse(file.read_text("utf-8"))
    for node in ast.walk(tree):
        if isinstance(node, ast.If) and ast.unparse(node.test) == "TYPE_CHECKING":
            node.body = []
    found = set()
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            found.update(alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom) and node.module:
            found.update(f"{node.module}.{alias.name}" for alias in node.names)
    return frozenset(found)


def layer_of(file: Path) -> str:
    return file.relative_to(PACKAGE).parts[0].removesuffix(".py")


def shown(file: Path) -> str:
    return file.relative_to(PACKAGE).as_posix()


def test_every_module_has_a_layer():
    assert {layer_of(file) for file in FILES} - {"__init__"} == set(LAYERS)


def test_imports_go_one_way():
    upward = {}
    for file in FILES:
        layer = layer_of(file)
        own = {name.split(".")[1] for name in imports(file) if name.startswith("blockdsl.")}
        if layer != "__init__" and (wrong := own - {layer, "__version__"} - below(layer)):
            upward[shown(file)] = wrong
    assert upward == {}


def test_only_the_backend_imports_the_runtime():
    allowed = {
        "onnxruntime": lambda file: layer_of(file) == "backend",
        "hypothesis": lambda file: shown(file) == "testing/strategies.py",
        "torch": lambda file: False,
    }
    for package, may in allowed.items():
        importers = [f for f in FILES if package in {n.split(".")[0] for n in imports(f)}]
        assert [shown(f) for f in importers if not may(f)] == []


def test_files_are_small():
    lengths = {shown(f): len(f.read_text("utf-8").splitlines()) for f in FILES}
    assert {name: n for name, n in lengths.items() if n > 400} == {}
    assert statistics.median(lengths.values()) < 150


LISTING = "import onnx, sys; before = set(sys.modules); {}; print(*set(sys.modules) - before)"


def loaded(statement: str) -> set[str]:
    """The top-level packages, and the parts of ours and onnx's, that a statement loads."""
    command = [sys.executable, "-c", LISTING.format(statement)]
    done = subprocess.run(command, capture_output=True, text=True, check=True, cwd=PACKAGE.parent)
    return {".".join(name.split(".")[:2]) for name in done.stdout.split()}


def test_importing_is_light():
    found = loaded("import blockdsl")
    ours = {name for name in found if name.split(".")[0] == "blockdsl"}
    assert ours == {"blockdsl", "blockdsl.blocks", "blockdsl.errors", "blockdsl.graph"}
    heavy = {"onnxruntime", "onnxscript", "typer", "rich", "torch", "sklearn", "hypothesis"}
    assert not {name.split(".")[0] for name in found} & heavy
    assert not {"onnx.reference", "onnx.backend", "onnx.defs", "onnx.version_converter"} & found


GRAPH_ONLY = ["blocks", "data", "gradient", "graph", "loss", "optim", "testing", "training"]


@pytest.mark.parametrize("layer", GRAPH_ONLY)
def test_building_graphs_needs_no_runtime(layer):
    assert "onnxruntime" not in {n.split(".")[0] for n in loaded(f"import blockdsl.{layer}")}


def test_the_backend_loads_no_runtime_before_it_runs_something():
    assert not {"onnxruntime", "onnx.reference"} & loaded("import blockdsl.backend")
