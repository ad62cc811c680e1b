"""The picture of the README, from the networks that `onesigma demo` trains.

python examples/readme_picture.py runs/demo docs/images/demo.png
"""

from __future__ import annotations

import sys
from pathlib import Path

from onesigma.data import Scenes
from onesigma.report.figures import Sheet, draw_scale
from onesigma.report.maps import panels
from onesigma.report.scales import scales_for
from onesigma.training import Run, load

SHOWN = {"held-out scene": None, "the same at night": "night", "a failing sensor": "sensor"}
WIDTH, GAP, TOP, LEFT = 244.0, 14.0, 62.0, 16.0


def rows(run: Run, index: int) -> list[tuple[str, list]]:
    """Panels of one scene in its normal and odd versions."""
    found = []
    for title, odd in SHOWN.items():
        sample = Scenes("segmentation", (72, 96), split="test", odd=odd)[index]
        scales = scales_for(run.spec)
        drawn = panels(run.predict(sample["image"]), sample["image"], scales, sample["target"])
        found.append((title, drawn))
    return found


def draw(found: list[tuple[str, list]], path: Path) -> None:
    """One row per scene, scales below the last."""
    first = found[0][1]
    height = WIDTH * first[0].pixels.shape[0] / first[0].pixels.shape[1]
    step = height + 34.0
    sheet = Sheet.new(2 * LEFT + len(first) * (WIDTH + GAP) - GAP, TOP + len(found) * step + 62.0)
    for column, panel in enumerate(first):
        sheet.text(LEFT + column * (WIDTH + GAP), 14.0, panel.title, 14.0)
    for row, (title, drawn) in enumerate(found):
        top = TOP + row * step
        sheet.text(LEFT, top - 20, title, 12.0)
        for column, panel in enumerate(drawn):
            sheet.picture(panel.pixels, LEFT + column * (WIDTH + GAP), top, WIDTH, height)
    for column, panel in enumerate(first):
        if panel.scale is not None and panel.title not in {"truth", "prediction"}:
            left = LEFT + column * (WIDTH + GAP)
            draw_scale(sheet, panel.scale, left, TOP + len(found) * step - 22, WIDTH)
    sheet.save(path)


if __name__ == "__main__":
    demo, out = Path(sys.argv[1]), Path(sys.argv[2])
    draw(rows(load(demo / "segmentation"), index=2), out)
