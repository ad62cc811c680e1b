"""The noise of generated targets, known exactly because we make it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

import numpy as np
from numpy.typing import NDArray


@dataclass(frozen=True)
class SceneNoise:
    """How observed depth and labels differ from what is there.

    Depth is z + ε with E ε = 0 and Var ε = σ², σ = (floor + slope·z)·(1 + dark·(1 − Y)²) for
    luminance Y: noise grows with distance and on dark surfaces. A label is read at a pixel moved by
    (Δ₁, Δ₂), independent and equal in law, P(Δ = 0) = 1 − border: labels are wrong at borders only.

    Attributes:
        law: of ε, "laplace" or "gaussian".
        floor: in metres.
        slope: per metre of depth.
        dark: how much more noise black surfaces have than white ones.
        border: probability that Δ is not 0, on each axis.
        width: largest |Δ| as a share of the image's height, at least a pixel.
        max_depth: depth beyond this is not observed, in metres.
    """

    law: Literal["laplace", "gaussian"] = "laplace"
    floor: float = 0.02
    slope: float = 0.018
    dark: float = 1.5
    border: float = 0.3
    width: float = 0.01
    max_depth: float = 80.0

    def __post_init__(self) -> None:
        if self.law not in ("laplace", "gaussian"):
            raise ValueError(f'law is "laplace" or "gaussian", got {self.law!r}.')
        if min(self.floor, self.slope, self.dark, self.width) < 0 or not 0 <= self.border <= 1:
            raise ValueError(f"Noise wants values ≥ 0 and border in [0, 1], got {self}.")

    def depth_std(
        self, depth: NDArray[np.float32], image: NDArray[np.float32]
    ) -> NDArray[np.float32]:
        """σ of every pixel.

        Args:
            depth: true depth (h, w).
            image: RGB (3, h, w) in [0, 1].
        """
        # Y = 0.299 R + 0.587 G + 0.114 B
        luminance = np.tensordot(np.array([0.299, 0.587, 0.114], np.float32), image, 1)
        # σ = (floor + slope·z)(1 + dark·(1 − Y)²)
        return (self.floor + self.slope * depth) * (1 + self.dark * (1 - luminance) ** 2)

    def observe_depth(
        self, depth: NDArray[np.float32], std: NDArray[np.float32], rng: np.random.Generator
    ) -> NDArray[np.float32]:
        """Z + ε with deviation σ."""
        if self.law == "gaussian":
            noise = rng.standard_normal(depth.shape, np.float32)
        else:
            # a difference of two standard exponentials is Laplace with variance 2
            first, second = rng.standard_exponential((2, *depth.shape), np.float32)
            noise = (first - second) * np.float32(0.5**0.5)
        return depth + std * noise

    def shifts(self, rows: int) -> tuple[NDArray[np.intp], NDArray[np.float64]]:
        """The values of Δ and their probabilities, for images of this many rows."""
        reach = max(1, round(self.width * rows))
        offsets = np.arange(-reach, reach + 1)
        return offsets, np.where(offsets == 0, 1 - self.border, self.border / (2 * reach))

    def label_law(self, label: NDArray[np.int64], classes: int) -> NDArray[np.float32]:
        """P(observed label = c) = Σ_Δ P(Δ₁) P(Δ₂) 1[label(pixel + Δ) = c], (c, h, w)."""
        law = (label == np.arange(classes)[:, None, None]).astype(np.float32)
        for axis in (1, 2):
            law = self._spread(law, axis, label.shape[0])
        return law

    def _spread(self, law: NDArray[np.float32], axis: int, rows: int) -> NDArray[np.float32]:
        offsets, probabilities = self.shifts(rows)
        reach, length = int(offsets[-1]), law.shape[axis]
        pad = [(reach, reach) if i == axis else (0, 0) for i in range(3)]
        # beyond the picture stands what stands at its edge
        padded = np.moveaxis(np.pad(law, pad, mode="edge"), axis, 0)
        total = np.zeros_like(padded[:length])
        for start, probability in enumerate(probabilities):
            total += np.float32(probability) * padded[start : start + length]
        return np.ascontiguousarray(np.moveaxis(total, 0, axis))

    def observe_label(
        self, label: NDArray[np.int64], rng: np.random.Generator
    ) -> NDArray[np.int64]:
        """A draw from `label_law`, every pixel on its own."""
        h, w = label.shape
        down, right = self._draw_shifts((2, h, w), rng)
        rows = np.minimum(np.maximum(np.arange(h)[:, None] + down, 0), h - 1)
        cols = np.minimum(np.maximum(np.arange(w) + right, 0), w - 1)
        return label.ravel().take(rows * w + cols)

    def _draw_shifts(
        self, shape: tuple[int, int, int], rng: np.random.Generator
    ) -> NDArray[np.intp]:
        if not self.border:
            return np.zeros(shape, np.intp)
        reach = self.shifts(shape[1])[0][-1]
        # below border the uniform number also says which of the 2·reach offsets that are not 0
        which = (rng.random(shape, np.float32) * (2 * reach / self.border)).astype(np.intp)
        offset = which - reach + (which >= reach)
        return np.where(which < 2 * reach, offset, 0)
