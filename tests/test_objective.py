from __future__ import annotations

import math

import pytest
import torch
from torch import Tensor
from torch.distributions import MultivariateNormal, Normal
from torch.distributions import kl_divergence as torch_kl

from onesigma.covariance import BlockCovariance, LowRankCovariance, MarginalCovariance
from onesigma.divergence import kl_divergence
from onesigma.field import GaussianField
from onesigma.likelihoods.base import Likelihood
from onesigma.likelihoods.boltzmann import Boltzmann
from onesigma.likelihoods.gaussian import Gaussian
from onesigma.likelihoods.laplace import Laplace
from onesigma.objective import (
    FunctionalELBO,
    data_weight,
    functional_elbo,
    noise_weights,
    sparse_expected_log_prob,
    training_divergence,
    unlabelled_divergence,
)


def test_averages_and_weight() -> None:
    fit, kl = -torch.rand(2, 3, 4), torch.rand(5, 3, 4)
    valid = torch.rand(2, 3, 4) > 0.3
    fit = fit * valid
    elbo = functional_elbo(fit, kl, valid, kl_weight=0.25)
    torch.testing.assert_close(elbo.fit, fit[valid].mean())
    torch.testing.assert_close(elbo.kl, kl.sum() / 24)
    torch.testing.assert_close(elbo.value, elbo.fit - 0.25 * elbo.kl)
    published = functional_elbo(fit, kl, valid, normalisation="valid")
    torch.testing.assert_close(published.kl, kl.sum() / valid.sum())
    nothing = functional_elbo(torch.zeros(2, 3, 4), kl, torch.zeros(2, 3, 4, dtype=torch.bool))
    assert nothing.fit == 0
    assert nothing.value.isfinite()


@pytest.mark.usefixtures("as_users_call")
def test_bad_requests_are_answered() -> None:
    with pytest.raises(ValueError, match="labelled"):
        functional_elbo(torch.zeros(1, 2, 2), torch.zeros(1, 2, 2), normalisation="all")  # type: ignore[arg-type]
    with pytest.raises(ValueError, match="batch ≤ training"):
        data_weight(5, 4)
    assert data_weight(4, 367) == 4 / 367
    assert data_weight(4, 100, correlated_pixels=10) == pytest.approx(0.004)
    assert data_weight(4, 100, 0.1) == pytest.approx(0.4)
    with pytest.raises(ValueError, match="above 0, got 0"):
        data_weight(4, 100, 0)
    q, p = fields(3, 4, 4)
    with pytest.raises(ValueError, match="stride 0"):
        training_divergence(q, p, 2, stride=0)
    with pytest.raises(ValueError, match=r"stride 5 for maps of \(4, 4\) pixels"):
        training_divergence(q, p, 2, stride=5)
    with pytest.raises(ValueError, match="context_weight -1"):
        training_divergence(q, p, 2, context_weight=-1)
    with pytest.raises(ValueError, match="power 2"):
        noise_weights(torch.zeros(1, 1, 2, 2), 2, torch.ones(1, 2, 2).bool())


def test_with_power_one_residuals_pull_alike_and_the_noise_stays() -> None:
    g = torch.Generator().manual_seed(0)
    target = torch.randn(2, 1, 3, 4, generator=g, dtype=torch.float64)
    mean = torch.zeros_like(target).requires_grad_()
    log_scale = torch.randn(2, 1, 3, 4, generator=g, dtype=torch.float64).requires_grad_()
    valid = torch.rand(2, 3, 4, generator=g) > 0.3
    fit = Laplace().log_prob(target, mean, log_scale, valid)
    plain = torch.autograd.grad(fit.sum(), (mean, log_scale), retain_graph=True)

    def gradients(power: float) -> tuple[Tensor, ...]:
        weights = noise_weights(log_scale, power, valid)
        assert not weights.requires_grad
        torch.testing.assert_close(weights[valid].mean(), torch.ones((), dtype=torch.float64))
        elbo = functional_elbo(fit, torch.zeros(1, 3, 4), valid, weights=weights)
        torch.testing.assert_close(elbo.fit, fit[valid].mean())
        return torch.autograd.grad(elbo.value, (mean, log_scale), retain_graph=True)

    even, by_scale = gradients(1.0)
    # those of the mean of |y - m| / σ̄
    pulls = valid[:, None] * target.sign() / (valid.sum() * log_scale.exp()[:, 0][valid].mean())
    torch.testing.assert_close(even, pulls.detach())
    # a pixel whose σ was right has it right
    assert bool((by_scale.sign() == plain[1].sign()).all())
    torch.testing.assert_close(gradients(0.0)[0], plain[0] / valid.sum())
    assert not torch.allclose(plain[0][valid[:, None]].abs(), plain[0].abs().max())
    nothing = torch.zeros_like(valid)
    assert bool(noise_weights(log_scale, 1.0, nothing).isfinite().all())


