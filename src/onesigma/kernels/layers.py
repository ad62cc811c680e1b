"""Kernel layers: each propagates same-pixel covariances and builds its finite random network."""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Sequence
from functools import partial, reduce

import torch
from torch import Tensor, nn
from torch.nn.functional import pad as zero_pad

from onesigma.kernels.finite import Apply, channel_norm, random_convolution
from onesigma.kernels.nonlinear import ReLUExpectation, erf_expectation
from onesigma.kernels.positive import Positive
from onesigma.kernels.state import KernelState


class Layer(nn.Module, ABC):
    """One layer of an infinitely wide random network, and its finite twin.

    A layer is a module so that its variances can be learned; it holds no weights.

    Attributes:
        pointwise: every pixel is computed from that pixel alone.
    """

    pointwise = False

    @abstractmethod
    def propagate(self, state: KernelState) -> KernelState:
        """The covariances after the layer; refuses where they would not be exact."""

    @abstractmethod
    def network(
        self, channels: int, width: int, generator: torch.Generator | None = None
    ) -> nn.Module:
        """A finite random network of this layer, whose covariance tends to `propagate`'s.

        Args:
            channels: channels that come in.
            width: channels of every convolution, also of the last.
            generator: source of the weights; torch's global one if None.
        """

    def channels(self, channels: int, width: int) -> int:
        """Channels that leave the network of the same arguments."""
        return channels


class Conv(Layer):
    """A convolution with random weights: K'(q) = σ_b² + σ_w² Σ_taps K(q + tap), exact.

    Weights are N(0, σ_w² / channels), biases N(0, σ_b²) per channel. Zero padding adds nothing.

    Args:
        size: taps, one number or (height, width).
        weight_variance: σ_w², per tap.
        bias_variance: σ_b².
        stride: step between outputs.
        padding: zeros on every side.
        dilation: step between taps.
    """

    def __init__(
        self,
        size: int | tuple[int, int],
        weight_variance: float,
        bias_variance: float = 0.0,
        stride: int = 1,
        padding: int = 0,
        dilation: int = 1,
    ) -> None:
        super().__init__()
        self.size = (size, size) if isinstance(size, int) else size
        self.stride, self.padding, self.dilation = stride, padding, dilation
        if min(*self.size, stride, dilation) < 1 or padding < 0:
            raise ValueError(
                f"Conv got size {self.size}, stride {stride}, padding {padding}, dilation "
                f"{dilation}; it wants size, stride and dilation ≥ 1 and padding ≥ 0."
            )
        self.weight_variance = Positive(weight_variance, "weight_variance")
        self.bias_variance = Positive(bias_variance, "bias_variance")

    def propagate(self, state: KernelState) -> KernelState:
        """Box sums along one axis after the other; the result is Gaussian and fresh."""
        total = _window_sum(self._padded(state), 1, self.size[0], self.stride, self.dilation)
        total = _window_sum(total, 2, self.size[1], self.stride, self.dilation)
        return self._weighted(state, total)

    def at(self, state: KernelState, rows: Tensor, columns: Tensor) -> KernelState:
        """The layer at some rows and columns of its output only.

        Args:
            state: before the layer.
            rows: of the output.
            columns: of the output.
        """
        down, along = (
            [places * self.stride + t * self.dilation for t in range(taps)]
            for places, taps in zip((rows, columns), self.size, strict=True)
        )
        maps = self._padded(state)
        total = reduce(torch.add, (maps.index_select(1, places) for places in down))
        total = reduce(torch.add, (total.index_select(2, places) for places in along))
        return self._weighted(state, total)

    def output_size(self, size: tuple[int, int]) -> tuple[int, int]:
        """(h, w) after the layer."""
        height, width = (
            (length + 2 * self.padding - self.dilation * (taps - 1) - 1) // self.stride + 1
            for length, taps in zip(size, self.size, strict=True)
        )
        return height, width

    def _padded(self, state: KernelState) -> Tensor:
        self.check(state.size)
        return zero_pad(state.maps, (self.padding,) * 4) if self.padding else state.maps

    def _weighted(self, state: KernelState, total: Tensor) -> KernelState:
        # K'(q) = σ_b² + σ_w² Σ_t K(q + t)
        weight, bias = self.weight_variance(), self.bias_variance()
        if isinstance(weight, float) and isinstance(bias, float):
            # one pass, in memory that is already there unless somebody else may read it
            own = None if total.requires_grad or self.size == (1, 1) else total
            maps = torch.add(total.new_tensor(bias), total, alpha=weight, out=own)
        else:
            maps = total * weight + bias
        return state.move(maps, gaussian=True, fresh=True)

    def check(self, size: Sequence[int]) -> None:
        """Refuse maps without room for one window."""
        reach = [self.dilation * (taps - 1) + 1 for taps in self.size]
        have = [length + 2 * self.padding for length in size]
        if have[0] < reach[0] or have[1] < reach[1]:
            raise ValueError(
                f"Conv got maps of {size[0]}×{size[1]} pixels (padding {self.padding}) and wants "
                f"{reach[0]}×{reach[1]} or more; give larger images, more padding or fewer layers."
            )

    def network(
        self, channels: int, width: int, generator: torch.Generator | None = None
    ) -> nn.Module:
        """A convolution with drawn weights."""
        convolution = nn.utils.skip_init(
            nn.Conv2d,
            channels,
            width,
            self.size,
            stride=self.stride,
            padding=self.padding,
            dilation=self.dilation,
        )
        weight, bias = float(self.weight_variance()), float(self.bias_variance())
        return random_convolution(convolution, weight / channels, bias, generator)

    def channels(self, channels: int, width: int) -> int:
        """The width."""
        return width

    def extra_repr(self) -> str:
        """The shape, for printing a kernel."""
        return (
            f"{self.size}, stride={self.stride}, padding={self.padding}, dilation={self.dilation}"
        )


