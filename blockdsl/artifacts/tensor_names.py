"""Names of tensors that exporters make up."""

from __future__ import annotations

import re

_ANONYMOUS = re.compile(
    r"(.*/)?(onnx::\w+|\d+|val_\d+|_?(lifted_)?tensor(_constant)?_?\d*|const(ant)?([_./]*\d+)*"
    r"|const_fold_opt__\d+|const__\d+)(_output_\d+)?(:\d+)?"
    r"|.*constant.*|.+_output_\d+|.+\.constant\.\d+"
    r"|\w+_default(_\d+)?|(scalar_tensor|lift_fresh_copy|convert_element_type|_to_copy)\w*"
    r"|(add|alias|arange|cat|clamp|clamp_max|clamp_min|clone|concat|cos|cumsum|detach|div|embedding"
    r"|exp|expand|eye|flip|full|full_like|getitem|index|linspace|log|masked_fill|matmul|mm|mul|neg"
    r"|ones|ones_like|pad|permute|pow|repeat|reshape|roll|rsqrt|rsub|select|sigmoid|sin|slice"
    r"|softmax|softplus|split|sqrt|stack|sub|sum|tanh|tile|transpose|tril|triu|unbind|unsqueeze"
    r"|view|where|zeros|zeros_like)(_\d+)?",
    re.IGNORECASE,
)
"""How exporters name constants, and what they folded: `val_3`, `/encoder/Constant_output_0`,
`onnx::Mul_12`, `unsqueeze_14`; our blocks `constant/float32/[0.5,2.0]`."""


def is_anonymous(name: str) -> bool:
    """Return whether an exporter, and no module, gave a tensor its name.

    Example:
        >>> is_anonymous("val_3"), is_anonymous("onnx::MatMul_12"), is_anonymous("head.weight")
        (True, True, False)
    """
    return _ANONYMOUS.fullmatch(name) is not None
