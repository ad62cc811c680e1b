"""How precisely to compute."""

from __future__ import annotations

from jaxtyping import Shaped
from torch import Tensor, float64


def at_least_single(values: Shaped[Tensor, "..."]) -> Shaped[Tensor, "..."]:
    """Half precision and whole numbers raised to float32, float32 and float64 as they came."""
    return values if values.dtype == float64 else values.float()
