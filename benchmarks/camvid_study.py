"""What makes the posterior learn on real images: one run of one setting on CamVid, logged.

    python benchmarks/camvid_study.py --root CAMVID --far NYUV2 --method ours --kl_weight 0.01

Trains on the training images without the sequence 0006R0, chooses nothing, and reports on that
sequence and on val (which shares its video with train). One JSON line per run is appended to
`results/camvid_study.jsonl`, with its configuration and seed.
"""

from __future__ import annotations

import argparse
import json
import math
import time
import warnings
from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass, fields
from typing import Any

import torch
from torch import Tensor, nn

from measuring import RESULTS, machine
from onesigma.baselines import Deterministic, MCDropout
from onesigma.context import (
    Context,
    FrequencyNoise,
    MixedContext,
    NoisyCopies,
    PastedMixtures,
    ShiftedColours,
    ShuffledPatches,
)
from onesigma.data import Augment, CamVid, NYUv2
from onesigma.heads import HeadOptions
from onesigma.kernels import paper_kernel, scene_kernel, texture_kernel
from onesigma.likelihoods.boltzmann import Boltzmann
from onesigma.metrics import AnomalySuite, SegmentationSuite
from onesigma.networks import fc_densenet_small
from onesigma.objective import functional_elbo, training_divergence
from onesigma.posterior import VariationalGP
from onesigma.priors import CNNGPPrior

HELD_OUT = ("0006R0",)
CLASSES = 11


@dataclass(frozen=True)
class Setting:
    """One run.

    `kl_weight` None means B/N, `start_variance` 0 the prior's. `jitter` changes brightness,
    contrast and saturation; `kl_stride` measures the divergence on a sparse grid; after the share
    `freeze` of the epochs all images pass with running statistics; `context_weight` multiplies what
    context images add to the divergence of the labelled ones.
    """

    name: str = "ours"
    method: str = "ours"
    seed: int = 0
    height: int = 96
    width: int = 128
    epochs: int = 16
    batch: int = 4
    learning_rate: float = 1e-3
    dropout: float = 0.0
    exclude: str = ""
    images: int = 0
    kl_weight: float | None = None
    prior: str = "scene"
    prior_mean: float = 0.0
    prior_variance: float = 2.5
    noise_share: float = 0.1
    scale: str = "shared"
    context: str = "mixed"
    context_count: int = 1
    context_statistics: str = "running"
    rank: int = 20
    shared_factors: bool = True
    threads: int = 2
    jitter: float = 0.0
    kl_stride: int = 1
    freeze: float = 1.0
    context_weight: float = 1.0
    start_variance: float = 0.0


class Memory:
    """A split, resized and held in memory."""

    def __init__(self, root: str, split: str, setting: Setting, **options: Any) -> None:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            data = CamVid(root, split, (setting.height, setting.width), **options)
        samples = [data[i] for i in range(len(data))]
        self.images = torch.stack([s["image"] for s in samples])
        self.labels = torch.stack([s["target"] for s in samples])

    def batches(self, setting: Setting, epoch: int) -> Iterator[tuple[Tensor, Tensor]]:
        """Shuffled, flipped and slightly recoloured, from (seed, epoch) alone."""
        g = torch.Generator().manual_seed(1000 * setting.seed + epoch)
        order = torch.randperm(len(self.images), generator=g)
        for start in range(0, len(order) - setting.batch + 1, setting.batch):
            chosen = order[start : start + setting.batch]
            images, labels = self.images[chosen].clone(), self.labels[chosen].clone()
            flip = torch.rand(len(chosen), generator=g) < 0.5
            images[flip], labels[flip] = images[flip].flip(-1), labels[flip].flip(-1)
            if setting.jitter:
                j = setting.jitter
                recolour = Augment(flip=0, brightness=j, contrast=j, saturation=j)
                yield recolour(images, labels, g)
                continue
            gain = 1 + 0.2 * (torch.rand(len(chosen), 1, 1, 1, generator=g) - 0.5)
            yield (images * gain).clamp(0, 1), labels


