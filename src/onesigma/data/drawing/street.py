"""The street itself: ground with markings, facades on both sides, the skyline behind."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from onesigma.data.classes import BUILDING, PAVEMENT, ROAD
from onesigma.data.drawing.canvas import (
    FACES_CAMERA,
    UP,
    Canvas,
    Mask,
    Patch,
    Plane,
    colour,
    pigment,
    saw,
    texture,
)
from onesigma.data.drawing.light import Light
from onesigma.data.drawing.thing import Thing


@dataclass(frozen=True)
class Street(Thing):
    """The ground plane: a road between two pavements, perhaps crossed by another road.

    Attributes:
        centre: x of the middle of the road.
        half: half its width.
        walk: width of each pavement.
        crossing: z where the crossing road begins, and its width; none where the width is 0.
        zebra: whether there is a zebra crossing.
        asphalt: colour of the road.
        paving: colour of the pavements.
        slab: length of a paving slab.
        dashes: whether the middle line is dashed.
        seed: of the textures.
    """

    centre: float
    half: float
    walk: float
    crossing: tuple[float, float]
    zebra: bool
    asphalt: str
    paving: str
    slab: float
    dashes: bool
    seed: int

    def draw(self, canvas: Canvas, light: Light) -> None:
        """Put the ground on the canvas."""
        patch = self._ground(canvas)
        x, z = patch.x, patch.z
        assert isinstance(z, np.ndarray)
        off = np.abs(x)
        crossing = (z > self.crossing[0]) & (z < sum(self.crossing))
        road = (off < self.half) | crossing
        near = 1 / (1 + z / 14)
        paint = self._asphalt(x, z, near) * pigment(self.asphalt)
        np.copyto(paint, self._slabs(x, z, near) * pigment(self.paving), where=~road)
        lines = self._lines(x, z, off) & ~crossing | self._stripes(x, z, off)
        worn = 0.42 + 0.5 * texture(x * 5, z * 5, 1.2, self.seed)
        np.copyto(paint[:3], worn, where=lines)
        canvas.put(patch, road, paint, ROAD, UP)
        canvas.put(patch, ~road, paint, PAVEMENT, UP)

    def _ground(self, canvas: Canvas) -> Patch:
        first = int(np.searchsorted(canvas.down, 1e-4))
        rows, cols = slice(first, canvas.size[0]), slice(0, canvas.size[1])
        z = (canvas.camera.height / canvas.down[rows, None]).astype(np.float32)
        x = canvas.right[None] * z - self.centre
        return Patch(rows, cols, x, x, z)

    def _asphalt(self, x: Plane, z: Plane, near: Plane) -> Plane:
        coarse = texture(x * 1.5, z * 0.6, 1.7, self.seed) - 0.5
        fine = texture(x * 22, z * 22, 0.0, self.seed) - 0.5
        tracks = np.cos(x * (6.3 / max(self.half, 1)) * 2)
        return 1 + 0.5 * coarse + 0.8 * fine * near + 0.06 * tracks

    def _slabs(self, x: Plane, z: Plane, near: Plane) -> Plane:
        joint = (saw(z, self.slab) < 0.05) | (saw(x, self.slab) < 0.04)
        tone = texture(x / self.slab, z / self.slab, 0.0, self.seed) - 0.5
        kerb = np.abs(np.abs(x) - self.half - 0.1) < 0.1
        gutter = np.abs(x) < self.half + 0.02
        paint = 1 + 0.45 * tone * np.sqrt(near) - 0.4 * joint * near
        return paint + 0.35 * kerb - 0.3 * gutter

    def _lines(self, x: Plane, z: Plane, off: Plane) -> Mask:
        middle = off < 0.075
        if self.dashes:
            middle &= saw(z + self.seed, 5.0) < 2.6
        edge = np.abs(off - self.half + 0.35) < 0.06
        return middle | edge

    def _stripes(self, x: Plane, z: Plane, off: Plane) -> Mask:
        if not self.zebra:
            return np.zeros((1, 1), np.bool_)
        begin = self.crossing[0] - 4.2
        across = (z > begin) & (z < begin + 2.6) & (off < self.half - 0.4)
        return across & (saw(x, 1.1) < 0.55)


@dataclass(frozen=True)
class Skyline(Thing):
    """Distant buildings that close the view, one height for each of their widths.

    Attributes:
        z: their depth.
        width: of each.
        heights: of them, from the left.
        tint: their colour.
        seed: of the windows.
    """

    z: float
    width: float
    heights: tuple[float, ...]
    tint: str
    seed: int

    def draw(self, canvas: Canvas, light: Light) -> None:
        """Put the skyline on the canvas."""
        half = self.width * len(self.heights) / 2
        patch = canvas.upright(0.0, half, max(self.heights), self.z)
        if patch is None:
            return
        which = np.clip((patch.x + half) / self.width, 0, len(self.heights) - 1).astype(np.int32)
        mask = (patch.y < np.array(self.heights, np.float32)[which]) & (patch.y > 0)
        tone = 0.7 + 0.6 * texture(which * 5.0, which * 3.0, 0.0, self.seed)
        rooms = 0.8 + 0.5 * texture(patch.y / 3, patch.x / 3, 0.0, self.seed)
        paint = colour(self.tint)[:, None, None] * (tone * rooms)
        lit = (rooms > 1.16) * np.float32(0.4 if light.lamps else 0)
        canvas.put(patch, mask, np.concatenate([paint, lit[None]]), BUILDING, FACES_CAMERA)
