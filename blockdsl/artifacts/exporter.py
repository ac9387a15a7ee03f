"""Records that PyTorch's exporters leave about the module that a model was made of.

The default exporter writes metadata: the module's parameters by the names that its program gives
them, and for every node the call that it is part of, with its arguments. The older exporter
(`dynamo=False`) names nodes after modules and gives a second name to a tensor by an Identity node.
Of other models only the paths in the names of their nodes are known.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Sequence
from functools import cached_property

from onnx import ModelProto, NodeProto

from blockdsl.artifacts.slots import BIAS, SLOTS
from blockdsl.artifacts.tensor_names import is_anonymous
from blockdsl.graph.walk import all_nodes

_PREFIX = "pkg.torch.onnx."
_SIGNATURE = "pkg.torch.export.ExportedProgram.graph_signature"
_SPECIFICATIONS = (
    # torch 2.7 and newer, and before
    re.compile(r"^(\w+): (PARAMETER|BUFFER) target='([^']+)'", re.MULTILINE),
    re.compile(
        r"InputSpec\(kind=<InputKind\.(PARAMETER|BUFFER): \d+>, "
        r"arg=TensorArgument\(name='(\w+)'\), target='([^']+)'"
    ),
)
_INPUT = re.compile(r"^(\w+): (?!PARAMETER|BUFFER)[A-Z_]+\b", re.MULTILINE)
_NAMES = re.compile(r"%(\w+)")
_NORMALIZATIONS = ("BatchNormalization", "LayerNormalization", "RMSNormalization")
"""Operators that take their parameters in the order of the module's call."""
_REPEATED = re.compile(r"_\d+$")


class Call:
    """A call of the exported program, as the metadata of a node has it.

    Attributes:
        name: The name of its result.
        text: The call with its arguments, "" if the node has no such metadata.
        arguments: The names of the tensors among its arguments.
        module: The path of the module that makes it, None if that is not known.
        classes: The classes of the modules around it.
        rewrite: The rewrite rule of the exporter that made the node, "" if none did.
    """

    def __init__(self, node: NodeProto) -> None:
        properties = {entry.key: entry.value for entry in node.metadata_props}
        self.text = properties.get(f"{_PREFIX}fx_node", "")
        self.name = self.text.partition(" ")[0].lstrip("%")
        self.arguments = _NAMES.findall(self.text.partition("](")[2] or self.text)
        scopes = _list(properties.get(f"{_PREFIX}name_scopes", ""))
        self.module = str(scopes[-2]) if len(scopes) > 1 else None
        self.classes = properties.get(f"{_PREFIX}class_hierarchy", "")
        self.rewrite = properties.get("pkg.onnxscript.rewriter.rule_name", "")


