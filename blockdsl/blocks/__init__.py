"""The building blocks."""

from blockdsl.blocks.block import Block

__all__ = ["Block"]
