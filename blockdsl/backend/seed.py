"""What a runtime draws at random, made to follow from numbers."""

from __future__ import annotations

import numpy as np

from blockdsl.backend.files import StrPath, is_ort_format, read_model
from blockdsl.backend.providers import load_runtime
from blockdsl.backend.walk import called_functions
from blockdsl.errors import StateError
from blockdsl.graph.random import draws_by_itself
from blockdsl.graph.walk import all_nodes


def set_seed(*numbers: int) -> None:
    """Make the masks of dropout that are drawn from now on follow from some numbers.

    Called before every training step, with a seed and the step's number, it gives every step its
    own masks, and the same ones in a run that is repeated or resumed. It is the C training API's
    `SetSeed`, with the numbers mixed into one seed.

    The generator is one for the whole process: between this call and the step that it is meant for,
    no other thread may train. `RandomNormal`, `RandomUniform`, their `Like` forms, `Bernoulli`,
    `Multinomial`, and `Dropout` with a `seed` (which `generate_artifacts` takes away), each have a
    generator of their own. It begins with their own seed, or with what was set when the module was
    made, and cannot be set back: a run can be repeated, but not resumed to the bit.

    Args:
        *numbers: Whole numbers from 0 to 2**63 - 1, such as a seed, an epoch and a batch.

    Raises:
        StateError: Something else was given.

    Example:
        >>> set_seed(0, 12)
    """
    if not numbers or not all(map(_fits, numbers)):
        given = ", ".join(map(repr, numbers))
        raise StateError(f"A seed is made of whole numbers from 0 to 2**63 - 1, not of ({given}).")
    # Seeds that lie close together give masks that are alike: they are mixed first.
    mixed = np.random.SeedSequence([int(n) for n in numbers]).generate_state(1)
    load_runtime().set_seed(int(mixed[0]))


def _fits(number: object) -> bool:
    return isinstance(number, int | np.integer) and 0 <= int(number) < 2**63


def unrepeatable(path: StrPath) -> list[str]:
    """The nodes of a training model that `set_seed` has no say in, "RandomNormal 'noise'"."""
    if is_ort_format(path):
        return []
    model = read_model(path, "training model", weights=False)
    called = called_functions(model, model.graph.node)
    parts = (model.graph.node, *(function.node for function in called))
    nodes = (node for part in parts for node in all_nodes(part))
    return [f"{node.op_type} {node.name!r}" for node in nodes if draws_by_itself(node)]
