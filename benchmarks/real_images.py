"""The comparison on real images with the shipped recipes: equal network, data, epochs, schedule.

    python benchmarks/real_images.py plan camvid
    python benchmarks/real_images.py train camvid NAME --root CAMVID --runs RUNS
    python benchmarks/real_images.py score camvid NAME --root CAMVID --far NYUV2 --runs RUNS
    python benchmarks/real_images.py table camvid

`plan` lists the runs, `train` makes one or goes on with it, `score` measures one (or "ensemble", of
labels also "ensemble-1", the next five seeds, and "temperature") and keeps what it found for every
image in `results/scores`, so that later runs can be compared with it; `table` compares all that is
kept and writes `results/real_images_camvid.json`.
CamVid is trained without the sequence 0006R0, which is scored beside val; "camvid_dusk" without
0001TP instead, a drive at dusk, which chose no setting; NYUv2 in five folds of train and val, the
baselines in metres, a second seed as "METHOD-1"; "nyuv2_short" with the first settings of the
recipe: in metres, 12 epochs, weight B/10N and a scale for every pixel;
"camvid_coarse" and "camvid_dusk_coarse" with smaller parts of the images, predicted at 96 x 128;
"camvid_short" and "camvid_dusk_short" so too, with a third of the epochs on whole images, milder
colours and three times the weight of contexts and void pixels;
"camvid_before" and "nyuv2_before" with those that the recipes had before; "camvid_last" and
"nyuv2_last" with the weights of the last step instead of their mean, in the bare logarithm of
depth, with a variance that sees the last features alone and a noise learned on the training images.
"heavy" is the short recipe of CamVid before its contexts and void pixels had a third of their
weight; single changes start from it, most of them without the scale of images, which came after
them; "light" has another third.
"""

from __future__ import annotations

import argparse
import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from measuring import RESULTS, machine
from onesigma.baselines import DeepEnsemble, TemperatureScaled
from onesigma.data import CamVid, NYUv2
from onesigma.data.base import PixelDataset, Sample
from onesigma.metrics import (
    AnomalySuite,
    RegressionSuite,
    SegmentationSuite,
    paired_bootstrap,
)
from onesigma.training import load
from runs import train as train_run
from scores import PART, SHOWN, family, keep, kept, summary

HELD_OUT = "0006R0"
# left out instead
DRIVES = dict.fromkeys(("camvid_dusk", "camvid_dusk_coarse", "camvid_dusk_short"), "0001TP")
FOLDS = 5
DEPTH_SIZE = (120, 160)
SEEDS = 5  # as many deterministic ones are an ensemble
MEMBERS = 3  # of the ensemble of depth, heteroscedastic networks
# what a table compares all others with
OWN = ("ours", "heavy", "heavy-no-scale", "heavy-32-epochs", "pixel", "ours-one-metre")
Settings = dict[str, Any]
PAPER: Settings = {
    "prior.kernel": "paper",
    "prior.scale": 1.0,
    "prior.noise": 0.1,
    "posterior.shared_factors": False,
    "posterior.context_statistics": "joint",
    "context.name": "noisy_copies",
    "posterior.variance": None,
    "method.kl_stride": 1,
    "method.fit_stride": 1,
    "stages.kl_weight": 1.0,
}
# what contexts and void pixels weighed until they were seen in 48 epochs
THRICE: Settings = {"method.context_weight": 10.0, "method.unlabelled_weight": 100.0}
# smaller parts of the images, and prediction at a half of the labels' size
COARSE: Settings = {
    "data.eval_size": [96, 128],
    "stages.crop": [96, 128],
    "stages.augment.scale": [0.534, 1.1],
}
# whole images and no more than sixteen epochs, as all recipes of labels were before, and finer
# grids
SHORT_LABELS: Settings = {
    **THRICE,
    "data.eval_size": [96, 128],
    "method.kl_stride": 2,
    "method.fit_stride": 1,
    "stages.epochs": 16,
    "stages.size": [96, 128],
    "stages.crop": None,
    "stages.augment": {"flip": 0.5, "brightness": 0.3, "contrast": 0.3, "saturation": 0.3},
}
# the recipe of labels when contexts and void pixels had three times their weight; its kept scores
# have a scale of images that was not learned to its end
HEAVY: Settings = {"method.context_weight": 30.0, "method.unlabelled_weight": 300.0}
LIGHT: Settings = {"method.context_weight": 3.0, "method.unlabelled_weight": 30.0}
# as `folder-segmentation` has, and a third of what it had when it learned from whole images
ONLY_STRANGERS: Settings = {"method.unlabelled_weight": 0.0, "method.stranger_weight": 100.0}
# what `folder-segmentation` may make of things that nobody labelled; the first is what it had when
# it learned from whole images
STRANGERS: dict[str, Settings] = {
    name: {
        "method.context_weight": context,
        "method.stranger_weight": 10 * context,
        "method.unlabelled_weight": 0.0,
        "posterior.layer_distances": True,
    }
    for name, context in (("strangers", 30.0), ("strangers-third", 10.0), ("strangers-ninth", 3.0))
}
# before it had a scale of images
NO_SCALE: Settings = {
    "likelihood.options.scale": "none",
    "posterior.scale": None,
    "method.noise_epochs": 0,
}
PAPER_LABELS: Settings = {
    **PAPER,
    **NO_SCALE,
    "likelihood.options.scale": "class",
    "prior.mean": 1.0,
    "posterior.whole_image": False,
    "method.context_weight": 1.0,
    "method.unlabelled_weight": 0.0,
}
DROPOUT = {"method.name": "mc_dropout", "network.options.dropout": 0.1}
CONTEXTS = ("noisy_copies", "shuffled_patches", "shifted_colours", "pasted_mixtures",
            "frequency_noise")  # fmt: skip
