"""Lines over steps, as SVG that takes the page's colour."""

from __future__ import annotations

import csv
import io
import re
from collections.abc import Mapping, Sequence
from pathlib import Path

import matplotlib
from matplotlib.backends.backend_svg import FigureCanvasSVG
from matplotlib.figure import Figure

# a colour that occurs nowhere else, to be replaced by the page's own
_INK = "#010203"
_LINES = ("#c4572b", "#3b78b5", "#5f8f3e", "#8a5ca8")


def read_logs(folder: Path) -> dict[str, list[tuple[float, float]]]:
    """(step, value) of every column of all CSV logs below a folder, in the order of the steps.

    Args:
        folder: `logs/` of a run.
    """
    rows = [row for path in sorted(folder.rglob("*.csv")) for row in _rows(path)]
    rows.sort(key=lambda row: float(row["step"]))
    found: dict[str, list[tuple[float, float]]] = {}
    for row in rows:
        # a row of validation has no terms of a step, and the other way round
        for name in (name for name, text in row.items() if text and name != "step"):
            found.setdefault(name, []).append((float(row["step"]), float(row[name])))
    return found


def _rows(path: Path) -> list[dict[str, str]]:
    with path.open(newline="", encoding="utf-8") as file:
        return list(csv.DictReader(file))


def smoothed(values: Sequence[float], share: float = 0.9) -> list[float]:
    """The running mean m ← share · m + (1 - share) · x, started without bias."""
    out, total, weight = [], 0.0, 0.0
    for value in values:
        total, weight = share * total + (1 - share) * value, share * weight + 1 - share
        out.append(total / weight)
    return out


def curve_svg(steps: Sequence[float], lines: Mapping[str, Sequence[float]], label: str) -> str:
    """A small plot for the page.

    Args:
        steps: along the horizontal axis.
        lines: values by name.
        label: of the vertical axis.
    """
    figure = Figure((5.6, 2.5), layout="constrained")
    figure.patch.set_alpha(0)
    axes = figure.add_subplot(facecolor="none")
    for (name, values), colour in zip(lines.items(), _LINES, strict=False):
        axes.plot(steps, values, color=colour, linewidth=1.6, label=name)
    axes.set_xlabel("step", color=_INK)
    axes.set_ylabel(label, color=_INK)
    axes.tick_params(colors=_INK, which="both")
    axes.spines[["top", "right"]].set_visible(False)
    axes.spines[["left", "bottom"]].set_color(_INK)
    if len(lines) > 1:
        axes.legend(frameon=False, labelcolor=_INK)
    return _inline(figure)


def _inline(figure: Figure) -> str:
    """SVG without header and metadata, whose ink is the colour of the text around it."""
    buffer = io.StringIO()
    with matplotlib.rc_context({"svg.hashsalt": "onesigma"}):
        FigureCanvasSVG(figure).print_svg(buffer, metadata={"Date": None})
    text = buffer.getvalue()
    text = re.sub(r"<metadata>.*?</metadata>", "", text[text.index("<svg") :], flags=re.DOTALL)
    return text.replace(_INK, "currentColor")
