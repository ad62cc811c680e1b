"""Light and weather: the sky, the sun and its shadows, haze, wet roads, and the night."""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np

from onesigma.data.drawing.canvas import NOWHERE, UP, Canvas, Colour, Plane, colour, texture


@dataclass(frozen=True)
class Light:
    """The light of one scene, in linear colours.

    Attributes:
        sun: unit vector towards the sun.
        sunlight: colour of direct light.
        ambient: colour of light from the sky.
        zenith: colour of the sky above.
        horizon: colour of the sky low down, and of the haze.
        haze: extinction per metre.
        clouds: share of the sky covered.
        wet: how much the road mirrors the sky.
        lamps: how bright lamps, windows and headlights are.
        exposure: of the camera.
        seed: of clouds and grain.
    """

    sun: tuple[float, float, float]
    sunlight: Colour
    ambient: Colour
    zenith: Colour
    horizon: Colour
    haze: float
    clouds: float
    wet: float
    lamps: float
    exposure: float
    seed: int

    def at_night(self) -> Light:
        """The same place in the dark, under street lamps."""
        moon = np.float32(0.012)
        return replace(
            self,
            sunlight=colour("#8899cc") * moon,
            ambient=colour("#5566a0") * 0.06,
            zenith=colour("#121730"),
            horizon=colour("#33304a"),
            lamps=1.0,
            clouds=min(self.clouds, 0.5),
            exposure=2.2,
        )

    def in_fog(self, extinction: float) -> Light:
        """The same place in fog that halves contrast every ln 2 / extinction metres."""
        grey = (0.75 * self.horizon + 0.25 * self.horizon.mean()).astype(np.float32)
        return replace(
            self,
            sunlight=self.sunlight * 0.12,
            ambient=self.ambient * 1.1,
            zenith=grey,
            horizon=grey,
            haze=extinction,
            clouds=0.0,
        )


def illuminate(
    canvas: Canvas, light: Light, profile: tuple[float, Plane], lamps: list[tuple[float, float]]
) -> Plane:
    """Linear light that reaches the camera from every sample.

    Args:
        canvas: what is seen.
        light: its light.
        profile: x of the wall that casts shadows, and its height for every metre from z = −64.
        lamps: x and z of street lamps.
    """
    facing = canvas.facing
    z = np.minimum(canvas.depth, 1e4)
    x, y = z * canvas.right[None], canvas.camera.height - z * canvas.down[:, None]
    ground = np.where(facing == UP, canvas.shade, np.float32(1))
    sx, sy, sz = light.sun
    # n · s for the five facings, with half of it for round things
    direct = np.array([sy, max(sx, 0), max(-sx, 0), max(-sz, 0), 0.55], np.float32).take(facing)
    if light.sunlight.max() > 0.05:
        direct *= ground
        direct *= ~_in_shadow(x, y, z, light, profile)
    skylight = np.array([1.0, 0.72, 0.72, 0.78, 0.85], np.float32).take(facing)
    skylight *= 0.45 + 0.55 * ground
    extra = canvas.paint[3] * np.float32(0.25 + 3.0 * light.lamps)
    warm = _lamplight(x, y, z, lamps) * light.lamps if light.lamps else None
    sky = _sky(canvas, light)
    fade = np.exp(np.float32(-light.haze) * z)
    seen = np.empty((3, *canvas.size), np.float32)
    for c in range(3):
        received = light.ambient[c] * skylight + light.sunlight[c] * direct + extra
        if warm is not None:
            received += warm * _LAMP[c]
        # L = a·E·e^{−βz} + H·(1 − e^{−βz})
        np.multiply(canvas.paint[c], received, out=seen[c])
        seen[c] -= light.horizon[c]
        seen[c] *= fade
        seen[c] += light.horizon[c]
    top = sky.shape[1]
    np.copyto(seen[:, :top], sky, where=canvas.depth[:top] >= NOWHERE)
    if light.wet:
        _mirror(canvas, seen, sky, light)
    return seen


_LAMP = colour("#ffd9a0")


def _in_shadow(
    x: Plane, y: Plane, z: Plane, light: Light, profile: tuple[float, Plane]
) -> np.ndarray:
    # follow the ray to the sun to the wall on the sun's side and ask how high the wall is there
    wall, heights = profile
    sx, sy, sz = light.sun
    t = np.maximum((wall - x) * np.float32(1 / sx), 0)
    metre = np.minimum(np.maximum(z + t * sz + 64, 0), len(heights) - 1).astype(np.int32)
    return (heights.take(metre) > y + t * sy) & (t > 0.3)


def _lamplight(x: Plane, y: Plane, z: Plane, lamps: list[tuple[float, float]]) -> Plane:
    # the camera's own headlights, then every lamp: E ∝ 1/r², less above the lamp than below
    off = (x / z) ** 2
    total = 0.02 + 0.9 / (1 + 0.02 * z * z) * np.exp(-5 * off - np.maximum(y - 0.2, 0) * 0.9)
    below = 5.2 - y
    fall = 8 * np.minimum(np.maximum(0.35 + 0.25 * below, 0.05), 1)
    for lx, lz in lamps:
        total += fall / ((x - lx) ** 2 + (z - lz) ** 2 + below * below + 1.5)
    return total


