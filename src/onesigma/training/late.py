"""Stages after the last of a recipe: what is best learned when all else has been."""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import replace

import torch
from torch import Tensor, nn

from onesigma.context import AlteredCopies
from onesigma.familiarity import Familiarity
from onesigma.heads import CovarianceHeads
from onesigma.training.config import Recipe, StageConfig
from onesigma.training.method import Method

FAMILIAR_EPOCHS = 8


class LateStage(StageConfig, ABC):
    """A stage at the end that teaches some parts of a method, and nothing else.

    It runs in evaluation mode: the fit stays what it was, and images are seen as at test time.
    """

    @staticmethod
    @abstractmethod
    def parts(method: Method) -> list[nn.Module]:
        """What learns, of all members."""

    def alter(self, images: Tensor, generator: torch.Generator) -> Tensor:
        """The labelled images as they are seen, here unchanged."""
        return images


class NoiseStage(LateStage):
    """Log σ, on images that the mean does not know by heart."""

    @staticmethod
    def parts(method: Method) -> list[nn.Module]:
        """The heads of log σ."""
        heads = [part for part in method.modules() if isinstance(part, CovarianceHeads)]
        return [p for head in heads for p in (head.log_scale, head.scale_position) if p is not None]

    def alter(self, images: Tensor, generator: torch.Generator) -> Tensor:
        """Altered so that their targets still hold."""
        return AlteredCopies().alter(images, images, generator)


class FamiliarStage(LateStage):
    """What is familiar to the network, see `familiarity`."""

    @staticmethod
    def parts(method: Method) -> list[nn.Module]:
        """All that judge it."""
        return [part for part in method.modules() if isinstance(part, Familiarity)]


def with_late_stages(recipe: Recipe, method: Method) -> Recipe:
    """The recipe with such stages at its end if the method has parts that learn there."""
    wanted = {NoiseStage: recipe.method.noise_epochs, FamiliarStage: FAMILIAR_EPOCHS}
    last, changes = recipe.stages[-1], {"average": 0.0, "kl_rise": 0.0}
    late = [
        kind(**{**vars(last), **changes, "epochs": epochs})
        for kind, epochs in wanted.items()
        if epochs and kind.parts(method)
    ]
    return replace(recipe, stages=[*recipe.stages, *late])
