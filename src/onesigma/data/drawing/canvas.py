"""The camera and the sheet that scenes are drawn on: class, depth and paint of every sample."""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import cache
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import NDArray

# float32 at run time; the stubs of numpy call float32 times a Python float float64
Plane: TypeAlias = NDArray[Any]
Mask: TypeAlias = NDArray[np.bool_]
Colour: TypeAlias = NDArray[Any]

# the direction a surface faces, an index into the light's tables
UP, FACES_RIGHT, FACES_LEFT, FACES_CAMERA, ROUND = range(5)
TILE = 256
# the depth of the sky, in metres; nothing is as far
NOWHERE = 1e6


@cache
def colour(code: str) -> Colour:
    """Linear light of a display colour "#rrggbb", with gamma 2."""
    display = np.array([int(code[i : i + 2], 16) for i in (1, 3, 5)], np.float32) / 255
    linear = display**2
    linear.flags.writeable = False
    return linear


@cache
def pigment(code: str, glow: float = 0.0) -> Plane:
    """A display colour with its glow as paint, (4, 1, 1)."""
    paint = np.append(colour(code), np.float32(glow))[:, None, None]
    paint.flags.writeable = False
    return paint


@cache
def noise_tile(roughness: float) -> Plane:
    """A periodic texture, mean ½ and deviation 0.18: white for 0, cloudy as it grows."""
    rng = np.random.default_rng(20)
    frequency = np.fft.fftfreq(TILE)[:, None] ** 2 + np.fft.rfftfreq(TILE)[None] ** 2
    frequency[0, 0] = 1.0
    spectrum = np.fft.rfft2(rng.standard_normal((TILE, TILE))) * frequency ** (-roughness / 2)
    spectrum[0, 0] = 0.0
    tile = np.fft.irfft2(spectrum, (TILE, TILE))
    tile = np.clip(0.5 + 0.18 * tile / tile.std(), 0, 1).astype(np.float32)
    tile.flags.writeable = False
    return tile


def texture(rows: Plane, cols: Plane, roughness: float = 0.0, seed: int = 0) -> Plane:
    """The noise tile read at whole coordinates, which broadcast; one cell is one unit."""
    # the large offset makes all coordinates positive, so that the cast rounds down
    i = (rows + np.float32(8192 + seed * 37 % TILE)).astype(np.int32) & (TILE - 1)
    j = (cols + np.float32(8192 + seed * 91 % TILE)).astype(np.int32) & (TILE - 1)
    return noise_tile(roughness).ravel().take(i * TILE + j)


def saw(values: Plane, period: float) -> Plane:
    """The rest of a division by the period; faster than np.mod."""
    turns = values * np.float32(1 / period)
    return (turns - np.floor(turns)) * np.float32(period)


@dataclass(frozen=True)
class Camera:
    """A pinhole camera that looks along the street; x to the right, y up, z ahead, in metres.

    Attributes:
        height: of the camera above the road.
        focal: focal length, in image heights.
        horizon: row of the horizon, in image heights.
        centre: column of the vanishing point, in image widths.
    """

    height: float
    focal: float
    horizon: float
    centre: float


@dataclass(frozen=True)
class Patch:
    """A window of the sheet with the world coordinates of its samples.

    Attributes:
        rows: of the window.
        cols: of the window.
        x: across, or along a wall.
        y: height above the road.
        z: depth.
    """

    rows: slice
    cols: slice
    x: Plane
    y: Plane
    z: Plane | float

    @property
    def shape(self) -> tuple[int, int]:
        """Rows and columns."""
        return self.rows.stop - self.rows.start, self.cols.stop - self.cols.start