# the recipe when ten labelled pixels counted as one unknown
TEN_PIXELS: Settings = {
    "stages.correlated_pixels": 10,
    "method.context_weight": 3.0,
    "method.unlabelled_weight": 0.0,
    "context.options.generators": [{"name": name} for name in CONTEXTS],
}
# and before its variance saw the whole image; the first changes one at a time started from it
PIXEL = {"posterior.whole_image": False}
CONTEXT_1 = {"method.context_weight": 1.0, **PIXEL}
FIRST_CHANGES: dict[str, Settings] = {
    "pixel": PIXEL,
    "pixel-context-1": CONTEXT_1,
    "pixel-unlabelled-30": {"method.unlabelled_weight": 30.0, **PIXEL},
    "pixel-unlabelled-100": {"method.unlabelled_weight": 100.0, **PIXEL},
    "pixel-context-1-dropout": {"network.options.dropout": 0.1, **CONTEXT_1},
    "deterministic-clip-5": {"method.name": "deterministic", "trainer.clip": 5.0},
    "deterministic-warmup-5": {"method.name": "deterministic", "stages.optimiser.warmup": 5},
}
CHANGES: dict[str, Settings] = {
    "heavy-no-scale": {},
    "heavy-ten-pixels": TEN_PIXELS,
    "heavy-pixel": PIXEL,
    "heavy-layer-distances": {"posterior.layer_distances": True},
    "heavy-unlabelled-0": {"method.unlabelled_weight": 0.0},
    "heavy-strangers": {"method.stranger_weight": 300.0},
    "heavy-only-strangers": {"method.unlabelled_weight": 0.0, "method.stranger_weight": 300.0},
    "heavy-shares": {"prior.mean": "shares"},
    "heavy-three-contexts": {"context.options.count": 3, "method.context_weight": 10.0},
    "heavy-epochs-32": {"stages.epochs": 32},
    "deterministic-epochs-32": {"stages.epochs": 32, "method.name": "deterministic"},
    "heavy-rank-4": {"posterior.rank": 4},
    "heavy-learned-prior": {"prior.learn": ["scale"]},
    "heavy-joint-statistics": {"posterior.context_statistics": "joint"},
    "heavy-prior-start": {"posterior.variance": None},
    "heavy-rise": {"stages.kl_rise": 8},
    "heavy-no-divergence": {"stages.kl_weight": 0.0},
    "heavy-white-prior": {"prior.scale": 1e-3, "prior.noise": 1.0},
    "heavy-little-noise": {"prior.noise": 0.02},
    "heavy-half-weight": {"stages.correlated_pixels": 200},
    "heavy-constant-rate": {"stages.optimiser.schedule": "constant"},
}


def _coloured(strength: float, blur: float) -> Settings:
    return {"name": "shifted_colours", "options": {"strength": strength, "blur": blur}}


