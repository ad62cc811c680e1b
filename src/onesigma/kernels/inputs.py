"""Layers on the images themselves: what the random network gets to see."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Sequence

import torch
from jaxtyping import Float
from torch import Tensor, nn
from torch.nn.functional import avg_pool2d

from onesigma.kernels.finite import Apply
from onesigma.kernels.layers import Layer
from onesigma.kernels.state import KernelState


class ImageLayer(Layer):
    """A fixed function of the images, before any random weight; exact by definition."""

    @abstractmethod
    def transform(self, images: Float[Tensor, "n k h w"]) -> Float[Tensor, "n k h w"]:
        """The images as the network sees them."""

    def propagate(self, state: KernelState) -> KernelState:
        """The input kernel of the transformed images."""
        if state.source is None:
            raise ValueError(
                f"{type(self).__name__} came after another layer and wants the images themselves; "
                "put it first in the kernel."
            )
        return KernelState.of_images(self.transform(state.source))

    def network(
        self, channels: int, width: int, generator: torch.Generator | None = None
    ) -> nn.Module:
        """The function itself."""
        return Apply(self.transform)


class Standardise(ImageLayer):
    """(x − mean) / std, so that the network sees contrast instead of brightness.

    Args:
        mean: one number, or one for every channel.
        std: one number, or one for every channel.
    """

    def __init__(self, mean: float | Sequence[float], std: float | Sequence[float]) -> None:
        super().__init__()
        self.mean = [float(mean)] if isinstance(mean, float | int) else list(mean)
        self.std = [float(std)] if isinstance(std, float | int) else list(std)
        if min(self.std) <= 0:
            raise ValueError(f"Standardise got std {self.std}; it wants numbers > 0.")

    def transform(self, images: Float[Tensor, "n k h w"]) -> Float[Tensor, "n k h w"]:
        """(x − mean) / std."""
        k = images.shape[1]
        if {len(self.mean), len(self.std)} - {1, k}:
            raise ValueError(
                f"Standardise got images of {k} channels and {len(self.mean)} means, "
                f"{len(self.std)} deviations; it wants 1 or {k} of each."
            )
        mean, std = images.new_tensor(self.mean), images.new_tensor(self.std)
        return (images - mean.view(-1, 1, 1)) / std.view(-1, 1, 1)


class LocalContrast(ImageLayer):
    """(x − m(x)) / √(v(x) + ε), m and v the mean and variance of the surrounding window.

    What brightness and slow shading share between all photographs is gone; edges and texture stay.
    The window holds all channels and is cut at the border of the image.

    Args:
        size: side of the window in pixels, odd.
        epsilon: variance below which a window counts as flat.
    """

    def __init__(self, size: int, epsilon: float = 1e-3) -> None:
        super().__init__()
        if size < 3 or size % 2 == 0 or epsilon <= 0:
            raise ValueError(
                f"LocalContrast got size {size} and epsilon {epsilon}; it wants an odd size ≥ 3 "
                "and epsilon > 0."
            )
        self.size, self.epsilon = size, epsilon

    def transform(self, images: Float[Tensor, "n k h w"]) -> Float[Tensor, "n k h w"]:
        """(x − m) / √(v + ε)."""
        centred = images - self._window_mean(images)
        return centred * (self._window_mean(centred.square()) + self.epsilon).rsqrt()

    def _window_mean(self, images: Tensor) -> Tensor:
        # one axis after the other: the window is a product, also where the border cuts it
        half = self.size // 2
        mean = images.mean(1, keepdim=True)
        for kernel, pad in (((self.size, 1), (half, 0)), ((1, self.size), (0, half))):
            mean = avg_pool2d(mean, kernel, stride=1, padding=pad, count_include_pad=False)
        return mean
