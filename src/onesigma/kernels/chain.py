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


def propagate_chain(chain: list[Conv], state: KernelState) -> KernelState:
    """Through all of these convolutions, with a ReLU after each."""
    # K' = Σ_t (σ_w² K + σ_b² / |t|): the bracket is folded into the layer before
    brackets = [
        (float(conv.weight_variance()), float(conv.bias_variance()) / math.prod(conv.size))
        for conv in chain
    ]
    scale, shift = brackets[0]
    maps = torch.add(state.maps.new_tensor(shift), state.maps, alpha=scale)
    for conv, (scale, shift) in zip(chain, [*brackets[1:], (1.0, 0.0)], strict=True):
        conv.check(maps.shape[1:])
        boxes = BoxSums(maps, conv.size, conv.dilation)
        maps = relu_expectation(boxes, state.images, boxes.place, scale, shift)
    return state.move(maps, gaussian=False, fresh=False)


def _is_plain(conv: Conv) -> bool:
    """No padding, no stride, nothing to learn."""
    variances = conv.weight_variance(), conv.bias_variance()
    return not conv.padding and conv.stride == 1 and all(isinstance(v, float) for v in variances)
