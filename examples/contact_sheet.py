"""Draw the contact sheet of generated scenes that the documentation shows.

    python examples/contact_sheet.py --out docs/images/scenes.png

Rows: clean scenes; one scene with everything that is known about it; the same scene made odd.
"""

from __future__ import annotations

import argparse
from pathlib import Path

import numpy as np
import torch
from matplotlib import colormaps
from PIL import Image, ImageDraw, ImageFont

from onesigma.data import STREET_PALETTE, Scenes
from onesigma.data.base import Sample

# scenes are drawn at twice the size they are shown at
DRAWN, SHOWN = (384, 512), (192, 256)
GAP, CAPTION, COLUMNS = 8, 22, 5
# scenes of seed 0 that show different light, weather and traffic
CLEAN = (14, 3, 10, 70, 33, 85, 21, 74, 1, 53)
KNOWN, ODD = 95, 55


def tile(pixels: np.ndarray, smooth: bool = True) -> Image.Image:
    picture = Image.fromarray((pixels * 255).round().astype(np.uint8))
    way = Image.Resampling.BOX if smooth else Image.Resampling.NEAREST
    return picture.resize(SHOWN[::-1], way)


def photo(sample: Sample) -> Image.Image:
    return tile(sample["image"].permute(1, 2, 0).numpy())


def clean_rows() -> list[tuple[str, Image.Image]]:
    data = Scenes(size=DRAWN)
    return [("", photo(data[i])) for i in CLEAN]


def heat(values: torch.Tensor, top: float, name: str) -> Image.Image:
    scaled = (values / top).clamp(0, 1).nan_to_num(0).numpy()
    colours = colormaps[name](scaled)[..., :3]
    colours[values.isnan().numpy()] = 0.93
    return tile(colours)


def known_row() -> list[tuple[str, Image.Image]]:
    labels = Scenes("segmentation", DRAWN, truth=True)[KNOWN]
    depth = Scenes("depth", DRAWN, truth=True)[KNOWN]
    palette = np.array(STREET_PALETTE) / 255
    law = labels["label_probs"]
    entropy = -(law * law.clamp_min(1e-12).log()).sum(0)
    return [
        ("image", photo(labels)),
        ("labels, as observed", tile(palette[labels["target"].numpy()], smooth=False)),
        ("entropy of the label", heat(entropy, 1.0, "magma")),
        ("depth, near to far", heat(depth["depth"][0].log() - 1, 3.4, "viridis_r")),
        ("deviation of depth, 0 to 1.5 m", heat(depth["noise"][0], 1.5, "magma")),
    ]


def odd_row() -> list[tuple[str, Image.Image]]:
    kinds = ("objects", "night", "fog", "sensor")
    tiles = [(f'odd="{kind}"', photo(Scenes(size=DRAWN, odd=kind)[ODD])) for kind in kinds]
    sample = Scenes(size=DRAWN, odd="objects", truth=True)[ODD]
    dimmed = sample["image"] * torch.where(sample["ood"], 1.0, 0.35)
    return [*tiles[:1], ("ood mask", tile(dimmed.permute(1, 2, 0).numpy())), *tiles[1:]]


def sheet(tiles: list[tuple[str, Image.Image]]) -> Image.Image:
    h, w = SHOWN
    rows = [tiles[i : i + COLUMNS] for i in range(0, len(tiles), COLUMNS)]
    heights = [h + (CAPTION if any(name for name, _ in row) else GAP) for row in rows]
    page = Image.new("RGB", (COLUMNS * (w + GAP) + GAP, sum(heights) + GAP), "white")
    pen, font, top = ImageDraw.Draw(page), ImageFont.load_default(size=13), GAP
    for row, height in zip(rows, heights, strict=True):
        for j, (name, picture) in enumerate(row):
            left = GAP + j * (w + GAP)
            page.paste(picture, (left, top))
            pen.text((left + 2, top + h + 3), name, fill="#444444", font=font)
        top += height
    return page


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--out", type=Path, default=Path("docs/images/scenes.png"))
    out = parser.parse_args().out
    out.parent.mkdir(parents=True, exist_ok=True)
    page = sheet([*clean_rows(), *known_row(), *odd_row()])
    page.save(out, optimize=True)


if __name__ == "__main__":
    main()
