"""Covariances over images: for each output (c, h, w) one small n × n matrix.

The paper's "block matrix with diagonal blocks": outputs at different classes or pixels are
independent, the same output of different images is not.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass

import torch
from jaxtyping import Float
from torch import Tensor


class Covariance(ABC):
    """What every covariance over n images can do: tell its variances and be cut."""

    @property
    @abstractmethod
    def variance(self) -> Float[Tensor, "n #c h w"]:
        """The diagonal, cov(f_i, f_i)."""

    @property
    @abstractmethod
    def shape(self) -> tuple[int, int, int, int]:
        """(n, #c, h, w), the shape of the variance."""

    @abstractmethod
    def __getitem__(self, images: slice) -> Covariance:
        """The covariance of these images alone (both image axes are cut)."""

    @abstractmethod
    def at(self, rows: slice, cols: slice) -> Covariance:
        """The covariance at these rows and columns of pixels alone."""

    def __len__(self) -> int:
        return self.shape[0]


class JointCovariance(Covariance):
    """A covariance that knows how images covary, so that divergences and joint samples exist."""

    @abstractmethod
    def blocks(self, pixels: slice | None = None) -> Float[Tensor, "n n *outputs"]:
        """The n × n matrices: all, or those of a slice of the flattened (c, h, w) outputs."""


@dataclass(frozen=True, eq=False)
class BlockCovariance(JointCovariance):
    """Explicit matrices, images first so that outputs are contiguous.

    Attributes:
        tensor: K[i, j] = cov(f_i, f_j) for every output.
    """

    tensor: Float[Tensor, "n n #c h w"]

    def __post_init__(self) -> None:
        shape = tuple(self.tensor.shape)
        if len(shape) != 5 or shape[0] != shape[1]:
            raise ValueError(
                f"BlockCovariance got a tensor of shape {shape}; it wants (n, n, c or 1, h, w): "
                "one n × n matrix over images for each output, images leading."
            )

    @property
    def variance(self) -> Float[Tensor, "n #c h w"]:
        """K_ii."""
        return torch.einsum("iichw->ichw", self.tensor)

    @property
    def shape(self) -> tuple[int, int, int, int]:
        """(n, #c, h, w)."""
        n, c, h, w = self.tensor.shape[1:]
        return n, c, h, w

    def __getitem__(self, images: slice) -> BlockCovariance:
        return BlockCovariance(self.tensor[images, images])

    def at(self, rows: slice, cols: slice) -> BlockCovariance:
        """K at these pixels."""
        return BlockCovariance(self.tensor[..., rows, cols])

    def blocks(self, pixels: slice | None = None) -> Float[Tensor, "n n *outputs"]:
        """K itself."""
        return self.tensor if pixels is None else self.tensor.flatten(2)[..., pixels]


@dataclass(frozen=True, eq=False)
class LowRankCovariance(JointCovariance):
    """Σ_ij = Σ_r g_r(x_i) g_r(x_j) + δ_ij D(x_i), the form of the network (paper eq. q_covariance).

    δ means "the same position in the batch", so that two equal images stay two variables. The
    paper's 1/L is inside the factor. A factor with one channel is shared by the outputs of the
    diagonal, which stay independent of each other.

    Attributes:
        factor: g.
        diagonal: D.
    """

    factor: Float[Tensor, "n r #c h w"]
    diagonal: Float[Tensor, "n #c h w"]

    def __post_init__(self) -> None:
        factor, diagonal = tuple(self.factor.shape), tuple(self.diagonal.shape)
        fits = len(factor) == 5 and len(diagonal) == 4 and factor[2] in (1, diagonal[1])
        if not fits or (factor[0], *factor[3:]) != (diagonal[0], *diagonal[2:]):
            raise ValueError(
                f"LowRankCovariance got a factor of shape {factor} and a diagonal of shape "
                f"{diagonal}; it wants (n, r, c or 1, h, w) and (n, c, h, w) with the same n, h, w."
            )

    @property
    def variance(self) -> Float[Tensor, "n #c h w"]:
        """Σ_ii = Σ_r g_r(x_i)² + D(x_i)."""
        return self.factor.square().sum(1) + self.diagonal

    @property
    def shape(self) -> tuple[int, int, int, int]:
        """(n, #c, h, w)."""
        n, c, h, w = self.diagonal.shape
        return n, c, h, w

    def __getitem__(self, images: slice) -> LowRankCovariance:
        return LowRankCovariance(self.factor[images], self.diagonal[images])

    def at(self, rows: slice, cols: slice) -> LowRankCovariance:
        """Factors and diagonal at these pixels."""
        return LowRankCovariance(self.factor[..., rows, cols], self.diagonal[..., rows, cols])

    def blocks(self, pixels: slice | None = None) -> Float[Tensor, "n n *outputs"]:
        """Σ_ij, formed by products and sums over r (einsum is slow on tiny image axes)."""
        factor = self.factor.expand(-1, -1, self.shape[1], -1, -1)
        if pixels is None:
            return low_rank_blocks(factor, self.diagonal)
        return low_rank_blocks(factor.flatten(2)[..., pixels], self.diagonal.flatten(1)[:, pixels])


class MarginalCovariance(Covariance):
    """The diagonal only: what prediction needs, and all it needs.

    Args:
        variance: cov(f_i, f_i).
    """

    def __init__(self, variance: Float[Tensor, "n #c h w"]) -> None:
        if variance.ndim != 4:
            raise ValueError(
                f"MarginalCovariance got a variance of shape {tuple(variance.shape)}; "
                "it wants (n, c or 1, h, w)."
            )
        self._variance = variance

    @property
    def variance(self) -> Float[Tensor, "n #c h w"]:
        """cov(f_i, f_i)."""
        return self._variance

    @property
    def shape(self) -> tuple[int, int, int, int]:
        """(n, #c, h, w)."""
        n, c, h, w = self._variance.shape
        return n, c, h, w

    def __getitem__(self, images: slice) -> MarginalCovariance:
        return MarginalCovariance(self._variance[images])

    def at(self, rows: slice, cols: slice) -> MarginalCovariance:
        """The variances of these pixels."""
        return MarginalCovariance(self._variance[..., rows, cols])


def low_rank_blocks(factor: Tensor, diagonal: Tensor) -> Tensor:
    """Σ_ij = Σ_r g_ri g_rj + δ_ij D_i for factors (n, r, ...) and diagonals (n, ...)."""
    n = factor.shape[0]
    rows = [[(factor[i] * factor[j]).sum(0) for j in range(i + 1)] for i in range(n)]
    for i in range(n):
        rows[i][i] = rows[i][i] + diagonal[i]
    return torch.stack(
        [torch.stack([rows[max(i, j)][min(i, j)] for j in range(n)]) for i in range(n)]
    )