class Exporter:
    """The records of a model, from which exporter it may be.

    Attributes:
        calls: The nodes of the model, those of bodies included, with the calls they are part of.
        has_calls: Whether the nodes have the metadata of PyTorch's default exporter.
        is_torchscript: Whether the model is of PyTorch's older exporter.
        parameters: The names of the module's parameters, as far as they are recorded.
        buffers: The names of its buffers.
    """

    def __init__(self, model: ModelProto) -> None:
        self.parameters: set[str] = set()
        self.buffers: set[str] = set()
        self._targets: dict[str, str] = {}
        self._inputs: set[str] = set()
        for entry in model.graph.metadata_props:
            if entry.key == _SIGNATURE:
                self._read(entry.value)
        self.calls = [(node, Call(node)) for node in all_nodes(model.graph.node)]
        self.has_calls = bool(self._targets)
        has_metadata = any(call.text or call.module is not None for _, call in self.calls)
        self.is_torchscript = model.producer_name == "pytorch" and not has_metadata
        self._scopes = {scope for node in model.graph.node for scope in _scopes(node.name)}
        self._names = {tensor.name for tensor in model.graph.initializer}
        self._names.update(n.output[0] for n in model.graph.node if n.op_type == "Identity")

    def _read(self, signature: str) -> None:
        self._inputs.update(_INPUT.findall(signature))
        new, old = _SPECIFICATIONS
        found = new.findall(signature) or [(n, k, t) for k, n, t in old.findall(signature)]
        for name, kind, target in found:
            self._targets[name] = target
            (self.parameters if kind == "PARAMETER" else self.buffers).add(target)

    def is_input(self, name: str) -> bool:
        """Whether a name is that of an input of the program: a parameter, a constant or data."""
        return name in self._targets or name in self._inputs

    def targets(self, call: Call) -> list[str]:
        """Return the parameters and buffers of the module that a call takes, in order."""
        found = (self._targets[name] for name in call.arguments if name in self._targets)
        return list(dict.fromkeys(found))

    @cached_property
    def lost(self) -> list[str]:
        """The parameters of the module that no node reads, in whatever form."""
        read, shared = set(), set()
        for _, call in self.calls:
            for target in self.targets(call):
                read.add(target)
                # A module whose call takes the parameter of another one shares it.
                shared.add(f"{call.module}.{_leaf(target)}")
        return sorted(self.parameters - read - shared - self._names)

    def parameter(self, node: NodeProto, call: Call, slot: int, name: str) -> str:
        """Return the parameter or buffer that a node reads in a slot, "" if that is not known.

        Args:
            node: The node.
            call: The call that it is part of.
            slot: The place of a tensor among its inputs.
            name: The initializer there.
        """
        targets = self.targets(call)
        if not targets or "Fuse" in call.rewrite:
            return ""
        if node.op_type in _NORMALIZATIONS and len(targets) == len(node.input) - 1 and slot:
            return targets[slot - 1]
        if name in targets:
            return name
        if is_anonymous(name):
            is_bias = SLOTS.get((node.domain, node.op_type), {}).get(slot) == BIAS
            is_bias |= node.op_type == "Add"
            alike = [target for target in targets if ("bias" in _leaf(target)) == is_bias]
        else:
            alike = [target for target in targets if _leaf(target) == _leaf(name)]
        return alike[0] if len(alike) == 1 else ""

    def module(self, node: NodeProto) -> str | None:
        """Return the path of the module that a node comes from, None if that is not known."""
        module = Call(node).module
        if module is not None or "/" not in node.name.strip("/"):
            return module
        scopes = list(_scopes(node.name))
        return self._called(scopes[-1]) if self.is_torchscript else scopes[-1]

    def _called(self, scope: str) -> str:
        """Return a module's path without the suffixes that count its calls."""
        path = ""
        for part in scope.split("/"):
            base = _REPEATED.sub("", part)
            first = f"{path}/{base}" if path else base
            own = f"{path}/{part}" if path else part
            repeated = base != part and first in self._scopes and not self._is_module(own)
            path = first if repeated else own
        return path.replace("/", ".")

    def _is_module(self, scope: str) -> bool:
        start = f"{scope.replace('/', '.')}."
        return any(name.startswith(start) for name in self._names)


def recorded_parameters(model: ModelProto) -> dict[str, bool]:
    """Return which initializers are parameters of the exported module, and which are buffers.

    An initializer that stands for both, which the exporter merged, is a parameter.
    """
    exporter = Exporter(model)
    if not exporter.has_calls:
        return {}
    names = {tensor.name for tensor in model.graph.initializer}
    found = dict.fromkeys(names & exporter.buffers, False)
    found |= dict.fromkeys(names & exporter.parameters, True)
    related: set[str] = set()
    for node, call in exporter.calls:
        if exporter.targets(call) or not call.text:
            related.update(node.input)
        for slot, name in enumerate(node.input):
            if name in names and exporter.parameter(node, call, slot, name) in exporter.parameters:
                found[name] = True
    if not exporter.lost:
        # All parameters are accounted for: what no call of one reads was computed from none.
        found |= dict.fromkeys(filter(is_anonymous, names - related), False)
    return found


def _leaf(name: str) -> str:
    return name.rpartition(".")[2]


def _scopes(name: str) -> Sequence[str]:
    """Return the paths around a node, the innermost last."""
    parts = name.strip("/").split("/")[:-1]
    return ["/".join(parts[: i + 1]) for i in range(len(parts))]


def _list(text: str) -> list[object]:
    try:
        value = ast.literal_eval(text) if text else []
    except (SyntaxError, ValueError):
        return []  # metadata of a form that is not known tells nothing
    return value if isinstance(value, list) else []
