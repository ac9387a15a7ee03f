"""Branches, loops and sequences, whose bodies are models of their own."""

import numpy as np
import pytest
from onnx import TensorProto, parser

import blockdsl
from blockdsl.errors import GradientError, OpError
from blockdsl.gradient import build_gradients
from blockdsl.graph import Graph
from blockdsl.testing import check_gradients, evaluate, in_precision
from tests.engines import run
from tests.gradient_models import check_parity, in_type_of, with_gradients
from tests.programs import F, Program

pytestmark = pytest.mark.filterwarnings("ignore:.*does not influence")

IF = [
    Program(
        f"either branch, {condition}",
        f"(bool c, {F} x, float[3] w) => ({F} y)",
        f"""
        y = If (c) <
          then_branch = a () => ({F} p) {{ q = Mul (x, w)  p = Tanh (q) }},
          else_branch = b () => ({F} r) {{ s = Add (x, w)  r = Mul (s, x) }}
        >""",
        c=np.array(condition),
    )
    for condition in (True, False)
] + [
    Program(
        "a branch that hands on a tensor from outside, and two outputs",
        f"(bool c, {F} x, float[3] w) => ({F} y, {F} z)",
        f"""
        u = Exp (x)
        y, z = If (c) <
          then_branch = a () => ({F} p, {F} q) {{ p = Identity (u)  q = Mul (u, w) }},
          else_branch = b () => ({F} r, {F} s) {{ r = Mul (x, x)  s = Sin (x) }}
        >""",
        of=["y", "z"],
        c=np.array(True),
    ),
    Program(
        "a condition that is computed",
        f"({F} x) => ({F} y)",
        f"""
        zero = Constant <value = float {{0}}> ()
        total = ReduceSum <keepdims = 0> (x)
        c = Greater (total, zero)
        y = If (c) <
          then_branch = a () => ({F} p) {{ p = Mul (x, total) }},
          else_branch = b () => ({F} r) {{ r = Div (x, total) }}
        >""",
    ),
    Program(
        "integers beside floats, and a weight inside a branch",
        f"(bool c, {F} x) => ({F} y, int64 n)",
        f"""
        y, n = If (c) <
          then_branch = a () => ({F} p, int64 m)
            <float[3] w = {{0.5, -1, 2}}>
            {{ p = Mul (x, w)  m = Constant <value = int64 {{1}}> () }},
          else_branch = b () => ({F} r, int64 k)
            {{ r = Neg (x)  k = Constant <value = int64 {{2}}> () }}
        >""",
        c=np.array(True),
    ),
    Program(
        "a condition that is known, and a branch of another rank that cannot be",
        f"({F} x) => (float[6] y)",
        f"""
        size = Size (x)
        six = Constant <value = int64 {{6}}> ()
        c = Equal (size, six)
        p, q, n = If (c) <
          then_branch = a () => ({F} e, {F} x, int64 m) <int64 m = {{1}}> {{ e = Exp (x) }},
          else_branch = b () => (float[6] r, float[6] r, int64 k)
            <int64[1] flat = {{-1}}>
            {{ r = Reshape (x, flat)  k = Constant <value = int64 {{0}}> () }}
        >
        wrongly = If (c) <
          then_branch = d () => (float[6] s) {{ s = Mul (p, q) }},
          else_branch = f () => (float[6] t) {{ t = Identity (q) }}
        >
        w = Constant <value = float[3] {{1, 2, 3}}> ()
        z = Mul (wrongly, w)
        minus = Constant <value = int64[1] {{-1}}> ()
        y = Reshape (z, minus)""",
    ),
]