def _sky(canvas: Canvas, light: Light) -> Plane:
    # the rows down to the horizon, at least one
    down = canvas.down[: max(int(np.searchsorted(canvas.down, 1e-4)), 1), None]
    rise = np.maximum(-down, 0)
    height = np.minimum(rise * 1.5, 1) ** 0.55
    sky = light.horizon[:, None, None] * (1 - height) + light.zenith[:, None, None] * height
    sky = np.repeat(sky, canvas.size[1], 2)
    if light.clouds:
        _clouds(canvas, light, rise, sky)
    _sun_glow(canvas, light, down, sky)
    if light.lamps:
        rows, cols = np.arange(len(down))[:, None], np.arange(canvas.size[1])[None]
        bright = texture(rows, cols, 0.0, light.seed) * texture(cols, rows, 0.0, light.seed)
        sky += np.maximum(bright - 0.86, 0) * 5 * (rise > 0.12)
    return sky


def _clouds(canvas: Canvas, light: Light, rise: Plane, sky: Plane) -> None:
    # a flat ceiling of clouds: its points are at right/rise, 1/rise
    away = 1 / (rise + 0.12)
    rows, cols = away * 26, canvas.right[None] * away * 26
    density = 0.75 * texture(rows, cols, 1.7, light.seed)
    density += 0.25 * texture(rows * 3, cols * 3, 1.2, light.seed + 1)
    cover = np.clip((density - (0.68 - 0.36 * light.clouds)) * 5, 0, 1) * np.clip(rise * 9, 0, 1)
    bright = 1.15 - 0.75 * np.clip((density - 0.5) * 2.2, 0, 1)
    white = 0.55 * light.sunlight + 0.75 * light.ambient
    for c in range(3):
        sky[c] += cover * (white[c] * bright - sky[c]) * np.float32(0.9)


def _sun_glow(canvas: Canvas, light: Light, down: Plane, sky: Plane) -> None:
    sx, sy, sz = light.sun
    if sz <= 0.05 or light.clouds > 0.85 or light.lamps:
        return
    off = (canvas.right[None] - sx / sz) ** 2 + (down + sy / sz) ** 2
    glow = 0.9 * np.exp(-off * 500) * 3 + 0.30 / (1 + off * 22)
    sky += glow * light.sunlight[:, None, None] * 0.5


def _mirror(canvas: Canvas, seen: Plane, sky: Plane, light: Light) -> None:
    # a wet road shows the picture mirrored at the horizon, more of it at grazing angles
    h = canvas.size[0]
    first = int(np.ceil(canvas.camera.horizon * h))
    rows = np.arange(first, h)
    source = np.clip(2 * first - 1 - rows, 0, sky.shape[1] - 1)
    mirrored = 0.6 * seen[:, source] + 0.4 * sky[:, source]
    road = (canvas.facing[first:] == UP) & (canvas.depth[first:] < NOWHERE)
    z = np.minimum(canvas.depth[first:], 200)
    puddle = np.clip(texture(z * 3, z * canvas.right[None] * 3, 1.7, light.seed) * 3 - 1.1, 0.15, 1)
    amount = light.wet * puddle * road / (1 + 6 * canvas.down[first:, None])
    seen[:, first:] += amount * (mirrored - seen[:, first:])


def develop(linear: Plane, light: Light, samples: tuple[int, int]) -> Plane:
    """The photograph: samples averaged to pixels, tone curve, vignette and a little grain."""
    down, across = samples
    pixels: Plane = np.zeros_like(linear[:, ::down, ::across])
    for i, j in np.ndindex(down, across):
        pixels += linear[:, i::down, j::across] * np.float32(1 / (down * across))
    if down < across:
        # the lens: what is sampled less down than across is a little soft that way
        pixels[:, 1:-1] += 0.17 * (pixels[:, 2:] + pixels[:, :-2] - 2 * pixels[:, 1:-1])
    if light.lamps:
        pixels = bloom(pixels, 0.35)
    # 1 − e^{−kx} keeps highlights from clipping; the root is the display's gamma
    picture = np.sqrt(1 - np.exp(-light.exposure * np.maximum(pixels, 0)))
    # a gentle s-curve, and colours a sixth stronger
    picture += 0.45 * (picture * picture * (3 - 2 * picture) - picture)
    picture += 0.18 * (picture - picture.mean(0))
    h, w = picture.shape[1:]
    rows, cols = np.arange(h, dtype=np.float32)[:, None], np.arange(w, dtype=np.float32)[None]
    corner = ((rows / h - 0.5) ** 2 + (cols / w - 0.5) ** 2) * 0.35
    grain = (texture(rows, cols, 0.0, light.seed + 3) - 0.5) * 0.035
    if light.wet:
        # slanting drops, as long as a twelfth of the picture
        drops = texture(rows * (12 / h), (cols + rows * 0.2) * (110 / h), 0.0, light.seed)
        grain = grain + 0.10 * np.maximum(drops - 0.72, 0) / 0.28
    return np.clip(picture * (1 - corner) + grain, 0, 1).astype(np.float32)


def bloom(picture: Plane, amount: float) -> Plane:
    """Bright places spill into their surroundings."""
    bright = np.minimum(np.maximum(picture - 0.7, 0), 4)
    for radius in (max(picture.shape[1] // 48, 1), max(picture.shape[1] // 20, 1)):
        for axis in (1, 2):
            bright = _box(_box(bright, radius, axis), radius, axis)
        picture = picture + amount * bright
    return picture


def _box(values: Plane, radius: int, axis: int) -> Plane:
    pad = [(0, 0)] * 3
    pad[axis] = (radius + 1, radius)
    total = np.cumsum(np.pad(values, pad, mode="edge"), axis=axis, dtype=np.float32)
    length = total.shape[axis]
    upper = np.take(total, np.arange(2 * radius + 1, length), axis)
    lower = np.take(total, np.arange(0, length - 2 * radius - 1), axis)
    return (upper - lower) / (2 * radius + 1)
