"""The posterior around a finished network: its output is the mean, new heads read near its end."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from jaxtyping import Float
from torch import Tensor, nn

from onesigma.heads import CovarianceHeads, HeadOptions
from onesigma.modes import evaluating
from onesigma.posterior import ContextStatistics, FunctionalPosterior, black_image


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
        layer: name of the last layer; when left out the convolution with C outputs, of several
            the one that makes the output, found by passing a small black image.
        select: picks the tensor from what the network returns, e.g. `lambda out: out["out"]`.
        context_statistics: see `FunctionalPosterior`.
    """
    name = _last_layer(network, outputs, select) if layer is None else layer
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
        self.given = _Given()
        network.get_submodule(layer).register_forward_pre_hook(self.given, with_kwargs=True)

    def features_and_mean(
        self, images: Float[Tensor, "n k h w"]
    ) -> tuple[Float[Tensor, "n f a b"], Float[Tensor, "n c h w"]]:
        """The input of the last layer, at that layer's resolution, and the network's own output."""
        self.given.start()
        try:
            returned = self.network(images)
        finally:
            features = self.given.stop()
        mean = _selected(returned, self.select)
        wanted = (images.shape[0], self.heads.outputs, *images.shape[2:])
        if tuple(mean.shape) != wanted:
            raise ValueError(
                f"The network turned images of shape {tuple(images.shape)} into "
                f"{tuple(mean.shape)}; wrap wants {wanted}. Check outputs=, or up-sample its end."
            )
        return _feature_maps(features, self.layer), mean


class _Given:
    """A hook that keeps what its layer is given, between `start` and `stop`."""

    def __init__(self) -> None:
        self.wanted = False
        self.last: Any = None

    def __call__(self, _layer: nn.Module, inputs: tuple[Any, ...], named: dict[str, Any]) -> None:
        if self.wanted:
            self.last = inputs[0] if inputs else named

    def start(self) -> None:
        self.wanted, self.last = True, None

    def stop(self) -> Any:
        last, self.wanted, self.last = self.last, False, None
        return last


def _selected(returned: Any, select: Callable[[object], Tensor] | None) -> Tensor:
    output = returned if select is None else select(returned)
    if not isinstance(output, Tensor):
        raise TypeError(
            f"The network returned a {type(output).__name__}; pass select= to pick the tensor, "
            'e.g. select=lambda out: out["out"].'
        )
    return output


def _feature_maps(given: Any, layer: str) -> Tensor:
    """What the layer was given, if it is what heads can read."""
    if isinstance(given, Tensor) and given.ndim == 4:
        return given
    if given is None:
        raise ValueError(
            f"The layer {layer!r} did not run in the network's forward pass; name the last layer "
            "with layer=."
        )
    came = f"a {type(given).__name__}"
    if isinstance(given, Tensor):
        came = f"a tensor of shape {tuple(given.shape)}"
    elif isinstance(given, dict):
        came = f"only arguments by keyword ({', '.join(given)})"
    raise ValueError(
        f"The layer {layer!r} is given {came}; wrap wants one whose first argument is feature maps "
        "(n, f, h, w), such as the last convolution. Name it with layer=."
    )


def _last_layer(network: nn.Module, outputs: int, select: Callable[[object], Tensor] | None) -> str:
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
    return fitting[0] if len(fitting) == 1 else _maker_of_output(network, fitting, select)


def _maker_of_output(
    network: nn.Module, layers: list[str], select: Callable[[object], Tensor] | None
) -> str:
    """Of several layers the one through which all that reaches the output passes last."""
    known = ", ".join(layers)
    try:
        reaching = _reaching(network, layers, select)
        beside = _reaching(network, layers, select, cut=reaching[-1]) if reaching else []
    except (ValueError, TypeError) as error:
        raise ValueError(
            f"{len(layers)} convolutions have the right number of outputs ({known}), and a small "
            f"pass did not tell which makes the network's output. {error} Otherwise name the "
            "layer with layer=."
        ) from error
    if not reaching or beside:
        side = f"{reaching[-1]} and beside it {', '.join(beside)}" if reaching else "none of them"
        raise ValueError(
            f"{len(layers)} convolutions have the right number of outputs ({known}); the network's "
            f"output comes from {side}. Name the last layer with layer=."
        )
    return reaching[-1]


def _reaching(
    network: nn.Module,
    layers: list[str],
    select: Callable[[object], Tensor] | None,
    cut: str | None = None,
) -> list[str]:
    """The layers on which the output depends, in the order they ran; not by way of `cut`."""
    marks: dict[str, Tensor] = {}

    def mark(name: str, output: Tensor) -> Tensor:
        marks.pop(name, None)
        marks[name] = output.new_zeros((), requires_grad=True)
        return output.detach() if name == cut else output + marks[name]

    hooks = [
        network.get_submodule(name).register_forward_hook(
            lambda _layer, _inputs, output, name=name: mark(name, output)
        )
        for name in layers
    ]
    try:
        with torch.enable_grad():
            output = _selected(_probe(network), select)
    finally:
        for hook in hooks:
            hook.remove()
    if not marks or not output.requires_grad:
        return []
    slopes = torch.autograd.grad(output.sum(), list(marks.values()), allow_unused=True)
    return [name for name, slope in zip(marks, slopes, strict=True) if slope is not None]


def _input_channels(network: nn.Module, layer: str) -> int:
    known = dict(network.named_modules())
    if layer not in known:
        raise ValueError(
            f"The network has no layer {layer!r}; its last ones are {list(known)[-5:]}."
        )
    module = known[layer]
    if isinstance(module, nn.Conv2d | nn.ConvTranspose2d):
        return module.in_channels
    given = _Given()
    hook = module.register_forward_pre_hook(given, with_kwargs=True)
    given.start()
    try:
        with torch.no_grad():
            _probe(network)
    finally:
        hook.remove()
    return int(_feature_maps(given.stop(), layer).shape[1])


def _probe(network: nn.Module) -> Any:
    """What the network returns for a small black image; nothing random is drawn."""
    image = black_image(network)
    try:
        with evaluating(network), torch.random.fork_rng(devices=[]):
            return network(image)
    except Exception as error:
        raise ValueError(
            f"The network did not accept a black image of shape {tuple(image.shape)} ({error}); "
            "name a convolution with layer=, which needs no such pass."
        ) from error
