"""Rows of houses on both sides of a street, painted once for all that is seen of them."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from onesigma.data.classes import BUILDING
from onesigma.data.drawing.canvas import (
    FACES_CAMERA,
    FACES_LEFT,
    FACES_RIGHT,
    Canvas,
    Mask,
    Patch,
    Plane,
    colour,
    saw,
    texture,
)
from onesigma.data.drawing.light import Light
from onesigma.data.drawing.thing import Thing

# how far houses reach back from the street, and how far in their ridge is, in metres
BACK, RIDGE_IN = 14.0, 5.0


@dataclass(frozen=True)
class House:
    """A house along the street: a facade beside it, a front towards the camera, a roof.

    Attributes:
        x: of the facade; left of the camera when negative.
        near: z where it begins.
        far: z where it ends.
        height: of the eaves.
        ridge: how far the roof rises above them; 0 for a flat roof.
        wall: colour of the walls.
        trim: colour of frames, sills and the cornice.
        storey: height of one.
        pitch: distance of the windows.
        shop: whether the ground floor is a shop.
        seed: of the windows.
    """

    x: float
    near: float
    far: float
    height: float
    ridge: float
    wall: str
    trim: str
    storey: float
    pitch: float
    shop: bool
    seed: int

    @property
    def top(self) -> float:
        """Of the roof."""
        return self.height + self.ridge

    @property
    def side(self) -> int:
        """Where its facade looks."""
        return FACES_LEFT if self.x > 0 else FACES_RIGHT


class _Sheet:
    """What is seen of which house: its number, from 1, and the metres along its wall."""

    def __init__(self, canvas: Canvas) -> None:
        self.canvas = canvas
        self.part = np.zeros(canvas.size, np.int16)
        self.along = np.zeros(canvas.size, np.float32)

    def put(self, patch: Patch, mask: Mask, part: int | Plane, facing: int) -> None:
        at = patch.rows, patch.cols
        depth = self.canvas.depth[at]
        seen = mask & (patch.z < depth)
        np.copyto(depth, patch.z, where=seen)
        np.copyto(self.canvas.code[at], np.int16(BUILDING * 8 + facing), where=seen)
        np.copyto(self.part[at], part, where=seen)
        np.copyto(self.along[at], patch.x, where=seen)


@dataclass(frozen=True)
class Terrace(Thing):
    """All houses of a street.

    Attributes:
        houses: the near ones first; those of one side share the x of their facades.
    """

    houses: tuple[House, ...]

    def draw(self, canvas: Canvas, light: Light) -> None:
        """Find what is seen of every house, then paint that."""
        sheet = _Sheet(canvas)
        for side in (FACES_LEFT, FACES_RIGHT):
            row = [(i, h) for i, h in enumerate(self.houses, 1) if h.side == side and h.far > 1]
            if row:
                _draw_facades(sheet, row)
        for part, house in self._with_fronts():
            _draw_front(sheet, house, part)
        for part, house in enumerate(self.houses, 1):
            if house.ridge and 1 < house.far < 70:
                _draw_roof(sheet, house, -part)
        self._paint_walls(sheet, light)
        self._paint_roofs(sheet)

    def _with_fronts(self) -> Iterator[tuple[int, House]]:
        # the front of a house is hidden where the house before it touches it and is higher
        before: dict[int, House] = {}
        for part, house in enumerate(self.houses, 1):
            hides = before.get(house.side)
            low = hides is None or hides.far < house.near - 0.1 or hides.height < house.top
            if low:
                yield part, house
            before[house.side] = house

    def _paint_walls(self, sheet: _Sheet, light: Light) -> None:
        canvas, at = sheet.canvas, np.nonzero(sheet.part.ravel() > 0)[0]
        if not len(at):
            return
        depth, rows = canvas.depth.ravel()[at], at // canvas.size[1]
        walls = _Walls.of(self.houses, sheet.part.ravel()[at] - 1)
        y = canvas.camera.height - depth * canvas.down[rows]
        front = (canvas.code.ravel()[at] & 7 == FACES_CAMERA).astype(np.float32)
        # metres of wall that one sample covers: z/f from the front, z²/(f·x) from the side
        coarse = depth * (front + (1 - front) * depth / walls.reach) * (1 / canvas.scale_across)
        canvas.paint.reshape(4, -1)[:, at] = walls.paint(sheet.along.ravel()[at], y, coarse, light)

    def _paint_roofs(self, sheet: _Sheet) -> None:
        canvas, at = sheet.canvas, np.nonzero(sheet.part.ravel() < 0)[0]
        if not len(at):
            return
        depth, which = canvas.depth.ravel()[at], -sheet.part.ravel()[at] - 1
        y = canvas.camera.height - depth * canvas.down[at // canvas.size[1]]
        tiles = 0.8 + 0.25 * (saw(y, 0.3) < 0.2) + 0.4 * (texture(y * 4, depth * 3) - 0.5)
        tints = np.array([colour(_ROOFS[house.seed % len(_ROOFS)]) for house in self.houses])
        paint = canvas.paint.reshape(4, -1)
        paint[:3, at], paint[3, at] = tiles * tints[which].T, 0


def _draw_facades(sheet: _Sheet, row: list[tuple[int, House]]) -> None:
    # one wall for the whole row: which house a sample belongs to depends on its column alone
    highest = max(house.height for _, house in row)
    patch = sheet.canvas.wall(row[0][1].x, row[0][1].near, row[-1][1].far, highest)
    if patch is None:
        return
    near = np.array([house.near for _, house in row], np.float32)
    which = np.maximum(np.searchsorted(near, patch.x[0], side="right") - 1, 0)
    parts, far, height = (
        np.array(values)[which][None]
        for values in (
            np.array([part for part, _ in row], np.int16),
            np.array([house.far for _, house in row], np.float32),
            np.array([house.height for _, house in row], np.float32),
        )
    )
    mask = (patch.y > 0) & (patch.y < height * (patch.x < far))
    along = Patch(patch.rows, patch.cols, patch.x - near[which], patch.y, patch.z)
    sheet.put(along, mask, parts, row[0][1].side)


def _draw_front(sheet: _Sheet, house: House, part: int) -> None:
    middle = house.x + (BACK / 2 if house.x > 0 else -BACK / 2)
    patch = sheet.canvas.upright(middle, BACK / 2, house.top, house.near)
    if patch is None:
        return
    gable = house.height + house.ridge * (1 - np.abs(patch.x) / (BACK / 2))
    mask = (patch.y > 0) & (patch.y < gable)
    along = Patch(patch.rows, patch.cols, patch.x + BACK / 2, patch.y, patch.z)
    sheet.put(along, mask, part, FACES_CAMERA)


def _draw_roof(sheet: _Sheet, house: House, part: int) -> None:
    canvas, sign = sheet.canvas, 1.0 if house.x > 0 else -1.0
    slope, top, h = house.ridge / RIDGE_IN, house.top, canvas.camera.height
    near = max(house.near, 0.8)
    edges = [
        canvas.column(house.x + sign * inward, z)
        for inward in (0.0, RIDGE_IN)
        for z in (near, house.far)
    ]
    rows, cols = canvas.window(
        canvas.row(top, near), canvas.row(house.height, house.far), min(edges), max(edges)
    )
    if rows.start >= rows.stop or cols.start >= cols.stop:
        return
    right, down = canvas.right[None, cols], canvas.down[rows, None]
    # y − eaves = slope·(|x| − |facade|) on the ray y = h − z·down, x = z·right
    with np.errstate(divide="ignore"):
        z = np.float32(house.height - h - slope * abs(house.x)) / (-down - slope * sign * right)
    y = h - z * down
    mask = (z > near) & (z < house.far) & (y > house.height) & (y < top)
    sheet.put(Patch(rows, cols, z, y, z), mask, part, house.side)


@dataclass(frozen=True)
class _Walls:
    """The parameters of the house at each of many samples."""

    reach: Plane
    height: Plane
    storey: Plane
    pitch: Plane
    base: Plane
    shop: Mask
    seed: Plane
    wall: Plane
    trim: Plane
    awning: Plane

    @classmethod
    def of(cls, houses: tuple[House, ...], which: np.ndarray) -> _Walls:
        table = np.array(
            [
                (
                    *(
                        abs(h.x),
                        h.height,
                        h.storey,
                        h.pitch,
                        3.3 if h.shop else 0.6,
                        h.shop,
                        h.seed,
                    ),
                    *colour(h.wall),
                    *colour(h.trim),
                    *colour(_AWNINGS[h.seed % len(_AWNINGS)]),
                )
                for h in houses
            ],
            np.float32,
        ).T
        r, height, storey, pitch, base, shop, seed = table[:7].take(which, 1)
        wall, trim, awning = table[7:].take(which, 1).reshape(3, 3, -1)
        return cls(r, height, storey, pitch, base, shop > 0, seed * 3, wall, trim, awning)

    def paint(self, a: Plane, y: Plane, coarse: Plane, light: Light) -> Plane:
        """Red, green, blue and glow at a metres along the wall and y above the ground."""
        across, up = a / self.pitch, (y - self.base) / self.storey
        u, v = across - np.floor(across), up - np.floor(up)
        off_u, off_v = np.abs(u - 0.5), np.abs(v - 0.51)
        glazed = (up > 0) & (y < self.height - 0.6)
        pane = (off_u < 0.24) & (off_v < 0.30) & glazed
        frame = (off_u < 0.30) & (off_v < 0.37) & glazed & ~pane
        bar = pane & ((off_u < 0.018) | (off_v < 0.02))
        sharp = np.minimum(np.maximum(self.pitch / (coarse * 5) - 0.4, 0), 1)
        grime = 0.84 + 0.30 * texture(y * 1.2, a * 1.2 + self.seed, 1.7)
        shade = grime * np.minimum(0.70 + 0.12 * y, 1)
        cornice = (saw(up + 0.05, 1.0) * self.storey < 0.18) & (up > -0.5)
        cornice |= (y > self.height - 0.35) | frame | bar
        paint = np.zeros((4, len(a)), np.float32)
        paint[:3] = (self.wall + (self.trim - self.wall) * (cornice * sharp)) * shade
        self._glaze(paint, np.nonzero(pane & ~bar)[0], (across, up, v, sharp), light)
        self._open_shops(paint, np.nonzero(self.shop & (y > 0.45) & (y < 3.1))[0], a, y)
        return paint

    def _glaze(
        self, paint: Plane, at: np.ndarray, place: tuple[Plane, Plane, Plane, Plane], light: Light
    ) -> None:
        across, up, v, sharp = (values[at] for values in place)
        chance = texture(np.floor(across) * 7 + self.seed[at], np.floor(up) * 13)
        cool = light.zenith * 0.22 + light.horizon * 0.14 + np.float32(0.012)
        glass = cool[:, None] * ((0.45 + 0.9 * v) * (0.4 + chance))
        glass += 0.14 * ((chance < 0.32) & (v > 0.45))
        if light.lamps:
            lit = chance > 0.60
            np.copyto(glass, colour("#ffcf86")[:, None] * (0.3 + 0.7 * chance), where=lit)
            paint[3, at] = 0.5 * lit
        paint[:3, at] += (glass - paint[:3, at]) * (0.25 + 0.75 * sharp)

    def _open_shops(self, paint: Plane, at: np.ndarray, a: Plane, y: Plane) -> None:
        a, y, seed = a[at], y[at], self.seed[at]
        bay = saw(a + seed, 2.6)
        awning = y > 2.5
        # things on shelves in the lower half, glass that mirrors the street above them
        shelf = texture(np.floor(y * 3) + seed, a * 2.5)
        goods = 0.24 * shelf * shelf * (y < 1.5) + 0.03 + 0.02 * y
        hues = 0.7 + 0.3 * np.sin(shelf * 40 + np.arange(3, dtype=np.float32)[:, None] * 1.5)
        window = goods * hues
        np.copyto(window, self.trim[:, at] * 0.4, where=(bay < 0.14) | (np.abs(y - 2.0) < 0.05))
        stripe = np.where(saw(a, 0.9) < 0.45, np.float32(1), np.float32(0.72))
        paint[:3, at] = np.where(awning, self.awning[:, at] * stripe, window)
        paint[3, at] = np.where(awning, np.float32(0), np.float32(0.55))


_AWNINGS = ("#a8322d", "#2f5d46", "#2c4a78", "#c9a24a", "#6b3a5b", "#3d3d42", "#b5562c")
_ROOFS = ("#7d4a3a", "#5a5f66", "#6b4f44", "#8a5a40")
