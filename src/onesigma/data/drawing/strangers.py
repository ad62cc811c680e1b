"""Objects of classes that no training scene holds: the unseen things of odd scenes."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from onesigma.data.classes import VOID
from onesigma.data.drawing.canvas import ROUND, Brush, Canvas, texture
from onesigma.data.drawing.light import Light
from onesigma.data.drawing.thing import Thing, soft_shadow


@dataclass(frozen=True)
class Stranger(Thing):
    """An object that does not belong in a street; its label is void.

    Attributes:
        x: of its middle.
        z: where it stands.
        scale: of its natural size.
        kind: one of `STRANGER_KINDS`.
        flip: whether it looks to the left.
        seed: of its texture.
    """

    x: float
    z: float
    scale: float
    kind: str
    flip: bool
    seed: int

    def draw(self, canvas: Canvas, light: Light) -> None:
        """Put the object on the canvas."""
        half, height, paint = _KINDS[self.kind]
        patch = canvas.upright(self.x, half * self.scale, height * self.scale, self.z)
        if patch is None:
            return
        brush = Brush(patch)
        brush.x = (-patch.x if self.flip else patch.x) / self.scale
        brush.y = patch.y / self.scale
        paint(brush, self.seed)
        # rounder things are darker below
        brush.paint[:3] *= np.clip(0.62 + 0.5 * brush.y / height, 0, 1.1)
        brush.stamp(canvas, VOID, ROUND)

    def cast(self, canvas: Canvas, light: Light) -> None:
        """A soft shadow below."""
        half = _KINDS[self.kind][0] * self.scale
        soft_shadow(canvas, (self.x, self.z), (half * 0.85, 0.8), 0.7)


def _giraffe(brush: Brush, seed: int) -> None:
    coat = "#d9a95a"
    for x in (-0.62, -0.45, 0.42, 0.58):
        brush.limb((x, 0.05), (x * 0.85, 1.7), 0.08, coat)
    brush.disc((0.0, 1.95), (0.85, 0.42), coat)
    brush.limb((0.6, 2.1), (1.0, 3.9), 0.17, coat)
    brush.disc((1.18, 4.0), (0.34, 0.17), coat)
    brush.limb((0.98, 4.1), (0.94, 4.35), 0.04, "#6b4a2a")
    brush.limb((-0.8, 2.1), (-0.98, 1.4), 0.04, "#6b4a2a")
    spots = texture(brush.y * 6, brush.x * 6, 0.0, seed) > 0.52
    brush.fill(spots & brush.mask & (brush.y > 1.0), "#8a5526")
    brush.disc((1.2, 4.06), (0.04, 0.04), "#111111")


def _duck(brush: Brush, seed: int) -> None:
    brush.disc((-0.1, 0.75), (1.15, 0.75), "#f6cf2b")
    brush.disc((-0.95, 1.15), (0.35, 0.4), "#f6cf2b")
    brush.disc((0.55, 1.75), (0.62, 0.6), "#f8d63c")
    brush.disc((1.2, 1.62), (0.32, 0.14), "#e8701e")
    brush.disc((0.78, 1.92), (0.10, 0.12), "#151515")
    brush.disc((0.81, 1.96), (0.03, 0.04), "#ffffff")
    brush.disc((-0.3, 0.8), (0.55, 0.32), "#e0b51c")


def _balloons(brush: Brush, seed: int) -> None:
    places = (
        (-0.55, 2.5, "#d8323c"),
        (0.5, 2.75, "#2f6fd0"),
        (0.0, 3.35, "#f0b429"),
        (0.05, 2.2, "#3f9e5a"),
    )
    for x, y, _ in places:
        brush.limb((0.0, 0.3), (x, y - 0.5), 0.02, "#dddddd")
    brush.box((-0.18, 0.18), (0.0, 0.3), "#7a4c8c")
    for x, y, code in places:
        brush.disc((x, y), (0.46, 0.56), code)
        brush.disc((x - 0.16, y + 0.2), (0.10, 0.15), "#ffe9e4")


def _boxes(brush: Brush, seed: int) -> None:
    stack = (
        (-0.95, 0.05, 0.0, 0.95),
        (0.1, 1.0, 0.0, 0.85),
        (-0.6, 0.3, 0.95, 1.75),
        (0.32, 0.95, 0.85, 1.45),
        (-0.35, 0.2, 1.75, 2.3),
    )
    for i, (x0, x1, y0, y1) in enumerate(stack):
        brush.box((x0, x1), (y0, y1), ("#c08a52", "#b27c46", "#cc9a64")[(i + seed) % 3])
        middle = (x0 + x1) / 2
        brush.box((middle - 0.06, middle + 0.06), (y0, y1), "#dcc29a")
        brush.box((x0, x1), (y1 - 0.04, y1), "#8a5e34")


def _cube(brush: Brush, seed: int) -> None:
    checks = (np.floor(brush.x * 2.5 + 50) + np.floor(brush.y * 2.5)) % 2 == 0
    front = (np.abs(brush.x + 0.25) < 1.0) & (brush.y > 0) & (brush.y < 2.0)
    slant = (brush.x - 0.75) * 0.7
    side = (brush.x > 0.75) & (brush.x < 1.25) & (brush.y > slant) & (brush.y < 2.0 + slant * 0.4)
    brush.fill(front, "#e33fa0")
    brush.fill(front & checks, "#2bd1d6")
    brush.fill(side, "#7c1f58")


def _elephant(brush: Brush, seed: int) -> None:
    for x in (-0.85, -0.45, 0.4, 0.8):
        brush.limb((x, 0.15), (x, 1.2), 0.21, "#7d7f86")
    brush.disc((0.0, 1.6), (1.3, 0.85), "#8b8d95")
    brush.disc((1.25, 2.0), (0.55, 0.58), "#8b8d95")
    brush.limb((1.65, 1.85), (1.85, 0.75), 0.15, "#85878f")
    brush.disc((0.98, 2.0), (0.36, 0.5), "#74767d")
    brush.limb((1.5, 1.6), (1.95, 1.45), 0.06, "#efe8d2")
    brush.disc((1.48, 2.2), (0.05, 0.05), "#111111")
    brush.limb((-1.25, 1.7), (-1.4, 1.0), 0.04, "#74767d")


def _sofa(brush: Brush, seed: int) -> None:
    brush.box((-1.1, 1.1), (0.25, 1.15), "#8c2f39")
    brush.box((-1.0, 0.0), (0.3, 0.62), "#b24552")
    brush.box((0.02, 1.0), (0.3, 0.62), "#b24552")
    for x in (-1.15, 1.15):
        brush.limb((x, 0.3), (x, 0.75), 0.17, "#7a2630")
    for x in (-1.1, 1.1):
        brush.box((x - 0.05, x + 0.05), (0.0, 0.2), "#2f2018")


_KINDS: dict[str, tuple[float, float, Callable[[Brush, int], None]]] = {
    "giraffe": (1.6, 4.5, _giraffe),
    "duck": (1.6, 2.4, _duck),
    "balloons": (1.1, 4.0, _balloons),
    "boxes": (1.1, 2.4, _boxes),
    "cube": (1.35, 2.4, _cube),
    "elephant": (2.05, 2.7, _elephant),
    "sofa": (1.4, 1.3, _sofa),
}
STRANGER_KINDS = tuple(_KINDS)
