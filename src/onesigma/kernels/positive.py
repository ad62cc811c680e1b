"""Variances that are plain numbers until somebody wants to learn them."""

from __future__ import annotations

import math

import torch
from torch import Tensor, nn


class Positive(nn.Module):
    """A number ≥ 0, or exp(log) of a parameter after `learn`.

    A plain number stays exact in every precision and on every device; a learned one stays positive.

    Args:
        value: the number, or where learning starts.
        name: what it is called in errors.
    """

    def __init__(self, value: float, name: str) -> None:
        super().__init__()
        if not (value >= 0 and math.isfinite(value)):
            raise ValueError(f"{name} got {value}; it wants a finite number ≥ 0.")
        self.start = float(value)
        self.name = name
        self.log: nn.Parameter | None
        self.register_parameter("log", None)

    def learn(self) -> None:
        """Turn the number into a parameter; a zero stays zero."""
        if self.start > 0 and self.log is None:
            self.log = nn.Parameter(torch.tensor(math.log(self.start)))

    def forward(self) -> float | Tensor:
        """The current value."""
        return self.start if self.log is None else self.log.exp()

    def extra_repr(self) -> str:
        """The value, for printing a kernel."""
        return f"{float(self()):g}"
