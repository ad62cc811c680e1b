"""In which mode a network passes images: with which statistics, and back to what it was."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from jaxtyping import Float
from torch import Tensor, nn
from torch.nn.modules.batchnorm import _BatchNorm, _NormBase


@contextmanager
def normalising_apart(module: nn.Module, running: bool) -> Iterator[None]:
    """Normalisation that leaves the running statistics alone; with them, or with its own."""
    layers = [layer for layer in module.modules() if isinstance(layer, _NormBase)]
    before = [(layer.training, layer.track_running_stats, layer.momentum) for layer in layers]
    try:
        for layer in layers:
            if running:
                layer.training = False
            elif isinstance(layer, _BatchNorm):
                layer.track_running_stats = False
            else:
                # an instance normalisation takes in what it sees, whatever it is told to track
                layer.momentum = 0.0
        yield
    finally:
        for layer, modes in zip(layers, before, strict=True):
            layer.training, layer.track_running_stats, layer.momentum = modes


@contextmanager
def explaining_lone_values(images: Float[Tensor, "m k h w"]) -> Iterator[None]:
    """What to do where a batch normalisation finds one value of a channel, hence no variance."""
    try:
        yield
    except ValueError as error:
        if "more than 1 value per channel" not in str(error):
            raise
        raise ValueError(
            f"The network shrinks {len(images)} context image(s) of {images.shape[2]} x "
            f"{images.shape[3]} to a single value per channel, which batch normalisation cannot "
            "normalise; take larger images or two context images (context.options.count: 2)."
        ) from error


@contextmanager
def evaluating(module: nn.Module) -> Iterator[None]:
    """Evaluation mode that gives every submodule its own mode back."""
    before = [(part, part.training) for part in module.modules()]
    try:
        module.eval()
        yield
    finally:
        for part, training in before:
            part.training = training