WHITE = {"name": "frequency_noise", "options": {"power": 0.0}}
# parts as small as they were, or larger still
PARTS: dict[str, Settings] = {
    "deterministic-small-parts": {
        "method.name": "deterministic",
        "stages.crop": [96, 128],
        "stages.augment.scale": [0.7, 1.4],
    },
    "deterministic-large-parts": {
        "method.name": "deterministic",
        "stages.crop": [144, 192],
        "stages.augment.scale": [0.8, 1.4],
    },
}
# of 48 epochs on parts of the images
LONG_CHANGES: dict[str, Settings] = {
    "thrice": THRICE,
    "third": {"method.context_weight": 1.0, "method.unlabelled_weight": 10.0},
    "deterministic-96-epochs": {"method.name": "deterministic", "stages.epochs": 96},
    "deterministic-colours": {
        "method.name": "deterministic",
        **dict.fromkeys(
            (f"stages.augment.{each}" for each in ("brightness", "contrast", "saturation")), 0.6
        ),
        "stages.augment.hue": 0.06,
    },
}
# with its scale of images
SCALE_CHANGES: dict[str, Settings] = {
    "heavy-32-epochs": {"stages.epochs": 32},
    "heavy-third-weight": THRICE,
    "heavy-nothing-paid": {"stages.kl_weight": 0.0},
    "heavy-no-void": {"method.unlabelled_weight": 0.0},
    "heavy-no-colours": {
        "context.options.generators": [
            *({"name": name} for name in CONTEXTS if name != "shifted_colours"), WHITE,
        ]
    },
    "heavy-many-colours": {
        "context.options.generators": [
            {"name": "noisy_copies"}, {"name": "shuffled_patches"},
            _coloured(0.7, 3.0), _coloured(0.5, 1.0), _coloured(0.35, 1.0), _coloured(0.35, 0.0),
            {"name": "pasted_mixtures"}, WHITE,
        ]
    },
}  # fmt: skip

# what all earlier recipes had
LAST_STEP = {"stages.average": 0.0}
# those of depth: the noise is learned on what is known by heart, wherever the pixel is; the
# variance sees the last features alone; the bare logarithm
BY_HEART: Settings = {"method.noise_epochs": 0, "posterior.scale_position": False}
PLAIN: Settings = {**BY_HEART, "posterior.layer_distances": False}
FIRST_DEPTH: Settings = {**PLAIN, "transform.offset": 0.0}
METRES = {"transform.name": "affine"}
# the recipe before its noise was that of a neighbourhood
SHARP = {"posterior.scale_window": 1}
SHORT = {"stages.epochs": 12, "stages.kl_weight": "data", "stages.correlated_pixels": 10}
# the prior's mean of a half is that of depths from 0 to 10 m in units of 10 m
PAPER_DEPTH: Settings = {
    **PAPER, **PLAIN, **SHARP,
    "prior.mean": 0.5,
    "transform.name": "affine",
    "transform.shift": 0.0,
    "transform.scale": 10.0,
}  # fmt: skip
DEPTH_BASELINES: dict[str, Settings] = {
    "deterministic": {"method.name": "deterministic", "method.loss": "l1", **METRES},
    "heteroscedastic": {"method.name": "heteroscedastic", **METRES},
    "dropout": {**DROPOUT, **METRES},
}


def plan(task: str) -> dict[str, Settings]:
    """The runs by name, as settings on top of the recipe."""
    runs, common = PLANS[task]
    return {name: {**common, **settings} for name, settings in runs().items()}


def _camvid() -> dict[str, Settings]:
    left_out, few = _left_out({"ours": {}, **STRANGERS}), _few("ours", {}, longer=3)
    changes = _seeded({**LONG_CHANGES, **PARTS})
    return _without_a_drive({**_compared(), **changes, **left_out, **few})


def _camvid_dusk() -> dict[str, Settings]:
    return _without_a_drive(_compared(), DRIVES["camvid_dusk"])


def _camvid_short() -> dict[str, Settings]:
    changes = {name: {**HEAVY, **NO_SCALE, **settings} for name, settings in CHANGES.items()}
    names = ("heavy-no-scale", "heavy-unlabelled-0", "heavy-only-strangers")
    left_out = _left_out(
        {
            "ours": {},
            "ours-only-strangers": ONLY_STRANGERS,
            "heavy": HEAVY,
            "light": LIGHT,
            **{name: changes[name] for name in names},
        }
    )
    few = {
        **_few("ours", {}),
        **_few("heavy", HEAVY),
        **_few("heavy-no-scale", {**HEAVY, **NO_SCALE}),
    }
    compared = {**_compared(), **_weighed(), **_seeded(changes)}
    return _without_a_drive({**compared, **left_out, **few})