SCAN = [
    Program(
        "a running sum with a weight from outside",
        "(float[3] s, float[T, 3] x, float[3] w) => (float[3] y, float[T, 3] z)",
        """
        y, z = Scan <num_scan_inputs = 1, body = step (float[3] a, float[3] b)
            => (float[3] c, float[3] d) { e = Mul (a, w)  c = Add (e, b)  d = Tanh (c) }> (s, x)""",
        of=["y", "z"],
    ),
    Program(
        "every direction and axis",
        "(float[2] s, float[2, 4] x, float[4, 2] v) => (float[2] y, float[2, 4] z, float[4, 2] u)",
        """
        y, z, u = Scan <num_scan_inputs = 2, scan_input_axes = [1, -2],
            scan_input_directions = [1, 0], scan_output_axes = [-1, 0],
            scan_output_directions = [0, 1],
            body = step (float[2] a, float[2] b, float[2] c)
            => (float[2] d, float[2] e, float[2] f) {
              p = Mul (b, c)  q = Sin (a)  d = Add (p, q)  e = Mul (d, b)  f = Mul (a, c)
            }> (s, x, v)""",
        of=["y", "z", "u"],
    ),
    Program(
        "outputs that nobody reads, and states without a cotangent",
        "(float[3] s, float[4, 3] x) => (float[4, 3] z)",
        """
        y, z, n = Scan <num_scan_inputs = 1, body = step (float[3] a, float[3] b)
            => (float[3] c, float[3] d, float[3] e) {
              c = Add (a, b)  d = Mul (a, b)  e = Exp (b)
            }> (s, x)""",
        of=["z"],
    ),
    Program(
        "no states, and integers among the slices",
        "(float[4, 3] x, int64[4] n) => (float[4, 3] z)",
        """
        z = Scan <num_scan_inputs = 2, body = step (float[3] b, int64 k) => (float[3] d) {
              f = Cast <to = 1> (k)  p = Mul (b, f)  d = Tanh (p)
            }> (x, n)""",
        of=["z"],
        n=np.array([0, 2, -1, 1]),
    ),
    Program(
        "a state of integers, and one that is handed on as it is",
        "(float[3] s, float[4, 3] x) => (float[3] y, float[4, 3] z)",
        """
        zero = Constant <value = int64 {0}> ()
        n, t, y, z = Scan <num_scan_inputs = 1,
            body = step (int64 k, float[3] a, float[3] h, float[3] b)
            => (int64 m, float[3] c, float[3] i, float[3] d) {
              one = Constant <value = int64 {1}> ()  m = Add (k, one)  f = Cast <to = 1> (m)
              p = Mul (a, b)  d = Mul (p, f)  c = Identity (a)  i = Identity (b)
            }> (zero, s, s, x)""",
        of=["y", "z"],
    ),
    Program(
        "one step of one",
        "(float[3] s, float[1, 3] x) => (float[3] y)",
        """
        y = Scan <num_scan_inputs = 1, body = step (float[3] a, float[3] b) => (float[3] c) {
              c = Mul (a, b)
            }> (s, x)""",
    ),
    Program(
        "a batch of sequences, as in opset 8",
        "(float[B, 3] s, float[B, T, 3] x, float[3] w) => (float[B, 3] y, float[B, T, 3] z)",
        """
        y, z = Scan <num_scan_inputs = 1, body = step (float[3] a, float[3] b)
            => (float[3] c, float[3] d) { e = Mul (a, w)  c = Add (e, b)  d = Tanh (c) }>
            ("", s, x)""",
        of=["y", "z"],
        opset=8,
    ),
    Program(
        "a batch of sequences of several lengths, in both directions",
        "(int64[3] n, float[3, 2] s, float[3, 4, 2] x) => (float[3, 2] y, float[3, 4, 2] z)",
        """
        y, z = Scan <num_scan_inputs = 2, directions = [0, 1],
            body = step (float[2] a, float[2] b, float[2] c) => (float[2] d, float[2] e) {
              p = Mul (b, c)  q = Tanh (a)  d = Add (p, q)  e = Mul (d, b)
            }> (n, s, x, x)""",
        of=["y", "z"],
        opset=8,
        n=np.array([4, 1, 3]),
    ),
    Program(
        "a batch without states, of which one stacked output has a cotangent",
        "(float[2, 3, 2] x) => (float[2, 3, 2] z)",
        """
        z, t = Scan <num_scan_inputs = 1, directions = [1],
            body = step (float[2] b) => (float[2] d, float[2] e) {
              d = Mul (b, b)  e = Exp (b)
            }> ("", x)""",
        of=["z"],
        opset=8,
    ),
]


def loop(name, text, trips, **options):
    """A loop whose number of steps is known when it runs only."""
    signature = "(int64 M, float[3] s, float[3] w) => (float[3] y, float[K, 3] z)"
    return Program(
        f"{name}, {trips} steps",
        signature,
        f"always = Constant <value = bool {{1}}> () {text}",
        of=["y", "z"],
        M=np.array(trips),
        **options,
    )


