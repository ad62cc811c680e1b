import base64
import io
import re
from html.parser import HTMLParser
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from onesigma.report.curves import curve_svg, read_logs, smoothed
from onesigma.report.figures import Panel
from onesigma.report.page import Page, Row, Section, Table, write_page
from onesigma.report.run_page import training_curves
from onesigma.report.scales import ColourScale, LabelScale

PIXELS = np.random.default_rng(0).integers(0, 256, (6, 8, 3)).astype(np.uint8)
VOID = {"meta", "img", "path", "use", "circle", "line", "rect", "br"}


class Reader(HTMLParser):
    """Collects attributes and text, and checks that tags are closed in order."""

    def __init__(self) -> None:
        super().__init__()
        self.tags: list[str] = []
        self.found: list[tuple[str, dict[str, str | None]]] = []
        self.text: list[str] = []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.found.append((tag, dict(attrs)))
        if tag not in VOID:
            self.tags.append(tag)

    def handle_startendtag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.found.append((tag, dict(attrs)))

    def handle_endtag(self, tag: str) -> None:
        if tag not in VOID:
            assert self.tags.pop() == tag

    def handle_data(self, data: str) -> None:
        self.text.append(data)


@pytest.fixture
def page(tmp_path: Path) -> tuple[str, Reader]:
    bar = ColourScale("mutual information", "nats", 0.0, 2.4)
    classes = LabelScale("class", ("sky", "road"), ((1, 2, 4), (200, 100, 50)))
    shown = [Panel("image", PIXELS), Panel("truth", PIXELS, classes), Panel("doubt", PIXELS, bar)]
    section = Section(
        "Pictures <of> scenes",
        ["A & B."],
        [Table(["scenes", "mIoU"], [["normal", "0.6"]], "One seed.")],
        [Row("scene 1", shown, "note"), Row("scene 2", shown)],
        [("a curve", curve_svg([1.0, 2.0, 3.0], {"fit": [1.0, 2.0, 4.0]}, "fit"))],
    )
    path = write_page(Page("Title", "Lead.", [section], footer="End."), tmp_path / "a" / "p.html")
    text = path.read_text(encoding="utf-8")
    reader = Reader()
    reader.feed(text)
    assert reader.tags == []
    return text, reader


def test_everything_is_said(page: tuple[str, Reader]) -> None:
    said = " ".join(" ".join(page[1].text).split())
    page_words = ["Title", "Lead.", "Pictures <of> scenes", "A & B.", "a curve", "End."]
    for words in [*page_words, "normal", "One seed.", "scene 2", "sky", "2.4"]:
        assert words in said
    assert "mutual information (nats)" in said


def test_pictures_are_inside(page: tuple[str, Reader]) -> None:
    sources = [attrs["src"] or "" for tag, attrs in page[1].found if tag == "img"]
    assert len(sources) == 6
    for source in sources:
        kind, data = source.split(",", 1)
        assert kind == "data:image/png;base64"
        with Image.open(io.BytesIO(base64.b64decode(data))) as picture:
            np.testing.assert_array_equal(np.asarray(picture), PIXELS)


def test_nothing_comes_from_elsewhere(page: tuple[str, Reader]) -> None:
    text, reader = page
    names = [attrs for _, attrs in reader.found]
    links = [a.get(key) or "" for a in names for key in ("href", "src", "xlink:href")]
    assert all(link == "" or link.startswith(("data:", "#")) for link in links)
    assert not re.search(r"url\((?!#)|@import|<script|<link", text)
    outside = set(re.findall(r"https?://[^\s\"'<]+", text))
    assert all(url.startswith("http://www.w3.org/") for url in outside)  # names of SVG, not links


def test_every_picture_has_words(page: tuple[str, Reader]) -> None:
    words = [attrs.get("alt") for tag, attrs in page[1].found if tag == "img"]
    assert words[0] == "scene 1: image"
    assert all(words)


def test_curves_take_the_colour_of_the_text(page: tuple[str, Reader]) -> None:
    assert "currentColor" in page[0]
    assert "#010203" not in page[0]


def test_a_row_of_wrong_length_is_refused() -> None:
    with pytest.raises(ValueError, match="2 columns got a row of 1"):
        Table(["a", "b"], [["x"]])


def test_logs_of_all_parts_in_order(tmp_path: Path) -> None:
    parts = {"part-000": "10,1.5,\n20,2.5,\n20,,0.7\n", "part-001": "30,3.5,\n40,,0.5\n"}
    for part, rows in parts.items():
        folder = tmp_path / part
        folder.mkdir()
        (folder / "metrics.csv").write_text("step,fit,val_nll\n" + rows)
    read = read_logs(tmp_path)
    assert read["fit"] == [(10.0, 1.5), (20.0, 2.5), (30.0, 3.5)]
    assert read["val_nll"] == [(20.0, 0.7), (40.0, 0.5)]
    assert read_logs(tmp_path / "none") == {}
    captions = [caption for caption, _ in training_curves(tmp_path)]
    assert [caption.split(";")[1] for caption in captions] == [
        " larger is better",
        " smaller is better",
    ]


def test_smoothing_is_a_weighted_mean() -> None:
    values = [3.0, -1.0, 4.0, 10.0]
    for end, value in enumerate(smoothed(values, 0.8), start=1):
        weights = [0.8 ** (end - 1 - i) for i in range(end)]
        assert value == pytest.approx(np.average(values[:end], weights=weights))
