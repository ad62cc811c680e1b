"""Where everything stands: a scene drawn at random, the same at every resolution."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import TypeAlias, TypeVar

import numpy as np

from onesigma.data.drawing import paints
from onesigma.data.drawing.canvas import Camera, Plane, colour
from onesigma.data.drawing.facades import House, Terrace
from onesigma.data.drawing.furniture import SIGN_KINDS, Lamp, Sign, Tree, Wall
from onesigma.data.drawing.light import Light
from onesigma.data.drawing.strangers import STRANGER_KINDS, Stranger
from onesigma.data.drawing.street import Skyline, Street
from onesigma.data.drawing.thing import Thing
from onesigma.data.drawing.traffic import BODIES, Car, Person

T = TypeVar("T")

Standing: TypeAlias = Car | Lamp | Person | Sign | Tree | Wall


class Dice:
    """The draws that a layout needs, from one seeded stream."""

    def __init__(self, rng: np.random.Generator) -> None:
        self.rng = rng
        self.numbers: Iterator[float] = iter(())

    def unit(self) -> float:
        """A uniform number in [0, 1)."""
        number = next(self.numbers, None)
        if number is None:
            # a thousand at once cost little more than one
            self.numbers = iter(self.rng.random(1024).tolist())
            number = next(self.numbers)
        return number

    def between(self, low: float, high: float) -> float:
        """A uniform number."""
        return low + (high - low) * self.unit()

    def chance(self, probability: float) -> bool:
        """True with this probability."""
        return self.unit() < probability

    def pick(self, options: Sequence[T]) -> T:
        """One of the options."""
        return options[int(self.unit() * len(options))]

    def seed(self) -> int:
        """A small whole number."""
        return int(self.unit() * 997)


@dataclass(frozen=True)
class Scene:
    """Everything that a rendering needs.

    Attributes:
        camera: who looks.
        light: by what light.
        street: the ground.
        things: what stands on it.
    """

    camera: Camera
    light: Light
    street: Street
    things: tuple[Thing, ...]

    def profile(self) -> tuple[float, Plane]:
        """X of the facades on the sun's side and their height for every metre from z = −64."""
        side = 1.0 if self.light.sun[0] > 0 else -1.0
        heights = np.zeros(320, np.float32)
        rows = [thing.houses for thing in self.things if isinstance(thing, Terrace)]
        houses = [house for row in rows for house in row if house.x * side > 0]
        for house in houses:
            heights[max(int(house.near) + 64, 0) : max(int(house.far) + 64, 0)] = house.height
        return min((abs(h.x) for h in houses), default=20.0) * side, heights

    def lamps(self) -> list[tuple[float, float]]:
        """X and z of the light of the street lamps."""
        return [(t.x + t.arm, t.z) for t in self.things if isinstance(t, Lamp)]

    def with_stranger(self, rng: np.random.Generator) -> Scene:
        """The same scene with an object of an unseen class, in the open if there is room."""
        dice = Dice(rng)
        kind, scale = dice.pick(STRANGER_KINDS), dice.between(0.75, 1.05)
        places = [(dice.between(-0.30, 0.30), dice.between(5.5, 11.0)) for _ in range(24)]
        aim, z = min(places, key=lambda place: self._hidden(*place))
        stranger = Stranger(aim * z, z, scale, kind, dice.chance(0.5), dice.seed())
        return replace(self, things=(stranger, *self.things))

    def _hidden(self, aim: float, z: float) -> float:
        # how much nearer things stand in the way of direction x/z = aim
        near = [t for t in self.things if isinstance(t, Car | Person | Tree | Sign) and t.z < z + 1]
        return sum((max(0.5 - abs(t.x / t.z - aim) * t.z / 4, 0.0) for t in near), 0.0)


def draw_layout(rng: np.random.Generator) -> Scene:
    """A scene at random.

    Args:
        rng: source of randomness, the only one.
    """
    dice = Dice(rng)
    camera = Camera(
        dice.between(1.35, 2.3),
        dice.between(0.95, 1.2),
        dice.between(0.40, 0.52),
        dice.between(0.38, 0.62),
    )
    light, street = _light(dice), _street(dice)
    # traffic keeps to this side of the road
    keep = 1.0 if street.centre < 0 else -1.0
    things: list[Standing] = []
    houses: list[House] = []
    for side in (-1.0, 1.0):
        setback, leafy = _setback(dice)
        x = street.centre + side * (street.half + street.walk + setback)
        houses.extend(_houses(dice, street, x, leafy))
        things.extend(_side(dice, street, side, setback, leafy))
    things.extend(_traffic(dice, street, keep))
    things.extend(_people(dice, street, keep))
    # near things first: what they hide need not be painted
    things.sort(key=lambda thing: thing.z)
    backdrop = Terrace(tuple(sorted(houses, key=lambda house: house.near))), _skyline(dice)
    return Scene(camera, light, street, (*things, *backdrop))


