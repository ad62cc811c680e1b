"""Ours against each other method: paired differences with their intervals, in one picture."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import PercentFormatter

TITLES = {
    "miou": "mIoU", "nll": "NLL", "ece": "ECE", "image_calibration": "per-image\ncalibration",
    "aurc": "AURC", "rel": "rel", "rms": "rms", "crps": "CRPS", "ause_rel": "AUSE rel",
    "ause_rms": "AUSE rms", "set_calibration": "calibration\nof the set",
}  # fmt: skip
LARGER_IS_BETTER = {"miou"}
LIMIT = 0.7
Against = Mapping[str, Mapping[str, Mapping[str, Any]]]


def differences(
    panels: Mapping[str, tuple[Against, Sequence[str]]], colours: Mapping[str, str]
) -> Figure:
    """One panel a data set: differences as shares of the other method's value.

    Args:
        panels: for each title, what ours was compared with (named as in `colours`), and metrics.
        colours: of the methods, in order.
    """
    figure = Figure(figsize=(3.2 * len(panels), 5.2), layout="constrained")
    for axes, (title, (against, metrics)) in zip(
        figure.subplots(1, len(panels)), panels.items(), strict=True
    ):
        shown = [name for name in colours if name in against]
        for place, metric in enumerate(metrics):
            for i, name in enumerate(shown):
                height = -place + 0.24 - 0.48 * i / max(len(shown) - 1, 1)
                _interval(axes, against[name][metric], height, metric, colours[name])
        axes.axvline(0, color="#999999", lw=1)
        axes.set_yticks([-i for i in range(len(metrics))], [TITLES[m] for m in metrics])
        axes.set(title=title, xlim=(-LIMIT, LIMIT), xlabel="better  ←  onesigma is  →  worse")
        axes.xaxis.set_major_formatter(PercentFormatter(1.0))
        axes.spines[["top", "right", "left"]].set_visible(False)
        axes.tick_params(axis="y", length=0)
    used = {name for against, _ in panels.values() for name in against}
    for name, colour in colours.items():
        if name in used:
            figure.axes[0].plot([], [], "o-", color=colour, label=f"against {name}", lw=1.6)
    handles, names = figure.axes[0].get_legend_handles_labels()
    figure.legend(handles, names, loc="outside lower center", ncols=len(names), frameon=False)
    return figure


def _interval(
    axes: Axes, found: Mapping[str, Any], height: float, metric: str, colour: str
) -> None:
    """The difference and its interval; hollow where it holds 0, cut at the limits."""
    sign = -1 if metric in LARGER_IS_BETTER else 1
    middle, low, high = (
        sign * found[key] / found["first"] for key in ("difference", "low", "high")
    )
    ends = [min(max(x, -LIMIT), LIMIT) for x in (low, high)]
    axes.plot(ends, [height, height], color=colour, lw=1.6, solid_capstyle="butt")
    if abs(middle) <= LIMIT:
        fill = colour if found["excludes_zero"] else "white"
        axes.plot(middle, height, "o", ms=5.5, mfc=fill, mec=colour, mew=1.4)
