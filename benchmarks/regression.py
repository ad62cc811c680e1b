"""Expected log-probabilities in closed form against 50 reparametrised samples.

Forward and backward on 4 × 168 × 224 pixels, one thread; medians of interleaved repeats in one
run, so that only the ratios mean something.
"""

from __future__ import annotations

import json
import platform
import statistics
import time
from collections.abc import Callable
from pathlib import Path

import torch
from torch import Tensor

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


def interleaved(calls: dict[str, Callable[[], object]], repeats: int) -> dict[str, float]:
    times: dict[str, list[float]] = {name: [] for name in calls}
    for _ in range(repeats):
        for name, call in calls.items():
            start = time.perf_counter()
            call()
            times[name].append(time.perf_counter() - start)
    return {name: statistics.median(values) for name, values in times.items()}


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
    interleaved(calls, 1)
    seconds = interleaved(calls, repeats)
    torch.set_num_threads(threads)
    return {
        "pixels": list(SHAPE),
        "samples": SAMPLES,
        "seconds": seconds,
        "laplace_speedup": seconds["laplace_sampled"] / seconds["laplace"],
        "berhu_speedup": seconds["berhu_sampled"] / seconds["berhu"],
        "berhu_batch_threshold_speedup": seconds["berhu_sampled"]
        / seconds["berhu_batch_threshold"],
    }


def machine() -> dict[str, object]:
    info = Path("/proc/cpuinfo")
    lines = info.read_text().splitlines() if info.exists() else []
    models = [line.split(":", 1)[1].strip() for line in lines if line.startswith("model name")]
    return {
        "cpu": models[0] if models else platform.processor(),
        "cores": len(models) or None,
        "torch": torch.__version__,
    }


if __name__ == "__main__":
    result = run() | {"machine": machine()}
    path = Path(__file__).parent / "results" / "regression.json"
    path.parent.mkdir(exist_ok=True)
    path.write_text(json.dumps(result, indent=2) + "\n")
