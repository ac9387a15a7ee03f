"""onnxscript in the same process: its functions, called with values, become functions of the model.

onnxscript runs a function that is called by its default evaluator, which it lets one set. While a
model is open here, and the user has imported onnxscript, ours takes the calls that are given
values, and hands all others on. Nothing is imported for it.
"""

from __future__ import annotations

import inspect
import sys
import threading
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from importlib import import_module
from typing import Any

from onnx import FunctionProto

from blockdsl.errors import OpError
from blockdsl.graph.name import Name

_lock = threading.Lock()
_open = 0


class _Evaluator:
    """An evaluator of onnxscript that builds what is called with values.

    Args:
        evaluator: The one that evaluates everything else.
    """

    def __init__(self, evaluator: Any) -> None:
        self.others = evaluator

    def __getattr__(self, name: str) -> Any:
        theirs = getattr(self.others, name)
        return self._eval if name == "eval" else theirs

    def eval_function(self, function: Any, args: Sequence[Any], kwargs: Mapping[str, Any]) -> Any:
        """Call a function of onnxscript."""
        if not _any_value(args, kwargs):
            return self.others.eval_function(function, args, kwargs)
        return _build(function, args, kwargs)

    def eval_op(self, op: Any, args: Sequence[Any], kwargs: Mapping[str, Any]) -> Any:
        """Call an operator by onnxscript's name for it: `opset17.Exp(x)`."""
        if not _any_value(args, kwargs):
            return self.others.eval_op(op, args, kwargs)
        return _emit(op.opset.domain, op.name, args, kwargs)

    def _eval(self, schema: Any, args: Sequence[Any], kwargs: Mapping[str, Any]) -> Any:
        """As `eval_op`, before onnxscript 0.6."""
        if not _any_value(args, kwargs):
            return self.others.eval(schema, args, kwargs)
        return _emit(schema.domain, schema.name, args, kwargs)


@contextmanager
def lend() -> Iterator[None]:
    """Let onnxscript's functions build on the model that is open here, if it is imported."""
    global _open
    if "onnxscript" not in sys.modules:
        yield
        return
    theirs = import_module("onnxscript.evaluator")
    with _lock:
        _open += 1
        if not isinstance(theirs.default(), _Evaluator):
            theirs.set_default(_Evaluator(theirs.default()))
    try:
        yield
    finally:
        with _lock:
            _open -= 1
            found = theirs.default()
            if not _open and isinstance(found, _Evaluator):
                theirs.set_default(found.others)


def _any_value(args: Sequence[Any], kwargs: Mapping[str, Any]) -> bool:
    return any(isinstance(x, Name) for x in (*args, *kwargs.values()))


def _emit(domain: str, name: str, args: Sequence[Any], kwargs: Mapping[str, Any]) -> Any:
    emit = import_module("blockdsl.graph.op").emit
    current = import_module("blockdsl.graph.context").current
    outputs = kwargs.get("num_outputs") if name == "Split" else None
    return emit(current(), domain, name, args, kwargs, outputs)


def _build(function: Any, args: Sequence[Any], kwargs: Mapping[str, Any]) -> Any:
    """Append a call of a function, which is added to the model."""
    protos = protos_of(function)
    formals = {*protos[0].input}
    try:
        bound = inspect.signature(function.function).bind(*args, **kwargs)
    except TypeError as error:
        raise OpError(f"{function.name}: {error}.") from error
    bound.apply_defaults()
    inputs = [bound.arguments.get(name) for name in protos[0].input]
    attributes = {
        name: value
        for name, value in bound.arguments.items()
        if name not in formals and value is not None
    }
    return import_module("blockdsl.graph.calls").call(protos, inputs, attributes)


def protos_of(function: Any) -> list[FunctionProto]:
    """A function of onnxscript, and those that it calls, as `FunctionProto`s."""
    inner = function.function_ir
    if hasattr(inner, "get_called_functions"):
        called = [f.to_function_proto() for f in inner.get_called_functions().values()]
    else:  # before onnxscript 0.6
        called = list(inner.called_functions.values())
    return [function.to_function_proto(), *called]
