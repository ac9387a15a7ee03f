"""Calls of every training operator, in the forms that matter, one file a family."""

from tests.training_ops.cases import (
    activations,
    arithmetic,
    images,
    indexing,
    losses,
    normalizations,
    recurrent,
)

FAMILIES = (activations, arithmetic, images, indexing, losses, normalizations, recurrent)

CALLS = [call for family in FAMILIES for call in family.calls()]
