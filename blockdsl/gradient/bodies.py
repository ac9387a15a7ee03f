"""What the training operators of `com.microsoft` mean, as functions of plain ONNX.

The on-device training API insists on a few operators of its own. A model that uses them carries a
function of the same domain and name for each: the training build runs its kernel and ignores the
function, and every other runtime, which has no such operator, runs the function. So one file serves
both. The arithmetic is that of the CPU kernels of onnxruntime-training 1.19.2.

A function has the outputs that the calls in the model declare, not all that the operator could
have: runtimes refuse a call that leaves outputs of its function out.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from onnx import FunctionProto, ModelProto, NodeProto, parser

from blockdsl.errors import GraphError
from blockdsl.gradient.unroll import unroll_optimizer
from blockdsl.graph.schema import MICROSOFT
from blockdsl.graph.walk import opset_of

__all__ = ["functions_for", "unroll_optimizer"]

_SEQUENCES = 13
"""The first opset whose `Loop` carries sequences."""


def functions_for(model: ModelProto) -> list[FunctionProto]:
    """The functions that a model needs to run where the training operators are unknown.

    Args:
        model: The model. Optimizers of a model below opset 13 get none, because ONNX had no way
            to write them: such a model runs in the training build alone.

    Returns:
        A function for each training operator that the model calls and has no function for.

    Raises:
        GraphError: Calls of `ReduceAllL2` differ in the number of their inputs.

    Example:
        >>> import blockdsl
        >>> with blockdsl.empty_base() as handle:
        ...     x = blockdsl.input("x", shape=(2,))
        ...     norm = blockdsl.op.microsoft.ReduceAllL2(x, x)
        >>> [(f.domain, f.name) for f in functions_for(handle.model)]
        [('com.microsoft', 'ReduceAllL2')]
    """
    opset = opset_of(model) or 1
    present = {f.name for f in model.functions if f.domain == MICROSOFT}
    calls: dict[str, list[NodeProto]] = {}
    for node in model.graph.node:
        if node.domain == MICROSOFT and node.op_type not in present:
            calls.setdefault(node.op_type, []).append(node)
    wanted = [name for name in calls if name in _PLAIN or (name in _LOOPS and opset >= _SEQUENCES)]
    return [_function(name, calls[name], opset) for name in wanted]


def _function(name: str, calls: Sequence[NodeProto], opset: int) -> FunctionProto:
    text = _PLAIN[name](calls) if name in _PLAIN else _LOOPS[name]
    function = parser.parse_function(f'<domain: "{MICROSOFT}", opset_import: ["": {opset}]>{text}')
    declared = max(len(call.output) for call in calls)
    del function.output[declared:]
    return function


def _accumulator(calls: Sequence[NodeProto]) -> str:
    return _ACCUMULATE if any(len(call.input) > 2 for call in calls) else _ONLY_ADD


def _norm(calls: Sequence[NodeProto]) -> str:
    counts = {len(call.input) for call in calls}
    if len(counts) > 1:
        raise GraphError(
            f"The model calls ReduceAllL2 with {sorted(counts)} inputs, and a function has a fixed "
            f"number. Write the norm with ReduceSumSquare, Sum and Sqrt instead."
        )
    inputs = [f"X{i}" for i in range(counts.pop())]
    squares = "\n".join(f"squared_{x} = ReduceSumSquare <keepdims = 0> ({x})" for x in inputs)
    return f"""
    ReduceAllL2 ({", ".join(inputs)}) => (Y)
    {{
      {squares}
      total = Sum ({", ".join(f"squared_{x}" for x in inputs)})
      Y = Sqrt (total)
    }}"""


_ACCUMULATE = """
InPlaceAccumulatorV2 (accumulation_buffer, value, overwrite_flag)
    => (updated_flag, accumulation_buffer_out)
{
  one = Constant <value = float[1] {1}> ()
  updated_flag = Cast <to = 9> (one)
  accumulation_buffer_out = If (overwrite_flag) <
    then_branch = overwrite () => (new) { new = Identity (value) },
    else_branch = accumulate () => (sum) { sum = Add (accumulation_buffer, value) }
  >
}"""

_ONLY_ADD = """
InPlaceAccumulatorV2 (accumulation_buffer, value) => (updated_flag, accumulation_buffer_out)
{
  one = Constant <value = float[1] {1}> ()
  updated_flag = Cast <to = 9> (one)
  accumulation_buffer_out = Add (accumulation_buffer, value)
}"""

_CLIP = """
InplaceClipGradNorm <max_norm: float = 1.0, norm_type: string = "fro"> (gradients)
    => (clipped_gradients)
{
  count = SequenceLength (gradients)
  always = Constant <value = bool {1}> ()
  zero = Constant <value = float {0}> ()
  total = Loop (count, always, zero) <body = add (int64 i, bool go_on, float so_far)
      => (bool still, float sum) {
    still = Identity (go_on)
    gradient = SequenceAt (gradients, i)
    squared = ReduceSumSquare <keepdims = 0> (gradient)
    sum = Add (so_far, squared)
  }>
  norm = Sqrt (total)
  tiny = Constant <value = float {1e-6}> ()
  divisor = Add (norm, tiny)
  limit = Constant <value_float: float = @max_norm> ()
  ratio = Div (limit, divisor)
  one = Constant <value = float {1}> ()
  factor = Min (ratio, one)
  none = SequenceEmpty <dtype = 1> ()
  clipped_gradients = Loop (count, always, none) <body = scale
      (int64 j, bool go, seq(float[]) before) => (bool on, seq(float[]) after) {
    on = Identity (go)
    unclipped = SequenceAt (gradients, j)
    clipped = Mul (unclipped, factor)
    after = SequenceInsert (before, clipped)
  }>
}"""

_SGD = """
SGDOptimizerV2 (lr, weights, gradients) => (update_completed, updated_weights)
{
  update_completed = Constant <value = bool[1] {1}> ()
  rate = Squeeze (lr)
  count = SequenceLength (weights)
  always = Constant <value = bool {1}> ()
  none = SequenceEmpty <dtype = 1> ()
  updated_weights = Loop (count, always, none) <body = update
      (int64 i, bool go_on, seq(float[]) before) => (bool still, seq(float[]) after) {
    still = Identity (go_on)
    w = SequenceAt (weights, i)
    g = SequenceAt (gradients, i)
    change = Mul (rate, g)
    new_w = Sub (w, change)
    after = SequenceInsert (before, new_w)
  }>
}"""

# keep_first and keep_last shrink the weight before (PyTorch) or after (Hugging Face) it is changed.
_ADAMW = """
AdamWOptimizer <alpha: float = 0.9, beta: float = 0.999, epsilon: float = 1e-8,
    weight_decay: float = 0.01, correct_bias: int = 1, adam_mode: int = 0>
  (lr, step, weights, gradients, momentums_1, momentums_2)
    => (updated_flag, updated_weights, updated_momentums_1, updated_momentums_2)
{
  updated_flag = Constant <value = bool[1] {1}> ()
  rate = Squeeze (lr)
  time = Squeeze (step)
  a = Constant <value_float: float = @alpha> ()
  b = Constant <value_float: float = @beta> ()
  one = Constant <value = float {1}> ()
  one_minus_a = Sub (one, a)
  one_minus_b = Sub (one, b)

  corrects = Constant <value_int: int = @correct_bias> ()
  correcting = Cast <to = 1> (corrects)
  wide_time = Cast <to = 11> (time)
  wide_a = Cast <to = 11> (a)
  wide_b = Cast <to = 11> (b)
  wide_a_power = Pow (wide_a, wide_time)
  wide_b_power = Pow (wide_b, wide_time)
  a_power = Cast <to = 1> (wide_a_power)
  b_power = Cast <to = 1> (wide_b_power)
  a_bias = Mul (correcting, a_power)
  b_bias = Mul (correcting, b_power)
  a_correction = Sub (one, a_bias)
  b_correction = Sub (one, b_bias)
  b_root = Sqrt (b_correction)
  ratio = Div (b_root, a_correction)
  corrected_rate = Mul (rate, ratio)

  mode = Constant <value_int: int = @adam_mode> ()
  is_hugging_face = Cast <to = 9> (mode)
  small = Constant <value_float: float = @epsilon> ()
  scaled_small = Mul (small, b_root)
  damping = Where (is_hugging_face, small, scaled_small)
  decay = Constant <value_float: float = @weight_decay> ()
  decay_rate = Mul (rate, decay)
  kept = Sub (one, decay_rate)
  keep_first = Where (is_hugging_face, one, kept)
  keep_last = Where (is_hugging_face, kept, one)

  count = SequenceLength (weights)
  always = Constant <value = bool {1}> ()
  none = SequenceEmpty <dtype = 1> ()
  updated_weights, updated_momentums_1, updated_momentums_2 = Loop
      (count, always, none, none, none) <body = update
      (int64 i, bool go_on, seq(float[]) ws, seq(float[]) ms, seq(float[]) vs)
      => (bool still, seq(float[]) new_ws, seq(float[]) new_ms, seq(float[]) new_vs) {
    still = Identity (go_on)
    w = SequenceAt (weights, i)
    g = SequenceAt (gradients, i)
    m = SequenceAt (momentums_1, i)
    v = SequenceAt (momentums_2, i)
    old_m = Mul (a, m)
    added_m = Mul (one_minus_a, g)
    new_m = Add (old_m, added_m)
    old_v = Mul (b, v)
    scaled_g = Mul (one_minus_b, g)
    added_v = Mul (scaled_g, g)
    new_v = Add (old_v, added_v)
    root_v = Sqrt (new_v)
    divisor = Add (root_v, damping)
    stepped = Mul (corrected_rate, new_m)
    change = Div (stepped, divisor)
    shrunk_w = Mul (keep_first, w)
    changed_w = Sub (shrunk_w, change)
    new_w = Mul (keep_last, changed_w)
    new_ws = SequenceInsert (ws, new_w)
    new_ms = SequenceInsert (ms, new_m)
    new_vs = SequenceInsert (vs, new_v)
  }>
}"""

_PLAIN: dict[str, Callable[[Sequence[NodeProto]], str]] = {
    "InPlaceAccumulatorV2": _accumulator,
    "ReduceAllL2": _norm,
}
"""Functions of tensors, by the calls that they have to serve."""

_LOOPS = {"AdamWOptimizer": _ADAMW, "InplaceClipGradNorm": _CLIP, "SGDOptimizerV2": _SGD}
"""Functions of sequences of tensors; of float32, as the kernels are."""