COUNTED = """
y, z = Loop (M, always, s) <body = step (int64 i, bool go, float[3] a)
    => (bool still, float[3] c, float[3] d) {
      f = Cast <to = 1> (i)  e = Mul (a, w)  c = Add (e, f)  d = Tanh (c)  still = Identity (go)
    }>"""

NESTED = """
y, z = Loop (M, always, s) <body = step (int64 i, bool go, float[3] a)
    => (bool still, float[3] c, float[3] d) {
      two = Constant <value = int64 {2}> ()
      left = Mod (i, two)
      odd = Cast <to = 9> (left)
      e = If (odd) <
        then_branch = u () => (float[3] p) { p = Mul (a, w) },
        else_branch = v () => (float[3] q) { r = Sin (a)  q = Add (r, w) }
      >
      c = Loop (two, always, e) <body = inner (int64 j, bool on, float[3] k)
          => (bool yet, float[3] l) { l = Mul (k, w)  yet = Identity (on) }>
      d = Mul (c, a)
      still = Identity (go)
    }>"""

STOPPED = """
limit = Constant <value = float {20}> ()
y, z = Loop (M, always, s) <body = step (int64 i, bool go, float[3] a)
    => (bool still, float[3] c, float[3] d) {
      e = Exp (w)  c = Add (a, e)  d = Mul (c, c)
      size = ReduceSum <keepdims = 0> (d)  still = Less (size, limit)
    }>"""

LOOP = [
    *[loop("a count", COUNTED, trips) for trips in (3, 1, 0)],
    loop("branches and loops inside", NESTED, 3, order=1),
    loop("until it is told to stop", STOPPED, 100),
    loop("no limit", STOPPED.replace("(M, always, s)", '("", always, s)'), 0),
    loop("no condition", COUNTED.replace("(M, always, s)", '(M, "", s)'), 2),
    Program(
        "no states: a sum of what is captured",
        "(int64 M, float[3] w) => (float[3] y)",
        """
        z = Loop (M, "") <body = step (int64 i, bool go) => (bool still, float[3] d) {
          f = Cast <to = 1> (i)  d = Pow (w, f)  still = Identity (go)
        }>
        zero = Constant <value = int64[1] {0}> ()
        y = ReduceSum <keepdims = 0> (z, zero)""",
        M=np.array(3),
        w=np.array([0.5, 1.2, 2.0]),
    ),
]

SEQUENCE = [
    Program(
        "pieces taken out, and joined again",
        "(float[2, 6] x) => (float[2, 8] y)",
        """
        sizes = Constant <value = int64[3] {1, 3, 2}> ()
        one = Constant <value = int64 {1}> ()
        last = Constant <value = int64 {-1}> ()
        pieces = SplitToSequence <axis = 1> (x, sizes)
        a = SequenceAt (pieces, one)
        b = SequenceAt (pieces, last)
        c = Mul (a, a)
        d = SequenceConstruct (c, b, a)
        y = ConcatFromSequence <axis = 1> (d)""",
    ),
    Program(
        "rows without their axis, stacked along another",
        "(float[3, 2] x) => (float[2, 3] y)",
        """
        rows = SplitToSequence <axis = 0, keepdims = 0> (x)
        y = ConcatFromSequence <axis = 1, new_axis = 1> (rows)""",
        order=1,
    ),
    Program(
        "equal pieces, the last of them shorter, of which one is read",
        "(float[5, 2] x) => (float[1, 2] y)",
        """
        two = Constant <value = int64 {2}> ()
        pieces = SplitToSequence (x, two)
        y = SequenceAt (pieces, two)""",
    ),
    Program(
        "the same done to every element",
        "(float[2, 6] x, float[2, 2] w) => (float[2, 6] y)",
        """
        sizes = Constant <value = int64[3] {2, 2, 2}> ()
        pieces = SplitToSequence <axis = 1> (x, sizes)
        done = SequenceMap <
          body = b (float[2, 2] e, float[2, 2] v) => (float[2, 2] o) {
            p = MatMul (e, v)
            o = Tanh (p)
          }
        > (pieces, w)
        y = ConcatFromSequence <axis = 1> (done)""",
    ),
    Program(
        "put in at a place and at the end, and removed",
        f"({F} a, {F} b, {F} c) => (float[8, 3] y)",
        """
        zero = Constant <value = int64 {0}> ()
        behind = Constant <value = int64 {-1}> ()
        nothing = SequenceEmpty <dtype = 1> ()
        one = SequenceInsert (nothing, a)
        two = SequenceInsert (one, b, zero)
        three = SequenceInsert (two, c, behind)
        same = Identity (three)
        d = Mul (a, c)
        four = SequenceInsert (same, d)
        five = SequenceInsert (four, b)
        all = SequenceErase (five, zero)
        y = ConcatFromSequence <axis = 0> (all)""",
    ),
    Program(
        "the last element removed",
        f"({F} a, {F} b) => ({F} y)",
        """
        pair = SequenceConstruct (a, b)
        one = SequenceErase (pair)
        y = ConcatFromSequence <axis = 0> (one)""",
    ),
    Program(
        "optionals",
        f"({F} x) => ({F} y)",
        """
        u = Sin (x)
        o = Optional (u)
        v = OptionalGetElement (o)
        y = Mul (v, x)""",
        opset=18,
    ),
]

