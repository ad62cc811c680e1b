"""What moves in the street: cars, vans, people and cyclists."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from onesigma.data.classes import BICYCLIST, CAR, PEDESTRIAN
from onesigma.data.drawing.canvas import (
    FACES_CAMERA,
    FACES_LEFT,
    FACES_RIGHT,
    Brush,
    Canvas,
    Patch,
    Plane,
    saw,
)
from onesigma.data.drawing.light import Light
from onesigma.data.drawing.thing import Thing, soft_shadow, sun_offset


@dataclass(frozen=True)
class Body:
    """The shape of a kind of car, in metres, from the tail (0) to the nose (1).

    Attributes:
        length: of the car.
        width: of the car.
        outline: share of the length and height of the upper outline.
        belt: height of the lower edge of the windows.
        glass: where windows begin and end along the car.
    """

    length: float
    width: float
    outline: tuple[tuple[float, float], ...]
    belt: float
    glass: tuple[float, float]

    @property
    def height(self) -> float:
        """Of the roof."""
        return max(height for _, height in self.outline)


BODIES = {
    "saloon": Body(
        4.4,
        1.8,
        (
            (0.0, 0.62),
            (0.02, 0.98),
            (0.14, 1.02),
            (0.27, 1.42),
            (0.55, 1.45),
            (0.72, 1.0),
            (0.97, 0.8),
            (1.0, 0.5),
        ),
        0.95,
        (0.20, 0.70),
    ),
    "hatch": Body(
        3.9,
        1.72,
        ((0.0, 0.62), (0.01, 1.0), (0.09, 1.46), (0.5, 1.5), (0.7, 1.02), (0.96, 0.84), (1.0, 0.5)),
        0.98,
        (0.08, 0.68),
    ),
    "van": Body(
        5.2,
        1.95,
        ((0.0, 0.7), (0.01, 2.25), (0.72, 2.3), (0.88, 1.3), (0.98, 1.05), (1.0, 0.6)),
        1.3,
        (0.62, 0.84),
    ),
    "bus": Body(9.5, 2.4, ((0.0, 0.8), (0.005, 2.9), (0.99, 2.95), (1.0, 1.4)), 1.25, (0.03, 0.97)),
}


@dataclass(frozen=True)
class Car(Thing):
    """A car that drives along the street or across it.

    Attributes:
        x: of its middle.
        z: of its nearer end.
        kind: one of `BODIES`.
        paint: its colour.
        away: whether it drives away from the camera; across the street, to the right.
        across: whether it crosses the street.
    """

    x: float
    z: float
    kind: str
    paint: str
    away: bool
    across: bool = False

    @property
    def body(self) -> Body:
        """Its shape."""
        return BODIES[self.kind]

    def draw(self, canvas: Canvas, light: Light) -> None:
        """Put the car on the canvas."""
        if self.across:
            self._broadside(canvas)
            return
        self._flank(canvas)
        self._end(canvas)

    def cast(self, canvas: Canvas, light: Light) -> None:
        """A dark place under the car and a shadow away from the sun."""
        along, wide = self.body.length / 2, self.body.width / 2
        if self.across:
            along, wide = wide, along
        middle = self.z + along
        soft_shadow(canvas, (self.x, middle), (wide * 1.12, along * 1.08), 0.8)
        dx, dz = sun_offset(light, self.body.height * 0.7)
        soft_shadow(canvas, (self.x + dx / 2, middle + dz / 2), (wide * 1.2, along * 1.05), 0.4)

    def _broadside(self, canvas: Canvas) -> None:
        length = self.body.length
        patch = canvas.upright(self.x, length / 2, self.body.height + 0.1, self.z)
        if patch is not None:
            brush = Brush(patch)
            share = patch.x / length + 0.5
            self._side(brush, share if self.away else 1 - share, patch.y)
            brush.stamp(canvas, CAR, FACES_CAMERA)

    def _flank(self, canvas: Canvas) -> None:
        inner = self.x - np.sign(self.x) * self.body.width / 2
        if inner * self.x <= 0:
            return
        far = self.z + self.body.length
        patch = canvas.wall(float(inner), self.z, far, self.body.height + 0.1)
        if patch is not None:
            share = (patch.x - self.z) / self.body.length
            brush = Brush(patch)
            self._side(brush, share if self.away else 1 - share, patch.y)
            brush.stamp(canvas, CAR, FACES_LEFT if self.x > 0 else FACES_RIGHT)

    def _side(self, brush: Brush, share: Plane, y: Plane) -> None:
        places, heights = zip(*self.body.outline, strict=True)
        top = np.interp(share, places, heights, -1, -1).astype(np.float32)
        along = share * self.body.length
        brush.fill((y > 0.24) & (y < top), self.paint)
        brush.paint[:3] *= np.where(y > self.body.belt - 0.28, 1.0, 0.62).astype(np.float32)
        brush.fill((y > 0.24) & (y < 0.36) & (top > 0), "#2a2b2d")
        begin, end = self.body.glass
        glass = (y > self.body.belt) & (y < top - 0.1) & (share > begin) & (share < end)
        brush.fill(glass & (saw(share - begin, (end - begin) / 2.0001) > 0.012), "#3a4650")
        for axle in (0.19, 0.81):
            middle = axle * self.body.length
            off = (along - middle) ** 2 + (y - 0.33) ** 2
            brush.fill(off < 0.38**2, "#151617")
            brush.fill(off < 0.20**2, "#8d9196")

    def _end(self, canvas: Canvas) -> None:
        tall = self.kind in ("van", "bus")
        nearest = canvas.upright(self.x, self.body.width * 0.55, self.body.height + 0.1, self.z)
        if nearest is None:
            return
        set_back = 0.0 if tall else self.body.length * (0.08 if self.away else 0.34)
        cabin = canvas.upright(
            self.x, self.body.width * 0.55, self.body.height + 0.1, self.z + set_back
        )
        if cabin is not None:
            self._cabin(canvas, cabin)
        brush = Brush(nearest)
        self._bumper(brush)
        brush.stamp(canvas, CAR, FACES_CAMERA)

    def _cabin(self, canvas: Canvas, patch: Patch) -> None:
        brush = Brush(patch)
        half, roof, belt = self.body.width / 2, self.body.height, self.body.belt
        middle, high = (roof + belt) / 2 - 0.05, (roof - belt) / 2 - 0.07
        lean = 1 - 0.12 * np.clip((patch.y - belt) / (roof - belt), 0, 1)
        inside = np.abs(patch.x) < half * lean
        brush.fill(inside & (patch.y > 0.3) & (patch.y < roof), self.paint)
        pane = (np.abs(patch.x) < half * (lean - 0.12)) & (np.abs(patch.y - middle) < high)
        brush.fill(pane, "#2f3b45")
        brush.fill(pane & (np.abs(patch.x - 0.5 * patch.y + 0.5) < 0.09), "#66757f")
        brush.stamp(canvas, CAR, FACES_CAMERA)

    def _bumper(self, brush: Brush) -> None:
        half, belt = self.body.width / 2, self.body.belt
        across = np.abs(brush.x)
        round_corner = (across / half) ** 8 + ((brush.y - 0.6) / (belt - 0.55)) ** 8 < 1
        brush.fill(round_corner & (brush.y > 0.26), self.paint)
        brush.paint[:3] *= np.clip(0.62 + 0.5 * brush.y, 0.5, 1.08)
        wheel = (np.abs(across - half * 0.82) < 0.12) & (brush.y > 0) & (brush.y < 0.35)
        brush.fill(wheel, "#141516")
        brush.fill((across < half * 0.97) & (brush.y > 0.26) & (brush.y < 0.42), "#2a2b2d")
        brush.fill((across < 0.26) & (np.abs(brush.y - 0.56) < 0.07), "#e9e6d2")
        lights = (np.abs(across - half * 0.82) < half * 0.15) & (
            np.abs(brush.y - belt + 0.22) < 0.09
        )
        if self.away:
            brush.fill(lights, "#c0211c", 1.2)
        else:
            brush.fill(lights, "#fff6e0", 2.2)
            brush.fill((across < half * 0.5) & (np.abs(brush.y - belt + 0.24) < 0.07), "#1d1e20")


@dataclass(frozen=True)
class Person(Thing):
    """Somebody on foot, or on a bicycle.

    Attributes:
        x: where.
        z: where.
        height: of the person.
        stride: of the legs, −1 to 1.
        skin: colour.
        top: colour of the jacket.
        legs: colour of the trousers.
        cycling: whether on a bicycle.
        sideways: whether the bicycle crosses the street.
    """

    x: float
    z: float
    height: float
    stride: float
    skin: str
    top: str
    legs: str
    cycling: bool = False
    sideways: bool = False

    def draw(self, canvas: Canvas, light: Light) -> None:
        """Put the person on the canvas."""
        patch = canvas.upright(self.x, 1.0 if self.sideways else 0.55, self.height + 0.35, self.z)
        if patch is None:
            return
        brush = Brush(patch)
        if self.cycling:
            self._bicycle(brush)
        # hands and feet are drawn where they would cover a sample
        self._figure(brush, 0.28 if self.cycling else 0.0, canvas.scale / self.z > 8)
        brush.relief(light.sun[0], 0.5)
        brush.stamp(canvas, BICYCLIST if self.cycling else PEDESTRIAN)

    def cast(self, canvas: Canvas, light: Light) -> None:
        """A shadow at the feet and one away from the sun."""
        soft_shadow(canvas, (self.x, self.z), (0.4, 0.3), 0.6)
        dx, dz = sun_offset(light, self.height * 0.5)
        soft_shadow(canvas, (self.x + dx, self.z + dz), (0.3 + abs(dx), 0.3 + abs(dz)), 0.3)

    def _figure(self, brush: Brush, lift: float, close: bool) -> None:
        s, step = self.height, 0.10 * self.stride
        lean = 0.07 if self.sideways else 0.0
        foot = 0.16 if self.cycling else 0.03
        for side in (-1.0, 1.0):
            ankle = (side * (0.05 + step) * s, foot * s + lift * (1 + side * self.stride) * 0.3)
            brush.strip((side * 0.045 * s, 0.50 * s + lift), ankle, 0.046 * s, self.legs)
            hand = (side * (0.135 + 0.3 * abs(step)) * s + lean, 0.50 * s + lift)
            brush.strip((side * 0.105 * s + lean, 0.80 * s + lift), hand, 0.033 * s, self.top)
            if close:
                brush.disc((ankle[0], ankle[1] - 0.01), (0.05 * s, 0.03 * s), "#1f1c1a")
                brush.disc(hand, (0.03 * s, 0.035 * s), self.skin)
        brush.limb((lean, 0.77 * s + lift), (0.0, 0.54 * s + lift), 0.098 * s, self.top)
        brush.strip((lean, 0.87 * s + lift), (lean, 0.83 * s + lift), 0.035 * s, self.skin)
        brush.disc((lean * 1.2, 0.925 * s + lift), (0.058 * s, 0.075 * s), self.skin)
        brush.disc((lean * 1.2, 0.955 * s + lift), (0.062 * s, 0.052 * s), self._hair)

    @property
    def _hair(self) -> str:
        return "#d9d4c8" if self.cycling else "#2b211b"

    def _bicycle(self, brush: Brush) -> None:
        if not self.sideways:
            brush.limb((0.0, 0.0), (0.0, 0.62), 0.035, "#18191b")
            brush.limb((-0.28, 1.0), (0.28, 1.0), 0.025, "#2c2d30")
            return
        for centre in (-0.52, 0.52):
            brush.disc((centre, 0.34), (0.34, 0.34), "#18191b")
            brush.disc((centre, 0.34), (0.28, 0.28), "#8a8a88")
        for start, end in (
            ((-0.52, 0.34), (-0.12, 0.85)),
            ((-0.12, 0.85), (0.42, 0.9)),
            ((0.42, 0.9), (0.52, 0.34)),
            ((-0.1, 0.34), (0.42, 0.8)),
        ):
            brush.limb(start, end, 0.03, self.top)
