"""The tables and the picture of docs/results.md from the committed result files.

python benchmarks/show_results.py
"""

from __future__ import annotations

import json
import statistics
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from matplotlib.axes import Axes
from matplotlib.figure import Figure
from scipy.stats import ttest_ind

from forest import differences
from measuring import RESULTS
from scores import family, kept

IMAGES = Path(__file__).parents[1] / "docs" / "images"
COLOURS = {
    "onesigma": "#3f51b5",
    "deterministic": "#757575",
    "MC dropout": "#e67e22",
    "ensemble": "#2e9e6b",
    "heteroscedastic": "#8e44ad",
    "the paper's settings": "#c0392b",
}
# with predictions at less than half of the labels' pixels
COARSE = ("camvid_coarse", "camvid_dusk_coarse")
PREFIXES = {
    "ours": "onesigma",
    "deterministic": "deterministic",
    "dropout": "MC dropout",
    "ensemble": "ensemble",
    "heteroscedastic": "heteroscedastic",
    "paper": "the paper's settings",
}


def method_of(run: str) -> str | None:
    """The method of a run of the comparison; None for ablations."""
    stem, _, seed = run.partition("-")
    return PREFIXES.get(stem) if not seed or seed.isdigit() else None


def seeds(methods: Mapping[str, Any]) -> dict[str, list[Any]]:
    found: dict[str, list[Any]] = {name: [] for name in COLOURS}
    for run, scores in methods.items():
        method = method_of(run)
        if method is not None:
            found[method].append(scores)
    return {name: runs for name, runs in found.items() if runs}


def scatter(axes: Axes, runs: Mapping[str, list[Any]], metric: str, title: str) -> None:
    for name, each in runs.items():
        values = [[scores[s]["set"][metric] for s in ("held out", "val")] for scores in each]
        x, y = zip(*values, strict=True)
        marker = "s" if name.startswith("ensemble") else "o"
        axes.scatter(x, y, 42, color=COLOURS[name], marker=marker, label=name, alpha=0.85, lw=0)
    axes.set(xlabel="another drive", ylabel="val", title=title)


def reliability(axes: Axes, runs: Mapping[str, list[Any]], split: str, title: str) -> None:
    """Confidence and accuracy of every bin, pooled over the seeds of a method."""
    axes.plot([0, 1], [0, 1], color="#bbbbbb", lw=1)
    for name, each in runs.items():
        curves = [scores[split]["set"]["reliability"] for scores in each]
        columns = ("pixels", "confidence", "accuracy")
        bins = zip(*(zip(*(c[key] for key in columns), strict=True) for c in curves), strict=True)
        points = [pooled([x for x in seeds if x[0]]) for seeds in bins if any(x[0] for x in seeds)]
        axes.plot(*zip(*points, strict=True), color=COLOURS[name], lw=1.6)
    axes.set(xlabel="confidence", ylabel="accuracy", title=title, xlim=(0.2, 1), ylim=(0.2, 1))


def pooled(seeds: Sequence[tuple[float, float, float]]) -> tuple[float, float]:
    """Means weighted by pixels."""
    total = sum(pixels for pixels, _, _ in seeds)
    return sum(p * c for p, c, _ in seeds) / total, sum(p * a for p, _, a in seeds) / total


def rooms(axes: Axes, runs: Mapping[str, list[Any]]) -> None:
    for place, (name, each) in enumerate(runs.items()):
        values = [best_score(scores["far"]["set"]) for scores in each]
        axes.scatter(values, [-place] * len(values), 42, color=COLOURS[name], alpha=0.85, lw=0)
    axes.set_yticks([-i for i in range(len(runs))], list(runs))
    axes.axvline(0.5, color="#bbbbbb", lw=1)
    axes.set(xlabel="pixel AUROC", title="Rooms among streets", xlim=(0.35, 1))


def best_score(scores: Mapping[str, Any]) -> float:
    """By mutual information, or by entropy where a method has none."""
    information = float(scores["mutual_information"]["pixels"]["auroc"])
    return information if information != 0.5 else float(scores["entropy"]["pixels"]["auroc"])


