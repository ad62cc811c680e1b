"""From a scene to a picture with labels and depth."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from onesigma.data.drawing.canvas import NOWHERE, Canvas, Plane
from onesigma.data.drawing.layout import Scene
from onesigma.data.drawing.light import develop, illuminate


@dataclass(frozen=True)
class Rendering:
    """What the camera sees, and what is truly there.

    Attributes:
        image: (3, h, w), in [0, 1].
        label: (h, w), −1 for objects of no class.
        depth: (h, w), in metres, infinite in the sky.
    """

    image: Plane
    label: NDArray[np.int16]
    depth: Plane


def render(scene: Scene, size: tuple[int, int], samples: tuple[int, int] = (1, 2)) -> Rendering:
    """Draw a scene.

    Args:
        scene: what to draw.
        size: rows and columns.
        samples: of each pixel, down and across; the image is their mean, labels and depth are the
            first's.
    """
    canvas = Canvas(scene.camera, size, samples)
    scene.street.draw(canvas, scene.light)
    for thing in scene.things:
        thing.cast(canvas, scene.light)
    for thing in scene.things:
        thing.draw(canvas, scene.light)
    linear = illuminate(canvas, scene.light, scene.profile(), scene.lamps())
    image = develop(linear, scene.light, samples)
    first = np.s_[:: samples[0], :: samples[1]]
    depth = canvas.depth[first]
    depth = np.where(depth < NOWHERE, depth, np.float32(np.inf))
    return Rendering(image, canvas.label[first], depth)
