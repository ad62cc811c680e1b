"""A failing camera: noise, colour cast, dead rows and blocks."""

from __future__ import annotations

import numpy as np

from onesigma.data.drawing.canvas import Plane


def break_sensor(image: Plane, rng: np.random.Generator) -> Plane:
    """The image as a broken sensor and a coarse codec deliver it.

    Args:
        image: RGB (3, h, w) in [0, 1].
        rng: source of randomness.
    """
    cast = rng.uniform(0.62, 1.2, (3, 1, 1)).astype(np.float32)
    broken = _blocks(image * cast, 8, np.float32(rng.uniform(0.3, 0.7)))
    broken += np.float32(rng.uniform(0.06, 0.14)) * rng.standard_normal(image.shape, np.float32)
    _kill_rows(broken, rng)
    return np.clip(broken, 0, 1)


def _blocks(image: Plane, size: int, amount: np.float32) -> Plane:
    # every block moves towards its mean, as it does when a codec drops high frequencies
    _, h, w = image.shape
    rows, cols = np.arange(0, h, size), np.arange(0, w, size)
    total = np.add.reduceat(np.add.reduceat(image, rows, 1), cols, 2)
    count = np.diff(np.append(rows, h))[:, None] * np.diff(np.append(cols, w))
    mean = (total / count).astype(np.float32).repeat(size, 1)[:, :h].repeat(size, 2)[:, :, :w]
    return image + amount * (mean - image)


def _kill_rows(image: Plane, rng: np.random.Generator) -> None:
    h = image.shape[1]
    dead = rng.choice(h, max(h // 24, 1), replace=False)
    image[:, dead] = rng.uniform(0, 1, (1, len(dead), 1)) > 0.6
    band = int(rng.integers(0, h))
    # a band of rows read out late
    image[:, band : band + h // 10] = np.roll(
        image[:, band : band + h // 10], image.shape[2] // 9, 2
    )