def _window_sum(maps: Tensor, axis: int, size: int, stride: int, dilation: int) -> Tensor:
    """Σ_t maps[stride · q + dilation · t] along one axis."""
    span = (maps.shape[axis] - dilation * (size - 1) - 1) // stride * stride + 1
    taps = [maps.narrow(axis, t * dilation, span) for t in range(size)]
    if stride > 1:
        taps = [tap[:, ::stride] if axis == 1 else tap[..., ::stride] for tap in taps]
    if size == 1:
        return taps[0]
    total = taps[0] + taps[1]
    for tap in taps[2:]:
        total += tap
    return total


class ReLU(Layer):
    """K' = E relu(z_i) relu(z_j), the arc-cosine kernel with variance K / 2; exact after a Conv."""

    pointwise = True

    def propagate(self, state: KernelState) -> KernelState:
        """The closed form, for Gaussian activations."""
        _want_gaussian(state, "ReLU")
        maps: Tensor = ReLUExpectation.apply(state.maps, state.images)
        return state.move(maps, gaussian=False, fresh=False)

    def network(
        self, channels: int, width: int, generator: torch.Generator | None = None
    ) -> nn.Module:
        """max(z, 0)."""
        return nn.ReLU()


class Erf(Layer):
    """K' = 2/π asin(2 K_ij / √((1 + 2 K_ii)(1 + 2 K_jj))); odd, so uncorrelated stays uncorrelated.

    Exact after a Conv.
    """

    pointwise = True

    def propagate(self, state: KernelState) -> KernelState:
        """The closed form, for Gaussian activations."""
        _want_gaussian(state, "Erf")
        maps = erf_expectation(state.maps, *state.pairs())
        return state.move(maps, gaussian=False, fresh=False)

    def network(
        self, channels: int, width: int, generator: torch.Generator | None = None
    ) -> nn.Module:
        """erf(z)."""
        return Apply(torch.erf)


def _want_gaussian(state: KernelState, name: str) -> None:
    if not state.gaussian:
        raise ValueError(
            f"{name} got activations that are not Gaussian with equal channels (the image itself, "
            "the output of another nonlinearity, a concatenation, or a sum with one of these); "
            "its closed form wants a Conv right before it."
        )


class Scale(Layer):
    """K' = s K: the activations times √s.

    Args:
        factor: s.
    """

    pointwise = True

    def __init__(self, factor: float) -> None:
        super().__init__()
        self.factor = Positive(factor, "factor")

    def propagate(self, state: KernelState) -> KernelState:
        """A product."""
        return state.move(state.maps * self.factor())

    def network(
        self, channels: int, width: int, generator: torch.Generator | None = None
    ) -> nn.Module:
        """√s z."""
        return Apply(partial(torch.mul, other=math.sqrt(float(self.factor()))))


class ChannelNorm(Layer):
    """K' = K_ij / √((K_ii + ε)(K_jj + ε)): each pixel over its root mean square across channels.

    Exact in the limit of many channels, where that root mean square is no longer random. Afterwards
    all variances are (nearly) 1, and what is left is correlation.

    Args:
        epsilon: keeps empty pixels finite.
    """

    pointwise = True

    def __init__(self, epsilon: float = 1e-6) -> None:
        super().__init__()
        if epsilon <= 0:
            raise ValueError(f"ChannelNorm got epsilon {epsilon}; it wants a number > 0.")
        self.epsilon = epsilon

    def propagate(self, state: KernelState) -> KernelState:
        """A quotient."""
        n = state.images
        rows, columns = state.pairs()
        inverse = (state.maps[:n] + self.epsilon).rsqrt()
        factor = torch.cat([inverse.square(), inverse[rows] * inverse[columns]])
        return state.move(state.maps * factor)

    def network(
        self, channels: int, width: int, generator: torch.Generator | None = None
    ) -> nn.Module:
        """The quotient z / √(mean over channels of z² + ε)."""
        return Apply(partial(channel_norm, epsilon=self.epsilon))
