"""Changes of a growing model: nodes replaced, renamed, and removed where nothing needs them."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any, NamedTuple

from onnx import ModelProto, NodeProto, TypeProto, helper

from blockdsl.graph.completion import has_rank
from blockdsl.graph.index import Index
from blockdsl.graph.nested import resized
from blockdsl.graph.walk import inputs_of, rename_tensors


class Mark(NamedTuple):
    """How many nodes and initializers a graph has at some time."""

    nodes: int = 0
    initializers: int = 0


class Rewritable(Index):
    """An index whose model can be changed, not only appended to.

    Args:
        proto: The model.
    """

    def __init__(self, proto: ModelProto) -> None:
        super().__init__(proto)
        self.constants_made: set[str] = set()
        """The initializers that are constants of the blocks' making."""
        self._interned: dict[tuple[Any, ...], str] = {}

    def graft(self, nodes: Iterable[NodeProto], declared: Mapping[str, TypeProto]) -> None:
        """Append nodes of another model.

        Args:
            nodes: The nodes, in topological order, under names that this model does not have.
            declared: Types that the other model declares for what they compute: they give the rank
                where inference finds none.

        Raises:
            GraphError: A node does not fit what it reads.
        """
        self.sync()
        graph = self.proto.graph
        for node in nodes:
            graph.node.append(node)
            self._admit(graph.node[-1])
            for name in node.output:
                if name in declared and not has_rank(self._types.get(name)):
                    proto = resized(declared[name]) or declared[name]
                    graph.value_info.append(helper.make_value_info(name, proto))
                    self._declare(name, graph.value_info[-1].type)
        self._seen = self._counts()

    def rename(self, names: Mapping[str, str]) -> None:
        """Give what nodes and their bodies compute other names, there and wherever it is read."""
        names = {str(old): str(new) for old, new in names.items()}
        for node in self.proto.graph.node:
            rename_tensors(node, names)
        for info in self.proto.graph.value_info:
            info.name = names.get(info.name, info.name)
        for old, new in names.items():
            tables: tuple[dict[str, Any], ...] = (self._producers, self._types, self._constants)
            for table in tables:
                if old in table:
                    table[new] = table.pop(old)
            self._tensors.pop(old, None)
            self.names.take(new)
        self._seen = self._counts()

    def mark(self) -> Mark:
        """How much of the graph there is now, for `prune`."""
        return Mark(len(self.proto.graph.node), len(self.proto.graph.initializer))

    def prune(self, start: Mark, keep: Iterable[str]) -> None:
        """Remove the nodes and constants that were made since a mark and are not needed.

        Args:
            start: The mark.
            keep: The tensors that are needed, beside what the nodes before the mark read.
        """
        nodes = self.proto.graph.node
        tail, needed = list(nodes[start.nodes :]), set(keep)
        for node in nodes[: start.nodes]:
            needed.update(inputs_of(node))
        kept = []
        for node in reversed(tail):
            if any(output in needed for output in node.output):
                kept.append(node)
                needed.update(inputs_of(node))
            else:
                for output in node.output:
                    self._types.pop(output, None)
                    self._producers.pop(output, None)
        del nodes[start.nodes :]
        nodes.extend(reversed(kept))
        for node in nodes[start.nodes :]:
            self._producers.update(dict.fromkeys(filter(None, node.output), node))
        self._drop_constants(start.initializers, needed)
        self._seen = self._counts()

    def _drop_constants(self, start: int, needed: set[str]) -> None:
        """Remove the later constants of our making that nothing reads."""
        initializers = self.proto.graph.initializer
        unused = set()
        for i in reversed(range(start, len(initializers))):
            name = initializers[i].name
            if name in self.constants_made and name not in needed:
                unused.add(name)
                del initializers[i]
        self._interned = {k: name for k, name in self._interned.items() if name not in unused}
        for name in unused:
            self._types.pop(name, None)
            self._constants.pop(name, None)

    def replace_nodes(self, nodes: Sequence[NodeProto]) -> None:
        """Put these nodes, in topological order, in the place of all there are."""
        fresh = [NodeProto.FromString(node.SerializeToString()) for node in nodes]
        del self.proto.graph.node[:]
        self.proto.graph.node.extend(fresh)
        self._producers.clear()
        for node in self.proto.graph.node:
            known = all(not o or o in self._types for o in node.output)
            self._register(node, {} if known else self._infer_typed(node))
        self._complete({})
        self._seen = self._counts()