def fields(n: int, h: int, w: int) -> tuple[GaussianField, GaussianField]:
    """Two different fields."""
    g = torch.Generator().manual_seed(1)
    blocks = prior_blocks(n, h, w)
    means = torch.randn(2, n, 1, h, w, generator=g, dtype=torch.float64)
    return (
        GaussianField(means[0], BlockCovariance(0.3 * blocks + 0.1 * blocks.flip(-1))),
        GaussianField(means[1], BlockCovariance(blocks)),
    )


def test_a_strided_divergence_is_unbiased() -> None:
    q, p = fields(3, 5, 7)
    draws = [
        training_divergence(q, p, 3, stride=2, generator=torch.Generator().manual_seed(seed))
        for seed in range(40)
    ]
    grids = {tuple((kl[0] != 0).nonzero()[0].tolist()): kl for kl in draws}
    # the mean over the four offsets
    assert len(grids) == 4
    torch.testing.assert_close(sum(grids.values()) / 4, kl_divergence(q, p))


@pytest.mark.parametrize("labels", [True, False])
def test_a_fit_on_a_grid_is_unbiased_and_hears_every_mean(labels: bool) -> None:
    g = torch.Generator().manual_seed(2)
    mean = torch.randn(2, 3, 5, 7, generator=g).requires_grad_()
    variance = torch.rand(2, 3, 5, 7, generator=g).requires_grad_()
    log_scale = 0.3 * torch.randn(2, 1, 5, 7, generator=g)
    valid = torch.rand(2, 5, 7, generator=g) > 0.3
    q = GaussianField(mean, MarginalCovariance(variance))
    likelihood: Likelihood = Boltzmann(scale="shared") if labels else Gaussian()
    whole = torch.randint(3, (2, 5, 7), generator=g), torch.randn(2, 3, 5, 7, generator=g)
    known = whole[0] if labels else whole[1], q, log_scale, valid

    def gradients(fit: Tensor) -> tuple[Tensor, ...]:
        return fit, *torch.autograd.grad(fit.sum(), (mean, variance))

    exact = gradients(likelihood.expected_log_prob(*known))
    draws: dict[float, tuple[Tensor, ...]] = {}
    for seed in range(40):
        generator = torch.Generator().manual_seed(seed)
        sparse = gradients(sparse_expected_log_prob(likelihood, *known, 2, generator))
        # the offset, by what the variance heard
        draws[float(sparse[2].sum())] = sparse
        assert bool(((sparse[1] != 0).any(1) == valid).all())
        assert bool((sparse[0][~valid] == 0).all())
    assert len(draws) == 4
    for each, wanted in zip(zip(*draws.values(), strict=True), exact, strict=True):
        torch.testing.assert_close(sum(each) / 4, wanted, rtol=1e-4, atol=1e-4)
    alone = sparse_expected_log_prob(likelihood, *known)
    assert torch.equal(alone, exact[0])


