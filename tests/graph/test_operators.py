"""Operators and methods of values, and NumPy's functions on them, against NumPy."""

import inspect
import math
import operator

import numpy as np
import pytest

import blockdsl
from blockdsl.errors import GraphError
from blockdsl.graph import Value, current, op
from blockdsl.graph.control import either
from blockdsl.graph.name import OF_STRINGS, REFUSED
from blockdsl.testing import check_gradients
from tests.engines import run
from tests.runs import forward

A = np.array([[-3.5, 2.25, 0.5], [7.0, -0.75, 3.0]])
B = np.array([[2.0, -1.5, 0.25], [-3.0, 2.0, 1.5]])
M = np.array([[-7, 7, 6], [1, -8, 5]])
N = np.array([[3, -3, -2], [4, 3, -5]])

# Most of these were refused, with a message about strings, or worked on the name.
FLOATS = {
    "%": lambda a, b: a % b,
    "% number": lambda a, b: a % 2,
    "% negative number": lambda a, b: a % -1.5,
    "number %": lambda a, b: 5 % b,
    "array %": lambda a, b: A % b,
    "//": lambda a, b: a // b,
    "// number": lambda a, b: a // 0.5,
    "number //": lambda a, b: 5 // b,
    "divmod": lambda a, b: divmod(a, b)[0] + divmod(a, b)[1],
    "divmod number": lambda a, b: sum(divmod(a, 2)) + sum(divmod(2, b)),
    "+x": lambda a, b: +a,
    "abs": lambda a, b: abs(a),
    "round": lambda a, b: np.round(a) if isinstance(a, np.ndarray) else round(a),
    "round to digits": lambda a, b: np.round(a, 1) if isinstance(a, np.ndarray) else round(a, 1),
    "floor": lambda a, b: np.floor(a) if isinstance(a, np.ndarray) else math.floor(a),
    "ceil": lambda a, b: np.ceil(a) if isinstance(a, np.ndarray) else math.ceil(a),
    "sum": lambda a, b: sum([a, b]),
    "power": lambda a, b: abs(a) ** b + 2**b + a**2,
    "np.exp": lambda a, b: np.exp(a),
    "np.log": lambda a, b: np.log(np.abs(a)),
    "np.sqrt": lambda a, b: np.sqrt(np.square(a)),
    "np.tanh": lambda a, b: np.tanh(a) + np.sin(a) + np.cos(b),
    "np.maximum": lambda a, b: np.maximum(a, b) - np.minimum(a, 0),
    "np.sign": lambda a, b: np.sign(a),
    "np.add": lambda a, b: np.add(a, b) - np.subtract(a, 1) * np.multiply(2, b),
    "np.divide": lambda a, b: np.divide(a, b) + np.reciprocal(b),
    "np.mod": lambda a, b: np.mod(a, b) + np.fmod(a, b) + np.floor_divide(a, b),
    "np.power": lambda a, b: np.power(np.abs(a), b),
    "np.negative": lambda a, b: np.negative(a) + np.positive(b),
    "np.matmul": lambda a, b: np.matmul(a, np.transpose(b)),
    "np.where": lambda a, b: np.where(np.greater(a, b), a, b),
    "np.mean": lambda a, b: np.mean(a) + np.mean(a, axis=1, keepdims=True),
    "np.sum": lambda a, b: np.sum(a, 0) + np.max(a) - np.min(b, axis=0),
    "np.clip": lambda a, b: np.clip(a, -1, 1),
    "np.concatenate": lambda a, b: np.concatenate([a, b], axis=1),
    "np.stack": lambda a, b: np.stack([a, b], axis=1),
    "np.reshape": lambda a, b: np.reshape(a, (3, 2)),
    "np.expand_dims": lambda a, b: np.squeeze(np.expand_dims(a, 1), axis=1),
    "np.shape": lambda a, b: a * np.shape(a)[1] + np.ndim(a),
    "array on the left": lambda a, b: A + b - A * b + A / b,
    "array compared": lambda a, b: np.where(b > A, 1.0, 0.0) * a + np.where(b <= A, 2.0, 3.0),
    "scalar on the left": lambda a, b: np.float64(2) * a + np.float64(3) - b,
    "array +=": lambda a, b: operator.iadd(np.zeros((2, 3)), a),
    "len": lambda a, b: a.sum() / len(a),
    "reflected and": lambda a, b: np.where(np.array([True, False, True]) & (a > 0), a, b),
    "xor": lambda a, b: np.where((a > 0) ^ (b > 0), a, b),
    "computed bounds": lambda a, b: (
        a[:, 1:2] if isinstance(a, np.ndarray) else a[:, op.Size(a) // 6 : op.Size(a) // 3]
    ),
    "list as index": lambda a, b: a[:, [2, 0]],
    "index array": lambda a, b: a[np.array([[0, 1], [1, 0]])],
}
INTEGERS = {
    "%": lambda m, n: m % n,
    "% number": lambda m, n: m % 3 + m % -3,
    "//": lambda m, n: m // n,
    "// number": lambda m, n: m // 2 + m // -2,
    "number //": lambda m, n: 7 // n + 7 % n,
    "divmod": lambda m, n: divmod(m, n)[0] * n + divmod(m, n)[1],
    "round": lambda m, n: m if isinstance(m, np.ndarray) else round(m),
    "power": lambda m, n: m**2,
    "float base": lambda m, n: (
        np.float32(2.5) ** np.abs(n) if isinstance(m, np.ndarray) else 2.5 ** abs(n)
    ),
    "bits": lambda m, n: (m & n) + (m | 3) - (m ^ n) + ~m,
    "np.mod": lambda m, n: np.mod(m, n) + np.floor_divide(m, n),
}


def compare(build, arrays, opset, dtype):
    arrays = [a.astype(dtype) for a in arrays]
    expected = np.asarray(build(*arrays))
    model = forward(build, *(a.shape for a in arrays), dtype=arrays[0].dtype, opset=opset)
    found = run(model, dict(zip(["x", "x1"], arrays, strict=True)))[0]
    np.testing.assert_allclose(found, expected, rtol=1e-5, atol=1e-6)
    assert found.shape == expected.shape


@pytest.mark.parametrize("opset", [13, 17])
@pytest.mark.parametrize("build", FLOATS.values(), ids=FLOATS)
def test_floats(build, opset):
    compare(build, (A, B), opset, np.float32)


@pytest.mark.parametrize("name", ["%", "% negative number", "number %", "//", "number //"])
def test_remainders_in_old_opsets(name):
    compare(FLOATS[name], (A, B), 9, np.float32)


@pytest.mark.parametrize("build", INTEGERS.values(), ids=INTEGERS)
def test_integers(build):
    compare(build, (M, N), 18, np.int64)


@pytest.mark.parametrize("name", ["%", "% number", "//", "number //", "divmod"])
def test_integers_in_older_opsets(name):
    compare(INTEGERS[name], (M, N), 13, np.int32)


@pytest.mark.parametrize("name", ["%", "number %", "np.exp", "np.where", "np.mean", "np.stack"])
def test_gradients_of_operators(name):
    model = forward(FLOATS[name], (2, 3), (2, 3), dtype=np.float64)
    reads = {n for node in model.graph.node for n in node.input}
    wrt = [i.name for i in model.graph.input if i.name in reads]
    check_gradients(model, {"x": A + 0.1, "x1": B + 0.03}, wrt=wrt)  # beside the jumps


# -- where they build ------------------------------------------------------------------------------

CALLS = {
    "cast": (np.float64,),
    "clip": (0.0, 1.0),
    "equal": (1.0,),
    "reshape": (-1,),
    "squeeze": (1,),
    "unsqueeze": (0,),
    "__abs__": (),
    "__add__": (1,),
    "__array_function__": (np.mean, (), [None], {}),
    "__array_ufunc__": (np.exp, "__call__", None),
    "__ceil__": (),
    "__divmod__": (2,),
    "__floor__": (),
    "__floordiv__": (2,),
    "__ge__": (1,),
    "__getitem__": (0,),
    "__gt__": (1,),
    "__le__": (1,),
    "__lt__": (1,),
    "__matmul__": (np.ones((1, 2)),),
    "__mod__": (2,),
    "__mul__": (2,),
    "__neg__": (),
    "__pow__": (2,),
    "__radd__": (1,),
    "__rdivmod__": (2,),
    "__rfloordiv__": (2,),
    "__rmatmul__": (np.ones((2, 3)),),
    "__rmod__": (2,),
    "__rmul__": (2,),
    "__round__": (),
    "__rpow__": (2,),
    "__rsub__": (1,),
    "__rtruediv__": (1,),
    "__sub__": (1,),
    "__truediv__": (2,),
}
"""Arguments of methods, where they need any; None stands for the value."""

LOGICAL = ["__and__", "__invert__", "__or__", "__rand__", "__ror__", "__rxor__", "__xor__"]
BUILD_NOTHING = ["__init__", "__len__", "__new__", "__pos__"]


def methods():
    """The methods of `Value` that append nodes."""
    own = [name for name, member in vars(Value).items() if inspect.isfunction(member)]
    public = [n for n in own if not n.startswith("_") or n.startswith("__")]
    return sorted(set(public) - set(BUILD_NOTHING) - set(OF_STRINGS) - REFUSED)


@pytest.mark.parametrize("name", methods())
def test_methods_build_in_the_graph_that_is_open(name):
    """In a branch they built in the graph around it, so that both branches were computed."""
    with blockdsl.empty_base() as handle:
        x = blockdsl.input("x", shape=(3, 1))
        condition = x.sum() > 0
        truth = x > 0
        before = len(handle.model.graph.node)

        def then():
            value = truth if name in LOGICAL else x
            given = CALLS.get(name, () if name not in LOGICAL or name == "__invert__" else (truth,))
            arguments = [
                value if a is None else [value] if isinstance(a, list) else a for a in given
            ]
            getattr(value, name)(*arguments)
            assert current().proto.graph.node
            return x

        either(condition, then, lambda: x)
        assert len(handle.model.graph.node) == before + 1


def test_blocks_losses_and_operators_build_in_the_graph_that_is_open():
    from blockdsl.graph import arithmetic, portable, shapes, slicing

    calls = [
        lambda x: portable.where(x > 0, x, 0),
        lambda x: portable.equal(x, 1),
        lambda x: portable.sign(x),
        lambda x: shapes.shape_of(x),
        lambda x: shapes.size_of(x) * x,
        lambda x: shapes.share_of(x) * x,
        lambda x: shapes.dims_of(x, [0]),
        lambda x: shapes.expand_like(x.sum(), x),
        lambda x: shapes.full_like(x, 2.0),
        lambda x: shapes.sum_to(x, x[0]),
        lambda x: shapes.reshape_like(x, x.tanh()),
        lambda x: shapes.normalised_along("Softmax", x, 0),
        lambda x: slicing.take(x, 0),
        lambda x: arithmetic.floor_divide(x, 2),
        lambda x: arithmetic.rounded(x),
        lambda x: op.Exp(x),
        lambda x: blockdsl.loss.MSELoss()(x),
        lambda x: blockdsl.loss.BCEWithLogitsLoss()(x),
        lambda x: blockdsl.blocks.Add()(x, x),
        lambda x: blockdsl.gradients(x.tanh().sum(), x),
    ]
    for call in calls:
        with blockdsl.empty_base() as handle:
            x = blockdsl.input("x", shape=("n", "m"))
            condition = x.sum() > 0
            before = len(handle.model.graph.node), len(handle.model.graph.initializer)

            def then(call=call, x=x):
                call(x)
                return x

            either(condition, then, lambda x=x: x)
            after = len(handle.model.graph.node), len(handle.model.graph.initializer)
            assert after == (before[0] + 1, before[1])


def test_a_value_of_an_earlier_build_is_refused_by_every_method():
    with blockdsl.empty_base():
        old = blockdsl.input("x", shape=(3,)).exp()
    with blockdsl.empty_base():
        blockdsl.input("x", shape=(3,)).exp()
        for use in (lambda: old + 1, lambda: old.sum(), lambda: old[0], lambda: old % 2):
            with pytest.raises(GraphError, match="a tensor of another model"):
                use()