HALF = """
      half = Constant <value = float {0.5}> ()
      trains = Constant <value = bool {1}> ()"""

DRAWING = [
    Program(
        "dropout in a branch",
        f"(bool c, {F} x, float[3] w) => ({F} y)",
        f"""
        y = If (c) <
          then_branch = a () => ({F} p) {{ {HALF} q = Mul (x, w)  p = Dropout (q, half, trains) }},
          else_branch = b () => ({F} r) {{ r = Add (x, w) }}
        >""",
        c=np.array(True),
    ),
    Program(
        "dropout in the branch that is not taken, behind one that also draws",
        f"(bool c, {F} x) => ({F} y)",
        f"""
        {HALF}
        y = If (c) <
          then_branch = a () => ({F} p) {{ q = RandomNormalLike <seed = 3.0> (x)  p = Mul (q, x) }},
          else_branch = b () => ({F} r) {{ s = Sin (x)  r = Dropout (s, half, trains) }}
        >""",
        c=np.array(False),
    ),
    Program(
        "dropout in a loop in a branch",
        f"(bool c, {F} x) => ({F} y)",
        f"""
        {HALF}
        two = Constant <value = int64 {{2}}> ()
        y = If (c) <
          then_branch = a () => ({F} p) {{
            p = Loop (two, trains, x) <body = step (int64 i, bool go, {F} s)
                => (bool still, {F} u) {{
                  t = Dropout (s, half, trains)  u = Mul (t, x)  still = Identity (go)
                }}>
          }},
          else_branch = b () => ({F} r) {{ r = Sin (x) }}
        >""",
        c=np.array(True),
    ),
    Program(
        "a cell with dropout",
        "(float[3] s, float[T, 3] x, float[3] w) => (float[3] y, float[T, 3] z)",
        f"""
        {HALF}
        y, z = Scan <num_scan_inputs = 1, body = step (float[3] a, float[3] b)
            => (float[3] c, float[3] d) {{
              e = Mul (a, w)  f, mask = Dropout (e, half, trains)  c = Add (f, b)  d = Tanh (c)
            }}> (s, x)""",
        of=["y", "z"],
    ),
    Program(
        "slices backwards, and a mask that is read and returned",
        "(float[3] s, float[3, 4] x) => (float[3] y, bool[4, 3] m)",
        f"""
        {HALF}
        y, m = Scan <num_scan_inputs = 1, scan_input_axes = [1], scan_input_directions = [1],
            scan_output_directions = [1],
            body = step (float[3] a, float[3] b) => (float[3] c, bool[3] mask) {{
              e = Mul (a, b)  f, mask = Dropout <seed = 7> (e, half, trains)
              g = Cast <to = 1> (mask)  h = Add (g, b)  c = Add (f, h)
            }}> (s, x)""",
        of=["y"],
    ),
    *[
        loop(
            "dropout in every step",
            f"""
            {HALF}
            y, z = Loop (M, always, s) <body = step (int64 i, bool go, float[3] a)
                => (bool still, float[3] c, float[3] d) {{
                  b = Mul (a, w)  c = Dropout (b, half, trains)  e = Exp (c)
                  d = Dropout (e, half, trains)  still = Identity (go)
                }}>""",
            trips,
        )
        for trips in (3, 0)
    ],
    loop(
        "noise of several kinds",
        """
        y, z = Loop (M, always, s) <body = step (int64 i, bool go, float[3] a)
            => (bool still, float[3] c, float[3] d) {
              n = RandomNormalLike <seed = 1.0> (a)
              u = RandomUniform <dtype = 1, seed = 2.0, shape = [3]> ()
              p = Sigmoid (w)  k = Bernoulli <seed = 5.0> (p)
              e = Mul (a, k)  f = Mul (e, w)  c = Add (f, n)  d = Mul (c, u)  still = Identity (go)
            }>""",
        3,
    ),
    *[
        loop(
            name,
            f"""
            {HALF}
            two = Constant <value = int64 {{2}}> ()
            y, z = Loop (M, always, s) <body = step (int64 i, bool go, float[3] a)
                => (bool still, float[3] c, float[3] d) {{
                  left = Mod (i, two)
                  odd = Cast <to = 9> (left)
                  c = If (odd) <
                    then_branch = u () => (float[3] p) {{ {drawing} }},
                    else_branch = v () => (float[3] q) {{ {other} }}
                  >
                  d = Mul (c, a)
                  still = Identity (go)
                }}>""",
            4,
            order=order,
        )
        for name, drawing, other, order in (
            (
                "dropout in some steps",
                "b = Mul (a, w)  e = Dropout (b, half, trains)  p = Dropout (e, half, trains)",
                "q = Sin (a)",
                2,
            ),
            (
                "draws of another type and shape in each branch",
                """n = RandomNormalLike <seed = 1.0> (a)  b = Mul (n, w)  m = Add (n, b)
                   t = Sigmoid (w)  k = Bernoulli <seed = 2.0> (t)  p = Mul (m, k)""",
                """f = Concat <axis = 0> (a, a)  r = RandomUniformLike <seed = 2.0> (f)
                   h = ReduceMax <keepdims = 0> (r)  q = Mul (a, h)""",
                1,
            ),
            (
                "a loop that draws in some steps",
                """p = Loop (two, trains, a) <body = inner (int64 j, bool on, float[3] k)
                    => (bool yet, float[3] l) {
                      m = Mul (k, w)  l = Dropout (m, half, trains)  yet = Identity (on)
                    }>""",
                "q = Sin (a)",
                1,
            ),
        )
    ],
    loop(
        "a draw that is the state",
        """
        y, z = Loop (M, always, s) <body = step (int64 i, bool go, float[3] a)
            => (bool still, float[3] n, float[3] d) {
              n = RandomNormalLike <seed = 1.0> (a)  d = Mul (n, a)  still = Identity (go)
            }>""",
        3,
    ),
    loop(
        "branches, loops and scans inside",
        f"""
        {HALF}
        x = Expand (w, shape)
        y, z = Loop (M, always, s) <body = step (int64 i, bool go, float[3] a)
            => (bool still, float[3] c, float[3] d) {{
              e = If (go) <
                then_branch = u () => (float[3] p) {{ p = Dropout (a, half, trains) }},
                else_branch = v () => (float[3] q) {{ q = Sin (a) }}
              >
              b = Loop (two, always, e) <body = inner (int64 j, bool on, float[3] k)
                  => (bool yet, float[3] l) {{
                    m = Mul (k, w)  l = Dropout (m, half, trains)  yet = Identity (on)
                  }}>
              c, d2 = Scan <num_scan_inputs = 1, body = cell (float[3] f, float[3] g)
                  => (float[3] h, float[3] o) {{
                    r = Mul (f, g)  t = Dropout (r, half, trains)  h = Add (t, g)  o = Tanh (h)
                  }}> (b, x)
              d = ReduceSum <keepdims = 0> (d2, zero)
              still = Identity (go)
            }}>""".replace(
            "x = Expand",
            """two = Constant <value = int64 {2}> ()
            zero = Constant <value = int64[1] {0}> ()
            shape = Constant <value = int64[2] {2, 3}> ()
            x = Expand""",
        ),
        2,
        order=1,
    ),
]

