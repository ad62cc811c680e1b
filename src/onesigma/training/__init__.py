"""Training: recipes, one LightningModule for all methods, and the run folder."""

from __future__ import annotations

from typing import TYPE_CHECKING

from onesigma.training.config import Recipe
from onesigma.training.errors import (
    NonFiniteLossError,
    RecipeError,
    RunFolderError,
    TrainingInterrupted,
)
from onesigma.training.recipes import load_recipe, recipe_names

if TYPE_CHECKING:
    from onesigma.training.fit import train
    from onesigma.training.run import Run, load

__all__ = [
    "NonFiniteLossError",
    "Recipe",
    "RecipeError",
    "Run",
    "RunFolderError",
    "TrainingInterrupted",
    "load",
    "load_recipe",
    "recipe_names",
    "train",
]


def __getattr__(name: str) -> object:
    """`train`, `load` and `Run` need Lightning and torch, which are slow to import: when asked."""
    if name == "train":
        from onesigma.training.fit import train

        return train
    if name in ("Run", "load"):
        from onesigma.training import run

        return getattr(run, name)
    raise AttributeError(f"module 'onesigma.training' has no attribute {name!r}")
