"""From a resolved recipe to a method with its initial weights."""

from __future__ import annotations

import torch
from torch import nn

from onesigma.baselines import Baseline, Deterministic, Heteroscedastic, MCDropout
from onesigma.baselines.deterministic import LossName
from onesigma.context import MOST_STRENGTH
from onesigma.heads import HeadOptions, Scale
from onesigma.likelihoods import Boltzmann, Likelihood
from onesigma.likelihoods.regression import RegressionLikelihood
from onesigma.posterior import VariationalGP
from onesigma.training.components import (
    build_context,
    build_likelihood,
    build_network,
    build_prior,
)
from onesigma.training.config import Recipe
from onesigma.training.errors import RecipeError
from onesigma.training.method import (
    DivergenceOptions,
    FunctionalVI,
    Method,
    SideBySide,
    SizedPrior,
    Supervised,
)
from onesigma.training.seeding import derive_seed


def build_method(recipe: Recipe) -> Method:
    """The method of a recipe whose target is known, its weights drawn from the seed alone.

    Args:
        recipe: resolved.
    """
    members = [_member(recipe, i) for i in range(recipe.method.members)]
    return members[0] if len(members) == 1 else SideBySide(members)


def num_outputs(recipe: Recipe) -> int:
    """One per class, or one."""
    return len(recipe.target.classes) or 1


def _member(recipe: Recipe, number: int) -> Method:
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(derive_seed(recipe.seed, "start", number))
        backbone = build_network(recipe.network)
        if recipe.method.name == "functional_vi":
            return _functional_vi(recipe, backbone)
        return Supervised(_baseline(recipe, backbone))


def _functional_vi(recipe: Recipe, backbone: nn.Module) -> FunctionalVI:
    outputs, posterior = num_outputs(recipe), recipe.posterior
    likelihood, context = _likelihood(recipe), build_context(recipe.context)
    mean = _prior_mean(recipe)
    prior = SizedPrior(lambda h, w: build_prior(recipe.prior, outputs, mean, (h, w)))
    options = HeadOptions(
        scale=posterior.scale or _scale_of(likelihood),
        shared_factors=posterior.shared_factors,
        stride=posterior.stride,
        whole_image=posterior.whole_image,
        layer_distances=posterior.layer_distances,
        scale_window=posterior.scale_window,
        scale_position=posterior.scale_position,
        mean=mean if posterior.mean is None else posterior.mean,
        variance=_start_variance(prior) if posterior.variance is None else posterior.variance,
    )
    q = VariationalGP(
        backbone, outputs, posterior.rank, posterior.min_diagonal, options,
        posterior.context_statistics,
    )  # fmt: skip
    position = q.heads.scale_position if recipe.method.noise_epochs else None
    for part in (q.familiarity, q.image_scale, position):
        if part is not None:
            # it has a stage of its own at the end
            part.requires_grad_(False)
    method = recipe.method
    divergence = DivergenceOptions(
        method.normalisation, method.kl_stride, method.context_weight, method.unlabelled_weight,
        method.stranger_weight,
    )  # fmt: skip
    _check_noise(recipe, likelihood, options)
    return FunctionalVI(
        q, likelihood, prior, context, divergence, method.scale_power, method.fit_stride
    )


def _likelihood(recipe: Recipe) -> Likelihood:
    likelihood, task = build_likelihood(recipe.likelihood), recipe.target.task
    if isinstance(likelihood, Boltzmann if task == "depth" else RegressionLikelihood):
        raise RecipeError(
            f"likelihood.name is {recipe.likelihood.name!r}, but the target is {task}; choose "
            f"{'laplace, gaussian or berhu' if task == 'depth' else 'boltzmann'}."
        )
    return likelihood


def _check_noise(recipe: Recipe, likelihood: Likelihood, options: HeadOptions) -> None:
    """Refuse settings of a noise that is not there, and an image's scale that nothing teaches."""
    power, epochs = recipe.method.scale_power, recipe.method.noise_epochs
    values, scaled = isinstance(likelihood, RegressionLikelihood), options.scale != "none"
    powerless = power and not (values and scaled)
    if not 0 <= power <= 1 or epochs < 0 or powerless or (epochs and not scaled):
        raise ValueError(
            f"method got scale_power {power} and noise_epochs {epochs} with the likelihood "
            f"{recipe.likelihood.name} and the scale {options.scale}; it wants a power from 0 to 1 "
            "and a number of epochs, both 0 without a scale, and no power for labels."
        )
    if not 0 < recipe.method.noise_strength <= MOST_STRENGTH:
        raise ValueError(
            f"method.noise_strength is {recipe.method.noise_strength}; it wants a number above 0 "
            f"and at most {MOST_STRENGTH}."
        )
    shared = isinstance(likelihood, Boltzmann) and likelihood.scale == "shared"
    if options.scale == "image" and not (shared and epochs):
        raise ValueError(
            f"posterior.scale is image, with noise_epochs {epochs} and the likelihood "
            f"{recipe.likelihood.name}; it wants labels whose likelihood.options.scale is shared, "
            "and method.noise_epochs above 0, in which it is learned."
        )


def _prior_mean(recipe: Recipe) -> float | list[float]:
    """As the recipe gives it; of classes, log share, centred: a softmax sees no common shift."""
    if recipe.prior.mean != "shares":
        return recipe.prior.mean
    logs = torch.tensor(recipe.target.shares).log()
    centred: list[float] = (logs - logs.mean()).tolist()
    return centred


def _scale_of(likelihood: Likelihood) -> Scale:
    """The kind of log σ that a likelihood reads."""
    if isinstance(likelihood, Boltzmann):
        kinds: dict[str, Scale] = {"class": "output", "shared": "shared", "none": "none"}
        return kinds[likelihood.scale]
    return "output"


@torch.no_grad()
def _start_variance(prior: SizedPrior) -> float:
    """The prior's variance at a grey image."""
    return float(prior.at(*prior.size)(torch.full((1, 3, *prior.size), 0.5)).variance.mean())


def _baseline(recipe: Recipe, backbone: nn.Module) -> Baseline:
    name, model = recipe.method.name, _network_with_loss(recipe, backbone)
    return MCDropout(model, recipe.method.passes, recipe.seed) if name == "mc_dropout" else model


def _network_with_loss(recipe: Recipe, backbone: nn.Module) -> Baseline:
    depth, loss = recipe.target.task == "depth", _loss(recipe)
    labels = {"cross_entropy", "boltzmann"}
    if depth == (loss in labels):  # a loss of the other task
        raise RecipeError(
            f"method.loss is {loss!r}, but the target is {recipe.target.task}; choose "
            f"{'l1, berhu or likelihood' if depth else 'cross_entropy or boltzmann'}."
        )
    if loss == "likelihood":
        return Heteroscedastic(backbone, num_outputs(recipe), _likelihood(recipe))
    plain: LossName = loss  # type: ignore[assignment]
    return Deterministic(backbone, num_outputs(recipe), plain)


def _loss(recipe: Recipe) -> str:
    """The loss asked for, or the usual one of the method and task."""
    if recipe.method.loss is not None:
        return recipe.method.loss
    learned_scale = recipe.method.name != "deterministic"
    if recipe.target.task == "depth":
        return "likelihood" if learned_scale else "l1"
    return "boltzmann" if recipe.method.name == "heteroscedastic" else "cross_entropy"
