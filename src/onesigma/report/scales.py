"""Fixed colour scales: the same colour means the same number in every picture of a call."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import matplotlib
import numpy as np
from matplotlib.colors import Colormap
from numpy.typing import NDArray

from onesigma.data.base import Palette, TargetSpec

Pixels = NDArray[np.uint8]
Values = NDArray[Any]

WRONG_PALETTE: Palette = ((16, 12, 36), (252, 200, 60))
UNCERTAINTY_COLOURS = "inferno"
DEPTH_COLOURS = "viridis_r"


@dataclass(frozen=True)
class ColourScale:
    """Numbers to colours: position t = ((x - low)/(high - low))^power along a colour map.

    Attributes:
        quantity: what is shown, such as "mutual information".
        unit: of the numbers.
        low: number at the first colour; smaller ones get it too.
        high: number at the last colour; larger ones get it too.
        colours: name of a matplotlib colour map.
        power: below 1 spreads the small numbers.
        open_end: numbers above `high` can occur, and the scale says "or more".
    """

    quantity: str
    unit: str
    low: float
    high: float
    colours: str = UNCERTAINTY_COLOURS
    power: float = 1.0
    open_end: bool = False

    def __post_init__(self) -> None:
        if not self.high > self.low:
            raise ValueError(
                f"The colour scale of {self.quantity} goes from {self.low} to {self.high}; give it "
                "low < high."
            )

    @property
    def map(self) -> Colormap:
        """The colour map."""
        return matplotlib.colormaps[self.colours]

    @property
    def label(self) -> str:
        """Quantity and unit."""
        return f"{self.quantity} ({self.unit})" if self.unit else self.quantity

    def position(self, values: Values) -> NDArray[np.float64]:
        """Where numbers stand on the scale, from 0 to 1."""
        share = (values.astype(np.float64) - self.low) / (self.high - self.low)
        return np.clip(share, 0, 1) ** self.power

    def pixels(self, values: Values) -> Pixels:
        """Colours (h, w, 3) of a map (h, w); hatched where it is not a number."""
        colours = self.map(self.position(np.nan_to_num(values)), bytes=True)[..., :3]
        return _hatched(colours, np.isnan(values))

    def ticks(self, gap: float = 0.13) -> list[tuple[float, str]]:
        """(position, text) of both ends and of round numbers between, at least `gap` apart."""
        chosen = [self.low]
        for number in _round_numbers(self.low, self.high):
            last, here, end = self.position(np.array([chosen[-1], number, self.high]))
            if here - last >= gap and end - here >= gap:
                chosen.append(number)
        numbers = [*chosen, self.high]
        texts = [f"{number:.3g}" for number in numbers]
        if self.open_end:
            texts[-1] = "≥ " + texts[-1]
        return list(zip(self.position(np.array(numbers)).tolist(), texts, strict=True))


@dataclass(frozen=True)
class LabelScale:
    """Labels to the colours of their classes.

    Attributes:
        quantity: what the labels say.
        classes: names of the labels 0, 1, ….
        palette: their colours, 0 to 255.
    """

    quantity: str
    classes: tuple[str, ...]
    palette: Palette

    @property
    def label(self) -> str:
        """The quantity: labels have no unit."""
        return self.quantity

    def pixels(self, values: Values) -> Pixels:
        """Colours (h, w, 3) of labels (h, w); hatched where there is none, such as -1."""
        known = (values >= 0) & (values < len(self.classes))
        colours = np.array(self.palette, np.uint8)[np.where(known, values, 0).astype(np.intp)]
        return _hatched(colours, ~known)


Scale = ColourScale | LabelScale


@dataclass(frozen=True)
class MapScales:
    """The scales of all maps of a run; total, epistemic and aleatoric share one range.

    Attributes:
        prediction: of labels or depths.
        total: of all uncertainty.
        epistemic: of what more data would take away.
        aleatoric: of what is left with any amount of data.
        error: of the distance between prediction and truth.
    """

    prediction: Scale
    total: ColourScale
    epistemic: ColourScale
    aleatoric: ColourScale
    error: Scale


def label_scales(classes: Sequence[str], palette: Palette = ()) -> MapScales:
    """For segmentation: entropies from 0 to log K nats, the entropy of a uniform guess.

    Args:
        classes: names.
        palette: colours; made up when left out.
    """
    colours = palette or _palette(len(classes))
    most = math.log(max(len(classes), 2))

    def nats(quantity: str) -> ColourScale:
        return ColourScale(quantity, "nats", 0.0, most, power=0.5)

    return MapScales(
        prediction=LabelScale("class", tuple(classes), tuple(colours)),
        total=nats("entropy"),
        epistemic=nats("mutual information"),
        aleatoric=nats("expected entropy"),
        error=LabelScale("label", ("right", "wrong"), WRONG_PALETTE),
    )


def regression_scales(
    high: float, unit: str = "", low: float = 0.0, std: float = 0.0, quantity: str = "value"
) -> MapScales:
    """For depth and other values: standard deviations in the unit of the target.

    Args:
        high: the last colour of the prediction, such as the largest training target.
        unit: of the target.
        low: the first colour of the prediction.
        std: the last colour of deviations and errors; a quarter of the range when left out.
        quantity: what the target is.
    """
    most = std or 0.25 * (high - low)

    def deviation(quantity: str) -> ColourScale:
        return ColourScale(quantity, unit, 0.0, most, power=0.5, open_end=True)

    return MapScales(
        prediction=ColourScale(quantity, unit, low, high, DEPTH_COLOURS, 0.5, open_end=True),
        total=deviation("standard deviation"),
        epistemic=deviation("epistemic standard deviation"),
        aleatoric=deviation("aleatoric standard deviation"),
        error=deviation("absolute error"),
    )


def scales_for(spec: TargetSpec, high: float = 80.0, std: float = 0.0) -> MapScales:
    """The scales that fit a data set's target.

    Args:
        spec: of the data set.
        high: largest target; for depth only.
        std: last colour of deviations; for depth only.
    """
    if spec.task == "segmentation":
        return label_scales(spec.classes, spec.palette)
    return regression_scales(high, spec.unit, std=std, quantity=spec.task)


def _hatched(colours: Pixels, missing: NDArray[np.bool_]) -> Pixels:
    """Two light greys in diagonal stripes where there is nothing to show."""
    stripes = np.add.outer(*(np.arange(side) for side in missing.shape)) % 6 < 3
    grey = np.where(stripes, 205, 238).astype(np.uint8)[..., None]
    return np.where(missing[..., None], grey, colours)


def _palette(count: int) -> Palette:
    """Distinct colours for classes that have none."""
    shades = matplotlib.colormaps["tab20"](np.arange(count) % 20, bytes=True)
    return tuple((int(r), int(g), int(b)) for r, g, b, _ in shades)


def _round_numbers(low: float, high: float) -> list[float]:
    """1, 2 and 5 times powers of ten between two numbers."""
    largest = math.ceil(math.log10(max(abs(low), abs(high))))
    sizes = [
        digit * 10.0**power for power in range(largest - 4, largest + 1) for digit in (1, 2, 5)
    ]
    return sorted(n for size in sizes for n in (-size, size) if low < n < high)
