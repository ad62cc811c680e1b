"""One HTML file that needs nothing else: style and pictures are inside it."""

from __future__ import annotations

import base64
import io
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np
from jinja2 import Environment, PackageLoader, StrictUndefined
from matplotlib.colors import to_hex
from PIL import Image

from onesigma.report.figures import Panel, by_scale
from onesigma.report.scales import ColourScale, LabelScale, Pixels


@dataclass(frozen=True)
class Table:
    """Numbers, already written as text.

    Attributes:
        columns: headings; the first is of the row names.
        rows: one text for each column.
        note: what the numbers mean.
    """

    columns: Sequence[str]
    rows: Sequence[Sequence[str]]
    note: str = ""

    def __post_init__(self) -> None:
        wrong = [row for row in self.rows if len(row) != len(self.columns)]
        if wrong:
            raise ValueError(
                f"A table with {len(self.columns)} columns got a row of {len(wrong[0])}: "
                f"{list(wrong[0])}; give one text for each column."
            )


@dataclass(frozen=True)
class Row:
    """The pictures of one image.

    Attributes:
        title: of the image.
        panels: in the same order in all rows of a section.
        note: a line of text or numbers.
    """

    title: str
    panels: Sequence[Panel]
    note: str = ""


@dataclass(frozen=True)
class Section:
    """A heading with text, tables and rows of pictures.

    Attributes:
        title: the heading.
        text: paragraphs.
        tables: of numbers.
        rows: of pictures.
        curves: (caption, SVG) of figures.
    """

    title: str
    text: Sequence[str] = ()
    tables: Sequence[Table] = ()
    rows: Sequence[Row] = ()
    curves: Sequence[tuple[str, str]] = ()


@dataclass(frozen=True)
class Page:
    """What a page says.

    Attributes:
        title: of the page.
        lead: what it is about, in a sentence or two.
        sections: from top to bottom.
        guide: (word, meaning) pairs that explain how to read the pictures.
        footer: small print.
    """

    title: str
    lead: str
    sections: Sequence[Section] = ()
    guide: Sequence[tuple[str, str]] = field(default_factory=lambda: READING_GUIDE)
    footer: str = ""


READING_GUIDE: tuple[tuple[str, str], ...] = (
    ("brighter", "less sure. All three uncertainties of a task share one fixed colour scale."),
    (
        "epistemic",
        "what the network does not know: more training images like this one would lower it.",
    ),
    (
        "aleatoric",
        "what no amount of data would tell: noise of the sensor, ambiguous borders.",
    ),
    ("error", "distance between prediction and truth; a good uncertainty is bright where this is."),
    ("hatched", "no truth here: void labels, the sky, objects of no known class."),
)


def render_page(page: Page) -> str:
    """The HTML text."""
    environment = Environment(
        loader=PackageLoader("onesigma.report"),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    environment.filters |= {"data_url": data_url, "gradient": gradient, "hex": to_hex_colour}
    environment.tests |= {"labels": lambda scale: isinstance(scale, LabelScale)}
    return environment.get_template("page.html.jinja").render(page=page, groups=by_scale)


def write_page(page: Page, path: Path) -> Path:
    """Write the HTML file, and its folder if it is missing."""
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(render_page(page), encoding="utf-8")
    return path


def data_url(pixels: Pixels) -> str:
    """A picture as a PNG inside an address."""
    buffer = io.BytesIO()
    Image.fromarray(np.ascontiguousarray(pixels)).save(buffer, "PNG", optimize=True)
    return "data:image/png;base64," + base64.b64encode(buffer.getvalue()).decode("ascii")


def gradient(scale: ColourScale) -> str:
    """The colours of a scale as CSS."""
    stops = [to_hex(scale.map(position)) for position in np.linspace(0, 1, 24)]
    return f"linear-gradient(to right, {', '.join(stops)})"


def to_hex_colour(colour: tuple[int, int, int]) -> str:
    """(255, 0, 0) as #ff0000."""
    return "#{:02x}{:02x}{:02x}".format(*colour)
