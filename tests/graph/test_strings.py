# ruff: noqa: UP031, UP032
"""The strings that tensors are: each attribute of `str` works on the name, or is refused."""

import copy
import json
import math
import pickle
import re

import numpy as np
import pytest
from onnx import helper

import blockdsl
from blockdsl.errors import NameComparisonError, OpError
from blockdsl.graph import Value, current, op
from blockdsl.graph.name import OF_STRINGS, REFUSED


@pytest.fixture
def x():
    with blockdsl.empty_base():
        yield blockdsl.input("x/in", shape=("n", 4))


@pytest.fixture
def y(x):
    return blockdsl.input("y", shape=("n", 4))


# -- names in, names out ---------------------------------------------------------------------------

WORKS = {
    "startswith": lambda x: x.startswith("x/") and not x.startswith(("a", "b")),
    "endswith": lambda x: x.endswith("in"),
    "split": lambda x: x.split("/") == ["x", "in"] and x.split("/", 1) == ["x", "in"],
    "rsplit": lambda x: x.rsplit("/", maxsplit=1) == ["x", "in"],
    "partition": lambda x: x.partition("/") == ("x", "/", "in"),
    "rpartition": lambda x: x.rpartition("/")[2] == "in",
    "replace": lambda x: x.replace("/", "_") == "x_in",
    "removeprefix": lambda x: x.removeprefix("x/") == "in",
    "removesuffix": lambda x: x.removesuffix("in") == "x/",
    "strip": lambda x: x.strip("x") == "/in",
    "lstrip": lambda x: x.lstrip("x") == "/in",
    "rstrip": lambda x: x.rstrip("n") == "x/i",
    "find": lambda x: x.find("/") == 1,
    "rfind": lambda x: x.rfind("/") == 1,
    "index": lambda x: x.index("/") == 1,
    "rindex": lambda x: x.rindex("/") == 1,
    "count": lambda x: x.count("/") == 1,
    "encode": lambda x: x.encode() == b"x/in" and x.encode("utf-8") == b"x/in",
}
NAMES = {
    **WORKS,
    "f-string": lambda x: f"{x}_grad {x:>6} {x!r}" == "x/in_grad   x/in 'x/in'",
    "percent": lambda x: "%s_%s" % (x, x) == "x/in_x/in" and "%s_grad" % x == "x/in_grad",
    "format": lambda x: "{}_grad".format(x) == "x/in_grad",
    "join": lambda x: "_".join([x, x]) == "x/in_x/in",
    "suffix": lambda x: x + "_grad" == "x/in_grad" and x + ".0" == "x/in.0" and x + "" == "x/in",
    "prefix": lambda x: "grad_of_" + x == "grad_of_x/in" and "1" + x == "1x/in",
    "substring": lambda x: "/in" in x and "out" not in x,
    "dictionary": lambda x: {x: 1}["x/in"] == {"x/in": 1}[x] == 1,
    "set": lambda x: {x} == {"x/in"} and x in {"x/in"} and "x/in" in {x},
    "list": lambda x: x in ["a", "x/in"] and ["a", x].index("x/in") == 1,
    "equal": lambda x: x == "x/in" and x == "x/in" and x != "a" and x != "a",
    "no string": lambda x: x != None and not bool(x == None) and x != object(),  # noqa: E711
    "filter": lambda x: [n for n in ("x/in", "a") if n == x] == ["x/in"],
    "any": lambda x: any(n == x for n in ("a", "x/in")),
    "hash": lambda x: hash(x) == hash("x/in"),
    "json": lambda x: json.dumps({x: [x]}) == '{"x/in": ["x/in"]}',
    "regular expression": lambda x: re.sub(r"\W", "_", x) == "x_in",
    "sorted by name": lambda x: sorted([x, "a"], key=str) == ["a", "x/in"],
    "node": lambda x: helper.make_node("Neg", [x], [f"{x}_y"]).input[0] == x,
    "pickle": lambda x: type(pickle.loads(pickle.dumps(x))) is str,
    "copy": lambda x: copy.copy(x) is x and copy.deepcopy({"a": [x]})["a"][0] is x,
    "str": lambda x: type(str(x)) is str and len(str(x)) == 4,
    "remove": lambda x: (names := ["a", x, "b"]).remove("x/in") or names == ["a", "b"],
}


@pytest.mark.parametrize("holds", NAMES.values(), ids=NAMES)
def test_a_value_is_its_name(x, holds):
    assert holds(x)
    assert not current().proto.graph.node


def test_every_method_of_strings_works_on_the_name_or_is_refused():
    public = {name for name in dir(str) if not name.startswith("_")} - {"maketrans"}
    assert public == OF_STRINGS.keys() | REFUSED
    assert set(WORKS) == OF_STRINGS.keys()


