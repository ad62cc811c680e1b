"""A resize that drops pixels: the same as resizing everything, from what it reads alone."""

from __future__ import annotations

import pytest
import torch
from torch.nn.functional import interpolate

from onesigma import kernels
from onesigma.kernels.resize import Resize

SIZES = [(204, 44), (31, 3), (20, 9), (9, 9), (5, 13), (7, 1)]


def state_after_a_convolution(height: int, width: int) -> kernels.KernelState:
    g = torch.Generator().manual_seed(height)
    images = torch.rand(3, 3, height, width, generator=g, dtype=torch.float64)
    return kernels.Conv(1, 1.5, 0.1).propagate(kernels.KernelState.of_images(images))


@pytest.mark.parametrize(("have", "out"), SIZES)
@pytest.mark.parametrize(
    "kind", [kernels.NearestUpsample, kernels.BilinearUpsampleApproximation], ids=["near", "bilin"]
)
def test_resizing_is_torchs(kind: type[Resize], have: int, out: int) -> None:
    state = state_after_a_convolution(have, 2 * have)
    corners = False if kind.mode == "bilinear" else None
    wanted = interpolate(state.maps[None], (out, out + 1), mode=kind.mode, align_corners=corners)[0]
    torch.testing.assert_close(kind(out, out + 1).propagate(state).maps, wanted)


@pytest.mark.parametrize("kind", [kernels.NearestUpsample, kernels.BilinearUpsampleApproximation])
def test_a_pointwise_layer_before_a_reduction_is_computed_where_it_is_read(
    kind: type[Resize], monkeypatch: pytest.MonkeyPatch
) -> None:
    state, resize, relu = state_after_a_convolution(40, 30), kind(6, 5), kernels.ReLU()
    wanted = resize.propagate(relu.propagate(state))
    pixels: list[int] = []
    propagate = kernels.ReLU.propagate

    def counting(layer: kernels.ReLU, seen: kernels.KernelState) -> kernels.KernelState:
        pixels.append(seen.maps[0].numel())
        return propagate(layer, seen)

    monkeypatch.setattr(kernels.ReLU, "propagate", counting)
    found = kernels.Sequential(relu, resize).propagate(state)
    torch.testing.assert_close(found.maps, wanted.maps)
    assert (found.gaussian, found.fresh) == (wanted.gaussian, wanted.fresh)
    assert pixels == [6 * 5 * kind.reads**2]


CONVOLUTIONS = {
    "valid": {},
    "strided": {"stride": 2},
    "padded": {"padding": 1},
    "dilated": {"dilation": 3, "padding": 2},
}


@pytest.mark.parametrize("options", CONVOLUTIONS.values(), ids=CONVOLUTIONS.keys())
@pytest.mark.parametrize("kind", [kernels.NearestUpsample, kernels.BilinearUpsampleApproximation])
@pytest.mark.parametrize("size", [(2, 3), (9, 8), (40, 50)])
def test_a_convolution_before_a_reduction_too(
    kind: type[Resize], options: dict[str, int], size: tuple[int, int]
) -> None:
    state, conv = state_after_a_convolution(40, 30), kernels.Conv((3, 2), 0.2, 0.1, **options)
    relu, resize = kernels.ReLU(), kind(*size)
    for layers in ([conv, relu], [relu, conv]):
        wanted = state
        for layer in (*layers, resize):
            wanted = layer.propagate(wanted)
        found = kernels.Sequential(*layers, resize).propagate(state)
        torch.testing.assert_close(found.maps, wanted.maps)
        assert (found.gaussian, found.fresh) == (wanted.gaussian, wanted.fresh)


def test_a_convolution_is_computed_where_it_is_read(monkeypatch: pytest.MonkeyPatch) -> None:
    whole: list[tuple[int, int]] = []
    monkeypatch.setattr(kernels.Conv, "propagate", lambda _, seen: whole.append(seen.size))
    layers = kernels.Conv(3, 0.2, 0.1), kernels.ReLU(), kernels.NearestUpsample(6, 5)
    found = kernels.Sequential(*layers).propagate(
        kernels.KernelState.of_images(torch.rand(3, 3, 40, 30))
    )
    assert found.size == (6, 5)
    assert not whole


def test_gradients_pass_a_reduction() -> None:
    weight = kernels.Conv(3, 0.3, 0.1)
    for part in weight.modules():
        if isinstance(part, kernels.Positive):
            part.learn()
    images = torch.rand(2, 3, 14, 14, dtype=torch.float64)
    kernel = kernels.Sequential(weight, kernels.ReLU(), kernels.BilinearUpsampleApproximation(3, 3))
    kernel.double()
    kernel.propagate(kernels.KernelState.of_images(images)).maps.sum().backward()
    found = [p.grad.clone() for p in kernel.parameters() if p.grad is not None]
    whole = weight.propagate(kernels.KernelState.of_images(images))
    maps = kernels.ReLU().propagate(whole).maps
    for p in kernel.parameters():
        p.grad = None
    interpolate(maps[None], (3, 3), mode="bilinear", align_corners=False).sum().backward()
    wanted = [p.grad for p in kernel.parameters() if p.grad is not None]
    assert len(found) == len(wanted) == 2
    torch.testing.assert_close(found, wanted)