def _camvid_dusk_short() -> dict[str, Settings]:
    return _without_a_drive({**_compared(), **_weighed()}, DRIVES["camvid_dusk_short"])


def _camvid_before() -> dict[str, Settings]:
    names = ("pixel", "pixel-context-1", "pixel-unlabelled-30", "pixel-unlabelled-100")
    runs = {
        **_compared(),
        **_weighed(),
        **_seeded(FIRST_CHANGES),
        **_left_out({"ours": {}, **{name: FIRST_CHANGES[name] for name in names}}),
        **_few("pixel", PIXEL),
    }
    runs = {n: s if n.startswith("paper") else {**TEN_PIXELS, **s} for n, s in runs.items()}
    return _without_a_drive(runs)


def _compared() -> dict[str, Settings]:
    """Ours and what it is compared with."""
    methods: dict[str, Settings] = {"ours": {}, "deterministic": {"method.name": "deterministic"}}
    return {
        **_seeded(methods, 2 * SEEDS),
        **_seeded({"dropout": DROPOUT}),
        "paper-0": PAPER_LABELS,
    }


def _weighed() -> dict[str, Settings]:
    """Other weights of contexts and void pixels, and changes of the heavy ones."""
    changes = {name: {**HEAVY, **settings} for name, settings in SCALE_CHANGES.items()}
    weights = {"heavy": HEAVY, "light": LIGHT}
    return {**_seeded(weights, 2 * SEEDS), **_seeded(changes)}


def _seeded(methods: Mapping[str, Settings], seeds: int = SEEDS) -> dict[str, Settings]:
    return {
        f"{name}-{seed}": {"seed": seed, **settings}
        for name, settings in methods.items()
        for seed in range(seeds)
    }


def _left_out(methods: Mapping[str, Settings]) -> dict[str, Settings]:
    """Methods of labels, trained without one of the classes; a second seed as "METHOD-1"."""
    baselines = {"deterministic": {"method.name": "deterministic"}, "dropout": DROPOUT}
    compared = {**methods, **baselines}
    again = {f"{name}-1": {"seed": 1, **settings} for name, settings in compared.items()}
    return {
        f"{name}-without-{odd}": {**settings, "data.options.exclude_classes": odd}
        for odd in ("car", "pedestrian")
        for name, settings in {**compared, **again}.items()
    }


def _few(name: str, settings: Settings, longer: int = 1) -> dict[str, Settings]:
    """Fewer training images, as many steps as with all, or so many times those of 16 epochs."""
    return {
        f"{name}-{images}-images": {
            **settings, "data.limit": images, "stages.epochs": longer * epochs,
        }
        for images, epochs in ((25, 168), (100, 42))
    }  # fmt: skip


def _without_a_drive(runs: Mapping[str, Settings], drive: str = HELD_OUT) -> dict[str, Settings]:
    return {n: {"data.options.without_sequences": drive, **s} for n, s in runs.items()}


def _nyuv2() -> dict[str, Settings]:
    changes: dict[str, Settings] = {
        # without a price of odd images there is nothing to learn about what is familiar
        "ours-no-divergence": {"stages.kl_weight": 0.0, "posterior.layer_distances": False},
        "ours-plain": PLAIN,
        "ours-scale-power": {**BY_HEART, "method.scale_power": 1.0},
    }
    one_metre: Settings = {"transform.offset": 1.0}
    ours = {"ours": {}, "ours-by-heart": BY_HEART, "ours-one-metre": one_metre}
    compared = {**ours, **DEPTH_BASELINES}
    again = {f"{method}-1": {"seed": 1, **settings} for method, settings in compared.items()}
    members = {
        f"heteroscedastic-{seed}": {"seed": seed, **DEPTH_BASELINES["heteroscedastic"]}
        for seed in range(1, MEMBERS)
    }
    return _folds({**compared, **again, **members, **changes, "paper": PAPER_DEPTH})


def _nyuv2_before() -> dict[str, Settings]:
    methods = {"ours": SHARP, "ours-metres": {**METRES, **SHARP}, **DEPTH_BASELINES}
    return _folds(methods)


def _nyuv2_short() -> dict[str, Settings]:
    methods = {"ours": {**METRES, **SHARP}, **DEPTH_BASELINES}
    return _folds({name: {**SHORT, **settings} for name, settings in methods.items()})


