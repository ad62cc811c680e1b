"""What a run says about generated scenes, normal and odd: numbers and pictures."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from itertools import product
from typing import Any

import torch
from torch import Tensor

from onesigma.data.base import Sample
from onesigma.data.scenes import Scenes
from onesigma.metrics import NLL, Anomaly, DepthErrors, MeanIoU, NoiseCorrelation
from onesigma.prediction.regression import RegressionPrediction
from onesigma.report.maps import panels
from onesigma.report.page import Row
from onesigma.report.scales import MapScales

# kinds of test scenes by the names of the page; None are scenes like those of training
KINDS: dict[str, Any] = {
    "normal": None,
    "unseen objects": "objects",
    "night": "night",
    "fog": "fog",
    "failing sensor": "sensor",
}


Predict = Callable[[Tensor], Any]


@dataclass(frozen=True)
class Findings:
    """What was found on one kind of scenes.

    Attributes:
        kind: of the scenes, a key of `KINDS`.
        numbers: by name.
        scores: per image, the mean of each uncertainty, by its name.
        rows: pictures of the first scenes.
    """

    kind: str
    numbers: dict[str, float]
    scores: dict[str, list[float]]
    rows: list[Row]


@torch.no_grad()
def study(
    predict: Predict, scenes: Scenes, scales: MapScales, kinds: Sequence[str] = tuple(KINDS),
    shown: int = 2,
) -> list[Findings]:  # fmt: skip
    """Predict the same scenes in every kind of oddness.

    Args:
        predict: images (n, 3, h, w) to a prediction in the target's unit.
        scenes: held-out scenes with `truth`; their `odd` is replaced.
        scales: colours.
        kinds: keys of `KINDS`, "normal" first.
        shown: how many scenes of each kind become pictures.
    """
    with _one_thread():
        found = [
            _study_kind(predict, replace(scenes, odd=KINDS[kind]), kind, scales, shown)
            for kind in kinds
        ]
    for findings, name in product(found[1:], ("epistemic", "total")):
        score = image_auroc(findings.scores[name], found[0].scores[name])
        findings.numbers[f"image_auroc_{name}"] = score
    return found


@contextmanager
def _one_thread() -> Iterator[None]:
    """Small images gain nothing from threads, and lose much where the cores are busy."""
    before = torch.get_num_threads()
    try:
        torch.set_num_threads(1)
        yield
    finally:
        torch.set_num_threads(before)


def _study_kind(
    predict: Predict, scenes: Scenes, kind: str, scales: MapScales, shown: int
) -> Findings:
    count: _Counts = _Labels(scenes.num_outputs) if scenes.task == "segmentation" else _Depths()
    rows: list[Row] = []
    for index in range(len(scenes)):
        sample = scenes[index]
        prediction = predict(sample["image"][None])
        count.add(prediction, sample)
        if index < shown:
            truth = sample["labels"] if scenes.task == "segmentation" else sample["depth"]
            pictures = panels(prediction, sample["image"], scales, truth)
            rows.append(Row(f"{kind}, scene {index + 1}", pictures, count.last()))
    return Findings(kind, count.numbers(), count.scores, rows)


def image_auroc(odd: Sequence[float], normal: Sequence[float]) -> float:
    """P(a random odd image scores higher than a random normal one), ties half."""
    a, b = torch.tensor(odd)[:, None], torch.tensor(normal)[None]
    return float(((a > b).double() + 0.5 * (a == b).double()).mean())


class _Counts(ABC):
    """What is counted over the scenes of one kind."""

    unit: str

    def __init__(self) -> None:
        self.nll = NLL()
        self.anomaly = {"epistemic": Anomaly(), "total": Anomaly()}
        self.scores: dict[str, list[float]] = {"epistemic": [], "aleatoric": [], "total": []}

    @abstractmethod
    def add(self, prediction: Any, sample: Sample) -> None:
        """Count one scene."""

    @abstractmethod
    def quality(self) -> dict[str, float]:
        """How good the prediction is."""

    def numbers(self) -> dict[str, float]:
        """All numbers by name."""
        found = self.quality() | {"nll": float(self.nll.compute())}
        for name, metric in self.anomaly.items():
            found[f"pixel_auroc_{name}"] = float(metric.compute()["auroc"])
        return found | {name: sum(each) / len(each) for name, each in self.scores.items()}

    def last(self) -> str:
        """The uncertainties of the last scene in words."""
        parts = [f"{name} {self.scores[name][-1]:.3g}" for name in ("epistemic", "aleatoric")]
        return f"mean {' and '.join(parts)} {self.unit}"

    def score(self, maps: dict[str, Tensor], ood: Tensor, valid: Tensor | None = None) -> None:
        """Count uncertainties; the score of an image is their mean over its valid pixels."""
        for name, values in maps.items():
            self.scores[name].append(
                float(values.mean() if valid is None else values[valid].mean())
            )
        for name, metric in self.anomaly.items():
            metric.update(maps[name], ood, valid)


class _Labels(_Counts):
    """Segmentation: uncertainties in nats."""

    unit = "nats"

    def __init__(self, classes: int) -> None:
        super().__init__()
        self.iou = MeanIoU(classes)

    def add(self, prediction: Any, sample: Sample) -> None:
        target = sample["target"][None]
        self.iou.update(prediction.probs, target)
        self.nll.update(prediction, target)
        maps = {
            "total": prediction.entropy,
            "epistemic": prediction.epistemic,
            "aleatoric": prediction.aleatoric,
        }
        self.score(maps, sample["ood"][None])

    def quality(self) -> dict[str, float]:
        return {"miou": float(self.iou.compute()["miou"])}


class _Depths(_Counts):
    """Depth: uncertainties as standard deviations relative to the predicted depth."""

    unit = "of the depth"

    def __init__(self) -> None:
        super().__init__()
        self.errors, self.noise = DepthErrors(), NoiseCorrelation()

    def add(self, prediction: RegressionPrediction, sample: Sample) -> None:
        target, valid = sample["target"][None], sample["target"].isfinite()
        self.errors.update(prediction.mean, target, median=prediction.median)
        self.nll.update(prediction, target)
        variances = {
            "total": prediction.variance,
            "epistemic": prediction.epistemic,
            "aleatoric": prediction.aleatoric,
        }
        maps = {name: v[:, 0].sqrt() for name, v in variances.items()}
        self.noise.update(maps["aleatoric"], sample["noise"], valid)
        # far pixels are less sure by their distance alone
        relative = {name: std / prediction.mean[:, 0].clamp_min(1e-3) for name, std in maps.items()}
        self.score(relative, sample["ood"][None], valid)

    def quality(self) -> dict[str, float]:
        errors = self.errors.compute()
        return {
            "rel": float(errors["rel"]),
            "rms": float(errors["rms"]),
            "noise_correlation": float(self.noise.compute()["spearman"]),
        }
