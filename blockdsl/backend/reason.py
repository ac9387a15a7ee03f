"""What an exception of the runtime says, without the C++ around it."""

from __future__ import annotations

import re

_MARKS = (r"Status Message: ", r"\[ONNXRuntimeError\] : \d+ : [A-Z_]+ : ", r"was false\. ")
"""What stands before the text itself."""
_PLACE = r"^/?\S+\.(cc|h):\d+ ([^()]*\([^()]*\)( const)?( \[with [^\]]*\])? )?"
"""A source file and line, and the signature of the function there."""


def reason(error: Exception) -> str:
    """What an exception of the runtime says, without source files and function signatures.

    Example:
        >>> reason(RuntimeError("/src/x.cc:12 void f(int) [ONNXRuntimeError] : 1 : FAIL : No."))
        'No.'
        >>> text = "code returned while running Gather node. Name:'g' Status Message: idx=9"
        >>> reason(RuntimeError(text))
        "Gather (node 'g'): idx=9"
    """
    text = " ".join(str(error).split())
    node = re.search(r"while running (\w+) node\. Name:'([^']*)'", text)
    for mark in _MARKS:
        text = re.split(mark, text)[-1]
    text = re.sub(_PLACE, "", text) or type(error).__name__
    if node is None:
        return text
    return f"{node[1]} (node {node[2]!r}): {text}" if node[2] else f"{node[1]}: {text}"
