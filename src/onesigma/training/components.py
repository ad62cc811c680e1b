"""Parts of a run from their names in a recipe."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping, Sequence
from dataclasses import fields, replace
from importlib import import_module
from typing import Any, get_type_hints

from torch import nn

from onesigma.context import Context, MixedContext
from onesigma.data.base import PixelDataset
from onesigma.data.spread import Spread
from onesigma.likelihoods.base import Likelihood
from onesigma.prediction.transforms import Affine, Log, Transform
from onesigma.priors import CNNGPPrior, Prior
from onesigma.training.config import Component, DataConfig, PriorConfig, Size, TransformConfig
from onesigma.training.errors import RecipeError
from onesigma.training.recipes import nearest
from onesigma.training.wording import explain

NETWORKS = {
    name: f"onesigma.networks.{name}"
    for name in ("fc_densenet_small", "fc_densenet56", "fc_densenet67", "fc_densenet103")
} | {
    "unet_small": "onesigma.networks.unet_small",
    "fc_densenet": "onesigma.networks.FCDenseNet",
    "unet": "onesigma.networks.UNet",
}
DATASETS = {
    "scenes": "onesigma.data.Scenes",
    "camvid": "onesigma.data.CamVid",
    "nyuv2": "onesigma.data.NYUv2",
    "make3d": "onesigma.data.Make3D",
    "folder": "onesigma.data.Folder",
}
LIKELIHOODS = {
    "boltzmann": "onesigma.likelihoods.boltzmann.Boltzmann",
    "gaussian": "onesigma.likelihoods.gaussian.Gaussian",
    "laplace": "onesigma.likelihoods.laplace.Laplace",
    "berhu": "onesigma.likelihoods.berhu.BerHu",
}
CONTEXTS = {
    "noisy_copies": "onesigma.context.NoisyCopies",
    "shuffled_patches": "onesigma.context.ShuffledPatches",
    "shifted_colours": "onesigma.context.ShiftedColours",
    "pasted_mixtures": "onesigma.context.PastedMixtures",
    "frequency_noise": "onesigma.context.FrequencyNoise",
    "mixed": "onesigma.context.MixedContext",
}
KERNELS = {
    name: f"onesigma.kernels.{name}_kernel" for name in ("paper", "dense_paper", "scene", "texture")
}


def build_network(component: Component) -> nn.Module:
    """The feature network."""
    return build(component, NETWORKS, nn.Module, "network")


def build_likelihood(component: Component) -> Likelihood:
    """The likelihood."""
    return build(component, LIKELIHOODS, Likelihood, "likelihood")


def build_context(component: Component) -> Context:
    """The generator of context images; "mixed" takes a list of components as `generators`."""
    if component.name != "mixed":
        return build(component, CONTEXTS, Context, "context")
    options = dict(component.options)
    if "generators" in options:
        options["generators"] = [build_context(x) for x in _components(options["generators"])]
    mixed: MixedContext = build(replace(component, options=options), CONTEXTS, Context, "context")
    return mixed


def _components(entries: Any) -> list[Component]:
    known = {field.name for field in fields(Component)}
    right = isinstance(entries, list) and all(
        isinstance(entry, Mapping) and known.issuperset(entry) for entry in entries
    )
    if not right:
        raise RecipeError(
            f"context.options.generators is {entries!r}; it wants a list of entries like "
            "{name: noisy_copies, options: {variance: 0.1}}."
        )
    return [Component(**entry) for entry in entries]


def build_dataset(config: DataConfig, split: str, size: Size | None) -> PixelDataset:
    """The data set of one split.

    Args:
        config: of the recipe.
        split: its name.
        size: rows and columns to resize to; None for the images' own.
    """
    options: dict[str, Any] = {"split": split, **config.options, **config.splits.get(split, {})}
    if size is not None:
        options["size"] = tuple(size)
    if config.root is not None and config.name != "scenes":
        options["root"] = config.root
    part = Component(config.name, config.class_path, options)
    if config.class_path is None and config.name != "scenes" and config.root is None:
        raise RecipeError(
            f"The data set {config.name!r} needs a folder: --data.root DIR. "
            "Without data, train scenes-segmentation or scenes-depth."
        )
    data = build(part, DATASETS, PixelDataset, "data")
    return data if config.limit is None or split != "train" else Spread(data, config.limit)


def build_prior(
    config: PriorConfig, outputs: int, mean: float | Sequence[float], size: Size
) -> Prior:
    """The prior at one size of images."""
    if config.class_path is not None:
        part = Component(None, config.class_path, config.options)
        return build(part, {}, Prior, "prior", outputs=outputs)
    options = dict(config.options)
    if config.kernel in ("paper", "dense_paper"):
        options |= {"height": size[0], "width": size[1]}
    kernel = build(Component(config.kernel, None, options), KERNELS, nn.Module, "prior")
    return CNNGPPrior(
        kernel, outputs, mean=mean, noise=config.noise, scale=config.scale,
        learn=config.learn,
    )  # fmt: skip


def build_transform(config: TransformConfig) -> Transform | None:
    """The target's transform, or None; shift and scale must be known."""
    if config.name is None:
        return None
    if config.shift is None or config.scale is None:
        raise RecipeError(
            "transform.shift and transform.scale are not known before the run starts."
        )
    if config.name == "affine":
        return Affine(config.shift, config.scale)
    return Log(config.shift, config.scale, config.offset)