class Canvas:
    """Depth, class, albedo, facing and glow of what is nearest at every sample."""

    def __init__(self, camera: Camera, size: tuple[int, int], samples: tuple[int, int]) -> None:
        h, w = self.size = size[0] * samples[0], size[1] * samples[1]
        self.camera = camera
        # samples per unit of slope, down and across
        self.scale = camera.focal * h
        self.scale_across = camera.focal * size[0] * samples[1]
        # a pixel looks along (right, −down, 1)
        self.right = ((np.arange(w) + 0.5 - camera.centre * w) / self.scale_across).astype(
            np.float32
        )
        self.down = ((np.arange(h) + 0.5 - camera.horizon * h) / self.scale).astype(np.float32)
        self.depth = np.full(self.size, NOWHERE, np.float32)
        # class and facing share one number, paint and glow one array: fewer writes per object
        self.code = np.zeros(self.size, np.int16)
        self.paint = np.zeros((4, *self.size), np.float32)
        self.shade = np.ones(self.size, np.float32)

    @property
    def label(self) -> NDArray[np.int16]:
        """The class of every sample."""
        return self.code >> 3

    @property
    def facing(self) -> NDArray[np.intp]:
        """Where every sample's surface looks."""
        return (self.code & 7).astype(np.intp)

    def column(self, x: float, z: float) -> float:
        """The column, not rounded, of a point."""
        return self.camera.centre * self.size[1] + self.scale_across * x / z

    def row(self, y: float, z: float) -> float:
        """The row, not rounded, of a point."""
        return self.camera.horizon * self.size[0] + self.scale * (self.camera.height - y) / z

    def window(self, top: float, bottom: float, left: float, right: float) -> tuple[slice, slice]:
        """The samples inside these bounds, cut to the sheet; empty slices where there are none."""
        h, w = self.size
        rows = slice(max(math.floor(top), 0), min(math.ceil(min(bottom, h)), h))
        return rows, slice(max(math.floor(left), 0), min(math.ceil(min(right, w)), w))

    def upright(
        self, x: float, half: float, height: float, z: float, low: float = -0.05
    ) -> Patch | None:
        """The window of a thing that stands at x, z and faces the camera; x is from its middle.

        None where it is outside the picture or hidden.
        """
        if z < 1.0:
            return None
        left, right = self.column(x - half, z), self.column(x + half, z)
        rows, cols = self.window(self.row(height, z), self.row(low, z), left, right)
        if not self._visible(rows, cols, z):
            return None
        across = self.right[None, cols] * z - x
        return Patch(rows, cols, across, self.camera.height - self.down[rows, None] * z, z)

    def _visible(self, rows: slice, cols: slice, z: float) -> bool:
        if rows.start >= rows.stop or cols.start >= cols.stop:
            return False
        return bool(self.depth[rows, cols].max() > z)

    def wall(self, x: float, near: float, far: float, height: float) -> Patch | None:
        """The window of a wall along the street, x = const; the patch's x is the depth along it."""
        near = max(near, 0.8)
        if far <= near or abs(x) < 0.05:
            return None
        left, right = sorted((self.column(x, near), self.column(x, far)))
        rows, cols = self.window(
            min(self.row(height, near), self.row(height, far)), self.row(0.0, near), left, right
        )
        if not self._visible(rows, cols, near):
            return None
        with np.errstate(divide="ignore"):
            z = x / self.right[None, cols]
        # columns beside the wall get a depth that no depth test passes
        z = np.where((z > near) & (z < far), z, np.float32(NOWHERE))
        return Patch(rows, cols, z, self.camera.height - self.down[rows, None] * z, z)

    def ground(self, x: float, z: float, half: float, reach: float) -> Patch | None:
        """The window of the ground within half and reach of a point."""
        near = max(z - reach, 0.8)
        if z + reach <= near:
            return None
        edges = [self.column(x + s * half, e) for s in (-1, 1) for e in (near, z + reach)]
        rows, cols = self.window(
            self.row(0.0, z + reach), self.row(0.0, near), min(edges), max(edges)
        )
        if rows.start >= rows.stop or cols.start >= cols.stop:
            return None
        far = (self.camera.height / np.maximum(self.down[rows, None], 1e-4)).astype(np.float32)
        return Patch(rows, cols, self.right[None, cols] * far - x, far * 0, far - z)

    def darken(self, patch: Patch, amount: Plane) -> None:
        """Take light from the ground of a patch: the soft shadow of what stands there."""
        self.shade[patch.rows, patch.cols] *= 1 - amount

    def put(self, patch: Patch, mask: Mask, paint: Plane, label: int, facing: int) -> None:
        """Draw where the mask is set and nothing nearer is there.

        Args:
            patch: where.
            mask: the samples to draw.
            paint: linear red, green, blue, and glow.
            label: the class.
            facing: of the surface.
        """
        at = patch.rows, patch.cols
        depth = self.depth[at]
        seen = mask & (patch.z < depth)
        np.copyto(depth, patch.z, where=seen)
        np.copyto(self.code[at], np.int16(label * 8 + facing), where=seen)
        np.copyto(self.paint[:, at[0], at[1]], paint, where=seen)


class Brush:
    """Shapes in metres painted over each other on one patch, before they go to the canvas."""

    def __init__(self, patch: Patch) -> None:
        self.patch = patch
        self.x, self.y = patch.x, patch.y
        self.mask = np.zeros(patch.shape, np.bool_)
        self.paint = np.zeros((4, *patch.shape), np.float32)

    def fill(self, mask: Mask, code: str, glow: float = 0.0) -> None:
        """Paint where the mask is set."""
        np.copyto(self.paint, pigment(code, glow), where=mask)
        self.mask |= mask

    def box(self, x: tuple[float, float], y: tuple[float, float], code: str) -> None:
        """A rectangle."""
        across, up = (self.x > x[0]) & (self.x < x[1]), (self.y > y[0]) & (self.y < y[1])
        self.fill(across & up, code)

    def disc(
        self,
        centre: tuple[float, float],
        radius: tuple[float, float],
        code: str,
        glow: float = 0.0,
    ) -> None:
        """An ellipse."""
        across = ((self.x - centre[0]) / radius[0]) ** 2
        self.fill(across + ((self.y - centre[1]) / radius[1]) ** 2 < 1, code, glow)

    def limb(
        self, start: tuple[float, float], end: tuple[float, float], width: float, code: str
    ) -> None:
        """A stroke with round ends."""
        dx, dy = end[0] - start[0], end[1] - start[1]
        x, y = self.x - start[0], self.y - start[1]
        t = np.clip((x * dx + y * dy) * (1 / (dx * dx + dy * dy + 1e-9)), 0, 1)
        self.fill((x - t * dx) ** 2 + (y - t * dy) ** 2 < width * width, code)

    def strip(
        self, start: tuple[float, float], end: tuple[float, float], width: float, code: str
    ) -> None:
        """A steep stroke with flat ends, start above end; cheaper than a limb."""
        slope = (start[0] - end[0]) / (start[1] - end[1])
        middle = end[0] + (self.y - end[1]) * slope
        along = (self.y > end[1] - width / 2) & (self.y < start[1] + width / 2)
        self.fill((np.abs(self.x - middle) < width) & along, code)

    def relief(self, lean: float, strength: float = 0.35) -> None:
        """Light from one side: the paint is brighter where x has the sign of lean."""
        half = float(np.abs(self.x).max()) + 1e-6
        self.paint[:3] *= 1 + strength * lean * np.clip(self.x / half, -1, 1)

    def stamp(self, canvas: Canvas, label: int, facing: int = ROUND) -> None:
        """Put the painted shapes on the canvas."""
        canvas.put(self.patch, self.mask, self.paint, label, facing)