PROGRAMS = [*IF, *SCAN, *LOOP, *DRAWING, *SEQUENCE]


@pytest.mark.parametrize("program", PROGRAMS, ids=lambda p: p.name)
def test_equals_finite_differences(program, rng):
    model = program.model()
    check_gradients(model, program.feeds(rng), program.of, program.wrt, program.order, rng)


@pytest.mark.parametrize("program", [*IF, *SCAN, *LOOP, *SEQUENCE], ids=lambda p: p.name)
def test_runs_on_the_runtime(program, rng):
    single = program.model()
    double = in_precision(single, TensorProto.DOUBLE)
    check_parity(single, double, program.feeds(rng), program.of, program.wrt, rng)


@pytest.mark.parametrize("program", [*SCAN, *LOOP], ids=lambda p: p.name)
def test_the_value_is_that_of_the_runtime(program, rng):
    model, feeds = program.model(), program.feeds(rng)
    feeds = {k: v.astype(np.float32) if v.dtype == np.float64 else v for k, v in feeds.items()}
    for got, value in zip(run(model, feeds), evaluate(model)(feeds), strict=True):
        np.testing.assert_allclose(got, value, rtol=1e-5, atol=1e-6)


REFUSED = {
    "a state that grows": (
        """
        z = Loop (M, "", x) <body = step (int64 i, bool go, float[N, 3] a)
            => (bool still, float[L, 3] c) { c = Concat <axis = 0> (a, x)  still = Identity (go) }>
        y = Tanh (z)""",
        "changes its shape from step to step",
    ),
}


