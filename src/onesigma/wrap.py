"""The posterior around a finished network: its output is the mean, new heads read near its end."""

from __future__ import annotations

from collections.abc import Callable

import torch
from jaxtyping import Float
from torch import Tensor, nn
from torch.nn import functional

from onesigma.heads import CovarianceHeads, HeadOptions
from onesigma.modes import evaluating
from onesigma.posterior import ContextStatistics, FunctionalPosterior


def wrap(
    network: nn.Module,
    outputs: int,
    rank: int = 20,
    min_diagonal: float = 1e-3,
    options: HeadOptions | None = None,
    layer: str | None = None,
    select: Callable[[object], Tensor] | None = None,
    context_statistics: ContextStatistics = "running",
) -> WrappedNetwork:
    """Give a finished dense network a posterior; its predictions stay what they were.

    Factors, diagonal and scale read the input of the network's last layer, at that layer's
    resolution, and are up-sampled to the output's when it is finer.

    Args:
        network: images (n, 3, h, w) to outputs (n, outputs, h, w).
        outputs: C.
        rank: L.
        min_diagonal: added to D.
        options: see `HeadOptions`; `mean` is not used.
        layer: name of the last layer; the last convolution with C outputs when left out.
        select: picks the tensor from what the network returns, e.g. `lambda out: out["out"]`.
        context_statistics: see `FunctionalPosterior`.
    """
    name = _last_layer(network, outputs) if layer is None else layer
    heads = CovarianceHeads(
        _input_channels(network, name), outputs, rank, min_diagonal, options or HeadOptions()
    )
    return WrappedNetwork(network, name, heads, select, context_statistics)


class WrappedNetwork(FunctionalPosterior):
    """What `wrap` returns."""

    def __init__(
        self,
        network: nn.Module,
        layer: str,
        heads: CovarianceHeads,
        select: Callable[[object], Tensor] | None,
        context_statistics: ContextStatistics,
    ) -> None:
        super().__init__(heads, network, context_statistics)
        self.network, self.layer, self.select = network, layer, select

    def features_and_mean(
        self, images: Float[Tensor, "n k h w"]
    ) -> tuple[Float[Tensor, "n f h w"], Float[Tensor, "n c h w"]]:
        """The input of the last layer and the network's own output."""
        seen: list[Tensor] = []
        hook = self.network.get_submodule(self.layer).register_forward_pre_hook(
            lambda _module, inputs: seen.append(inputs[0])
        )
        try:
            returned = self.network(images)
        finally:
            hook.remove()
        mean = returned if self.select is None else self.select(returned)
        self._check(images, mean, seen)
        features = seen[-1]
        if features.shape[2:] != mean.shape[2:]:
            features = functional.interpolate(
                features, mean.shape[2:], mode="bilinear", align_corners=False
            )
        return features, mean

    def _check(self, images: Tensor, mean: object, seen: list[Tensor]) -> None:
        if not seen:
            raise ValueError(
                f"The layer {self.layer!r} did not run in the network's forward pass; name the "
                "last layer with layer=."
            )
        if not isinstance(mean, Tensor):
            raise TypeError(
                f"The network returned a {type(mean).__name__}; pass select= to pick the tensor, "
                'e.g. select=lambda out: out["out"].'
            )
        wanted = (len(images), self.heads.outputs, *images.shape[2:])
        if tuple(mean.shape) != wanted:
            raise ValueError(
                f"The network turned images of shape {tuple(images.shape)} into "
                f"{tuple(mean.shape)}; wrap wants {wanted}. Check outputs=, or up-sample its end."
            )


def _last_layer(network: nn.Module, outputs: int) -> str:
    convolutions = {
        name: module
        for name, module in network.named_modules()
        if isinstance(module, nn.Conv2d | nn.ConvTranspose2d)
    }
    fitting = [name for name, module in convolutions.items() if module.out_channels == outputs]
    if not fitting:
        found = ", ".join(f"{k} ({m.out_channels})" for k, m in list(convolutions.items())[-5:])
        raise ValueError(
            f"wrap found no convolution with {outputs} outputs in the network; its last ones are "
            f"{found or 'none'}. Check outputs=, or name the last layer with layer=."
        )
    return fitting[-1]


def _input_channels(network: nn.Module, layer: str) -> int:
    known = dict(network.named_modules())
    if layer not in known:
        raise ValueError(
            f"The network has no layer {layer!r}; its last ones are {list(known)[-5:]}."
        )
    module = known[layer]
    if isinstance(module, nn.Conv2d | nn.ConvTranspose2d):
        return module.in_channels
    return _probed_channels(network, module)


def _probed_channels(network: nn.Module, module: nn.Module) -> int:
    seen: list[Tensor] = []
    hook = module.register_forward_pre_hook(lambda _module, inputs: seen.append(inputs[0]))
    try:
        with torch.no_grad(), evaluating(network):
            network(torch.zeros(1, 3, 64, 64))
    finally:
        hook.remove()
    return int(seen[-1].shape[1])