# Each of these worked on the characters of the name.
REFUSALS = {
    "split": (lambda x: x.split(3), r"op.Split\(x, axis=0, num_outputs=n, outputs=n\)"),
    "split at nothing": (lambda x: x.split(), r"op.Split"),
    "replace": (lambda x: x.replace(0, 1), r"op.Where\(x.equal\(old\), new, x\)"),
    "replace by a tensor": (lambda x: x.replace(x, x), r"op.Where\(x.equal\(old\), new, x\)"),
    "count": (lambda x: x.count(0), r"x.equal\(value\).cast\(np.int64\).sum\(\)"),
    "index": (lambda x: x.index(1), r"op.NonZero\(x.equal\(value\)\), or op.ArgMax"),
    "find": (lambda x: x.find(x), r"op.NonZero"),
    "strip": (lambda x: x.strip(), r"str\(x\).strip"),
    "startswith": (lambda x: x.startswith(1), r"str\(x\).startswith"),
    "float": (lambda x: float(x), r"x.cast\(np.float32\); math.exp\(x\) is x.exp\(\)"),
    "int": (lambda x: int(x), r"x.cast\(np.int64\)"),
    "math": (lambda x: math.exp(x), r"math.exp\(x\) is x.exp\(\)"),
    "trunc": (lambda x: math.trunc(x), r"x.cast\(np.int64\)"),
    "range": (lambda x: range(x), r"x.shape for a size"),
    "element of a list": (lambda x: [1, 2][x], r"op.Gather"),
    "format of a number": (lambda x: f"{x:.2f}", r"print what the model returns"),
    "percent of a number": (lambda x: "%.2f" % x, r"must be real number|elements are not known"),
    "len": (lambda x: x.sum() / len(x), r"op.Shape\(x\)\[0\], or x.mean\(\) for x.sum\(\) / len"),
    "len of a number": (lambda x: len(x.sum()), r"op.Shape\(x\)\[0\]"),
    "iterate": (lambda x: list(x), r"cannot be iterated over or unpacked"),
    "unpack": (lambda x: (lambda a, b: a)(*x), r"cannot be iterated over or unpacked"),
    "join": (lambda x: ",".join(x), r"iter"),
    "reversed": (lambda x: reversed(x), r"x\[::-1\]"),
    "in": (lambda x: x in x, r"`in` compares names"),
    "number in": (lambda x: 0 in x, r"x.equal\(y\)"),
    "bool": (lambda x: bool(x), r"op.Where\(condition, a, b\)"),
    "if": (lambda x: 1 if x else 2, r"is true is not known while the model is built"),
    "and": (lambda x: x and x, r"& and \| and ~ for `and`"),
    "or": (lambda x: x or 0, r"`x is None`"),
    "not": (lambda x: not x, r"~ for"),
    "between": (lambda x: 0 < x < 1, r"\(a < x\) & \(x < b\) for a < x < b"),
    "sorted": (lambda x: sorted([x, x]), r"sort names with key=str"),
    "max": (lambda x: max(x, x), r"the larger of two tensors is op.Max"),
    "min": (lambda x: min(x, 0), r"op.Min"),
    "assert": (lambda x: any([x]), r"is true is not known"),
    "set an element": (lambda x: x.__setitem__(0, 1), r"op.ScatterND"),
    "delete an element": (lambda x: x.__delitem__(0), r"x\[1:\]"),
    "text that is no tensor": (lambda x: x + "taget", r"no tensor 'taget' to add.*f-string"),
    "text on the left": (lambda x: "taget" + x, r"no tensor 'taget' to add.*f-string"),
    "== number": (lambda x: x == 0, r"x.equal\(0\)"),
    "== list": (lambda x: x == [1, 2], r"x.equal\(\[1, 2\]\)"),
    "!= array": (lambda x: x != np.ones(2), r"~x.equal"),
    "array ==": (lambda x: np.ones(2) == x, r"x.equal"),
    "number !=": (lambda x: np.float32(1) != x, r"x.equal"),
    "truth values as index": (lambda x: x[x > 0], r"op.Compress\(x, condition, axis=0\)"),
    "a truth value as index": (lambda x: x[True], r"truth values"),
    "list of truth values": (lambda x: x[[True, False]], r"truth values"),
    "floats as index": (lambda x: x[np.array([1.5])], r"cannot be indexed"),
    "text as index": (lambda x: x["a"], r"cannot be indexed"),
    "pairs of indices": (lambda x: x[[0, 1], [0, 1]], r"op.GatherND\(x, indices\) for pairs"),
    "step of a slice": (lambda x: x[:: x[0]], r"its step is an integer"),
    "bound of a slice": (lambda x: x[:1.5], r"the bounds of a slice are integers"),
    "power of integers": (lambda x: x.cast(np.int64) ** 0.5, r"x.cast\(np.float32\) \*\* 0.5"),
    "negative power": (lambda x: x.cast(np.int64) ** -1, r"x.cast\(np.float32\) \*\* -1"),
    "quotient of integers": (lambda x: x.cast(np.int64) / 2, r"x // y for that, or x.cast"),
    "reciprocal of integers": (lambda x: 1 / x.cast(np.int64), r"x // y for that, or x.cast"),
    "mean of integers": (lambda x: x.cast(np.int64).mean(), r"x.cast\(np.float32\).mean\(\)"),
    "number out of range": (lambda x: x.cast(np.uint8) + 300, r"300 meets tensors of uint8"),
    "negative unsigned": (lambda x: x.cast(np.uint8) * -1, r"-1 meets tensors of uint8"),
    "bits of floats": (lambda x: x & True, r"take truth values, such as x > 0"),
    "not of floats": (lambda x: ~x, r"take truth values, such as x > 0"),
    "np.linalg": (lambda x: np.linalg.norm(x), r"np.norm takes no tensors"),
    "np.log1p": (lambda x: np.log1p(x), r"np.log1p is no operator of ONNX"),
    "np.add.reduce": (lambda x: np.add.reduce(x), r"np.add takes no reduce"),
    "np.exp into": (lambda x: np.exp(x, out=np.ones(3)), r"np.exp takes no out"),
    "np.mean into": (lambda x: np.mean(x, dtype=int), r"np.mean on tensors of a model takes"),
    "list of tensors": (lambda x: op.Concat([x, x], axis=0), r"op.Concat\(a, b, axis=0\)"),
    "array of tensors": (lambda x: op.Identity(np.array([x, x])), r"is a list of tensors"),
    "list in a product": (lambda x: x * [x], r"is a list of tensors"),
    "np.float32": (lambda x: np.float32(x), r"elements are not known"),
}


