"""How the network of a run sees images."""

from __future__ import annotations

from functools import partial

from onesigma.training.config import Recipe
from onesigma.views import View, resized, whole


def evaluation_view(recipe: Recipe, memory_mb: float | None = None) -> View:
    """The view that a recipe asks for: its `data.eval_size`, or whole images or tiles.

    Args:
        recipe: of the run.
        memory_mb: limit above which images are cut into tiles; None never cuts.
    """
    if recipe.data.eval_size is not None:
        return partial(resized, recipe.data.eval_size)
    if memory_mb is None:
        return whole
    from onesigma.tiling import predict_tiled

    return partial(predict_tiled, memory_mb=memory_mb)
