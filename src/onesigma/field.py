"""The one random object of the library: a Gaussian field over images."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from jaxtyping import Float
from torch import Tensor

from onesigma.covariance import (
    BlockCovariance,
    Covariance,
    JointCovariance,
    LowRankCovariance,
    MarginalCovariance,
)


@dataclass(frozen=True, eq=False)
class GaussianField:
    """f ~ N(mean, covariance) over n images: the prior returns one, the network returns one.

    A covariance with one channel (#c = 1) is shared by all outputs of the mean: the outputs are
    independent and equally distributed around their means.

    Attributes:
        mean: E f.
        covariance: any `Covariance` of the same images.
    """

    mean: Float[Tensor, "n c h w"]
    covariance: Covariance

    def __post_init__(self) -> None:
        mean, variance = tuple(self.mean.shape), self.covariance.shape
        fits = len(mean) == 4 and variance in (mean, (mean[0], 1, *mean[2:]))
        if not fits:
            raise ValueError(
                f"GaussianField got a mean of shape {mean} and a covariance whose variance has "
                f"shape {variance}; it wants (n, c, h, w) and (n, c or 1, h, w)."
            )

    @property
    def variance(self) -> Float[Tensor, "n c h w"]:
        """The marginal variances, one for each entry of the mean."""
        return self.covariance.variance.expand_as(self.mean)

    def __len__(self) -> int:
        return self.mean.shape[0]

    def __getitem__(self, images: slice) -> GaussianField:
        """The field of these images alone, with their joint covariance."""
        check_slice(self, images)
        return GaussianField(self.mean[images], self.covariance[images])

    def at(self, rows: slice, cols: slice) -> GaussianField:
        """The field at these rows and columns alone; pixels are independent of each other."""
        return GaussianField(self.mean[..., rows, cols], self.covariance.at(rows, cols))

    def marginals(self) -> GaussianField:
        """The same field without the covariances between images."""
        return GaussianField(self.mean, MarginalCovariance(self.covariance.variance))

    def sample(
        self, num: int, joint: bool = False, generator: torch.Generator | None = None
    ) -> Float[Tensor, "s n c h w"]:
        """Draw functions; reparametrised, so that gradients reach mean and covariance.

        Args:
            num: how many.
            joint: keep the covariance between images; otherwise each image is drawn on its own.
            generator: source of randomness.
        """
        if not joint:
            noise = self._noise((num, *self.mean.shape), generator)
            return self.mean + self.variance.sqrt() * noise
        if isinstance(self.covariance, LowRankCovariance):
            return self.mean + self._low_rank_noise(self.covariance, num, generator)
        if isinstance(self.covariance, JointCovariance):
            return self.mean + self._block_noise(self.covariance, num, generator)
        raise TypeError(
            f"{type(self.covariance).__name__} does not know how images covary: "
            "draw with joint=False, or keep a BlockCovariance or LowRankCovariance."
        )

    def _noise(self, shape: Sequence[int], generator: torch.Generator | None) -> Tensor:
        return torch.randn(
            shape, generator=generator, dtype=self.mean.dtype, device=self.mean.device
        )

    def _low_rank_noise(
        self, covariance: LowRankCovariance, num: int, generator: torch.Generator | None
    ) -> Tensor:
        n, c, h, w = self.mean.shape
        # f - m = Σ_r g_r ε_r + √D ε₀, ε_r shared by the images
        total = covariance.diagonal.sqrt() * self._noise((num, n, c, h, w), generator)
        for r in range(covariance.factor.shape[1]):
            total = total + covariance.factor[:, r] * self._noise((num, 1, c, h, w), generator)
        return total

    def _block_noise(
        self, covariance: JointCovariance, num: int, generator: torch.Generator | None
    ) -> Tensor:
        # f - m = L ε, K = L Lᵀ
        root = torch.linalg.cholesky(covariance.blocks().movedim((0, 1), (-2, -1)))
        noise = self._noise((num, *self.mean.shape[1:], len(self), 1), generator)
        return (root @ noise).squeeze(-1).movedim(-1, 1)


def check_slice(of: object, images: object) -> None:
    """Raise unless images are chosen by a slice, which keeps their axis."""
    if not isinstance(images, slice):
        raise TypeError(
            f"A {type(of).__name__} is cut by a slice over images, got {images!r}; "
            "for one image write [i : i + 1]."
        )


def cat(fields: Sequence[GaussianField]) -> GaussianField:
    """One field over the images of all, with no covariance between images of different fields."""
    if not fields:
        raise ValueError("cat got no fields; it wants at least one.")
    mean = torch.cat([field.mean for field in fields])
    return GaussianField(mean, _independent([field.covariance for field in fields]))


def _independent(parts: Sequence[Covariance]) -> Covariance:
    if all(isinstance(part, MarginalCovariance) for part in parts):
        return MarginalCovariance(torch.cat([part.variance for part in parts]))
    low_rank = [part for part in parts if isinstance(part, LowRankCovariance)]
    if len(low_rank) == len(parts):
        return _side_by_side(low_rank)
    joint = [part for part in parts if isinstance(part, JointCovariance)]
    if len(joint) == len(parts):
        blocks = [part.blocks() for part in joint]
        return BlockCovariance(torch.cat(_widened(blocks)))
    raise TypeError("cat got marginal and joint covariances; call .marginals() on all first.")


def _side_by_side(parts: Sequence[LowRankCovariance]) -> LowRankCovariance:
    """Each part has ranks of its own, 0 for the images of the others."""
    factors = _widened([part.factor for part in parts])
    return LowRankCovariance(torch.cat(factors), torch.cat([part.diagonal for part in parts]))


def _widened(tensors: Sequence[Tensor]) -> list[Tensor]:
    """Each tensor at its own place along axis 1, with zeros at the places of the others."""
    total, before, out = sum(t.shape[1] for t in tensors), 0, []
    for tensor in tensors:
        n, own, *output = tensor.shape
        left = tensor.new_zeros(n, before, *output)
        right = tensor.new_zeros(n, total - before - own, *output)
        out.append(torch.cat([left, tensor, right], 1))
        before += own
    return out