class Ours(nn.Module):
    """Functional variational inference with the six-line step."""

    def __init__(self, setting: Setting, training_images: int) -> None:
        super().__init__()
        self.setting = setting
        weight = setting.kl_weight
        self.kl_weight = setting.batch / training_images if weight is None else weight
        white = setting.noise_share * setting.prior_variance
        kernel, scale = _kernel(setting, setting.prior_variance - white)
        self.prior = CNNGPPrior(kernel, CLASSES, setting.prior_mean, white, scale)
        heads = HeadOptions(
            scale={"class": "output", "shared": "shared", "none": "none"}[setting.scale],  # type: ignore[arg-type]
            shared_factors=setting.shared_factors,
            mean=setting.prior_mean,
            variance=setting.start_variance or setting.prior_variance,
        )
        self.model = VariationalGP(
            fc_densenet_small(setting.dropout),
            CLASSES,
            setting.rank,
            options=heads,
            context_statistics=setting.context_statistics,  # type: ignore[arg-type]
        )
        self.likelihood = Boltzmann(scale=setting.scale)  # type: ignore[arg-type]
        self.context = _context(setting)

    def loss(self, images: Tensor, labels: Tensor, generator: torch.Generator) -> Tensor:
        extra = None if self.context is None else self.context(images, generator)
        q, log_scale = self.model(images, context=extra)
        p = self.prior(images if extra is None else torch.cat([images, extra]))
        n, valid = len(images), labels >= 0
        fit = self.likelihood.expected_log_prob(labels, q[:n], log_scale[:n], valid)
        s = self.setting
        kl = training_divergence(q, p, n, s.context_weight, s.kl_stride, generator)
        elbo = functional_elbo(fit, kl, valid, self.kl_weight)
        self.terms = {"fit": elbo.fit.item(), "kl": elbo.kl.item()}
        return -elbo.value

    def predict(self, images: Tensor) -> Any:
        return self.likelihood.predict(*self.model.marginals(images))


class Baseline(nn.Module):
    """Cross-entropy, with or without dropout at test time."""

    def __init__(self, setting: Setting) -> None:
        super().__init__()
        backbone = fc_densenet_small(setting.dropout)
        self.model = Deterministic(backbone, CLASSES, loss="cross_entropy")
        self.sampled = MCDropout(self.model, passes=50) if setting.method == "dropout" else None

    def loss(self, images: Tensor, labels: Tensor, generator: torch.Generator) -> Tensor:
        loss = self.model.loss(images, labels, labels >= 0)
        self.terms = {"fit": -loss.item(), "kl": 0.0}
        return loss

    def predict(self, images: Tensor) -> Any:
        return (self.sampled or self.model).predict(images)


def _kernel(setting: Setting, variance: float) -> tuple[Any, float]:
    if setting.prior == "paper":
        return paper_kernel(setting.height, setting.width), variance / 0.15
    return {"scene": scene_kernel, "texture": texture_kernel}[setting.prior](variance), 1.0


class Blended(Context):
    """An image and what another generator makes of it, cross-faded by a random share."""

    def __init__(self, inner: Context) -> None:
        super().__init__(inner.count)
        self.inner = inner

    def alter(self, chosen: Tensor, images: Tensor, generator: torch.Generator | None) -> Tensor:
        share = torch.rand((len(chosen), 1, 1, 1), generator=generator)
        return torch.lerp(chosen, self.inner.alter(chosen.clone(), images, generator), share)


def _context(setting: Setting) -> Context | None:
    noise, texture = NoisyCopies(), FrequencyNoise()
    mixed = [noise, ShuffledPatches(), ShiftedColours(), PastedMixtures(), texture]
    kinds: dict[str, list[Context]] = {
        "none": [],
        "noisy": [noise],
        "far": [noise, texture],
        "mixed": mixed,
        "graded": [Blended(kind) for kind in mixed],
    }
    chosen = kinds[setting.context]
    return MixedContext(chosen, setting.context_count) if chosen else None


