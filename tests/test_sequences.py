"""Sequences whose lengths and positions are only known when the model runs."""

import numpy as np
import pytest
from onnx import TensorProto

from blockdsl.testing import check_gradients, in_precision
from tests.gradient_models import check_parity
from tests.programs import F, Program

pytestmark = pytest.mark.filterwarnings("ignore:.*does not influence")

APPENDING = """
empty = SequenceEmpty <dtype = 1> ()
h, q = Loop (M, "", s, empty) <body = step (int64 i, bool go, float[3] a, b)
    => (bool still, float[3] c, d) {
      e = Mul (a, w)  c = Tanh (e)  d = SequenceInsert (b, c)  still = Identity (go)
    }>"""

PROGRAMS = [
    *[
        Program(
            f"a loop that appends, its results stacked along axis {axis}",
            f"(int64 M, float[3] s, float[3] w) => (float[{shape}] y)",
            f"{APPENDING}  y = ConcatFromSequence <axis = {axis}, new_axis = 1> (q)",
            M=np.array(4),
        )
        for axis, shape in ((0, "N, 3"), (1, "3, N"), (-1, "3, N"))
    ],
    Program(
        "a loop that appends pieces of different lengths, joined",
        "(int64 M, float[5, 3] x, float[3] w) => (float[N, 3] y)",
        """
        one = Constant <value = int64[1] {1}> ()
        zero = Constant <value = int64[1] {0}> ()
        empty = SequenceEmpty <dtype = 1> ()
        q = Loop (M, "", empty) <body = step (int64 i, bool go, b) => (bool still, d) {
              j = Unsqueeze (i, zero)  k = Add (j, one)  p = Slice (x, zero, k, zero)
              e = Mul (p, w)  d = SequenceInsert (b, e)  still = Identity (go)
            }>
        y = ConcatFromSequence <axis = 0> (q)""",
        M=np.array(3),
    ),
    Program(
        "a loop that puts in front, and another use of an element",
        "(int64 M, float[3] s, float[3] w) => (float[N, 3] y, float[3] z)",
        """
        zero = Constant <value = int64 {0}> ()
        empty = SequenceEmpty <dtype = 1> ()
        h, q = Loop (M, "", s, empty) <body = step (int64 i, bool go, float[3] a, b)
            => (bool still, float[3] c, d) {
              c = Mul (a, w)  d = SequenceInsert (b, c, zero)  still = Identity (go)
            }>
        y = ConcatFromSequence <axis = 0, new_axis = 1> (q)
        at = Sub (M, M)
        e = SequenceAt (q, at)
        z = Mul (e, h)""",
        of=["y", "z"],
        M=np.array(3),
    ),
    Program(
        "a sequence that a loop reads",
        "(int64[K] n, float[3, 6] x, float[3] w) => (float[3] y)",
        """
        axis = Constant <value = int64[1] {1}> ()
        pieces = SplitToSequence <axis = 1> (x, n)
        count = SequenceLength (pieces)
        y = Loop (count, "", w) <body = step (int64 i, bool go, float[3] a)
            => (bool still, float[3] c) {
              p = SequenceAt (pieces, i)  e = ReduceSum <keepdims = 0> (p, axis)
              f = Mul (a, e)  c = Sin (f)  still = Identity (go)
            }>""",
        n=np.array([1, 3, 2]),
    ),
    Program(
        "a recurrent cell that reads rows and appends states",
        "(float[T, 3] x, float[3] s, float[3] w) => (float[T, 3] y, float[3] h)",
        """
        rows = SplitToSequence <axis = 0, keepdims = 0> (x)
        count = SequenceLength (rows)
        empty = SequenceEmpty <dtype = 1> ()
        h, q = Loop (count, "", s, empty) <body = step (int64 i, bool go, float[3] a, b)
            => (bool still, float[3] c, d) {
              r = SequenceAt (rows, i)  e = Mul (a, w)  f = Add (e, r)  c = Tanh (f)
              d = SequenceInsert (b, c)  still = Identity (go)
            }>
        y = ConcatFromSequence <axis = 0, new_axis = 1> (q)""",
        of=["y", "h"],
    ),
    *[
        Program(
            f"steps that read what was appended before them, {trips} of them",
            "(int64 M, float[3] s, float[3] w) => (float[N, 3] y)",
            """
            last = Constant <value = int64 {-1}> ()
            first = SequenceConstruct (s, w)
            q = Loop (M, "", first) <body = step (int64 i, bool go, seq(float[3]) b)
                => (bool still, seq(float[3]) d) {
                  a = SequenceAt (b, last)  o = SequenceAt (b, i)  e = Mul (a, o)  c = Sin (e)
                  d = SequenceInsert (b, c)  still = Identity (go)
                }>
            y = ConcatFromSequence <axis = 0, new_axis = 1> (q)""",
            M=np.array(trips),
            order=1,
        )
        for trips in (0, 1, 4)
    ],
    Program(
        "a window that moves",
        "(int64 M, float[3] s, float[3] w) => (float[2, 3] y)",
        """
        zero = Constant <value = int64 {0}> ()
        first = SequenceConstruct (s, w)
        q = Loop (M, "", first) <body = step (int64 i, bool go, seq(float[3]) b)
            => (bool still, seq(float[3]) d) {
              a = SequenceAt (b, zero)  t = SequenceErase (b, zero)  e = SequenceAt (t, zero)
              f = Mul (a, e)  d = SequenceInsert (t, f)  still = Identity (go)
            }>
        y = ConcatFromSequence <axis = 0, new_axis = 1> (q)""",
        M=np.array(3),
        order=1,
    ),
    Program(
        "a place that is computed, in a sequence of known length",
        f"(int64 M, {F} x, {F} w) => ({F} y)",
        """
        pair = SequenceConstruct (x, w, x)
        a = SequenceAt (pair, M)
        last = Sub (M, two)
        more = SequenceInsert (pair, a, last)
        less = SequenceErase (more, M)
        b = SequenceAt (less, one)
        y = Mul (a, b)""",
        M=np.array(1),
        constants="two = Constant <value = int64 {2}> () one = Constant <value = int64 {1}> ()",
    ),
    Program(
        "a branch that reads a sequence and one that extends it",
        f"(bool c, int64 M, {F} x, {F} w) => (float[N, 3] y)",
        f"""
        q = Loop (M, "", none) <body = step (int64 i, bool go, b) => (bool still, d) {{
              e = Mul (x, w)  d = SequenceInsert (b, e)  still = Identity (go)
            }}>
        r = If (c) <
          then_branch = t () => (seq({F}) p) {{ p = SequenceInsert (q, w) }},
          else_branch = f () => (seq({F}) o) {{ o = SequenceInsert (q, x, one) }}
        >
        y = ConcatFromSequence <axis = 0> (r)""",
        c=np.array(True),
        M=np.array(2),
        constants="none = SequenceEmpty <dtype = 1> () one = Constant <value = int64 {1}> ()",
    ),
    Program(
        "a function of every element, however many there are",
        "(int64[K] n, float[2, 6] x) => (float[2, 6] y)",
        """
        pieces = SplitToSequence <axis = 1> (x, n)
        done = SequenceMap <body = b (float[2, L] e) => (float[2, L] o) {
            p = Exp (e)  o = Mul (p, e)
          }> (pieces)
        y = ConcatFromSequence <axis = 1> (done)""",
        n=np.array([1, 2, 3]),
    ),
    *[
        Program(
            f"a scan that reads a sequence, {name}",
            "(float[3] s, float[T, 3] x, float[T, 3] v) => (float[3] h, float[T, 3] z)",
            f"""
            pieces = SplitToSequence <axis = 0, keepdims = 0> (v)
            h, n, z = Scan <num_scan_inputs = 2, scan_input_directions = [1, 0],
                scan_output_directions = [1],
                body = step (float[3] a, int64 k, float[3] b, float[3] c)
                => (float[3] d, int64 m, float[3] e) {{
                  one = Constant <value = int64 {{1}}> ()  m = Add (k, one)
                  p = SequenceAt (pieces, k)  q = Mul (a, p)  d = Add (q, b)
                  {output}
                }}> (s, zero, x, {other})""",
            of=["h", "z"],
            constants=f"zero = Constant <value = int64 {{0}}> () {constants}",
            runtime=not constants,
            order=order,
        )
        for name, output, other, constants, order in (
            ("and two tensors", "r = Sin (d)  e = Mul (r, c)", "v", "", 2),
            ("and one tensor twice", "r = Sin (c)  e = Mul (r, p)", "x", "", 2),
            (
                "and draws",
                "r = Sin (d)  e = Dropout (r, half, trains)",
                "v",
                """half = Constant <value = float {0.5}> ()
                trains = Constant <value = bool {1}> ()""",
                1,
            ),
        )
    ],
    Program(
        "dropout in a loop that appends",
        "(int64 M, float[3] s, float[3] w) => (float[N, 3] y)",
        """
        empty = SequenceEmpty <dtype = 1> ()
        h, q = Loop (M, "", s, empty) <body = step (int64 i, bool go, float[3] a, b)
            => (bool still, float[3] c, d) {
              e = Mul (a, w)  f = Exp (e)  c = Dropout (f, half, trains)
              d = SequenceInsert (b, c)  still = Identity (go)
            }>
        y = ConcatFromSequence <axis = 0, new_axis = 1> (q)""",
        M=np.array(3),
        constants="""
        half = Constant <value = float {0.5}> ()
        trains = Constant <value = bool {1}> ()""",
        runtime=False,  # it draws others
    ),
]


@pytest.mark.parametrize("program", PROGRAMS, ids=lambda p: p.name)
def test_equals_finite_differences(program, rng):
    model = program.model()
    check_gradients(model, program.feeds(rng), program.of, program.wrt, program.order, rng)


@pytest.mark.parametrize("program", [p for p in PROGRAMS if p.runtime], ids=lambda p: p.name)
def test_runs_on_the_runtime(program, rng):
    single = program.model()
    double = in_precision(single, TensorProto.DOUBLE)
    check_parity(single, double, program.feeds(rng), program.of, program.wrt, rng)