def camvid(task: str) -> Figure:
    """Every seed of every method of a comparison on streets."""
    runs = seeds(read(task)["methods"])
    figure = Figure(figsize=(10.5, 6.4), layout="constrained")
    axes = figure.subplots(2, 3)
    # far from all others on every axis
    near = {name: each for name, each in runs.items() if name != "the paper's settings"}
    scatter(axes[0, 0], near, "nll", "NLL, each point a seed")
    scatter(axes[0, 1], near, "ece", "ECE")
    scatter(axes[0, 2], near, "miou", "mIoU")
    reliability(axes[1, 0], near, "held out", "Reliability, another drive")
    reliability(axes[1, 1], near, "val", "Reliability, val")
    rooms(axes[1, 2], runs)
    for axis in axes.flat:
        axis.spines[["top", "right"]].set_visible(False)
    handles, names = axes[0, 0].get_legend_handles_labels()
    figure.legend(handles, names, loc="outside lower center", ncols=len(names), frameon=False)
    return figure


def against() -> Figure:
    """Every paired comparison of ours with a baseline."""
    streets, dusk = (read(task)["against"]["ours"] for task in ("camvid", "camvid_dusk_coarse"))
    depth = read("nyuv2")
    rooms, images = depth["against"]["ours"], depth["methods"]["ours"]["folds"]["images"]
    panels = {
        "CamVid, another drive": (named(streets["held out"]), CAMVID),
        "CamVid, val": (named(streets["val"]), CAMVID),
        "CamVid, at dusk (96 × 128)": (named(dusk["held out"]), CAMVID),
        f"NYUv2, {images} images": (named(rooms["folds"]), NYUV2),
    }
    return differences(panels, COLOURS)


def named(found: Mapping[str, Any]) -> dict[str, Any]:
    """By the names of the legend, without ablations and the paper's settings."""
    return {PREFIXES[name]: x for name, x in found.items() if name in PREFIXES and name != "paper"}


ROWS = {
    "deterministic": "deterministic",
    "temperature": "the first + temperature fitted on val",
    "dropout": "MC dropout, 50 passes",
    "ensemble": "ensemble of the five",
    "paper": "functional VI as in the paper",
    "ours": "**onesigma, one pass**",
}
LONG_CHANGES = {
    "ours": "**contexts at 3, void pixels at 30**",
    "thrice": "at 10 and 100",
    "third": "at 1 and 10",
    "deterministic": "deterministic",
    "deterministic-96-epochs": "deterministic, 96 epochs",
    "deterministic-colours": "deterministic, stronger colours",
}
WEIGHTS = {"heavy": "three times the weights", "light": "a third of the weights"}
CHANGES = {
    "heavy": "**three times the weights**",
    "heavy-no-scale": "no scale of the image",
    "heavy-ten-pixels": "the weights before",
    "heavy-pixel": "variance of the pixel",
    "heavy-unlabelled-0": "unlabelled weight 0",
    "heavy-strangers": "strangers beside void pixels",
    "heavy-shares": "prior mean at the classes' shares",
    "heavy-three-contexts": "three context images a step, at a third of the weight",
    "heavy-rank-4": "rank 4 instead of 20",
    "heavy-learned-prior": "learned prior scale",
    "heavy-joint-statistics": "context images in the batch's statistics",
    "heavy-prior-start": "starts at the prior's variance",
    "heavy-rise": "the divergence rises over eight epochs",
    "heavy-no-divergence": "no divergence",
    "heavy-white-prior": "a prior of white noise",
    "heavy-constant-rate": "a constant learning rate",
    "heavy-epochs-32": "32 epochs",
    "deterministic-epochs-32": "deterministic, 32 epochs",
}
LONGER = {
    "deterministic-epochs-32": "deterministic, 32 epochs",
    "heavy-32-epochs": "**onesigma**, 32 epochs",
}
SCALE_CHANGES = {
    "heavy": "**three times the weights**",
    "heavy-third-weight": "context and void pixels at a third of their weight",
    "heavy-nothing-paid": "no divergence",
    "heavy-no-void": "void pixels at 0",
    "heavy-no-colours": "no contexts in other colours",
    "heavy-many-colours": "half of the contexts in other colours, most of them milder",
}
FIRST_CHANGES = {
    "pixel": "**variance of the pixel**",
    "ours": "of the whole image",
    "pixel-unlabelled-30": "unlabelled weight 30",
    "pixel-unlabelled-100": "unlabelled weight 100",
    "pixel-context-1": "context weight 1",
    "pixel-context-1-dropout": "context weight 1, trained with dropout",
}
CAMVID = ("miou", "nll", "ece", "image_calibration", "aurc")
NYUV2 = (
    "rel", "rms", "nll", "crps", "ause_rel", "ause_rms", "image_calibration", "set_calibration",
)  # fmt: skip


def digits(value: float | None) -> str:
    return "–" if value is None else f"{value:.3f}".replace("0.", ".", 1)