def test_context_counts_so_many_times() -> None:
    q, p = fields(3, 4, 4)
    labelled = kl_divergence(q[:2], p[:2])
    context = kl_divergence(q, p) - labelled
    assert context.abs().min() > 1e-3
    for weight in (0.0, 0.5, 1.0, 3.0):
        found = training_divergence(q, p, 2, weight)
        torch.testing.assert_close(found, labelled + weight * context)
    sparse = training_divergence(q, p, 2, 3.0, 2, torch.Generator().manual_seed(0))
    held = sparse != 0
    torch.testing.assert_close(sparse[held], 4 * (labelled + 3 * context)[held])


class FreePosterior:
    """q whose mean and covariance are the parameters themselves."""

    def __init__(self, n: int, h: int, w: int) -> None:
        self.mean = torch.zeros(n, 1, h, w, dtype=torch.float64, requires_grad=True)
        start = torch.eye(n, dtype=torch.float64)[:, :, None, None, None].repeat(1, 1, 1, h, w)
        self.root = start.requires_grad_()

    def field(self) -> GaussianField:
        blocks = torch.einsum("ikchw,jkchw->ijchw", self.root, self.root)
        return GaussianField(self.mean, BlockCovariance(blocks))


def prior_blocks(n: int, h: int, w: int) -> Tensor:
    """A different random kernel matrix over the images at each pixel."""
    g = torch.Generator().manual_seed(3)
    root = torch.randn(n, 3, 1, h, w, generator=g, dtype=torch.float64)
    noise = 0.2 * torch.eye(n, dtype=torch.float64)[:, :, None, None, None]
    return torch.einsum("ikchw,jkchw->ijchw", root, root) + noise


def test_maximising_the_objective_is_exact_gp_regression() -> None:
    """All images, Gaussian noise, a free q: the bound is the log marginal likelihood."""
    n, h, w, sigma = 5, 2, 2, 0.7
    g = torch.Generator().manual_seed(0)
    target = torch.randn(n, 1, h, w, generator=g, dtype=torch.float64)
    blocks, prior_mean = prior_blocks(n, h, w), 0.5
    p = GaussianField(torch.full_like(target, prior_mean), BlockCovariance(blocks))
    log_scale = torch.full_like(target, math.log(sigma))
    q = FreePosterior(n, h, w)

    def bound() -> FunctionalELBO:
        fit = Gaussian().expected_log_prob(target, q.field(), log_scale)
        return functional_elbo(fit, kl_divergence(q.field(), p))

    optimiser = torch.optim.LBFGS(
        [q.mean, q.root], max_iter=2000, tolerance_grad=1e-11, tolerance_change=1e-15,
        history_size=50, line_search_fn="strong_wolfe",
    )  # fmt: skip

    def closure() -> Tensor:
        optimiser.zero_grad()
        loss = -bound().value
        loss.backward()
        return loss

    optimiser.step(closure)  # type: ignore[arg-type]
    evidence = torch.zeros((), dtype=torch.float64)
    noise = sigma**2 * torch.eye(n, dtype=torch.float64)
    for i in range(h):
        for j in range(w):
            k, y = blocks[:, :, 0, i, j], target[:, 0, i, j]
            gain = torch.linalg.solve(k + noise, k).T
            exact_mean = prior_mean + gain @ (y - prior_mean)
            exact_covariance = k - gain @ k
            torch.testing.assert_close(q.mean[:, 0, i, j], exact_mean, rtol=0, atol=1e-6)
            ours = q.field().covariance.blocks()[:, :, 0, i, j]  # type: ignore[attr-defined]
            torch.testing.assert_close(ours, exact_covariance, rtol=0, atol=1e-6)
            evidence += MultivariateNormal(torch.full_like(y, prior_mean), k + noise).log_prob(y)
    assert abs(float(bound().value.detach()) * n * h * w - float(evidence)) < 1e-6


