"""Layers made of layers: chains, residual sums, dense concatenation."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

import torch
from torch import nn

from onesigma.kernels.chain import leading_chain, propagate_chain, scales_pixels
from onesigma.kernels.finite import Concat, Sum, centre_crop
from onesigma.kernels.layers import Conv, Layer
from onesigma.kernels.resize import Resize
from onesigma.kernels.state import KernelState


class Sequential(Layer):
    """One layer after the other.

    Args:
        layers: in order; none is the identity.
    """

    def __init__(self, *layers: Layer) -> None:
        super().__init__()
        self.layers = nn.ModuleList(layers)

    def __iter__(self) -> Iterator[Layer]:
        for layer in self.layers:
            assert isinstance(layer, Layer)
            yield layer

    def propagate(self, state: KernelState) -> KernelState:
        """Through all layers; some know a shorter way together."""
        layers = list(self)
        while layers:
            taken, state = _next(layers, state)
            layers = layers[taken:]
        return state

    def network(
        self, channels: int, width: int, generator: torch.Generator | None = None
    ) -> nn.Module:
        """The chain of the layers' networks."""
        parts = []
        for layer in self:
            parts.append(layer.network(channels, width, generator))
            channels = layer.channels(channels, width)
        return nn.Sequential(*parts)

    def channels(self, channels: int, width: int) -> int:
        """What the last layer says."""
        for layer in self:
            channels = layer.channels(channels, width)
        return channels


def _next(layers: list[Layer], state: KernelState) -> tuple[int, KernelState]:
    """How many of the first layers are taken at once, and what comes out of them."""
    thinned = _thinned(layers, state)
    if thinned is not None:
        before, resize = thinned
        return len(before) + 1, resize.after(before, state)
    chain = leading_chain(layers, state)
    if chain and _thinned(layers[2 * len(chain) - 2 :], state):
        chain.pop()  # it had better ask the resize which pixels it reads
    taken = 2 * len(chain)
    match layers[taken : taken + 2]:
        case [Resize() as resize, Conv() as last] if chain and scales_pixels(last):
            # a + b K is resized to a + b K': the weights of a resize sum to one
            return taken + 2, resize.propagate(propagate_chain(chain, state, last))
    if chain:
        return taken, propagate_chain(chain, state)
    return 1, layers[0].propagate(state)


def _thinned(layers: list[Layer], state: KernelState) -> tuple[list[Layer], Resize] | None:
    """A convolution and a pointwise layer, or one of them, before a resize that drops pixels."""
    for count in (1, 2):
        *before, last = layers[: count + 1]
        if len(before) == count and isinstance(last, Resize) and min(last.size) < min(state.size):
            known = (type(before[0]) is Conv) + before[-1].pointwise == count
            return (before, last) if known else None
    return None


class Residual(Layer):
    """z + branch(z): K' = K + K_branch, exact because the branch ends in fresh weights.

    A branch that ends otherwise, as in z + relu(z), has covariance with its skip connection that
    the kernel does not know, and is refused.

    Args:
        branch: layers that keep the size of the maps and end in a Conv (Scale, ChannelNorm and
            resizing may follow it).
    """

    def __init__(self, *branch: Layer) -> None:
        super().__init__()
        self.branch = Sequential(*branch)

    def propagate(self, state: KernelState) -> KernelState:
        """A sum."""
        new = self.branch.propagate(replace(state, fresh=False))
        if not new.fresh:
            raise ValueError(
                "Residual got a branch that does not end in fresh weights, so that it covaries "
                "with its skip connection; it wants one that ends in a Conv: x + conv(relu(...))."
            )
        if new.size != state.size:
            raise ValueError(
                f"Residual got a branch that turns {state.size} pixels into {new.size}; "
                "it wants the same size: give its convolutions padding = dilation · (size − 1) / 2."
            )
        # cov(z + b, z' + b') = K + K_b, since E b = 0 given z
        return state.move(state.maps + new.maps, gaussian=state.gaussian and new.gaussian)

    def network(
        self, channels: int, width: int, generator: torch.Generator | None = None
    ) -> nn.Module:
        """The sum; the skip needs as many channels as the branch."""
        if self.branch.channels(channels, width) != channels:
            raise ValueError(
                f"A finite Residual got {channels} channels in and a branch of {width}; it wants "
                "the same width: put a Conv before it."
            )
        return Sum(self.branch.network(channels, width, generator))


class DenseConcat(Layer):
    """[z, branch(z)] along channels: K' = (1 − s) K + s K_branch, the mean over channels; exact.

    s is the share of the new channels among all. With growth g at every layer (DenseNet) the l-th
    layer has s = 1/l. Where the branch shrinks the maps (valid convolutions), z is cropped around
    its centre. Old and new channels have different variances, so a Conv must follow before the next
    nonlinearity: put nonlinearities inside the branch.

    Args:
        branch: the layers that make the new channels.
        share: s.
    """

    def __init__(self, *branch: Layer, share: float) -> None:
        super().__init__()
        if not 0 < share < 1:
            raise ValueError(f"DenseConcat got share {share}; it wants 0 < share < 1.")
        self.branch = Sequential(*branch)
        self.share = share

    def propagate(self, state: KernelState) -> KernelState:
        """A weighted mean."""
        new = self.branch.propagate(state)
        _check_crop(state.size, new.size)
        # K' = (1 − s) K + s K_b
        maps = torch.lerp(centre_crop(state.maps, *new.size), new.maps, self.share)
        return state.move(maps, gaussian=False, fresh=state.fresh and new.fresh)

    def network(
        self, channels: int, width: int, generator: torch.Generator | None = None
    ) -> nn.Module:
        """[z, branch(z)]; the width of the branch follows from the channels of z and the share."""
        return Concat(self.branch.network(channels, self._growth(channels), generator))

    def channels(self, channels: int, width: int) -> int:
        """Old and new."""
        return channels + self.branch.channels(channels, self._growth(channels))

    def _growth(self, channels: int) -> int:
        return max(1, round(channels * self.share / (1 - self.share)))


def _check_crop(old: tuple[int, int], new: tuple[int, int]) -> None:
    lost = old[0] - new[0], old[1] - new[1]
    if min(lost) < 0 or lost[0] % 2 or lost[1] % 2:
        raise ValueError(
            f"DenseConcat got a branch that turns {old} pixels into {new}; it wants the same size, "
            "or as many pixels lost on every side, to crop the skip around its centre."
        )