def _street(dice: Dice) -> Street:
    half = dice.between(3.4, 5.6)
    lane = half * dice.between(0.35, 0.55) * dice.pick((-1.0, 1.0))
    crossing = (dice.between(18.0, 42.0), dice.between(6.0, 9.0) if dice.chance(0.45) else 0.0)
    return Street(
        lane,
        half,
        dice.between(1.9, 3.6),
        crossing,
        dice.chance(0.5),
        dice.pick(paints.ASPHALT),
        dice.pick(paints.PAVING),
        dice.between(0.5, 1.1),
        dice.chance(0.75),
        dice.seed(),
    )


def _light(dice: Dice) -> Light:
    weather = dice.pick(("clear", "clear", "clear", "golden", "golden", "overcast", "rain"))
    low, high = {"golden": (0.14, 0.34)}.get(weather, (0.45, 1.0))
    elevation, azimuth = dice.between(low, high), dice.between(0.25, math.pi - 0.25)
    azimuth *= dice.pick((-1.0, 1.0))
    sun = (
        math.cos(elevation) * math.sin(azimuth),
        math.sin(elevation),
        math.cos(elevation) * math.cos(azimuth),
    )
    sunlight, ambient, zenith, horizon, clouds = paints.MOODS[weather]
    return Light(
        sun,
        colour(sunlight[0]) * sunlight[1],
        colour(ambient[0]) * ambient[1],
        colour(zenith) * np.float32(dice.between(0.8, 1.15)),
        colour(horizon),
        haze=dice.between(0.0018, 0.005) * (2 if weather in ("rain", "overcast") else 1),
        clouds=dice.between(*clouds),
        wet=dice.between(0.35, 0.6) if weather == "rain" else 0.0,
        lamps=0.0,
        exposure=dice.between(1.5, 1.9),
        seed=dice.seed(),
    )


def _skyline(dice: Dice) -> Skyline:
    width = dice.between(7.0, 14.0)
    tall = dice.pick((16.0, 22.0, 34.0))
    heights = tuple(dice.between(5.0, tall) for _ in range(int(260 / width)))
    return Skyline(dice.between(120.0, 170.0), width, heights, dice.pick(paints.WALLS), dice.seed())


def _setback(dice: Dice) -> tuple[float, bool]:
    if dice.chance(0.3):
        return dice.between(3.0, 8.0), True
    return dice.pick((0.0, 0.0, dice.between(1.0, 3.0))), False


def _side(
    dice: Dice, street: Street, side: float, setback: float, leafy: bool
) -> Iterator[Standing]:
    kerb = street.centre + side * street.half
    back = kerb + side * street.walk
    if setback > 1.0:
        yield from _fences(dice, street, back)
        yield from _trees(dice, back + side * (setback * 0.55), 0.9 if leafy else 0.3)
    elif street.walk > 2.3:
        yield from _trees(dice, kerb + side * 0.7, 0.45)
    yield from _posts(dice, kerb, side)


def _houses(dice: Dice, street: Street, x: float, leafy: bool) -> Iterator[House]:
    start, width = street.crossing
    z = -dice.between(20.0, 32.0)
    low = dice.chance(0.5) or leafy
    while z < 100:
        length = dice.between(7.0, 13.0) if low else dice.between(10.0, 22.0)
        if width and z < start + width and z + length > start:
            length = start - z
        if length > 3:
            yield _house(dice, x, (z, z + length), low, leafy)
        z += max(length, 0.0)
        if width and start - 0.1 <= z < start + width:
            z = start + width
        elif dice.chance(0.3 if leafy else 0.12):
            z += dice.between(2.0, 6.0)


def _house(dice: Dice, x: float, reach: tuple[float, float], low: bool, leafy: bool) -> House:
    storey = dice.between(2.8, 3.5)
    shop = not leafy and dice.chance(0.45)
    floors = dice.pick((2, 2, 3)) if low else dice.pick((3, 4, 5, 6, 7))
    height = floors * storey + (3.3 if shop else 0.6) * 0.9
    ridge = dice.between(1.8, 3.2) if low and dice.chance(0.7) else 0.0
    return House(
        x,
        *reach,
        height,
        ridge,
        dice.pick(paints.WALLS),
        dice.pick(paints.TRIMS),
        storey,
        dice.between(1.9, 3.2),
        shop,
        dice.seed(),
    )