@pytest.mark.parametrize("name", REFUSED)
def test_what_has_no_gradient_says_so(name):
    text, message = REFUSED[name]
    head = f'<ir_version: 8, opset_import: ["" : 17]> g (int64 M, {F} x) => (float[N, 3] y)'
    model = parser.parse_model(f"{head} {{ {text} }}")
    with pytest.raises(GradientError, match=message):
        with_gradients(model, ["y"], ["x"])


def test_sequences_in_loops_need_an_opset_that_carries_them():
    model = parser.parse_model("""
    <ir_version: 7, opset_import: ["" : 12]>
    g (int64 M, float[3] x) => (float loss) {
      pair = SequenceConstruct (x, x)
      y = Loop (M, "", x) <body = step (int64 i, bool go, float[3] a) => (bool still, float[3] c) {
        p = SequenceAt (pair, i)  c = Mul (a, p)  still = Identity (go)
      }>
      loss = ReduceSum <keepdims = 0> (y)
    }""")
    with pytest.raises(OpError, match="carries a sequence needs opset 13, and the model has opset"):
        blockdsl.grad(model, "x")


def test_shapes_inside_bodies_are_found_with_constants_from_outside():
    """ONNX's own inference does not see them, and leaves the outputs without a rank."""
    model = parser.parse_model("""
    <ir_version: 8, opset_import: ["" : 17]>
    g (float[4, 2, 3] x) => (float loss) {
      axes = Constant <value = int64[1] {0}> ()
      y = Scan <num_scan_inputs = 1, body = step (b) => (d) {
        e = Unsqueeze (b, axes)  f = Squeeze (e, axes)  d = Mul (f, f)
      }> (x)
      loss = ReduceSum <keepdims = 0> (y)
    }""")
    assert Graph(model).type_of("y").shape == (None, 2, 3)
    (found,) = run(blockdsl.grad(model, "x"), {"x": np.ones((4, 2, 3), np.float32)})[1:]
    np.testing.assert_array_equal(found, np.full((4, 2, 3), 2.0))


def test_intermediate_tensors_outside_a_loop():
    """A loop captures what is computed before it, and that has a gradient too."""
    model = parser.parse_model("""
    <ir_version: 8, opset_import: ["" : 17]>
    g (float[3] x, int64 M) => (float loss) {
      w = Exp (x)
      z = Loop (M, "") <body = step (int64 i, bool go) => (bool still, float[3] d) {
        d = Mul (w, x)  still = Identity (go)
      }>
      loss = ReduceSum <keepdims = 0> (z)
    }""")
    graph = Graph(model)
    gradients = build_gradients(graph, "loss", ["w", "x"])
    graph.set_outputs(gradients.values())
    x = np.array([0.0, 1.0, -1.0], np.float32)
    by_w, by_x = run(graph.proto, {"x": x, "M": np.array(2)})
    np.testing.assert_allclose(by_w, 2 * x)
    np.testing.assert_allclose(by_x, 2 * (np.exp(x) + x * np.exp(x)), rtol=1e-6)


