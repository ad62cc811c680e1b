from __future__ import annotations

from collections.abc import Callable
from typing import ClassVar

import pytest
import torch
from torch import Tensor

from onesigma.covariance import (
    BlockCovariance,
    Covariance,
    JointCovariance,
    LowRankCovariance,
    MarginalCovariance,
)


def shared_factor(n: int = 4) -> LowRankCovariance:
    return LowRankCovariance(
        torch.randn(n, 2, 1, 2, 5, dtype=torch.float64),
        torch.rand(n, 3, 2, 5, dtype=torch.float64) + 0.1,
    )


def entry(covariance: Covariance, i: int, j: int) -> Tensor:
    """cov(f_i, f_j) straight from the definition."""
    if isinstance(covariance, LowRankCovariance):
        total = sum(
            covariance.factor[i, r] * covariance.factor[j, r]
            for r in range(covariance.factor.shape[1])
        )
        return total + covariance.diagonal[i] * (i == j)
    assert isinstance(covariance, BlockCovariance)
    return covariance.tensor[i, j]


def block(n: int = 4) -> BlockCovariance:
    root = torch.randn(n, n, 3, 2, 5, dtype=torch.float64)
    return BlockCovariance(torch.einsum("ikchw,jkchw->ijchw", root, root))


def low_rank(n: int = 4) -> LowRankCovariance:
    return LowRankCovariance(
        torch.randn(n, 2, 3, 2, 5, dtype=torch.float64),
        torch.rand(n, 3, 2, 5, dtype=torch.float64) + 0.1,
    )


class JointContract:
    """What every joint covariance promises; a new one subclasses this in four lines."""

    make: ClassVar[Callable[[], JointCovariance]]

    def test_blocks_are_the_entries(self) -> None:
        covariance = self.make()
        blocks = covariance.blocks()
        for i in range(4):
            for j in range(4):
                torch.testing.assert_close(blocks[i, j], entry(covariance, i, j))

    def test_blocks_in_chunks(self) -> None:
        covariance = self.make()
        whole = covariance.blocks().flatten(2)
        torch.testing.assert_close(covariance.blocks(slice(7, 19)), whole[..., 7:19])

    def test_variance_is_the_diagonal(self) -> None:
        covariance = self.make()
        for i in range(4):
            torch.testing.assert_close(covariance.variance[i], entry(covariance, i, i))

    def test_slices_cut_both_axes(self) -> None:
        covariance = self.make()
        torch.testing.assert_close(covariance[1:3].blocks(), covariance.blocks()[1:3, 1:3])

    def test_shape_and_length(self) -> None:
        covariance = self.make()
        assert covariance.shape == (4, 3, 2, 5)
        assert len(covariance) == 4


class TestBlock(JointContract):
    make = staticmethod(block)


class TestLowRank(JointContract):
    make = staticmethod(low_rank)


class TestSharedFactor(JointContract):
    make = staticmethod(shared_factor)


def test_equal_images_stay_two_variables() -> None:
    factor = torch.ones(1, 2, 1, 1, 1).repeat(2, 1, 1, 1, 1)
    covariance = LowRankCovariance(factor, torch.full((2, 1, 1, 1), 0.5))
    torch.testing.assert_close(
        covariance.blocks().squeeze(), torch.tensor([[2.5, 2.0], [2.0, 2.5]])
    )


def test_marginal_is_cut_over_images() -> None:
    variance = torch.rand(4, 3, 2, 5)
    torch.testing.assert_close(MarginalCovariance(variance)[1:].variance, variance[1:])


@pytest.mark.usefixtures("as_users_call")
def test_wrong_shapes_say_what_was_wanted() -> None:
    with pytest.raises(ValueError, match=r"\(n, n, c or 1, h, w\)"):
        BlockCovariance(torch.zeros(2, 3, 1, 4, 4))
    with pytest.raises(ValueError, match="same n, h, w"):
        LowRankCovariance(torch.zeros(2, 3, 1, 4, 4), torch.zeros(3, 1, 4, 4))
    with pytest.raises(ValueError, match=r"\(n, c or 1, h, w\)"):
        MarginalCovariance(torch.zeros(2, 4))
