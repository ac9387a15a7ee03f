"""Identity of artifacts: their models carry it as metadata, and checkpoints say whose they are.

An identity is a fingerprint of the artifacts' content (graphs, names, types and first values), and
a number that counts how often artifacts have been generated over older ones:
"5f1c0a9be77d4a12/0". Files keep it when they are copied or renamed.
"""

from __future__ import annotations

from onnx import ModelProto

KEY = "blockdsl.artifacts"
"""The key of the models' metadata."""


def identity_of(model: ModelProto) -> str:
    """Return the identity of the artifacts that a model belongs to, "" if it is not known."""
    return next((entry.value for entry in model.metadata_props if entry.key == KEY), "")


def set_identity(model: ModelProto, identity: str) -> None:
    """Say in a model which artifacts it belongs to; "" for none."""
    for entry in [entry for entry in model.metadata_props if entry.key == KEY]:
        model.metadata_props.remove(entry)
    if identity:
        model.metadata_props.add(key=KEY, value=identity)


def same_artifacts(one: str, other: str) -> bool:
    """Whether two identities may be of one call of `generate_artifacts`: one may be unknown."""
    return not one or not other or one == other


def same_content(one: str, other: str) -> bool:
    """Whether two identities may be of artifacts with the same content.

    Example:
        >>> same_content("5f1c/0", "5f1c/1"), same_content("5f1c/0", "77d4/0")
        (True, False)
    """
    return same_artifacts(one.partition("/")[0], other.partition("/")[0])