def spread(values: Sequence[float], mark: str = "") -> str:
    """The mean with its mark, and the range of several."""
    mean = digits(statistics.mean(values)) + mark
    return mean if len(values) == 1 else f"{mean}<br>{digits(min(values))}–{digits(max(values))}"


def mark(found: Mapping[str, Any] | None, metric: str) -> str:
    """▾ ours is better, ▴ worse, by the means of seeds."""
    if not found or not found["excludes_zero"]:
        return ""
    return " ▾" if (found["difference"] > 0) == (metric == "miou") else " ▴"


def comparison(
    results: Mapping[str, Any],
    rows: Mapping[str, str],
    split: str,
    metrics: Sequence[str],
    own: str = "ours",
) -> None:
    """One row for each method, with marks where `own` is better or worse."""
    print(f"\n{split}\n\n| | {' | '.join(metrics)} |\n|{'---|' * (len(metrics) + 1)}")
    for name, title in rows.items():
        runs = runs_of(results, name)
        if not runs:
            continue
        against = results["against"][own][split].get(name, {})
        cells = [
            spread([run[split]["set"][metric] for run in runs], mark(against.get(metric), metric))
            for metric in metrics
        ]
        print(f"| {title} ({len(runs)}) | " + " | ".join(cells) + " |")


def over_seeds(
    results: Mapping[str, Any], rows: Mapping[str, str], split: str, metrics: Sequence[str]
) -> None:
    """Ours minus others by the means of seeds, with a 95 % interval over seeds (Welch)."""
    runs = {name: runs_of(results, name) for name in rows}
    others = [name for name, each in runs.items() if name != "ours" and len(each) > 1]
    print(f"\n{split}, over seeds\n\n| | {' | '.join(metrics)} |\n|{'---|' * (len(metrics) + 1)}")
    for name in others:
        cells = []
        for metric in metrics:
            ours, theirs = (
                [scores[split]["set"][metric] for scores in runs[which]] for which in ("ours", name)
            )
            between = ttest_ind(ours, theirs, equal_var=False).confidence_interval()
            middle = statistics.mean(ours) - statistics.mean(theirs)
            cells.append(f"{middle:+.3f} ({between.low:+.3f} to {between.high:+.3f})")
        print(f"| {rows[name]} ({len(runs[name])}) | {' | '.join(cells)} |")


def runs_of(results: Mapping[str, Any], name: str) -> list[Any]:
    """All seeds of a method."""
    return [x for run, x in results["methods"].items() if run in (name, *numbered(name))]


def numbered(name: str) -> list[str]:
    return [f"{name}-{seed}" for seed in range(10)]


def detection(results: Mapping[str, Any]) -> None:
    """Rooms among streets, and classes left out: by entropy and by mutual information.

    Seeds of classes left out are put together.
    """
    print(
        "\nanomalies: AUROC / FPR95 of pixels, of images by their mean and by their largest patch\n"
    )
    runs: dict[str, list[Any]] = {}
    for run, scores in results["methods"].items():
        first = run.replace("-1-without-", "-without-")
        runs.setdefault(first if first in results["methods"] else run, []).append(scores)
    for run, seeds_of in runs.items():
        for where in ("far", "held out", "val"):
            found = [x["set"] for x in (_odd(scores, where) for scores in seeds_of) if x]
            for score in ("entropy", "mutual_information") if found else ():
                each = [x[score] for x in found]
                cells = (
                    [x["pixels"] for x in each],
                    *([x["images"][how] for x in each] for how in ("mean", "patch")),
                )
                text = " | ".join(" / ".join(_means(cell)) for cell in cells)
                print(f"| {run} ({len(found)}) | {where} | {score} | {text} |")


def _odd(scores: Mapping[str, Any], where: str) -> Any:
    return scores.get("far") if where == "far" else scores.get(where, {}).get("anomaly")


def _means(cells: Sequence[Mapping[str, float | None]]) -> list[str]:
    columns = ([cell[key] for cell in cells] for key in ("auroc", "fpr95"))
    known = ([value for value in column if value is not None] for column in columns)
    return [digits(statistics.mean(values) if values else None) for values in known]


def amounts(results: Mapping[str, Any]) -> None:
    print("\nmean uncertainty by training images\n")
    for run, scores in results["methods"].items():
        for split in ("held out", "val"):
            if "mean" in scores.get(split, {}):
                means = ", ".join(f"{k} {v:.4f}" for k, v in scores[split]["mean"].items())
                print(f"{run}, {split}: {means}, NLL {digits(scores[split]['set']['nll'])}")


