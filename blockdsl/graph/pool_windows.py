"""Pools with `ceil_mode` whose last window would begin after the end of a static input.

From opset 22 on, and in PyTorch, such a window does not exist. Before, ONNX's inference counts it
and ONNX Runtime does from 1.20 on not return it, so that it computes other shapes than it infers
for the same model. Where sizes are static the node is therefore written without `ceil_mode`.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import NamedTuple

from onnx import NodeProto, TypeProto, helper

from blockdsl.graph.tensor import TensorType

_POOLS = frozenset({"AveragePool", "LpPool", "MaxPool"})


class _Axis(NamedTuple):
    """The windows along one axis of static length."""

    size: int
    kernel: int
    stride: int
    reach: int
    begin: int
    end: int

    @property
    def last(self) -> int:
        """Where the last window that `ceil_mode` counts begins in the padded input."""
        rest = self.size + self.begin + self.end - self.reach
        return -(-rest // self.stride) * self.stride

    @property
    def is_doubtful(self) -> bool:
        """Whether that is after the end of the input."""
        return 0 < self.size + self.begin <= self.last

    @property
    def needed(self) -> int:
        """The padding at the end with which the windows are the same without `ceil_mode`."""
        if self.is_doubtful:
            return self.end
        return max(self.end, self.last + self.reach - self.size - self.begin)


def doubtful_axes(node: NodeProto, types: Mapping[str, TypeProto]) -> list[int]:
    """The axes of a node's output along which ONNX infers one window more than there is."""
    return [i + 2 for i, axis in enumerate(_axes(node, types)) if axis and axis.is_doubtful]


def drop_doubtful_windows(node: NodeProto, types: Mapping[str, TypeProto]) -> None:
    """Write a pool that has such an axis without `ceil_mode`, if it can be."""
    axes = [axis for axis in _axes(node, types) if axis is not None]
    if not any(axis.is_doubtful for axis in axes):
        return
    settings = {a.name: a for a in node.attribute}
    ends = [axis.needed for axis in axes]
    longer = ends != [axis.end for axis in axes]
    counted = "count_include_pad" in settings and settings["count_include_pad"].i
    if len(axes) < len(settings["kernel_shape"].ints) or (
        longer and (counted or any(axis.needed >= axis.kernel for axis in axes))
    ):
        return
    for name in ("ceil_mode", "auto_pad", "pads"):
        if name in settings:
            node.attribute.remove(settings[name])
    pads = [*(axis.begin for axis in axes), *ends]
    node.attribute.append(helper.make_attribute("pads", pads))


def _axes(node: NodeProto, types: Mapping[str, TypeProto]) -> Sequence[_Axis | None]:
    """The spatial axes of a pool with `ceil_mode`, `None` for one of unknown length."""
    if node.op_type not in _POOLS or node.domain:
        return []
    settings = {a.name: helper.get_attribute_value(a) for a in node.attribute}
    x = TensorType.of(types[node.input[0]]) if node.input[0] in types else None
    padding = settings.get("auto_pad", b"NOTSET")
    if not settings.get("ceil_mode") or padding.startswith(b"SAME") or not (x and x.shape):
        return []
    kernel = settings["kernel_shape"]
    n = len(kernel)
    strides, dilations = (settings.get(key, [1] * n) for key in ("strides", "dilations"))
    pads = settings.get("pads", [0] * 2 * n) if padding == b"NOTSET" else [0] * 2 * n
    reach = [d * (k - 1) + 1 for d, k in zip(dilations, kernel, strict=True)]
    geometry = zip(x.shape[2:], kernel, strides, reach, pads[:n], pads[n:], strict=True)
    return [_Axis(*axis) if isinstance(axis[0], int) else None for axis in geometry]