def _fences(dice: Dice, street: Street, x: float) -> Iterator[Standing]:
    z = 0.0
    start, width = street.crossing
    while z < 60:
        far = z + dice.between(8.0, 20.0)
        if not (width and z < start + width and far > start):
            kind = dice.pick(("hedge", "hedge", "boards", "bricks", "railings"))
            tint = {"boards": "#8f6f4e", "bricks": "#a0614c", "railings": "#3c4044"}
            code = tint.get(kind, dice.pick(paints.LEAVES[:4]))
            yield Wall(x, z, far, dice.between(0.9, 1.6), kind, code, dice.seed())
        z = far + dice.between(0.0, 4.0)


def _trees(dice: Dice, x: float, density: float) -> Iterator[Standing]:
    z, spacing = dice.between(6.0, 14.0), dice.between(7.0, 12.0)
    leaves = dice.pick(paints.LEAVES)
    while z < 48:
        if dice.chance(density):
            radius = dice.between(1.3, 2.6)
            puffs = tuple(_puff(dice, i) for i in range(6))[: 6 if z < 16 else 4]
            at = x + dice.between(-0.4, 0.4)
            code = leaves if dice.chance(0.7) else dice.pick(paints.LEAVES)
            yield Tree(at, z, radius * dice.between(1.9, 2.5) + 1, radius, code, puffs, dice.seed())
        z += spacing * dice.between(0.7, 1.3)


def _puff(dice: Dice, i: int) -> tuple[float, float, float]:
    angle = i * 1.1 + dice.between(-0.4, 0.4)
    out = 0.0 if i == 0 else dice.between(0.45, 0.68)
    size = 0.78 if i == 0 else dice.between(0.38, 0.58)
    return out * math.cos(angle), 0.85 * out * math.sin(angle), size


def _posts(dice: Dice, kerb: float, side: float) -> Iterator[Standing]:
    x = kerb + side * 0.45
    if dice.chance(0.75):
        z, spacing = dice.between(5.0, 20.0), dice.between(20.0, 30.0)
        height, arm = dice.between(5.2, 6.5), -side * dice.between(0.9, 1.8)
        while z < 55:
            yield Lamp(x, z, height, arm)
            z += spacing
    for _ in range(dice.pick((0, 1, 1, 2))):
        yield Sign(x + side * 0.1, dice.between(5.0, 30.0), dice.pick(SIGN_KINDS))


def _traffic(dice: Dice, street: Street, keep: float) -> Iterator[Standing]:
    for side in (-1.0, 1.0):
        away = side == keep
        lane = street.centre + side * street.half * 0.45
        z = dice.between(7.0 if away else 10.0, 26.0)
        while z < 50:
            if dice.chance(0.62):
                yield _car(dice, lane + dice.between(-0.25, 0.25), z, away)
            z += dice.between(11.0, 24.0)
        if street.half > 4.3:
            yield from _parked(dice, street, side, away)
    start, width = street.crossing
    if width and dice.chance(0.6):
        to_right = dice.chance(0.5)
        car = _car(dice, dice.between(-9.0, 9.0), start + width * 0.35, to_right)
        yield replace(car, across=True)


def _parked(dice: Dice, street: Street, side: float, away: bool) -> Iterator[Standing]:
    x = street.centre + side * (street.half - 1.05)
    z, density = dice.between(2.5, 9.0), dice.between(0.1, 0.8)
    while z < 40:
        car = _car(dice, x, z, away)
        if dice.chance(density) and abs(z - street.crossing[0]) > 9 and car.kind != "bus":
            yield car
        z += car.body.length + dice.between(0.8, 2.5)


def _car(dice: Dice, x: float, z: float, away: bool) -> Car:
    kinds = ("saloon", "saloon", "hatch", "hatch", "hatch", "van", "bus")
    kind = dice.pick(kinds)
    assert kind in BODIES
    return Car(x, z, kind, dice.pick(paints.CARS), away)


def _people(dice: Dice, street: Street, keep: float) -> Iterator[Standing]:
    for _ in range(dice.pick((1, 2, 3, 3, 4, 5))):
        side = dice.pick((-1.0, 1.0))
        out = street.half + dice.between(0.6, max(street.walk - 0.4, 0.8))
        x, z = street.centre + side * out, dice.between(5.0, 28.0)
        if dice.chance(0.15):
            x, z = street.centre + dice.between(-1.0, 1.0) * street.half, dice.between(9.0, 24.0)
        yield _person(dice, x, z)
    for _ in range(dice.pick((0, 0, 1, 1, 2))):
        x = street.centre + keep * street.half * dice.between(0.35, 0.85)
        rider = _person(dice, x, dice.between(6.5, 22.0))
        yield replace(rider, cycling=True, sideways=dice.chance(0.35))


def _person(dice: Dice, x: float, z: float) -> Person:
    return Person(
        x,
        z,
        dice.between(1.5, 1.9),
        dice.between(-1.0, 1.0),
        dice.pick(paints.SKIN),
        dice.pick(paints.CLOTHES),
        dice.pick(paints.TROUSERS),
    )