def _folds(methods: Mapping[str, Settings]) -> dict[str, Settings]:
    return {
        f"{method}-fold{k}": {**settings, "data.options.fold": [k, FOLDS]}
        for k in range(FOLDS)
        for method, settings in methods.items()
    }


LAST_LABELS: Settings = {**SHORT_LABELS, **LAST_STEP, **NO_SCALE}
LAST_DEPTH: Settings = {**LAST_STEP, **FIRST_DEPTH}
# runs by name, and what all of a task have changed of the recipes as they are
PLANS: dict[str, tuple[Callable[[], dict[str, Settings]], Settings]] = {
    "camvid": (_camvid, {}),
    "camvid_dusk": (_camvid_dusk, {}),
    "camvid_coarse": (_camvid, COARSE),
    "camvid_dusk_coarse": (_camvid_dusk, COARSE),
    "camvid_short": (_camvid_short, SHORT_LABELS),
    "camvid_dusk_short": (_camvid_dusk_short, SHORT_LABELS),
    "camvid_last": (_camvid_short, LAST_LABELS),
    "camvid_before": (_camvid_before, LAST_LABELS),
    "nyuv2": (_nyuv2, {}),
    "nyuv2_last": (_nyuv2, LAST_DEPTH),
    "nyuv2_before": (_nyuv2_before, LAST_DEPTH),
    "nyuv2_short": (_nyuv2_short, LAST_DEPTH),
}


def train(task: str, name: str, root: str, runs: Path) -> None:
    """Make one run, or go on with it."""
    settings = {"data.root": root, **plan(task)[name]}
    train_run(f"{task.partition('_')[0]}-small", runs / name, settings)


Predict = Callable[[Tensor], Any]


def predictor(name: str, root: str, runs: Path) -> Predict:
    """What predicts: a run, or several together."""
    if name.startswith("ensemble"):
        first = SEEDS if name == "ensemble-1" else 0
        seeds = range(first, first + SEEDS)
        return DeepEnsemble([load(runs / f"deterministic-{seed}") for seed in seeds]).predict
    if name == "temperature":
        scaled = TemperatureScaled(load(runs / "deterministic-0"))
        val = map(_pixels, _samples(CamVid(root, "val")))
        scaled.fit((image, labels, labels >= 0) for image, labels, _ in val)
        return scaled.predict
    return load(runs / name).predict


def score_camvid(
    name: str, root: str, far_root: str, runs: Path, drive: str = HELD_OUT
) -> dict[str, Any]:
    """One method on the sequence it did not see, on val, and against rooms."""
    predict = predictor(name, root, runs)
    odd = name.rsplit("-without-", 1)[1:]
    held_out = CamVid(root, "train", exclude_classes=odd, only_sequences=drive)
    rooms = AnomalySuite()
    found = {
        "held out": segmentation(predict, held_out, None if odd else rooms),
        "val": segmentation(predict, CamVid(root, "val", exclude_classes=odd)),
    }
    if not odd:
        for sample in _samples(NYUv2(far_root, "val", (180, 240))):
            image, _, names = _pixels(sample)
            rooms.update(predict(image), torch.ones(1, *image.shape[2:]).bool(), names=names)
        found["far"] = rooms.compute()
    return found


def score_nyuv2(name: str, root: str, runs: Path, folds: Sequence[int]) -> dict[str, Any]:
    """One method over some folds: each image by the run that did not see it."""
    suite = RegressionSuite()
    for k in folds:
        depth(depth_predictor(name, runs, k), unseen(root, k), suite)
    return {"folds": suite.compute()}


def depth_predictor(name: str, runs: Path, fold: int) -> Predict:
    """The run of a fold, or several together."""
    if name != "ensemble":
        return load(runs / f"{name}-fold{fold}").predict
    names = ["heteroscedastic", *(f"heteroscedastic-{seed}" for seed in range(1, MEMBERS))]
    return DeepEnsemble([load(runs / f"{member}-fold{fold}") for member in names]).predict


def unseen(root: str, fold: int) -> NYUv2:
    """The images that the runs of a fold are not trained on."""
    return NYUv2(root, "val", DEPTH_SIZE, fold=(fold, FOLDS))


def fold_parser(description: str | None) -> argparse.ArgumentParser:
    """Of scripts that look at the runs of some folds of NYUv2."""
    parser = argparse.ArgumentParser(description=description)
    parser.add_argument("--root", required=True, help="of NYUv2")
    parser.add_argument("--runs", type=Path, default=Path("runs"))
    parser.add_argument("--folds", type=int, nargs="+", default=list(range(FOLDS)))
    return parser