def train(model: Ours | Baseline, data: Memory, setting: Setting) -> dict[str, float]:
    steps = setting.epochs * (len(data.images) // setting.batch)
    optimiser = torch.optim.AdamW(model.parameters(), setting.learning_rate, weight_decay=1e-4)
    schedule = torch.optim.lr_scheduler.OneCycleLR(optimiser, setting.learning_rate, steps)
    generator = torch.Generator().manual_seed(setting.seed)
    start = time.perf_counter()
    model.train()
    for epoch in range(setting.epochs):
        if epoch >= setting.freeze * setting.epochs:
            for layer in model.modules():
                if isinstance(layer, nn.BatchNorm2d):
                    layer.eval()
        for images, labels in data.batches(setting, epoch):
            optimiser.zero_grad()
            loss = model.loss(images, labels, generator)
            loss.backward()
            nn.utils.clip_grad_norm_(model.parameters(), 5.0)
            optimiser.step()
            schedule.step()
        print(f"{setting.name} epoch {epoch} {model.terms} {time.perf_counter() - start:.0f} s")
    return {**model.terms, "seconds": time.perf_counter() - start}


@torch.no_grad()
def evaluate(model: Ours | Baseline, data: Memory, setting: Setting) -> dict[str, Any]:
    model.eval()
    suite, odd = SegmentationSuite(CLASSES), AnomalySuite()
    anomalous = CLASSES if not setting.exclude else _class_index(setting.exclude)
    for i in range(0, len(data.images), 4):
        prediction = model.predict(data.images[i : i + 4])
        labels = data.labels[i : i + 4]
        scored = torch.where(labels == anomalous, -1, labels)
        suite.update(prediction, scored)
        if setting.exclude:
            odd.update(prediction, labels == anomalous, labels >= 0)
    result = {"set": suite.compute(resamples=2)["set"]}
    if setting.exclude:
        result["anomaly"] = odd.compute(resamples=2)["set"]
    return result


@torch.no_grad()
def far(model: Ours | Baseline, near: Memory, root: str, setting: Setting) -> dict[str, Any]:
    """Whole rooms among streets: can the uncertainty tell them apart?"""
    rooms = NYUv2(root, "val", (setting.height, setting.width))
    suite = AnomalySuite()
    model.eval()
    for i in range(len(near.images)):
        empty = torch.zeros(1, setting.height, setting.width, dtype=torch.bool)
        suite.update(model.predict(near.images[i : i + 1]), empty)
    for i in range(len(rooms)):
        suite.update(model.predict(rooms[i]["image"][None]), ~empty)
    return suite.compute(resamples=2)["set"]


def _class_index(name: str) -> int:
    from onesigma.data.classes import STREET_CLASSES

    return STREET_CLASSES.index(name)


def run(setting: Setting, root: str, far_root: str | None) -> dict[str, Any]:
    torch.set_num_threads(setting.threads)
    torch.manual_seed(setting.seed)
    excluded = (setting.exclude,) if setting.exclude else ()
    training = Memory(root, "train", setting, without_sequences=HELD_OUT, exclude_classes=excluded)
    if setting.images:
        training.images = training.images[:: math.ceil(len(training.images) / setting.images)]
        training.labels = training.labels[:: math.ceil(len(training.labels) / setting.images)]
    held_out = Memory(root, "train", setting, only_sequences=HELD_OUT)
    val = Memory(root, "val", setting)
    ours = setting.method == "ours"
    model = Ours(setting, len(training.images)) if ours else Baseline(setting)
    result: dict[str, Any] = {"setting": asdict(setting), "machine": machine()}
    result["training"] = train(model, training, setting)
    start = time.perf_counter()
    result["held out"] = evaluate(model, held_out, setting)
    result["val"] = evaluate(model, val, setting)
    if far_root:
        result["far"] = far(model, held_out, far_root, setting)
    result["training"]["evaluation seconds"] = time.perf_counter() - start
    return result


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--root", required=True)
    parser.add_argument("--far")
    for field in fields(Setting):
        kind: Callable[[str], Any] = type(field.default) if field.default is not None else float
        if kind is bool:
            kind = lambda text: text == "true"  # noqa: E731
        parser.add_argument(f"--{field.name}", type=kind, default=field.default)
    arguments = vars(parser.parse_args())
    root, far_root = arguments.pop("root"), arguments.pop("far")
    result = run(Setting(**arguments), root, far_root)
    with (RESULTS / "camvid_study.jsonl").open("a") as log:
        log.write(json.dumps(result) + "\n")
    for split in ("held out", "val"):
        values = {k: v for k, v in result[split]["set"].items() if isinstance(v, float)}
        print(split, {k: round(v, 4) for k, v in values.items()})


if __name__ == "__main__":
    main()
