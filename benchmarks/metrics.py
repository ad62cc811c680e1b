"""Metrics: time of an image of CamVid's size beside a forward pass, memory, error of the bins."""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

from measuring import write
from onesigma.covariance import MarginalCovariance
from onesigma.field import GaussianField
from onesigma.likelihoods.boltzmann import Boltzmann
from onesigma.likelihoods.gaussian import Gaussian
from onesigma.metrics import Anomaly, AnomalySuite, RegressionSuite, RiskCoverage, SegmentationSuite
from onesigma.metrics.ranking import exact_detection_scores
from onesigma.networks import fc_densenet_small, unet_small

CLASSES, HEIGHT, WIDTH = 11, 180, 240


class Probabilities:
    """The cheapest prediction there is, so that only metrics are timed."""

    def __init__(self, probs: Tensor) -> None:
        self.probs = probs

    def __getitem__(self, images: slice) -> Probabilities:
        return Probabilities(self.probs[images])

    @property
    def entropy(self) -> Tensor:
        """Σ −p log p."""
        return torch.special.entr(self.probs).sum(1)

    def log_prob(self, target: Tensor) -> Tensor:
        """Log-probability of the labels."""
        return self.probs.gather(1, target[:, None]).squeeze(1).log()


def image(seed: int = 0, batch: int = 1) -> tuple[Probabilities, Tensor]:
    """Probabilities as sharp as a trained network's, labels drawn from them, a tenth void."""
    g = torch.Generator().manual_seed(seed)
    probs = (5 * torch.randn(batch, CLASSES, HEIGHT, WIDTH, generator=g)).softmax(1)
    rows = probs.movedim(1, -1).reshape(-1, CLASSES)
    target = rows.multinomial(1, generator=g).view(batch, HEIGHT, WIDTH)
    target[:, : HEIGHT // 10] = 255
    return Probabilities(probs), target


def times() -> dict[str, float]:
    """One image, one thread."""
    prediction, target = image()
    pixels = torch.rand(1, 3, HEIGHT, WIDTH)
    suite, anomaly = SegmentationSuite(CLASSES), AnomalySuite(["entropy"])
    networks = {
        "U-Net, small, forward": unet_small(classes=CLASSES).eval(),
        "FC-DenseNet, small, forward": fc_densenet_small(classes=CLASSES).eval(),
    }
    depth = 5 + torch.rand(1, 1, HEIGHT, WIDTH)
    law = Gaussian().predict(GaussianField(depth, MarginalCovariance(depth / 50)), depth / 5 - 2)
    regression = RegressionSuite()
    candidates: dict[str, Any] = {
        "segmentation suite": lambda: suite.update(prediction, target),
        "regression suite, Gaussian law": lambda: regression.update(law, depth.flip(-1)),
        "anomaly suite, one score": lambda: anomaly.update(prediction, target == 255),
    }
    candidates |= {name: lambda net=net: net(pixels) for name, net in networks.items()}
    logits = prediction.probs.log()
    field = GaussianField(logits, MarginalCovariance(torch.full_like(logits, 0.2)))
    likelihood, log_scale = Boltzmann(), torch.zeros_like(logits)
    candidates["Boltzmann, predict"] = lambda: likelihood.predict(field, log_scale)
    with torch.no_grad():
        return cpu_milliseconds(candidates)


def cpu_milliseconds(
    candidates: dict[str, Callable[[], object]], repeats: int = 21
) -> dict[str, float]:
    """Medians of processor time, measured in turns: waiting for a shared machine is left out."""
    spent: dict[str, list[float]] = {name: [] for name in candidates}
    for _ in range(repeats):
        for name, candidate in candidates.items():
            start = time.process_time()
            candidate()
            spent[name].append(1e3 * (time.process_time() - start))
    return {name: statistics.median(values) for name, values in spent.items()}


def state_megabytes() -> dict[str, float]:
    """Size of the counts after one image and after five."""
    suite, sizes = SegmentationSuite(CLASSES), {}
    for images in (1, 5):
        while len(suite.records) < images:
            suite.update(*image(len(suite.records)))
        states = [x for m in suite.metrics.values() for x in m.totals().values()]
        sizes[f"{images} images"] = sum(x.nbytes for x in states) / 2**20
    return sizes


def bin_errors() -> dict[str, float]:
    """Binned against exact values on one batch, pooled."""
    prediction, target = image(batch=4)
    valid = target != 255
    top, decision = prediction.probs.max(1)
    doubt, wrong = 1 - top, decision != target
    risk, rare = RiskCoverage(), Anomaly()
    risk.update(doubt, wrong, valid)
    rare.update(doubt, wrong, valid)
    cost = wrong[valid][doubt[valid].argsort()].double().cumsum(0)
    kept = torch.arange(1, len(cost) + 1)
    exact = exact_detection_scores(doubt[valid], wrong[valid])
    errors = {"aurc": (risk.compute()["aurc"] - (cost / kept).mean()).abs()}
    errors |= {name: (value - exact[name]).abs() for name, value in rare.compute().items()}
    return {name: value.item() for name, value in errors.items()}


def run() -> dict[str, Any]:
    torch.set_num_threads(1)
    measured = times()
    suite = measured["segmentation suite"]
    return {
        "image": f"{WIDTH} x {HEIGHT}, {CLASSES} classes",
        "CPU milliseconds per image": measured,
        "share of the suite beside forward and predict": {
            name: suite / (suite + value + measured["Boltzmann, predict"])
            for name, value in measured.items()
            if "forward" in name
        },
        "state in MB": state_megabytes(),
        "absolute error of the bins": bin_errors(),
    }


if __name__ == "__main__":
    print(write("metrics", run()))
