"""The public names of onnxruntime-training and of blockdsl, read from the packages themselves.

It runs in either environment: no more than the standard library and the package is needed.
"""

from __future__ import annotations

import ast
import enum
import importlib
import inspect
import textwrap

PLACES = {
    # what a program calls it: where onnxruntime-training and where blockdsl have it
    "onnxblock": ("onnxruntime.training.onnxblock", "blockdsl"),
    "onnxblock.blocks": ("onnxruntime.training.onnxblock.blocks", "blockdsl.blocks"),
    "onnxblock.loss": ("onnxruntime.training.onnxblock.loss", "blockdsl.loss"),
    "onnxblock.optim": ("onnxruntime.training.onnxblock.optim", "blockdsl.optim"),
    "artifacts": ("onnxruntime.training.artifacts", "blockdsl.artifacts"),
    "api": ("onnxruntime.training.api", "blockdsl.api"),
}

HANDED_OUT = {
    # classes that programs are handed objects of, and do not import
    "onnxblock.ModelAccessor": (
        "onnxruntime.training.onnxblock.model_accessor:ModelAccessor",
        "blockdsl.graph:ModelHandle",
    ),
    "api.Parameters": (
        "onnxruntime.training.api.checkpoint_state:Parameters",
        "blockdsl.api.parameters:Parameters",
    ),
    "api.Parameter": (
        "onnxruntime.training.api.checkpoint_state:Parameter",
        "blockdsl.api.parameters:Parameter",
    ),
    "api.Properties": (
        "onnxruntime.training.api.checkpoint_state:Properties",
        "blockdsl.api.properties:Properties",
    ),
}

SPECIAL = {"__call__", "__contains__", "__getitem__", "__iter__", "__len__", "__repr__"}
SPECIAL |= {"__setitem__"}


def theirs() -> dict[str, object]:
    """What onnxruntime-training has: name by name, with its parameters or its kind."""
    found: dict[str, object] = {}
    seen: set[type] = set()
    for place, (module, _) in PLACES.items():
        package = importlib.import_module(module)
        for name in _public(package):
            thing = getattr(package, name)
            if not inspect.isclass(thing):
                found[f"{place}.{name}"] = describe(thing)
            elif thing not in seen:
                seen.add(thing)
                found.update(_class(f"{place}.{name}", thing))
    for name, (path, _) in HANDED_OUT.items():
        members = _class(name, _load(path))
        members[name] = "class"  # how it is made is nobody's business
        found.update(members)
    return found


def ours(name: str) -> object:
    """What blockdsl has under a name of onnxruntime-training, `None` if there is nothing."""
    for owner, (_, path) in HANDED_OUT.items():
        if name == owner:
            return "class"
        if name.startswith(f"{owner}."):
            return _member(_load(path), name.rpartition(".")[2])
    place = max((p for p in PLACES if name.startswith(f"{p}.")), key=len)
    thing: object = importlib.import_module(PLACES[place][1])
    *owners, last = name.removeprefix(f"{place}.").split(".")
    for owner_name in owners:
        thing = getattr(thing, owner_name, None)
    if inspect.isclass(thing):
        return _member(thing, last)
    thing = getattr(thing, last, None)
    return None if thing is None else describe(thing)


def describe(thing: object) -> object:
    """The parameters of a class, function or method; the kind of anything else."""
    if inspect.ismodule(thing):
        return "module"
    if isinstance(thing, property):
        return "property" if thing.fset is None else "property, can be set"
    if isinstance(thing, enum.Enum):
        return f"member {thing.value}"
    if inspect.isclass(thing) and issubclass(thing, enum.Enum):
        return "enum"
    if isinstance(thing, classmethod | staticmethod):
        thing = thing.__func__
    if inspect.isclass(thing):
        thing = thing.__init__
        if thing is object.__init__:
            return []
    if callable(thing):
        return _parameters(thing)
    return "attribute"


def _class(name: str, cls: type) -> dict[str, object]:
    """A class and its public members, those of the public classes it derives from left out."""
    found = {name: describe(cls)}
    if issubclass(cls, enum.Enum):
        return found | {f"{name}.{member.name}": describe(member) for member in cls}
    for base in cls.__mro__:
        if base is not cls and not base.__name__.startswith("_"):
            break
        for member in vars(base):
            if member in SPECIAL or not member.startswith("_"):
                found[f"{name}.{member}"] = describe(inspect.getattr_static(cls, member))
        for attribute in _assigned(base):
            found.setdefault(f"{name}.{attribute}", "attribute")
    return found


def _member(cls: type, name: str) -> object:
    if issubclass(cls, enum.Enum):
        return describe(cls[name]) if name in cls.__members__ else None
    found = inspect.getattr_static(cls, name, None)
    if found is not None:
        return describe(found)
    return "attribute" if any(name in _assigned(base) for base in cls.__mro__) else None


def _assigned(cls: type) -> list[str]:
    """The public attributes that a class sets in its `__init__`."""
    made = vars(cls).get("__init__")
    if not inspect.isfunction(made) or made.__code__.co_filename.startswith("<"):
        return []
    tree = ast.parse(textwrap.dedent(inspect.getsource(made)))
    targets = [
        target
        for node in ast.walk(tree)
        if isinstance(node, ast.Assign | ast.AnnAssign)
        for target in (node.targets if isinstance(node, ast.Assign) else [node.target])
    ]
    return [
        target.attr
        for target in targets
        if isinstance(target, ast.Attribute)
        and isinstance(target.value, ast.Name)
        and target.value.id == "self"
        and not target.attr.startswith("_")
    ]


def _public(package) -> list[str]:
    listed = getattr(package, "__all__", None)
    if listed is not None:
        return sorted(listed)
    home = package.__name__
    return sorted(
        name
        for name, thing in vars(package).items()
        if not name.startswith("_") and getattr(thing, "__module__", "").startswith(home)
    )


def _parameters(function) -> list[str]:
    bare = inspect.Parameter.empty
    return [
        str(parameter.replace(annotation=bare))
        for parameter in inspect.signature(function).parameters.values()
        if parameter.name not in ("self", "cls")
    ]


def _load(path: str) -> type:
    module, name = path.split(":")
    return getattr(importlib.import_module(module), name)