def build(
    part: Component, table: Mapping[str, str], kind: type[Any], section: str, **given: Any
) -> Any:
    """Call what a component names with its options.

    Args:
        part: a name or class_path, and options.
        table: class_paths by name.
        kind: what must come out.
        section: of the recipe, for errors.
        given: arguments that do not come from the recipe.
    """
    target = _import(_path(part, table, section), section)
    options = _typed_options(target, part.options, section, set(given))
    built = target(**options, **given)
    if not isinstance(built, kind):
        raise RecipeError(
            f"{section}: {part.class_path or part.name} made a {type(built).__name__}; "
            f"it wants a {kind.__name__}."
        )
    return built


def _path(part: Component, table: Mapping[str, str], section: str) -> str:
    if part.class_path is not None:
        return part.class_path
    if part.name is None or part.name not in table:
        raise RecipeError(
            f"{section}.name is {part.name!r}. {nearest(str(part.name), list(table))} "
            f"Or give {section}.class_path for one of your own."
        )
    return table[part.name]


def _import(path: str, section: str) -> Callable[..., Any]:
    module, _, name = path.rpartition(".")
    try:
        found: Callable[..., Any] = getattr(import_module(module), name)
    except (ImportError, AttributeError, ValueError) as error:
        raise RecipeError(
            f"{section}: cannot import {path!r}: {error}. It wants MODULE.NAME of something that "
            "is installed or lies in the current folder."
        ) from error
    return found


def _typed_options(
    target: Callable[..., Any], options: Mapping[str, Any], section: str, given: set[str]
) -> dict[str, Any]:
    """The options with the types that the signature wants, such as a tuple for a list."""
    parameters = inspect.signature(target).parameters
    known = [name for name in parameters if name not in given]
    for name in options:
        if name not in parameters:
            raise RecipeError(f"{section} has no option {name!r}. {nearest(name, known)}")
    needed = [
        name
        for name, parameter in parameters.items()
        if parameter.default is parameter.empty
        and name not in options
        and name not in given
        and parameter.kind not in (parameter.VAR_POSITIONAL, parameter.VAR_KEYWORD)
    ]
    if needed:
        raise RecipeError(
            f"{section} needs the option {needed[0]!r}: --{section}.options.{needed[0]}."
        )
    return _parsed(target, options, section)


def _parsed(target: Callable[..., Any], options: Mapping[str, Any], section: str) -> dict[str, Any]:
    from argparse import ArgumentError

    from jsonargparse import ArgumentParser

    parser = ArgumentParser(exit_on_error=False)
    skip: set[str | int] = {p for p in inspect.signature(target).parameters if p not in options}
    add = parser.add_class_arguments if inspect.isclass(target) else parser.add_function_arguments
    add(target, skip=skip, fail_untyped=False)
    try:
        return dict(parser.instantiate(parser.parse_object(dict(options))))
    except ArgumentError as error:
        kinds = _annotations(target)
        text = explain(str(error), f"{section}.options.", lambda words: kinds.get(".".join(words)))
        raise RecipeError(text) from error


def _annotations(target: Callable[..., Any]) -> dict[str, Any]:
    """The types of its arguments, as far as they can be known."""
    try:
        return get_type_hints(target.__init__ if inspect.isclass(target) else target)
    except (NameError, TypeError, AttributeError):
        return {}