def mean_of_weights(*metrics: str) -> None:
    """NYUv2 with the weights of the last step, then with their mean.

    Means over the images that were scored with both, of metrics that an image has by itself.
    """
    mean, last = kept("nyuv2", like="ours"), kept("nyuv2_last")
    print(f"\n| last step → mean | {' | '.join(metrics)} |\n|{'---|' * (len(metrics) + 1)}")
    for method in (name for name in mean if name in last):
        cells = []
        for metric in metrics:
            sides = zip(*paired(last[method], mean[method], metric), strict=True)
            cells.append(" → ".join(digits(statistics.mean(side)) for side in sides))
        print(f"| {method} | {' | '.join(cells)} |")


def paired(
    first: Mapping[str, Any], second: Mapping[str, Any], metric: str
) -> list[tuple[float, float]]:
    """The metric of two methods on the images that both have."""
    one, two = (
        {record["name"]: record[metric] for record in scores["folds"]["per_image"]}
        for scores in (first, second)
    )
    return [(one[name], two[name]) for name in one if name in two]


def odd_scenes(results: Mapping[str, Any]) -> None:
    """Generated scenes: the fit of normal ones, then AUROC / FPR95 of pixels and of images."""
    kinds = ("objects", "night", "fog", "sensor")
    print(f"\n| | score | mIoU | NLL | ECE | {' | '.join(kinds)} |\n|{'---|' * 9}")
    for method in results["settings"]:
        runs = [x for name, x in results["runs"].items() if name.rpartition(" ")[0] == method]
        fit = [
            digits(statistics.mean(x["normal"][m] for x in runs)) for m in ("miou", "nll", "ece")
        ]
        for score in ("entropy", "mutual_information"):
            cells = [
                "<br>".join(_found(runs, kind, score, w) for w in ("pixels", "images"))
                for kind in kinds
            ]
            row = (f"{method} ({len(runs)})", score.replace("_", " "), *fit, *cells)
            print(f"| {' | '.join(row)} |")


def _found(runs: Sequence[Any], kind: str, score: str, where: str) -> str:
    auroc, fpr95 = (
        digits(statistics.mean(run[kind][score][where][m] for run in runs))
        for m in ("auroc", "fpr95")
    )
    return f"{auroc} / {fpr95}"


def main() -> None:
    today = read("camvid")
    coarse, coarse_dusk = (read(task) for task in COARSE)
    short, dusk = (read(task) for task in ("camvid_short", "camvid_dusk_short"))
    last, before = read("camvid_last"), read("camvid_before")
    for split in ("held out", "val"):
        for results in (today, coarse, coarse_dusk):
            comparison(results, ROWS, split, CAMVID)
            over_seeds(results, ROWS, split, CAMVID)
        for results in (today, coarse):
            comparison(results, LONG_CHANGES, split, CAMVID)
        for results in (short, dusk):
            comparison(results, {**ROWS, **WEIGHTS}, split, CAMVID)
            over_seeds(results, {**ROWS, **WEIGHTS}, split, CAMVID)
            comparison(results, SCALE_CHANGES, split, CAMVID, own="heavy")
        comparison(short, CHANGES, split, CAMVID, own="heavy-no-scale")
        comparison(short, LONGER, split, CAMVID, own="heavy-32-epochs")
        comparison(last, {**ROWS, **CHANGES}, split, CAMVID, own="heavy")
        comparison(before, FIRST_CHANGES, split, CAMVID, own="pixel")
    for results in (today, coarse, coarse_dusk, short, dusk, last, before):
        detection(results)
        amounts(results)
    mean_of_weights("rel", "nll", "crps", "image_calibration")
    for task in ("nyuv2", "nyuv2_last", "nyuv2_before", "nyuv2_short"):
        rooms_results = read(task)
        names = {family(name): family(name) for name in rooms_results["methods"]}
        comparison(rooms_results, names, "folds", NYUV2)
    odd_scenes(json.loads((RESULTS / "scenes_odd.json").read_text()))
    for task in ("camvid", "camvid_short"):
        camvid(task).savefig(IMAGES / f"results_{task}.png", dpi=130)
    against().savefig(IMAGES / "results_differences.png", dpi=130)


def read(task: str) -> Any:
    """What `real_images.py table` wrote."""
    return json.loads((RESULTS / f"real_images_{task}.json").read_text())


if __name__ == "__main__":
    main()
