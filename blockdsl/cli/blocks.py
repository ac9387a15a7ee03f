"""Losses and optimizers as the command line names them."""

from __future__ import annotations

import ast
import importlib
import sys
from collections.abc import Mapping
from typing import Any, TypeVar

from blockdsl.blocks import Block
from blockdsl.errors import ArtifactError, near

Kind = TypeVar("Kind")


def block_of(text: str, known: Mapping[str, Kind], option: str) -> Kind | Block | None:
    """The loss or optimizer that an option names.

    Args:
        text: A known name, "none", or `package.module:Class(arguments)`, in which the arguments are
            Python literals. Modules are also looked for in the working directory.
        known: The known names.
        option: The option, for error messages.

    Returns:
        What the known name stands for, None for "none", or an instance of the class.

    Raises:
        ArtifactError: There is no such name, module or class, or it is no block, or does not take
            the arguments.

    Example:
        >>> block_of("mse", {"mse": 1}, "--loss")
        1
        >>> block_of("blockdsl.blocks:Pow(2)", {}, "--loss")
        Pow(exponent=2)
        >>> block_of("mea", {"mse": 1}, "--loss")
        Traceback (most recent call last):
        blockdsl.errors.ArtifactError: --loss 'mea' is neither one of mse, none nor of the form\
 package.module:Class. Did you mean 'mse'?
    """
    if text.lower() == "none":
        return None
    if text.lower() in known:
        return known[text.lower()]
    where, colon, what = text.partition(":")
    if not colon:
        names = [*known, "none"]
        raise ArtifactError(
            f"{option} {text!r} is neither one of {', '.join(names)} nor of the form "
            f"package.module:Class. {near(text, names)}"
        )
    name, arguments, keywords = _call(what, option)
    block_class = _look_up(where, name, option)
    if not (isinstance(block_class, type) and issubclass(block_class, Block)):
        raise ArtifactError(f"{option}: {where}:{name} is not a class derived from blockdsl.Block.")
    try:
        made: Block = block_class(*arguments, **keywords)
    except (TypeError, ValueError) as error:
        raise ArtifactError(f"{option}: {where}:{what} cannot be made: {error}") from error
    return made


def _call(text: str, option: str) -> tuple[str, list[Any], dict[str, Any]]:
    """`Class(1, b="c")` as a name, arguments and keyword arguments."""
    try:
        tree = ast.parse(text, mode="eval").body
        if isinstance(tree, ast.Name):
            return tree.id, [], {}
        if isinstance(tree, ast.Call) and isinstance(tree.func, ast.Name):
            keywords = {str(k.arg): ast.literal_eval(k.value) for k in tree.keywords if k.arg}
            return tree.func.id, [ast.literal_eval(a) for a in tree.args], keywords
    except (SyntaxError, ValueError):
        pass
    raise ArtifactError(
        f"{option}: {text!r} is not of the form Class or Class(1, name='text'): arguments are "
        f"numbers, strings, lists and the like."
    )


def _look_up(module: str, name: str, option: str) -> Any:
    if "" not in sys.path:
        sys.path.insert(0, "")  # a console script does not look in the working directory
    try:
        found = importlib.import_module(module)
    except ImportError as error:
        raise ArtifactError(f"{option}: {module!r} cannot be imported: {error}") from error
    if not hasattr(found, name):
        raise ArtifactError(f"{option}: {module!r} has no {name!r}. {near(name, vars(found))}")
    return getattr(found, name)
