"""Convolutions and ReLUs in turn, all in the memory of the first: same numbers, less traffic."""

from __future__ import annotations

import math
from collections.abc import Iterable

import torch

from onesigma.kernels.layers import Conv, Layer, ReLU
from onesigma.kernels.nonlinear import relu_expectation
from onesigma.kernels.spans import BoxSums
from onesigma.kernels.state import KernelState


def leading_chain(layers: Iterable[Layer], state: KernelState) -> list[Conv]:
    """The plain convolutions, each with a ReLU after it, with which the layers begin.

    Args:
        layers: in order.
        state: what goes in; there is no chain if a gradient is asked for.
    """
    if state.maps.requires_grad and torch.is_grad_enabled():
        return []
    found, ahead = [], iter(layers)
    for layer, following in zip(ahead, ahead, strict=False):
        if not (type(layer) is Conv and type(following) is ReLU and _is_plain(layer)):
            break
        found.append(layer)
    return found


def propagate_chain(chain: list[Conv], state: KernelState, last: Conv | None = None) -> KernelState:
    """Through all of these convolutions, with a ReLU after each.

    Args:
        chain: from `leading_chain`.
        state: what goes in.
        last: a convolution of single pixels after them, at no cost.
    """
    first, *others = chain
    first.check(state.size)
    # K' = σ_b² + σ_w² Σ_t K
    boxes = BoxSums(state.maps, state.images, first.size, first.dilation, _variances(first))
    out = None  # new memory
    for conv in others:
        # K' = Σ_t (σ_b² / |t| + σ_w² K), and the bracket is folded into the layer before
        scale, shift = _variances(conv)
        maps = relu_expectation(boxes, out, scale, shift / math.prod(conv.size))
        conv.check(maps.shape[1:])
        boxes = BoxSums(maps, state.images, conv.size, conv.dilation, desk=boxes.desk)
        out = boxes.memory
    scale, shift = (1.0, 0.0) if last is None else _variances(last)
    maps = relu_expectation(boxes, out, scale, shift)
    return state.move(maps, gaussian=last is not None, fresh=last is not None)


def scales_pixels(layer: Layer) -> bool:
    """A plain convolution of single pixels."""
    return type(layer) is Conv and _is_plain(layer) and layer.size == (1, 1)


def _variances(conv: Conv) -> tuple[float, float]:
    return float(conv.weight_variance()), float(conv.bias_variance())


def _is_plain(conv: Conv) -> bool:
    """No padding, no stride, nothing to learn."""
    variances = conv.weight_variance(), conv.bias_variance()
    return not conv.padding and conv.stride == 1 and all(isinstance(v, float) for v in variances)
