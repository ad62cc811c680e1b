"""What stands beside the road: trees, hedges, lamp posts, signs, traffic lights, fences."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from onesigma.data.classes import FENCE, POLE, SIGN, TREE
from onesigma.data.drawing.canvas import (
    FACES_LEFT,
    FACES_RIGHT,
    NOWHERE,
    ROUND,
    Brush,
    Canvas,
    colour,
    pigment,
    saw,
    texture,
)
from onesigma.data.drawing.light import Light
from onesigma.data.drawing.thing import FAR, Thing, sun_offset


@dataclass(frozen=True)
class Tree(Thing):
    """A trunk and a crown of overlapping puffs of leaves.

    Attributes:
        x: of the trunk.
        z: of the trunk.
        height: of the whole tree.
        radius: of the crown.
        leaves: colour.
        puffs: x, y and radius of each puff, in crown radii.
        seed: of the leaves.
    """

    x: float
    z: float
    height: float
    radius: float
    leaves: str
    puffs: tuple[tuple[float, float, float], ...]
    seed: int

    def draw(self, canvas: Canvas, light: Light) -> None:
        """Put trunk and crown on the canvas."""
        low, high = self.height - 2.3 * self.radius, self.height + self.radius * 0.35
        crown = canvas.upright(self.x, self.radius * 1.4, high, self.z - 0.2, low)
        if crown is not None:
            brush = Brush(crown)
            self._crown(brush, light)
            brush.stamp(canvas, TREE, ROUND)
        trunk = canvas.upright(self.x, 0.06 * self.height, self.height - self.radius, self.z)
        if trunk is not None:
            brush = Brush(trunk)
            self._trunk(brush, light)
            brush.stamp(canvas, TREE, ROUND)

    def cast(self, canvas: Canvas, light: Light) -> None:
        """A dappled shadow where the sun puts it."""
        if self.z > FAR:
            return
        dx, dz = sun_offset(light, self.height - self.radius)
        patch = canvas.ground(self.x + dx, self.z + dz, self.radius * 1.2, self.radius * 1.2)
        if patch is not None:
            leaves = texture(patch.x * 3, np.asarray(patch.z) * 3, 1.2, self.seed)
            off = (patch.x**2 + np.asarray(patch.z) ** 2) / self.radius**2
            canvas.darken(
                patch, 0.75 * (off < 0.6 + leaves * 0.8) * np.clip(leaves * 3 - 0.5, 0, 1)
            )

    def _trunk(self, brush: Brush, light: Light) -> None:
        girth = 0.035 * self.height * (1 - 0.04 * brush.y)
        mask = (np.abs(brush.x) < girth) & (brush.y > 0) & (brush.y < self.height - self.radius)
        brush.fill(mask, "#5b4636")
        bark = 0.8 + 0.5 * texture(brush.y * 2, brush.x * 14 + brush.y * 0, 0.0, self.seed)
        brush.paint[:3] *= bark * (1 + 0.5 * np.sign(light.sun[0]) * brush.x / girth)

    def _crown(self, brush: Brush, light: Light) -> None:
        x = brush.x / self.radius
        y = (brush.y - self.height + self.radius) / self.radius
        fine = texture(brush.y * 15, brush.x * 15, 0.0, self.seed)
        rough = texture(brush.y * 7, brush.x * 7, 1.2, self.seed)
        ragged = 1.0 - 0.75 * (rough - 0.35) - 0.35 * (fine - 0.5)
        px, py, pr = np.array(self.puffs, np.float32).T[:, :, None, None]
        # for every puff: how far inside it a sample is, and how much light falls there
        dx, dy = (x - px) / pr, (y - py) / pr
        inside = (ragged - dx * dx) - dy * dy
        light_there = (dx * (0.6 * light.sun[0]) + 0.35 * py) + dy * 0.8
        front = inside.argmax(0)[None]
        lit = np.take_along_axis(light_there, front, 0)[0]
        mask = np.take_along_axis(inside, front, 0)[0] > 0
        shade = np.clip(0.78 + 0.42 * lit + 0.9 * (fine - 0.5), 0.22, 1.7)
        np.copyto(brush.paint[:3], shade * colour(self.leaves)[:, None, None], where=mask)
        brush.mask |= mask


@dataclass(frozen=True)
class Wall(Thing):
    """A hedge, a board fence, a brick wall or railings along the pavement.

    Attributes:
        x: across the street.
        near: z where it begins.
        far: z where it ends.
        height: of it.
        kind: "hedge", "boards", "bricks" or "railings".
        tint: its colour.
        seed: of the texture.
    """

    x: float
    near: float
    far: float
    height: float
    kind: str
    tint: str
    seed: int

    @property
    def z(self) -> float:
        """Of its nearer end."""
        return self.near

    def draw(self, canvas: Canvas, light: Light) -> None:
        """Put the wall on the canvas."""
        patch = canvas.wall(self.x, self.near, self.far, self.height * 1.1)
        if patch is None:
            return
        z, y = np.where(patch.x < NOWHERE, patch.x, 0), patch.y
        mask = (y > 0) & (y < self.height)
        if self.kind == "hedge":
            mask &= y < self.height - 0.25 * texture(z * 4, z * 0, 1.2, self.seed)
        paint = self._tone(z, y) * pigment(self.tint)
        facing = FACES_LEFT if self.x > 0 else FACES_RIGHT
        canvas.put(patch, mask, paint, TREE if self.kind == "hedge" else FENCE, facing)

    def _tone(self, z: np.ndarray, y: np.ndarray) -> np.ndarray:
        foot = np.minimum(np.maximum(0.55 + (0.6 / self.height) * y, 0), 1.1)
        if self.kind == "hedge":
            leaves = texture(y * 11, z * 11, 0.0, self.seed)
            clumps = texture(y * 4, z * 4, 1.2, self.seed)
            return foot * (0.35 + 0.6 * leaves + 0.6 * clumps)
        if self.kind == "boards":
            grain = texture(z / 0.16, y * 0.5, 0.0, self.seed)
            return foot * (0.7 + 0.6 * grain) * np.where(saw(z, 0.16) < 0.02, 0.4, 1.0)
        if self.kind == "bricks":
            course = np.floor(y / 0.12)
            brick = texture(course, z / 0.35 + 0.5 * course, 0.0, self.seed)
            cap = np.where(y > self.height - 0.14, 1.5, 1.0)
            return foot * (0.7 + 0.6 * brick) * cap
        bars = (saw(z, 0.22) < 0.07) | (np.abs(y - self.height + 0.1) < 0.06)
        return np.where(bars, np.float32(1.6), np.float32(0.25))


@dataclass(frozen=True)
class Lamp(Thing):
    """A lamp post whose arm reaches over the road.

    Attributes:
        x: of the post.
        z: of the post.
        height: of the post.
        arm: how far it reaches; to the left when negative.
    """

    x: float
    z: float
    height: float
    arm: float

    def draw(self, canvas: Canvas, light: Light) -> None:
        """Put the post on the canvas."""
        bright = float(np.sign(light.sun[0]))
        post = canvas.upright(self.x, 0.15, self.height, self.z)
        if post is not None:
            brush = Brush(post)
            brush.box((-0.085, 0.085), (0.0, self.height), "#4c5154")
            brush.box((-0.14, 0.14), (0.0, 0.9), "#43484b")
            brush.relief(bright, 0.35)
            brush.stamp(canvas, POLE)
        reach, low = abs(self.arm) + 0.5, self.height - 0.3
        head = canvas.upright(self.x, reach, self.height + 0.4, self.z, low)
        if head is not None:
            brush = Brush(head)
            brush.limb((0.0, self.height), (self.arm, self.height + 0.15), 0.06, "#4c5154")
            brush.disc((self.arm, self.height + 0.08), (0.42, 0.15), "#5a5f62")
            brush.disc((self.arm, self.height), (0.34, 0.12), "#fff1d0", 2.5)
            brush.stamp(canvas, POLE)


@dataclass(frozen=True)
class Sign(Thing):
    """A board on a post: "limit", "order", "warning", "board" or "light".

    Attributes:
        x: of the post.
        z: of the post.
        kind: of the board.
    """

    x: float
    z: float
    kind: str

    def draw(self, canvas: Canvas, light: Light) -> None:
        """Put post and board on the canvas."""
        patch = canvas.upright(self.x, 0.75, 3.3, self.z)
        if patch is None:
            return
        post = Brush(patch)
        post.box((-0.055, 0.055), (0.0, 2.9), "#8b8f90")
        post.stamp(canvas, POLE)
        # the board hangs a hand's width before its post
        board = canvas.upright(self.x, 0.75, 3.3, self.z - 0.1)
        if board is not None:
            brush = Brush(board)
            _BOARDS[self.kind](brush)
            brush.stamp(canvas, SIGN)


def _limit(brush: Brush) -> None:
    brush.disc((0.0, 2.55), (0.40, 0.40), "#c8201e")
    brush.disc((0.0, 2.55), (0.28, 0.28), "#f2f2ee")
    brush.box((-0.13, -0.02), (2.43, 2.67), "#222222")
    brush.box((0.03, 0.14), (2.43, 2.67), "#222222")


def _order(brush: Brush) -> None:
    brush.disc((0.0, 2.55), (0.40, 0.40), "#f2f2f2")
    brush.disc((0.0, 2.55), (0.36, 0.36), "#1f57b4")
    brush.limb((0.0, 2.36), (0.0, 2.72), 0.05, "#f2f2f2")


def _warning(brush: Brush) -> None:
    for size, code in ((0.52, "#c8201e"), (0.33, "#f4f0dc")):
        slope = (brush.y - 2.28 - (0.52 - size) * 0.5) / size
        brush.fill((slope > 0) & (np.abs(brush.x) < size * (1 - slope / 1.7)) & (slope < 1.7), code)


def _board(brush: Brush) -> None:
    brush.box((-0.72, 0.72), (2.1, 3.0), "#e8ece8")
    brush.box((-0.67, 0.67), (2.15, 2.95), "#1d6b48")
    brush.box((-0.5, 0.45), (2.65, 2.78), "#e8ece8")
    brush.box((-0.5, 0.15), (2.35, 2.48), "#e8ece8")


def _traffic_light(brush: Brush) -> None:
    brush.box((-0.24, 0.24), (2.1, 3.15), "#1b1c1e")
    for height, code, glow in (
        (2.95, "#d8332a", 1.5),
        (2.63, "#4a3c12", 0.0),
        (2.3, "#123f22", 0.0),
    ):
        brush.disc((0.0, height), (0.13, 0.13), code, glow)


_BOARDS = {
    "limit": _limit,
    "order": _order,
    "warning": _warning,
    "board": _board,
    "light": _traffic_light,
}
SIGN_KINDS = tuple(_BOARDS)
