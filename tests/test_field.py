from __future__ import annotations

import pytest
import torch

from dense import dense_covariance
from onesigma.covariance import BlockCovariance, JointCovariance, MarginalCovariance
from onesigma.field import GaussianField, cat
from test_covariance import block, low_rank, shared_factor

DRAWS = 40_000


def field(covariance: JointCovariance) -> GaussianField:
    return GaussianField(torch.randn(4, 3, 2, 5, dtype=torch.float64), covariance)


@pytest.mark.parametrize("make", [block, low_rank, shared_factor])
@pytest.mark.parametrize("joint", [True, False])
def test_samples_have_the_field_s_moments(make, joint, generator) -> None:  # type: ignore[no-untyped-def]
    torch.manual_seed(0)
    f = field(make())
    samples = f.sample(DRAWS, joint=joint, generator=generator).reshape(DRAWS, -1)
    wanted = dense_covariance(f) if joint else f.variance.reshape(-1).diag()
    spread = wanted.diagonal()
    mean_z = (samples.mean(0) - f.mean.reshape(-1)) / (spread / DRAWS).sqrt()
    assert mean_z.abs().max() < 4.5
    # var(Ĉ_ij) = (C_ii C_jj + C_ij²) / S
    error = torch.sqrt((spread[:, None] * spread[None] + wanted.square()) / DRAWS)
    assert ((samples.T.cov() - wanted).abs() / error).max() < 5.5


def test_sampling_is_reparametrised_and_reproducible(generator) -> None:  # type: ignore[no-untyped-def]
    covariance = low_rank()
    covariance.factor.requires_grad_()
    f = field(covariance)
    first = f.sample(2, joint=True, generator=torch.Generator().manual_seed(3))
    again = f.sample(2, joint=True, generator=torch.Generator().manual_seed(3))
    torch.testing.assert_close(first, again, rtol=0, atol=0)
    first.sum().backward()
    assert covariance.factor.grad is not None
    assert covariance.factor.grad.abs().min() > 0


def test_marginal_fields_refuse_joint_samples() -> None:
    with pytest.raises(TypeError, match="joint=False"):
        field(block()).marginals().sample(1, joint=True)


@pytest.mark.usefixtures("as_users_call")
def test_slices_and_marginals() -> None:
    f = field(low_rank())
    torch.testing.assert_close(f[1:3].mean, f.mean[1:3])
    torch.testing.assert_close(f[1:3].variance, f.variance[1:3])
    assert isinstance(f.marginals().covariance, MarginalCovariance)
    torch.testing.assert_close(f.marginals().variance, f.variance)
    with pytest.raises(TypeError, match=r"write \[i : i \+ 1\]"):
        f[0]  # type: ignore[index]


@pytest.mark.parametrize("make", [block, low_rank, shared_factor])
def test_pixels_are_cut_out_of_mean_and_covariance(make) -> None:  # type: ignore[no-untyped-def]
    f, rows, cols = field(make()), slice(1, None), slice(0, None, 3)
    for whole in (f, f.marginals()):
        few = whole.at(rows, cols)
        torch.testing.assert_close(few.mean, whole.mean[..., rows, cols])
        torch.testing.assert_close(few.variance, whole.variance[..., rows, cols])
    few_blocks = f.at(rows, cols).covariance.blocks()  # type: ignore[attr-defined]
    torch.testing.assert_close(few_blocks, f.covariance.blocks()[..., rows, cols])  # type: ignore[attr-defined]


def test_one_covariance_for_all_outputs() -> None:
    shared = BlockCovariance(torch.eye(4)[:, :, None, None, None].repeat(1, 1, 1, 2, 5))
    f = GaussianField(torch.zeros(4, 3, 2, 5), shared)
    assert f.variance.shape == (4, 3, 2, 5)
    with pytest.raises(ValueError, match=r"\(n, c or 1, h, w\)"):
        GaussianField(torch.zeros(4, 3, 2, 6), shared)


@pytest.mark.parametrize("make", [block, low_rank, shared_factor])
def test_cat_invents_no_covariance(make) -> None:  # type: ignore[no-untyped-def]
    a, b = field(make()), field(make())[:2]
    both = cat([a, b])
    blocks = both.covariance.blocks()  # type: ignore[attr-defined]
    torch.testing.assert_close(blocks[:4, :4], a.covariance.blocks())  # type: ignore[attr-defined]
    torch.testing.assert_close(blocks[4:, 4:], b.covariance.blocks())  # type: ignore[attr-defined]
    assert blocks[:4, 4:].abs().max() == 0
    torch.testing.assert_close(both.mean, torch.cat([a.mean, b.mean]))


def test_cat_of_marginals_and_mixtures_of_kinds() -> None:
    a = field(block())
    assert len(cat([a.marginals(), a.marginals()])) == 8
    assert len(cat([field(block()), field(low_rank())])) == 8
    with pytest.raises(TypeError, match="marginals"):
        cat([a, a.marginals()])
    with pytest.raises(ValueError, match="at least one"):
        cat([])
