"""Monte Carlo dropout (Gal & Ghahramani, 2016)."""

from __future__ import annotations

import warnings
from collections.abc import Iterator
from contextlib import contextmanager

import torch
from jaxtyping import Bool, Float
from torch import Tensor, nn

from onesigma.baselines.base import Baseline, Prediction
from onesigma.baselines.ensemble import mixture
from onesigma.field import GaussianField
from onesigma.prediction import RegressionPrediction
from onesigma.views import View, whole

DROPOUT = nn.Dropout, nn.Dropout1d, nn.Dropout2d, nn.Dropout3d, nn.AlphaDropout


class MCDropout(Baseline):
    """A baseline whose dropout stays on for prediction: p(y | x) = 1/S Σ_s p(y | x, mask_s).

    Labels are averaged pass by pass; for values the S laws are kept, since the CDF of their mixture
    needs them.

    Args:
        model: a baseline whose network has dropout layers; trained as it is.
        passes: S.
        seed: of the masks when `predict` gets no generator, so that predictions repeat.
    """

    def __init__(self, model: Baseline, passes: int = 50, seed: int = 0) -> None:
        super().__init__()
        if passes < 2:
            raise ValueError(f"MCDropout got passes={passes}; a spread wants 2 or more.")
        if not dropout_layers(model):
            raise ValueError(
                f"MCDropout got a {type(model).__name__} without a dropout layer of p > 0, so that "
                "all passes would be equal; build its network with dropout=0.2, say."
            )
        self.model = model
        self.passes = passes
        self.seed = seed

    def loss(
        self,
        images: Float[Tensor, "n k h w"],
        target: Tensor,
        valid: Bool[Tensor, "n h w"] | None = None,
    ) -> Float[Tensor, ""]:
        """The loss of the model."""
        return self.model.loss(images, target, valid)

    def marginals(
        self, images: Float[Tensor, "n k h w"]
    ) -> tuple[GaussianField, Float[Tensor, "n s h w"]]:
        """Those of the model, in one pass."""
        return self.model.marginals(images)

    def law(self, f: GaussianField, log_scale: Float[Tensor, "n s h w"]) -> Prediction:
        """That of the model, of one pass."""
        return self.model.law(f, log_scale)

    @torch.no_grad()
    def predict(
        self,
        images: Float[Tensor, "n k h w"],
        view: View = whole,
        generator: torch.Generator | None = None,
    ) -> Prediction:
        """The mixture over passes.

        Args:
            images: RGB in [0, 1].
            view: how the network sees them: whole, resized or in tiles.
            generator: source of the masks; without one they follow from `seed`.
        """
        with _seeded(self.seed, generator), dropout_active(self.model):
            return mixture(_watched(self.model.predict(images, view) for _ in range(self.passes)))


def dropout_layers(model: nn.Module) -> list[nn.Module]:
    """The dropout layers of a model that drop anything."""
    return [m for m in model.modules() if isinstance(m, DROPOUT) and m.p > 0]


@contextmanager
def dropout_active(model: nn.Module) -> Iterator[None]:
    """Dropout as in training, everything else as in prediction; modes come back as they were."""
    modes = {module: module.training for module in model.modules()}
    try:
        model.eval()
        for layer in dropout_layers(model):
            layer.train()
        yield
    finally:
        for module, mode in modes.items():
            module.training = mode


@contextmanager
def _seeded(seed: int, generator: torch.Generator | None) -> Iterator[None]:
    """Dropout draws from the global generators: seed them, and put their states back."""
    if generator is not None:
        draw = torch.randint(2**62, (), generator=generator, device=generator.device)
        seed = int(draw)
    with torch.random.fork_rng(devices=range(torch.cuda.device_count())):
        torch.manual_seed(seed)
        yield


def _watched(passes: Iterator[Prediction]) -> Iterator[Prediction]:
    """The passes, with a warning after the last if none differs from the first."""
    first, spread = next(passes), False
    yield first
    for member in passes:
        spread = spread or not torch.equal(_centre(member), _centre(first))
        yield member
    if not spread:
        warnings.warn(
            "All MC dropout passes gave the same output, so the epistemic uncertainty is zero: "
            "the dropout layers do not reach the output, or what follows them is zero.",
            stacklevel=2,
        )


def _centre(member: Prediction) -> Float[Tensor, "n c h w"]:
    return member.mean if isinstance(member, RegressionPrediction) else member.probs
