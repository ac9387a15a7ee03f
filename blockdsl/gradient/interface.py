"""Names of the inputs and outputs that transforms add to a model."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from blockdsl.errors import GradientError, near
from blockdsl.graph.model import Graph
from blockdsl.graph.walk import names_in


def interface_names(
    graph: Graph, promised: Iterable[str], kept: Iterable[str], names: Mapping[str, str] | None
) -> dict[str, str]:
    """Return the name of each input or output that a transform adds, and make it free.

    A tensor of the model that has the name, and that nobody outside knows, gets another one.

    Args:
        graph: The graph; it is changed.
        promised: The names that the transform promises.
        kept: The tensors of the graph that keep their names, beside its inputs, initializers and
            outputs.
        names: Other names for some of those that are promised.

    Returns:
        The name of each promised one: the same, another one that is given, or one with a number if
        the interface of the model has it already.

    Raises:
        GradientError: A name is given that the model has already, or for what is not promised.
    """
    promised, given = list(dict.fromkeys(promised)), dict(names or {})
    for name in given:
        if name not in promised:
            raise GradientError(f"names has {name!r}, which is not added. {near(name, promised)}")
    proto = graph.proto.graph
    taken = {*kept, *graph.user_inputs(), *graph.initializer_names()}
    taken |= {output.name for output in proto.output}
    inner = {name for node in proto.node for name in names_in(node)}
    found: dict[str, str] = {}
    for name in promised:
        wanted = given.get(name, name)
        if wanted in taken and name in given:
            raise GradientError(
                f"names calls {name!r} {wanted!r}, which is the name of another input, output or "
                f"parameter: choose another one."
            )
        if wanted in taken:
            wanted = graph.names.unique(wanted)
        elif wanted in inner:
            graph.rename({wanted: graph.names.unique(f"{wanted}.inner")})
        graph.names.take(wanted)
        taken.add(wanted)
        found[name] = wanted
    return found
