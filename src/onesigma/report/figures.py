"""Pictures with their colour scale printed beside them."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import groupby
from pathlib import Path

import numpy as np
from matplotlib.axes import Axes
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure
from matplotlib.patches import Rectangle

from onesigma.report.scales import ColourScale, LabelScale, Pixels, Scale

_DPI = 100
_INK, _QUIET = "#1a1a1a", "#555555"
_SMALLEST_WIDTH = 560


@dataclass(frozen=True)
class Panel:
    """One picture with its title, and the scale that made its colours.

    Attributes:
        title: what it shows.
        pixels: (h, w, 3).
        scale: None for photographs.
    """

    title: str
    pixels: Pixels
    scale: Scale | None = None


@dataclass(frozen=True)
class Sheet:
    """A white sheet measured in points of the page, from the upper left corner.

    Attributes:
        figure: of matplotlib.
        width: in points.
        height: in points.
        zoom: pixels per point.
    """

    figure: Figure
    width: float
    height: float
    zoom: float

    @staticmethod
    def new(width: float, height: float, zoom: float = 1.0) -> Sheet:
        """Of width × height points, each of zoom pixels."""
        figure = Figure((width * zoom / _DPI, height * zoom / _DPI), dpi=_DPI, facecolor="white")
        FigureCanvasAgg(figure)
        return Sheet(figure, width, height, zoom)

    def axes(self, left: float, top: float, width: float, height: float) -> Axes:
        """Axes at a place on the sheet."""
        bottom = self.height - top - height
        place = (left / self.width, bottom / self.height, width / self.width, height / self.height)
        return self.figure.add_axes(place)

    def text(self, left: float, top: float, text: str, size: float, colour: str = _INK) -> None:
        """A line of text whose upper left corner is here; size in points of the page."""
        self.figure.text(
            left / self.width,
            1 - top / self.height,
            text,
            fontsize=size * self.zoom * 72 / _DPI,
            color=colour,
            va="top",
        )

    def picture(self, pixels: Pixels, left: float, top: float, width: float, height: float) -> None:
        """Pixels as they are, without smoothing."""
        axes = self.axes(left, top, width, height)
        axes.imshow(pixels, interpolation="nearest", aspect="auto")
        axes.set_axis_off()

    def save(self, path: Path) -> None:
        """As PNG."""
        self.figure.savefig(path, dpi=_DPI)


def save_map(path: Path, pixels: Pixels, title: str, scale: Scale) -> None:
    """One map at a whole number of pixels per pixel, with title and scale.

    Args:
        path: of the PNG.
        pixels: of the map.
        title: above it.
        scale: below it.
    """
    h, w = pixels.shape[:2]
    enlarged = math.ceil(_SMALLEST_WIDTH / w)
    zoom = max(1.0, w * enlarged / 900)
    width, height = w * enlarged / zoom, h * enlarged / zoom
    margin, top = 14.0, 36.0
    below = _legend_height(scale, width)
    sheet = Sheet.new(width + 2 * margin, top + height + below + margin, zoom)
    sheet.text(margin, 12.0, title, 15.0)
    sheet.picture(pixels, margin, top, width, height)
    draw_scale(sheet, scale, margin, top + height + 10, width)
    sheet.save(path)


def draw_scale(sheet: Sheet, scale: Scale, left: float, top: float, width: float) -> None:
    """A colour bar with numbers, or the names of the classes beside their colours."""
    if isinstance(scale, LabelScale):
        _draw_classes(sheet, scale, left, top, width)
    else:
        _draw_bar(sheet, scale, left, top, width)


def _draw_bar(sheet: Sheet, scale: ColourScale, left: float, top: float, width: float) -> None:
    axes = sheet.axes(left, top, width, 12.0)
    colours = scale.map(np.linspace(0, 1, 256))[None]
    axes.imshow(colours, extent=(0, 1, 0, 1), aspect="auto", interpolation="bilinear")
    positions, texts = zip(*scale.ticks(), strict=True)
    size = 12 * sheet.zoom * 72 / _DPI
    axes.set_xticks(positions, texts, fontsize=size, color=_INK)
    axes.tick_params(length=3 * sheet.zoom, width=0.8 * sheet.zoom, pad=2 * sheet.zoom)
    first, *_, last = axes.get_xticklabels()
    first.set_horizontalalignment("left")
    last.set_horizontalalignment("right")
    axes.set_yticks([])
    for spine in axes.spines.values():
        spine.set_visible(False)
    sheet.text(left, top + 34, f"{scale.label}, fixed scale", 12.0, _QUIET)


def _draw_classes(sheet: Sheet, scale: LabelScale, left: float, top: float, width: float) -> None:
    per_row = _columns(width)
    axes = sheet.axes(left, top, width, 18.0 * _rows(scale, width))
    axes.set_xlim(0, width)
    axes.set_ylim(18.0 * _rows(scale, width), 0)
    axes.set_axis_off()
    for index, (name, colour) in enumerate(zip(scale.classes, scale.palette, strict=True)):
        x, y = index % per_row * (width / per_row), 18 * (index // per_row)
        shade = tuple(part / 255 for part in colour)
        axes.add_patch(Rectangle((x, y + 2), 12, 12, facecolor=shade, linewidth=0))
        size = 12 * sheet.zoom * 72 / _DPI
        axes.text(x + 17, y + 8, name, fontsize=size, color=_INK, va="center_baseline")


def _legend_height(scale: Scale, width: float) -> float:
    return 18.0 * _rows(scale, width) + 10 if isinstance(scale, LabelScale) else 60.0


def _columns(width: float) -> int:
    return max(1, int(width // 105))


def _rows(scale: LabelScale, width: float) -> int:
    return -(-len(scale.classes) // _columns(width))


def save_overview(path: Path, pictures: Sequence[Panel], name: str = "") -> None:
    """Pictures of one size in a row; neighbours with the same scale share its bar.

    Args:
        path: of the PNG.
        pictures: with titles and scales.
        name: printed above all.
    """
    h, w = pictures[0].pixels.shape[:2]
    width = min(max(280.0, float(w)), 480.0)
    height, step, margin = h * width / w, width + 12.0, 16.0
    top = 62.0 if name else 36.0
    groups = by_scale(pictures)
    below = max(_legend_height(s, n * step - 12) if s else 0.0 for s, _, n in groups)
    sheet = Sheet.new(2 * margin + len(pictures) * step - 12, top + height + below + margin)
    sheet.text(margin, 12.0, name, 17.0)
    for index, panel in enumerate(pictures):
        left = margin + index * step
        sheet.text(left, top - 22, panel.title, 14.0, _QUIET)
        sheet.picture(panel.pixels, left, top, width, height)
    for scale, first, count in groups:
        if scale is not None:
            draw_scale(sheet, scale, margin + first * step, top + height + 10, count * step - 12)
    sheet.save(path)


def by_scale(pictures: Sequence[Panel]) -> list[tuple[Scale | None, int, int]]:
    """(scale, first, count) of neighbours with the same scale."""
    groups, first = [], 0
    for scale, members in groupby(pictures, key=lambda panel: panel.scale):
        count = len(list(members))
        groups.append((scale, first, count))
        first += count
    return groups
