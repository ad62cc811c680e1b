"""What stands in a scene."""

from __future__ import annotations

from abc import ABC, abstractmethod

import numpy as np

from onesigma.data.drawing.canvas import Canvas
from onesigma.data.drawing.light import Light


class Thing(ABC):
    """An object of a scene: it draws itself and, before that, its shadow on the ground."""

    @abstractmethod
    def draw(self, canvas: Canvas, light: Light) -> None:
        """Put the object on the canvas."""

    def cast(self, canvas: Canvas, light: Light) -> None:  # noqa: B027 (most walls cast none here)
        """Darken the ground; nothing unless a subclass does."""


# beyond this depth shadows of single objects are not drawn, in metres
FAR = 30.0


def soft_shadow(
    canvas: Canvas, at: tuple[float, float], radius: tuple[float, float], amount: float
) -> None:
    """An elliptic shadow on the ground around (x, z)."""
    if at[1] > FAR:
        return
    patch = canvas.ground(at[0], at[1], radius[0] * 1.3, radius[1] * 1.3)
    if patch is not None:
        off = (patch.x / radius[0]) ** 2 + (patch.z / radius[1]) ** 2
        canvas.darken(patch, amount * np.minimum(np.maximum(1.45 - off, 0), 1))


def sun_offset(light: Light, height: float) -> tuple[float, float]:
    """Where the shadow of a point at this height falls, relative to its foot."""
    sx, sy, sz = light.sun
    reach = min(height / max(sy, 0.2), 9.0)
    return -sx * reach, -sz * reach