def minibatch_variance(images: int, weight: float) -> float:
    """Variance of q at the optimum of the mini-batch objective, images independent.

    One constant function (an image-independent q) is learned from batches of one image with a prior
    of variance k: the stationary point of E_batch[fit] - weight·KL.
    """
    prior, sigma = 2.0, 0.5
    log_variance = torch.zeros((), dtype=torch.float64, requires_grad=True)
    target = torch.randn(images, 1, 1, 1, dtype=torch.float64)
    optimiser = torch.optim.LBFGS([log_variance], max_iter=200, tolerance_grad=1e-12)

    def closure() -> Tensor:
        optimiser.zero_grad()
        loss = torch.zeros((), dtype=torch.float64)
        for y in target:
            variance = log_variance.exp().reshape(1, 1, 1, 1, 1)
            q = GaussianField(target.mean(0, keepdim=True), BlockCovariance(variance))
            p = GaussianField(
                torch.zeros_like(q.mean), BlockCovariance(torch.full_like(variance, prior))
            )
            scale = torch.full_like(q.mean, math.log(sigma))
            fit = Gaussian().expected_log_prob(y[None], q, scale)
            elbo = functional_elbo(fit, kl_divergence(q, p), kl_weight=weight)
            loss = loss - elbo.value / images
        loss.backward()
        return loss

    optimiser.step(closure)  # type: ignore[arg-type]
    return float(log_variance.detach().exp())


def test_variance_falls_with_the_data_only_at_weight_b_over_n() -> None:
    torch.manual_seed(0)
    prior, sigma = 2.0, 0.5
    for images in (4, 16, 64):
        # weight 1: s² = (1/k + 1/σ²)⁻¹, whatever N
        assert abs(minibatch_variance(images, 1.0) - 1 / (1 / prior + 1 / sigma**2)) < 1e-6
        # weight B/N with B = 1: the exact posterior of a constant, s² = (1/k + N/σ²)⁻¹
        exact = 1 / (1 / prior + images / sigma**2)
        assert abs(minibatch_variance(images, data_weight(1, images)) - exact) < 1e-6


def test_pixels_without_a_target_pay_their_own_divergence() -> None:
    q, p = fields(3, 4, 5)
    valid = torch.rand(3, 4, 5, generator=torch.Generator().manual_seed(0)) > 0.4
    own = torch_kl(Normal(q.mean, q.variance.sqrt()), Normal(p.mean, p.variance.sqrt()))
    wanted = torch.stack([sum(own[i] * ~valid[i] for i in range(3))])[0]
    assert (~valid).sum() > 5
    torch.testing.assert_close(unlabelled_divergence(q, p, ~valid), wanted, rtol=1e-12, atol=1e-12)
    assert bool((unlabelled_divergence(q, p, torch.zeros_like(valid)) == 0).all())
    assert bool((unlabelled_divergence(p, p, ~valid).abs() < 1e-12).all())


@pytest.mark.parametrize(
    ("call", "said"),
    [
        (lambda q, p, fit: functional_elbo(fit, torch.ones(2, 3, 5)), r"a kl of shape \(2, 3, 5\)"),
        (lambda q, p, fit: functional_elbo(fit, torch.ones(())), r"a kl of shape \(\)"),
        (lambda q, p, fit: functional_elbo(fit, fit[:2], fit[:1] > 0), r"valid of shape \(1, 3,"),
        (lambda q, p, fit: training_divergence(q, p, 5, 2), "labelled=5 .* from 1 to 4"),
        (lambda q, p, fit: training_divergence(q, p, 0), "labelled=0 .* from 1 to 4"),
        (lambda q, p, fit: unlabelled_divergence(q, p, fit[:1] > 0), r"a mask \(4, 3, 4\)"),
        (lambda q, p, fit: unlabelled_divergence(q, p[:1], fit > 0), "over the same images"),
    ],
)
@pytest.mark.usefixtures("as_users_call")
def test_shapes_that_would_broadcast_are_refused(call, said) -> None:  # type: ignore[no-untyped-def]
    ones = torch.ones(4, 2, 3, 4)
    field = GaussianField(ones, LowRankCovariance(ones[:, None], ones))
    with pytest.raises(ValueError, match=said):
        call(field, field, torch.ones(4, 3, 4))
