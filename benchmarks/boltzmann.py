"""Softmax of Gaussian logits: the closed form against sampling, in time, memory and accuracy.

python benchmarks/boltzmann.py            # writes benchmarks/results/boltzmann.json
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor
from torch.quasirandom import SobolEngine

from measuring import extra_megabytes, seconds, write
from onesigma.likelihoods.expectation import expected_log_sum_exp, softmax_law
from onesigma.likelihoods.sampling import sampled_law, sampled_log_sum_exp


def logits(*shape: int) -> tuple[Tensor, Tensor]:
    generator = torch.Generator().manual_seed(0)
    mean = 2 * torch.randn(shape, generator=generator)
    return mean, torch.exp(0.5 * torch.randn(shape, generator=generator))


def reparametrised(mean: Tensor, variance: Tensor, samples: int) -> Tensor:
    """The usual estimate: all draws at once, gradients through the draws."""
    draws = mean + variance.sqrt() * torch.randn(samples, *mean.shape)
    return draws.logsumexp(2).mean(0)


def batched_law(mean: Tensor, variance: Tensor, samples: int) -> tuple[Tensor, Tensor, Tensor]:
    logs = (mean + variance.sqrt() * torch.randn(samples, *mean.shape)).log_softmax(2)
    return _entropies(logs.exp().mean(0), -(logs.exp() * logs).sum(2).mean(0))


def streamed_law(mean: Tensor, variance: Tensor, samples: int) -> tuple[Tensor, Tensor, Tensor]:
    probs, aleatoric, std = torch.zeros_like(mean), torch.zeros_like(mean[:, 0]), variance.sqrt()
    for _ in range(samples):
        logs = torch.randn_like(mean).mul_(std).add_(mean).log_softmax(1)
        p = logs.exp()
        probs += p
        aleatoric -= (p * logs).sum(1)
    return _entropies(probs / samples, aleatoric / samples)


def _entropies(probs: Tensor, aleatoric: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    entropy = torch.special.entr(probs).sum(1)
    return probs, entropy, entropy - aleatoric


TRAINERS: dict[str, Callable[[Tensor, Tensor], Tensor]] = {
    "closed_form": expected_log_sum_exp,
    "reparametrised_20": lambda m, v: reparametrised(m, v, 20),
    "antithetic_price_10": lambda m, v: sampled_log_sum_exp(m, v, 5),
    "antithetic_price_20": lambda m, v: sampled_log_sum_exp(m, v, 10),
}


def one_step(name: str, shape: tuple[int, ...]) -> Callable[[], None]:
    """A forward and backward pass with its inputs already there."""
    mean, variance = (x.requires_grad_() for x in logits(*shape))

    def step() -> None:
        mean.grad = variance.grad = None
        TRAINERS[name](mean, variance).sum().backward()

    return step


def measure_training(shape: tuple[int, ...] = (4, 11, 224, 224)) -> dict[str, Any]:
    times = seconds({name: one_step(name, shape) for name in TRAINERS})
    memory = {name: extra_megabytes(lambda name=name: one_step(name, shape)) for name in TRAINERS}
    plain = "reparametrised_20"
    return {
        "shape": shape,
        "seconds": times,
        "megabytes": memory,
        "time_ratio_to_20_samples": times["closed_form"] / times[plain],
        "memory_ratio_to_20_samples": memory["closed_form"] / memory[plain],
    }


@torch.no_grad()
def measure_prediction(shape: tuple[int, ...] = (1, 11, 360, 480)) -> dict[str, object]:
    mean, variance = logits(*shape)
    times = seconds(
        {
            "closed_form": lambda: softmax_law(mean, variance),
            "samples_50_batched": lambda: batched_law(mean, variance, 50),
            "samples_50_streamed": lambda: streamed_law(mean, variance, 50),
            "antithetic_50": lambda: sampled_law(mean, variance, 25),
            "softmax": lambda: mean.softmax(1),
        }
    )
    ours = times["closed_form"]
    return {
        "shape": shape,
        "seconds": times,
        "speedup_over_50_samples_batched": times["samples_50_batched"] / ours,
        "speedup_over_50_samples_streamed": times["samples_50_streamed"] / ours,
        "softmaxes": ours / times["softmax"],
    }


def measure_classes() -> dict[str, dict[str, float]]:
    """Training time over the number of classes: which is faster where."""
    names = [name for name in TRAINERS if name != "reparametrised_20"]
    return {
        str(c): seconds({name: one_step(name, (1, c, 128, 128)) for name in names})
        for c in (2, 5, 11, 20, 40)
    }


def _pixels(classes: int, kind: float | str, count: int) -> tuple[Tensor, Tensor]:
    generator = torch.Generator().manual_seed(classes)
    mean = 2 * torch.randn(classes, count, generator=generator, dtype=torch.float64)
    if isinstance(kind, float):
        spread = 1.0 if kind < 10 else kind**0.5 / 2
        return mean * spread, torch.full_like(mean, kind)
    exponent = 6 * torch.rand(classes, count, generator=generator, dtype=torch.float64) - 3
    if kind == "one wide":
        exponent = exponent.clamp_max(-0.5)
        exponent[0], mean[0] = 2.0, mean[0] + 6
    return mean, 10**exponent


def sobol_law(mean: Tensor, variance: Tensor, seed: int = 0) -> tuple[Tensor, Tensor]:
    points = SobolEngine(len(mean), scramble=True, seed=seed).draw(2**15, dtype=torch.float64)
    noise = torch.special.ndtri(points.clamp(1e-12, 1 - 1e-12))
    laws = [(m + s * noise).log_softmax(1) for m, s in zip(mean.T, variance.sqrt().T, strict=True)]
    probs = torch.stack([logs.exp().mean(0) for logs in laws], 1)
    aleatoric = torch.stack([-(logs.exp() * logs).sum(1).mean() for logs in laws])
    return probs, torch.special.entr(probs).sum(0) - aleatoric


def _rank_correlation(a: Tensor, b: Tensor) -> float:
    ranks = torch.stack([a.argsort().argsort(), b.argsort().argsort()]).double()
    return float(torch.corrcoef(ranks)[0, 1])


def measure_accuracy(count: int = 40) -> dict[str, dict[str, float]]:
    """Against 2^15 Sobol points; the distance of two designs is the noise of the reference.

    The four worst pixels are measured again against the mean of 16 designs.
    """
    result = {}
    for classes in (2, 5, 11, 40):
        for kind in (1e-3, 1e-2, 0.1, 1.0, 10.0, 100.0, 1e3, "mixed", "one wide"):
            mean, variance = _pixels(classes, kind, count)
            reference, mutual = sobol_law(mean, variance)
            probs, _, information = softmax_law(
                mean.float()[None, :, :, None], variance.float()[None, :, :, None]
            )
            few = sobol_law(mean[:, :8], variance[:, :8], seed=1)[0]
            distance = (probs[0, :, :, 0] - reference).abs().sum(0) / 2
            worst = distance.topk(4).indices
            designs = [sobol_law(mean[:, worst], variance[:, worst], seed=s)[0] for s in range(16)]
            closer = probs[0, :, worst, 0] - torch.stack(designs).mean(0)
            result[f"{classes} classes, variance {kind}"] = {
                "total_variation_mean": float(distance.mean()),
                "total_variation_max": float(distance.max()),
                "total_variation_of_the_worst_against_16_designs": float(
                    closer.abs().sum(0).max() / 2
                ),
                "sobol_noise_max": float((few - reference[:, :8]).abs().sum(0).max() / 2),
                "information_error_max": float((information[0, :, 0] - mutual).abs().max()),
                "information_rank_correlation": _rank_correlation(information[0, :, 0], mutual),
            }
    return result


def run() -> dict[str, Any]:
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        return {
            "training": measure_training(),
            "prediction": measure_prediction(),
            "training_seconds_by_classes": measure_classes(),
            "accuracy": measure_accuracy(),
        }
    finally:
        torch.set_num_threads(threads)


if __name__ == "__main__":
    write("boltzmann", run())
