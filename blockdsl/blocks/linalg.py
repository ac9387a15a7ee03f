"""Matrix products and the linear layer."""

from __future__ import annotations

from dataclasses import KW_ONLY, dataclass, fields

from blockdsl.blocks.block import Block
from blockdsl.blocks.operator import Binary, value_of
from blockdsl.blocks.parameters import Init, Seed, bound, check_size, float_type, uniform
from blockdsl.graph.op import op
from blockdsl.graph.value import Operand, Value


class MatMul(Binary):
    """`a @ b`: matrix products over the last two axes, the others broadcast."""

    operator = op.MatMul


@dataclass(eq=False)
class Gemm(Block):
    """`alpha a' b' + beta c` for matrices, transposed or not.

    Args:
        alpha: The factor of the product.
        beta: The factor of what is added.
        transA: Transpose the first matrix.
        transB: Transpose the second one.

    Example:
        >>> import blockdsl
        >>> with blockdsl.empty_base():
        ...     a = blockdsl.input("a", shape=("batch", 3))
        ...     b = blockdsl.input("b", shape=(5, 3))
        ...     print(Gemm(transB=True)(a, b).type)
        float32[batch, 5]
    """

    alpha: float = 1.0
    beta: float = 1.0
    transA: bool = False  # noqa: N815  the operator's name
    transB: bool = False  # noqa: N815

    def build(self, a: str, b: str, c: Operand = None) -> Value:
        """Multiply and add.

        Args:
            a: The first matrix.
            b: The second one.
            c: What is added, broadcast to the product; None for nothing.

        Returns:
            The result.
        """
        settings = {f.name: getattr(self, f.name) for f in fields(self)}
        product: Value = op.Gemm(value_of(a), b, c, **settings)
        return product


@dataclass(eq=False)
class Linear(Block):
    """`alpha x @ weight + beta bias`, over the last axis.

    It owns the parameters `weight` (in_features x out_features) and `bias`, of the type of the
    input. Both are drawn uniformly: the bias within `1 / sqrt(in_features)`, the weight within the
    bound that `init` gives.

    Args:
        in_features: The size of the last axis of the input.
        out_features: The size of the last axis of the result.
        bias: Whether to add a bias.
        alpha: The factor of the product.
        beta: The factor of the bias.
        init: "kaiming" for `1 / sqrt(in_features)`, PyTorch's default; "xavier" for
            `sqrt(6 / (in_features + out_features))`.
        seed: A number, which is mixed with the name of each parameter, so that layers differ and
            every build gives the same values; or a generator to draw from.

    Example:
        >>> import blockdsl
        >>> with blockdsl.empty_base() as handle:
        ...     y = Linear(3, 2)(blockdsl.input("x", shape=("batch", 3)))
        >>> print(y, y.type, [t.name for t in handle.model.graph.initializer])
        Linear/Gemm float32[batch, 2] ['Linear.weight', 'Linear.bias']
    """

    in_features: int
    out_features: int
    bias: bool = True
    alpha: float = 1.0
    beta: float = 1.0
    _: KW_ONLY
    init: Init = "kaiming"
    seed: Seed = 0

    def build(self, linear_input_name: str) -> Value:
        """Apply the layer.

        Args:
            linear_input_name: A tensor whose last axis has `in_features` elements.

        Returns:
            The result.
        """
        x = value_of(linear_input_name)
        check_size(x, -1, self.in_features, self)
        dtype, limit = float_type(x, self), bound("kaiming", self.in_features, self.out_features)
        spread = bound(self.init, self.in_features, self.out_features)
        shape = (self.in_features, self.out_features)
        weight = uniform("weight", self.seed, dtype, spread, shape)
        bias = uniform("bias", self.seed, dtype, limit, shape[1:]) if self.bias else None
        if x.rank == 2 and bias is not None:
            y: Value = op.Gemm(x, weight, bias, alpha=self.alpha, beta=self.beta)
            return y
        y = _scaled(x @ weight, self.alpha)
        return y if bias is None else y + _scaled(bias, self.beta)


def _scaled(x: Value, factor: float) -> Value:
    return x if factor == 1 else x * factor