def segmentation(
    predict: Predict, data: CamVid, familiar: AnomalySuite | None = None
) -> dict[str, Any]:
    """Metrics of labels and mean uncertainties; of a class left out, how well it lights up.

    `familiar` is given all pixels as ones that should not.
    """
    suite, odd = SegmentationSuite(data.classes), AnomalySuite()
    means: dict[str, list[float]] = {"entropy": [], "mutual information": []}
    for sample in _samples(data):
        image, labels, names = _pixels(sample)
        prediction = predict(image)
        suite.update(prediction, labels, labels >= 0, names)
        means["entropy"].append(float(prediction.entropy.mean()))
        means["mutual information"].append(float(prediction.epistemic.mean()))
        if familiar is not None:
            familiar.update(prediction, torch.zeros_like(labels, dtype=torch.bool), names=names)
        if "ood" in sample:
            ood = sample["ood"][None]
            odd.update(prediction, ood, (labels >= 0) | ood, names)
    found = suite.compute()
    found["mean"] = {name: sum(each) / len(each) for name, each in means.items()}
    return {**found, "anomaly": odd.compute()} if odd.records else found


def depth(predict: Predict, data: PixelDataset, suite: RegressionSuite) -> None:
    """Add the images of one fold."""
    for image, target, names in map(_pixels, _samples(data)):
        suite.update(predict(image), target, target[:, 0].isfinite(), names)


def _samples(data: PixelDataset) -> Iterator[Sample]:
    return (data[i] for i in range(len(data)))


def _pixels(sample: Sample) -> tuple[Tensor, Tensor, list[str]]:
    return sample["image"][None], sample["target"][None], [sample["name"]]


def table(task: str) -> dict[str, Any]:
    """All that is measured; ours, and what ablations start from, against all other methods."""
    found = kept(task, like="ours" if task == "nyuv2" else None)
    splits = ("held out", "val") if task.startswith("camvid") else ("folds",)
    seeds: dict[str, list[str]] = {}
    for name in found:
        seeds.setdefault(family(name), []).append(name)

    def compared(own: str, split: str) -> dict[str, Any]:
        scores = {
            method: [found[name][split] for name in names]
            for method, names in seeds.items()
            if "without" not in method and "images" not in method
        }
        mine = scores.pop(own)
        # what was run on fewer folds is not compared
        return {
            method: against(mine, others)
            for method, others in scores.items()
            if all(x["images"] == mine[0]["images"] for x in others)
        }

    return {
        "machine": machine(),
        "settings": {name: plan(task).get(name, {}) for name in found},
        "methods": {
            name: {split: summary(metrics) for split, metrics in scores.items()}
            for name, scores in found.items()
        },
        "against": {
            own: {split: compared(own, split) for split in splits} for own in OWN if own in seeds
        },
    }


def against(ours: list[Any], others: list[Any]) -> dict[str, dict[str, Any]]:
    """Ours minus the other by the means of seeds."""
    found = paired_bootstrap(others, ours)
    return {name: values for name, values in found.items() if name in SHOWN}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("what", choices=("plan", "train", "score", "table"))
    parser.add_argument("task", choices=tuple(PLANS))
    parser.add_argument("name", nargs="?", help="of the run")
    parser.add_argument("--root", help="of the data set")
    parser.add_argument("--far", help="NYUv2, whose rooms are odd among streets")
    parser.add_argument("--runs", type=Path, default=Path("runs"))
    parser.add_argument("--folds", type=int, nargs="+", default=range(FOLDS), help="to score")
    parser.add_argument("--threads", type=int, default=1)
    options = parser.parse_args()
    torch.set_num_threads(options.threads)
    runs = options.runs / options.task
    if options.what == "plan":
        print("\n".join(plan(options.task)))
    elif options.what == "train":
        train(options.task, options.name, options.root, runs)
    elif options.what == "score":
        name, folds = options.name, options.folds
        if options.task.startswith("camvid"):
            drive = DRIVES.get(options.task, HELD_OUT)
            keep(options.task, name, score_camvid(name, options.root, options.far, runs, drive))
        else:
            part = f"{name}{PART}{''.join(map(str, folds))}"
            keep(options.task, part, score_nyuv2(name, options.root, runs, folds))
    else:
        text = json.dumps(table(options.task), indent=1)
        (RESULTS / f"real_images_{options.task}.json").write_text(text + "\n")


if __name__ == "__main__":
    main()