@pytest.mark.parametrize(("use", "message"), REFUSALS.values(), ids=REFUSALS)
def test_what_a_tensor_cannot_do_names_what_it_can(x, use, message):
    with pytest.raises((OpError, TypeError), match=message):
        use(x)


@pytest.mark.parametrize("name", sorted(REFUSED))
def test_other_methods_of_strings_are_refused(x, name):
    with pytest.raises(OpError, match=rf"{name} is a method of strings.*str\(x\)\.{name}\("):
        getattr(x, name)()


def test_size_of_a_static_axis(x):
    assert len(x[0]) == 4


# -- comparisons of names --------------------------------------------------------------------------

# They were Python's False: `op.Where(x == y, a, b)` was b, and `(x == y) * x` zeros.
OPERANDS = {
    "condition": lambda c, x: op.Where(c, x, x),
    "condition by name": lambda c, x: op.Where(condition=c, X=x, Y=x),
    "first input": lambda c, x: op.Not(c),
    "attribute": lambda c, x: op.ReduceSum(x, keepdims=c),
    "product": lambda c, x: c * x,
    "product on the right": lambda c, x: x * c,
    "product with a number": lambda c, x: c * 2.0,
    "sum": lambda c, x: 1 - c,
    "and": lambda c, x: c & (x > 0),
    "and on the right": lambda c, x: (x > 0) & c,
    "or of two": lambda c, x: c | c,
    "invert": lambda c, x: ~c,
    "negative": lambda c, x: -c,
    "less": lambda c, x: c < x,
    "index": lambda c, x: x[c],
    "method": lambda c, x: c.cast(np.float32),
    "sum method": lambda c, x: c.sum(),
    "array": lambda c, x: np.array([c, c]) * x,
    "np.where": lambda c, x: np.where(c, x, x),
    "np.multiply": lambda c, x: np.multiply(c, x),
    "int": lambda c, x: int(c),
    "float": lambda c, x: float(c),
    "clip": lambda c, x: x.clip(c, c),
    "exponent": lambda c, x: x**c,
    "portable": lambda c, x: blockdsl.graph.portable.where(c, x, 0),
}


@pytest.mark.parametrize("use", OPERANDS.values(), ids=OPERANDS)
@pytest.mark.parametrize("name", ["y", "x/in"])
def test_a_comparison_of_names_is_no_operand(x, y, use, name):
    other = current().value(name)
    for comparison, spelling in ((x == other, r"x\.equal"), (x != other, r"~x\.equal")):
        with pytest.raises(NameComparisonError, match=rf"compares the names.*write {spelling}"):
            use(comparison, x)


def test_comparisons_of_names(x, y):
    again = current().value("x/in")
    assert x == again
    assert x != y
    assert bool(x == y) is False
    assert bool(x != again) is False
    assert (x == again) == True  # noqa: E712
    assert repr(x == y) == "False"
    assert [x, y].index(y) == 1
    assert {x: 1, y: 2}[again] == 1
    assert isinstance(x, Value)
    assert ((x == "x/in") is True) & ((x == "y") is False)


def test_the_operator_that_was_meant(x, y):
    assert op.Where(x.equal(y), x, y).shape == ("n", 4)
    assert (~x.equal(y)).dtype == bool
