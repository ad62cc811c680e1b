"""Optimisers and learning rates of a stage."""

from __future__ import annotations

import math
from collections.abc import Iterable

from torch import nn, optim

from onesigma.training.config import OptimiserConfig


def build_optimiser(config: OptimiserConfig, parameters: Iterable[nn.Parameter]) -> optim.Optimizer:
    """The optimiser of a stage."""
    decay = config.weight_decay
    if config.name == "sgd":
        return optim.SGD(parameters, config.lr, momentum=config.momentum, weight_decay=decay)
    kind = {"adam": optim.Adam, "adamw": optim.AdamW}[config.name]
    # fused: one call for all parameters, most of which are small
    return kind(parameters, config.lr, weight_decay=decay, fused=True)


def learning_rate(config: OptimiserConfig, epoch: int, progress: float, epochs: int) -> float:
    """η(t) = lr · schedule(t) · min(1, t / warmup), of the place alone: nothing to save.

    Args:
        config: of the stage.
        epoch: whole epochs done.
        progress: share of the current epoch that is done, half of this step included.
        epochs: of the stage.
    """
    t = epoch + progress
    rise = risen(t, config.warmup)
    if config.schedule == "exponential":
        # lr γ^epoch
        return config.lr * rise * config.gamma**epoch
    if config.schedule == "cosine":
        # lr (1 + cos πt/T) / 2
        return config.lr * rise * (1 + math.cos(math.pi * min(t / epochs, 1.0))) / 2
    return config.lr * rise


def risen(t: float, epochs: float) -> float:
    """min(1, t / epochs): the share of a linear rise that is done.

    Args:
        t: epochs done.
        epochs: of the rise; 0 for none.
    """
    return min(1.0, t / epochs) if epochs > 0 else 1.0