@pytest.mark.parametrize("program", DRAWING, ids=lambda p: p.name)
def test_draws_on_the_runtime(program, rng):
    """It draws others than the reference evaluator does; the test below compares."""
    model = with_gradients(program.model(), program.of, program.wrt)
    feeds = in_type_of(model, program.feeds(rng))
    for name, value in zip(program.of, evaluate(program.model())(feeds), strict=False):
        feeds[f"{name}_seed"] = np.ones(value.shape)
    assert all(np.isfinite(x).all() for x in run(model, in_type_of(model, feeds)))


SUM_OF = {
    "a function in a branch": """
        y = If (c) <
          then_branch = a () => (float[2, 3] p) {{ p = my.noisy (x) }},
          else_branch = b () => (float[2, 3] r) {{ r = Neg (x) }}
        >""",
    "If": """
        y = If (c) <
          then_branch = a () => (float[2, 3] p) {{ p = {draw} }},
          else_branch = b () => (float[2, 3] r) {{ r = Neg (x) }}
        >""",
    "Loop": """
        y = Loop (M, c, x) <body = step (int64 i, bool go, float[2, 3] x1)
            => (bool still, float[2, 3] s) {{ s = {draw}  still = Identity (go) }}>""",
    "If in some steps": """
        two = Constant <value = int64 {{2}}> ()
        y = Loop (M, c, x) <body = step (int64 i, bool go, float[2, 3] x1)
            => (bool still, float[2, 3] s) {{
              left = Mod (i, two)  odd = Cast <to = 9> (left)
              s = If (odd) <
                then_branch = a () => (float[2, 3] p) {{ p = {draw} }},
                else_branch = b () => (float[2, 3] r) {{ r = Neg (x1) }}
              >
              still = Identity (go)
            }}>""",
    "Scan": """
        y, z = Scan <num_scan_inputs = 1, body = step (float[2, 3] x1, float k)
            => (float[2, 3] s, float[2, 3] o) {{ s = {draw}  o = Mul (s, k) }}> (x, k)""",
    "Scan that returns its draws in another order": """
        z, y, m = Scan <num_scan_inputs = 1, scan_output_directions = [0, 1],
            body = step (float[2, 3] x1, float k)
            => (float[2, 3] s, float[2, 3] o, bool[2, 3] mask) {{
              s, mask = {draw}  o = Mul (s, k)
            }}> (x, k)""",
    "Scan with directions": """
        z, y = Scan <num_scan_inputs = 1, scan_output_directions = [1],
            body = step (float[2, 3] x1, float k)
            => (float[2, 3] s, float[2, 3] o) {{ s = {draw}  o = Mul (s, k) }}> (x, k)""",
}


@pytest.mark.parametrize("kind", SUM_OF)
def test_the_gradient_reads_what_was_drawn(kind):
    """The runtime draws anew in every step. What is linear in x is the product of x and its slope,
    for every draw but no two different ones."""
    draw = f"Dropout ({'x1' if 'x1' in SUM_OF[kind] else 'x'}, half, c)"
    model = parser.parse_model(
        f"""
        <ir_version: 8, opset_import: ["" : 17, "my" : 1]>
        g (bool c, float[2, 3] x, float[3] k) => (float loss) {{
          half = Constant <value = float {{0.5}}> ()  M = Constant <value = int64 {{3}}> ()
          {SUM_OF[kind].format(draw=draw)}
          loss = ReduceSum <keepdims = 0> (y)
        }}
        <domain: "my", opset_import: ["" : 17]>
        noisy (a) => (b) {{ {HALF} b = Dropout (a, half, trains) }}"""
    )
    fed = {"c": np.array(True), "k": np.ones(3, np.float32)}
    seen = set()
    for _ in range(8):
        x = np.linspace(1, 2, 6, dtype=np.float32).reshape(2, 3)
        loss, dx = run(blockdsl.grad(model, wrt=["x"]), {"x": x, **fed})
        np.testing.assert_allclose(np.vdot(x, dx), loss, rtol=1e-5)
        seen.add(dx.tobytes())
    assert len(seen) > 1
