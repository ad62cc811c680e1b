"""Expected log-probabilities in closed form against 50 reparametrised samples.

Forward and backward on 4 × 168 × 224 pixels, one thread; medians of interleaved repeats in one
run, so that only the ratios mean something.
"""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor

from measuring import seconds, write
from onesigma.covariance import MarginalCovariance
from onesigma.field import GaussianField
from onesigma.likelihoods.berhu import BerHu
from onesigma.likelihoods.gaussian import Gaussian
from onesigma.likelihoods.gibbs import from_loss
from onesigma.likelihoods.laplace import Laplace
from onesigma.likelihoods.regression import RegressionLikelihood

SHAPE = (4, 1, 168, 224)
SAMPLES = 50
THRESHOLD = 0.7


def sampled_loss(loss: Callable[[Tensor], Tensor], y: Tensor, leaves: list[Tensor]) -> Tensor:
    mean, variance, log_scale = leaves
    noise = torch.randn(SAMPLES, *mean.shape)
    f = mean + variance.sqrt() * noise
    return (loss((y - f) * (-log_scale).exp()).mean(0) + log_scale).sum()


def closed_form(likelihood: RegressionLikelihood, y: Tensor, leaves: list[Tensor]) -> Tensor:
    q = GaussianField(leaves[0], MarginalCovariance(leaves[1]))
    return -likelihood.expected_log_prob(y, q, leaves[2]).sum()


def berhu_loss(u: Tensor) -> Tensor:
    size = u.abs()
    return torch.where(size < THRESHOLD, size, (u.square() + THRESHOLD**2) / (2 * THRESHOLD))


def training_calls(y: Tensor, leaves: list[Tensor]) -> dict[str, Callable[[], object]]:
    losses = {"laplace": torch.abs, "berhu": berhu_loss}
    likelihoods = {
        "gaussian": Gaussian(),
        "laplace": Laplace(),
        "berhu": BerHu(THRESHOLD),
        "berhu_batch_threshold": BerHu(),
        "huber_from_loss": from_loss("huber"),
    }

    def step(make: Callable[[], Tensor]) -> Callable[[], object]:
        return lambda: torch.autograd.grad(make(), leaves)

    calls = {
        f"{name}_sampled": step(lambda loss=loss: sampled_loss(loss, y, leaves))
        for name, loss in losses.items()
    }
    calls |= {
        name: step(lambda likelihood=likelihood: closed_form(likelihood, y, leaves))
        for name, likelihood in likelihoods.items()
    }
    return calls


def prediction_calls(y: Tensor, leaves: list[Tensor]) -> dict[str, Callable[[], object]]:
    detached = [leaf.detach() for leaf in leaves]
    q = GaussianField(detached[0], MarginalCovariance(detached[1]))
    laplace, berhu = Laplace().predict(q, detached[2]), BerHu(THRESHOLD).predict(q, detached[2])
    return {
        "laplace_cdf": lambda: laplace.cdf(y),
        "laplace_interval": lambda: laplace.interval(0.9),
        "berhu_cdf": lambda: berhu.cdf(y),
        "berhu_interval": lambda: berhu.interval(0.9),
    }


def run(repeats: int = 7) -> dict[str, object]:
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    torch.manual_seed(0)
    y = torch.randn(SHAPE)
    leaves = [torch.randn(SHAPE), torch.rand(SHAPE) + 0.05, 0.3 * torch.randn(SHAPE)]
    leaves = [leaf.requires_grad_() for leaf in leaves]
    calls = training_calls(y, leaves) | prediction_calls(y, leaves)
    times = seconds(calls, repeats)
    torch.set_num_threads(threads)
    return {
        "pixels": list(SHAPE),
        "samples": SAMPLES,
        "seconds": times,
        "laplace_speedup": times["laplace_sampled"] / times["laplace"],
        "berhu_speedup": times["berhu_sampled"] / times["berhu"],
        "berhu_batch_threshold_speedup": times["berhu_sampled"] / times["berhu_batch_threshold"],
    }


if __name__ == "__main__":
    print(write("regression", run()))
