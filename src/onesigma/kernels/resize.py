"""Layers that resize: nearest exactly, bilinear as published."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable, Sequence
from functools import partial, reduce
from typing import Literal

import torch
from torch import Tensor, nn
from torch.nn.functional import interpolate

from onesigma.kernels.finite import Apply
from onesigma.kernels.layers import Conv, Layer
from onesigma.kernels.state import KernelState

Read = Callable[[Tensor, Tensor], KernelState]  # at rows and columns


class Resize(Layer):
    """Resizing to a given size, up or down.

    Args:
        height: output height.
        width: output width.
    """

    mode: Literal["nearest", "bilinear"]
    reads: int  # pixels of the input along one axis for one of the output

    def __init__(self, height: int, width: int) -> None:
        super().__init__()
        if min(height, width) < 1:
            raise ValueError(
                f"{type(self).__name__} got size {height}×{width}; it wants at least 1×1."
            )
        self.size = (height, width)

    def propagate(self, state: KernelState) -> KernelState:
        """Resized covariances."""
        return self.after((), state)

    def after(self, layers: Sequence[Layer], state: KernelState) -> KernelState:
        """Other layers, then this one; where few pixels are kept, only those are computed.

        Args:
            layers: at most a `Conv`, then at most a pointwise layer.
            state: before all.
        """
        conv = layers[0] if layers and isinstance(layers[0], Conv) else None
        pointwise = layers if conv is None else layers[1:]
        if conv is not None and not self._keeps_few(conv.output_size(state.size), max(conv.size)):
            state, conv = conv.propagate(state), None
        size = state.size if conv is None else conv.output_size(state.size)
        if not self._keeps_few(size):
            state = _through(pointwise, state)
            return state.move(_interpolate(state.maps[None], self.size, self.mode)[0])

        def read(rows: Tensor, columns: Tensor) -> KernelState:
            rows, columns = rows.to(state.maps.device), columns.to(state.maps.device)
            if conv is not None:
                return _through(pointwise, conv.at(state, rows, columns))
            picked = state.maps.index_select(1, rows).index_select(2, columns)
            return _through(pointwise, state.move(picked))

        return self._thin(read, size)

    def network(
        self, channels: int, width: int, generator: torch.Generator | None = None
    ) -> nn.Module:
        """The same resizing of activations."""
        return Apply(partial(_interpolate, size=self.size, mode=self.mode))

    def _keeps_few(self, size: tuple[int, int], taps: int = 1) -> bool:
        return all(
            self.reads * taps * out < have for out, have in zip(self.size, size, strict=True)
        )

    @abstractmethod
    def _thin(self, read: Read, size: tuple[int, int]) -> KernelState:
        """A strong reduction of maps of this size, from the rows and columns that it reads."""


class NearestUpsample(Resize):
    """K'(q) = K(nearest(q)), torch's "nearest" to a given size, up or down; exact.

    Args:
        height: output height.
        width: output width.
    """

    mode = "nearest"
    reads = 1

    def _thin(self, read: Read, size: tuple[int, int]) -> KernelState:
        rows, columns = (
            _interpolate(torch.arange(float(have))[None, None, None], (1, out), "nearest")
            .long()
            .view(-1)
            for have, out in zip(size, self.size, strict=True)
        )
        return read(rows, columns)


class BilinearUpsampleApproximation(Resize):
    """K'(q) ≈ Σ_p a_qp K(p): bilinear resizing applied to the kernel maps, as published.

    The exact law is Σ_pp' a_qp a_qp' K(p, p'), which needs covariances between pixels. This one
    over-estimates variances: by less than 1 % for the paper's prior, whose pixels are almost
    perfectly correlated, by up to a factor 4 (weights ¼ each) where neighbours are unrelated. Not
    antialiased, align_corners=False.

    Args:
        height: output height.
        width: output width.
    """

    mode = "bilinear"
    reads = 2

    def _thin(self, read: Read, size: tuple[int, int]) -> KernelState:
        (rows, down), (columns, right) = (
            _neighbours(have, out) for have, out in zip(size, self.size, strict=True)
        )
        state = read(rows, columns)
        down, right = down.to(state.maps), right.to(state.maps)
        # (1 − a) K(p) + a K(p + 1) along one axis after the other
        maps = torch.lerp(state.maps[:, ::2], state.maps[:, 1::2], down[:, None])
        return state.move(torch.lerp(maps[..., ::2], maps[..., 1::2], right))


def _through(layers: Sequence[Layer], state: KernelState) -> KernelState:
    return reduce(lambda seen, layer: layer.propagate(seen), layers, state)


def _interpolate(images: Tensor, size: tuple[int, int], mode: str) -> Tensor:
    corners = False if mode == "bilinear" else None
    return interpolate(images, size, mode=mode, align_corners=corners)


def _neighbours(have: int, out: int) -> tuple[Tensor, Tensor]:
    """The pixels p, p + 1 around every output pixel's centre, in turn, and the weight of p + 1."""
    places = torch.arange(out, dtype=torch.float64)
    centre = ((places + 0.5) * (have / out) - 0.5).clamp_min(0)
    first = centre.floor().long().clamp_max(have - 2)
    return torch.stack([first, first + 1], 1).view(-1), centre - first
