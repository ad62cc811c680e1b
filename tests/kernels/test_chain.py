"""A chain of convolutions and ReLUs against the same layers one by one."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor

from onesigma.kernels import (
    BilinearUpsampleApproximation,
    Conv,
    KernelState,
    NearestUpsample,
    ReLU,
    Sequential,
)
from onesigma.kernels.chain import leading_chain, propagate_chain
from onesigma.kernels.resize import Resize

CHAINS = {
    "one": [Conv(3, 0.2, 0.08)],
    "many": [Conv(3, 0.2 + 0.1 * i, 0.08 * i) for i in range(4)],
    "dilated": [Conv(3, 0.3, 0.1, dilation=2), Conv(3, 0.2, 0.0)],
    "odd windows": [Conv((1, 3), 0.4, 0.1), Conv((2, 1), 0.5, 0.2), Conv(1, 0.7)],
}


def one_by_one(chain: list[Conv], state: KernelState) -> KernelState:
    for conv in chain:
        state = ReLU().propagate(conv.propagate(state))
    return state


def state_of(images: int, *size: int, **options: torch.dtype) -> KernelState:
    generator = torch.Generator().manual_seed(images)
    return KernelState.of_images(torch.rand(images, 3, *size, generator=generator, **options))


@pytest.mark.parametrize("name", CHAINS)
@pytest.mark.parametrize("images", [1, 2, 5])
@pytest.mark.parametrize("size", [(12, 17), (210, 230)])  # many maps at a time, and one
def test_chain_is_its_layers(name: str, images: int, size: tuple[int, int]) -> None:
    state = state_of(images, *size, dtype=torch.float64)
    before = state.maps.clone()
    found, wanted = propagate_chain(CHAINS[name], state), one_by_one(CHAINS[name], state)
    assert found.maps.shape == wanted.maps.shape
    torch.testing.assert_close(found.maps, wanted.maps, rtol=1e-12, atol=1e-14)
    assert (found.gaussian, found.fresh) == (wanted.gaussian, wanted.fresh)
    assert torch.equal(state.maps, before)


def test_chain_reads_any_layout() -> None:
    state = state_of(3, 16, 20)
    turned = state.move(state.maps.transpose(1, 2).contiguous().transpose(1, 2))
    cropped = state.move(state.maps[:, 2:-1, 3:-2])
    chain = CHAINS["many"]
    assert torch.equal(propagate_chain(chain, turned).maps, propagate_chain(chain, state).maps)
    torch.testing.assert_close(
        propagate_chain(chain, cropped).maps, one_by_one(chain, cropped).maps
    )


@pytest.mark.parametrize("size", [(12, 13), (1, 13), (12, 1)])
def test_strides_that_mean_nothing(size: tuple[int, int]) -> None:
    g = torch.Generator().manual_seed(0)
    variance = torch.rand(*size, generator=g, dtype=torch.float64)
    maps = variance.as_strided((1, *size), (1, size[1], 1))
    state = KernelState(maps, images=1, gaussian=True)
    torch.testing.assert_close(ReLU().propagate(state).maps, state.maps / 2)


def test_black_images_stay_without_covariance() -> None:
    images = torch.rand(3, 3, 9, 9)
    images[1] = 0
    maps = propagate_chain([Conv(3, 0.2), Conv(3, 0.3)], KernelState.of_images(images)).maps
    assert bool((maps[[1, 3, 5]].abs() < 1e-30).all())  # K_11, K_01, K_12
    assert bool((maps[[0, 2, 4]] > 1e-3).all())


def test_result_can_be_kept_for_a_gradient() -> None:
    maps = propagate_chain(CHAINS["many"], state_of(2, 12, 12)).maps
    weight = torch.ones((), requires_grad=True)
    (weight * maps).sum().backward()
    assert weight.grad is not None
    torch.testing.assert_close(weight.grad, maps.sum())


def test_too_small_maps_are_refused() -> None:
    with pytest.raises(ValueError, match="2×2 pixels"):
        propagate_chain([Conv(3, 0.2), Conv(3, 0.2)], state_of(2, 4, 4))


@pytest.mark.parametrize(
    ("layers", "length"),
    [
        ([Conv(3, 0.2), ReLU(), Conv(3, 0.2), ReLU(), Conv(1, 0.2)], 2),
        ([Conv(3, 0.2), ReLU(), Conv(3, 0.2, padding=1), ReLU()], 1),
        ([Conv(3, 0.2, stride=2), ReLU()], 0),
        ([ReLU(), Conv(3, 0.2)], 0),
        ([Conv(3, 0.2)], 0),
    ],
)
def test_chain_ends_where_layers_are_not_plain(layers: list[Conv | ReLU], length: int) -> None:
    assert len(leading_chain(layers, state_of(2, 12, 12))) == length


def test_what_is_learned_is_no_chain() -> None:
    state, conv = state_of(2, 12, 12), Conv(3, 0.2, 0.1)
    images = torch.rand(2, 3, 12, 12, requires_grad=True)
    assert leading_chain([conv, ReLU()], KernelState.of_images(images)) == []
    conv.bias_variance.learn()
    assert leading_chain([conv, ReLU()], state) == []


@pytest.mark.parametrize("size", [(4, 5), (30, 40)])
def test_sequential_takes_the_chain_up_to_a_reduction(size: tuple[int, int]) -> None:
    chain, state = CHAINS["many"], state_of(3, 24, 32, dtype=torch.float64)
    layers = [layer for conv in chain for layer in (conv, ReLU())]
    found = Sequential(*layers, NearestUpsample(*size)).propagate(state)
    wanted = NearestUpsample(*size).propagate(one_by_one(chain, state))
    torch.testing.assert_close(found.maps, wanted.maps, rtol=1e-12, atol=1e-14)


@pytest.mark.parametrize("kind", [NearestUpsample, BilinearUpsampleApproximation])
@pytest.mark.parametrize("last", [Conv(1, 0.7, 0.3), Conv(1, 0.7, 0.3, padding=1), Conv(3, 0.7)])
def test_a_convolution_after_a_resize_of_the_chain(kind: type[Resize], last: Conv) -> None:
    chain, state = CHAINS["many"], state_of(3, 24, 32, dtype=torch.float64)
    layers = [layer for conv in chain for layer in (conv, ReLU())]
    found = Sequential(*layers, kind(30, 41), last).propagate(state)
    wanted = last.propagate(kind(30, 41).propagate(one_by_one(chain, state)))
    torch.testing.assert_close(found.maps, wanted.maps, rtol=1e-12, atol=1e-14)
    assert (found.gaussian, found.fresh) == (True, True)


def test_gradients_of_a_learned_chain_are_those_of_differences() -> None:
    images = torch.rand(2, 2, 7, 7, dtype=torch.float64, requires_grad=True)
    kernel = Sequential(Conv(3, 0.4, 0.1), ReLU(), Conv(3, 0.3, 0.1), ReLU())

    def maps(x: Tensor) -> Tensor:
        return kernel.propagate(KernelState.of_images(x)).maps

    assert torch.autograd.gradcheck(maps, images)
