from __future__ import annotations

import pytest
import torch
from torch import nn

from onesigma.networks import (
    Backbone,
    FCDenseNet,
    Normalise,
    UNet,
    fc_densenet56,
    fc_densenet67,
    fc_densenet103,
    fc_densenet_small,
    unet_small,
)
from onesigma.posterior import feature_channels

SMALL = [fc_densenet_small, unet_small]
TINY = [
    lambda **k: FCDenseNet([1, 2], 2, growth=4, first=6, **k),
    lambda **k: FCDenseNet([1, 2], 2, growth=4, first=6, stem=2, **k),
    lambda **k: UNet((4, 6, 8), **k),
]


@pytest.fixture(autouse=True)
def _seed() -> None:
    torch.manual_seed(0)


def parameters(network: nn.Module) -> int:
    return sum(p.numel() for p in network.parameters())


@pytest.mark.parametrize(
    ("make", "low", "high"),
    [
        (fc_densenet56, 1.35e6, 1.55e6),
        (fc_densenet67, 3.4e6, 3.55e6),
        (fc_densenet103, 9.3e6, 9.4e6),
    ],
)
def test_parameter_counts_are_the_papers(make, low, high):
    assert low < parameters(make(classes=11)) < high


def test_fc_densenet103_counted_by_hand():
    # Jégou et al., table 2, block by block.
    g, down, up = 16, [4, 5, 7, 10, 12], [12, 10, 7, 5, 4]

    def block(m: int, layers: int) -> int:
        return sum(2 * (m + i * g) + 9 * (m + i * g) * g + g for i in range(layers))

    total, m, skips = 3 * 9 * 48 + 48, 48, []
    for layers in down:
        total += block(m, layers)
        m += layers * g
        skips.append(m)
        total += 2 * m + m * m + m
    total, new = total + block(m, 15), 15 * g
    for layers in up:
        total += 9 * new * new + new
        m = new + skips.pop()
        total += block(m, layers)
        new = layers * g
    total += (m + new) * 11 + 11
    assert (skips, m + new) == ([], 256)
    assert parameters(fc_densenet103(classes=11)) == total


def test_convolutions_count_to_the_number_in_the_name():
    for make, layers in [(fc_densenet56, 56), (fc_densenet67, 67), (fc_densenet103, 103)]:
        convolutions = nn.Conv2d, nn.ConvTranspose2d
        network = make(classes=11)
        assert sum(isinstance(m, convolutions) for m in network.modules()) == layers


@pytest.mark.parametrize("make", TINY)
@pytest.mark.parametrize("size", [(8, 8), (5, 11), (1, 1), (17, 3)])
def test_features_have_the_images_size(make, size):
    network = make().eval()
    assert isinstance(network, Backbone)
    assert network(torch.rand(2, 3, *size)).shape == (2, network.out_channels, *size)


@pytest.mark.parametrize("make", SMALL)
def test_small_networks_take_odd_sizes(make):
    network = make().eval()
    assert network(torch.rand(1, 3, 45, 61)).shape == (1, network.out_channels, 45, 61)
    assert parameters(network) < 2e6


@pytest.mark.parametrize("make", TINY)
def test_an_odd_image_is_the_image_with_its_border_repeated(make):
    network = make().eval()
    image = torch.rand(1, 3, 13, 21)
    rows, columns = torch.arange(16).clamp(max=12), torch.arange(24).clamp(max=20)
    padded = image[:, :, rows][..., columns]
    torch.testing.assert_close(network(image), network(padded)[..., :13, :21])


@pytest.mark.parametrize("make", TINY)
def test_pixels_stay_in_their_place(make):
    # An image moved by a whole stride moves its features by as much, away from the borders.
    network = make().double().eval()
    s = network.stride
    image = torch.full((1, 3, 30 * s, 30 * s), 0.3, dtype=torch.float64)
    image[..., 14 * s : 15 * s, 14 * s : 15 * s] = torch.rand(3, s, s, dtype=torch.float64)
    moved = image.roll((s, 2 * s), (2, 3))
    features, features_moved = network(image), network(moved)
    inner = (slice(None), slice(None), slice(12 * s, 18 * s), slice(12 * s, 18 * s))
    expected = features.roll((s, 2 * s), (2, 3))[inner]
    assert expected.std() > 1e-6
    torch.testing.assert_close(features_moved[inner], expected)


@pytest.mark.parametrize("make", TINY)
def test_a_feature_is_about_the_pixels_around_it(make):
    # The centre of what it looks at, over random weights; a 3 × 3 kernel cannot up-sample by two
    # without a shift of half a pixel at each resolution.
    strength = torch.zeros(96, 96, dtype=torch.float64)
    for _ in range(4):
        network = make().double().eval()
        image = torch.rand(1, 3, 96, 96, dtype=torch.float64, requires_grad=True)
        network(image)[..., 46, 51].sum().backward()
        strength += image.grad.abs().sum((0, 1))
    position = torch.arange(96.0, dtype=torch.float64)
    row, column = strength.sum(1) @ position, strength.sum(0) @ position
    assert abs(row / strength.sum() - 46) < network.stride / 2
    assert abs(column / strength.sum() - 51) < network.stride / 2


@pytest.mark.parametrize("make", [*TINY, *SMALL])
def test_gradients_reach_every_parameter(make):
    network = make(dropout=0.1)
    network(torch.rand(2, 3, 96, 96)).square().mean().backward()
    for name, parameter in network.named_parameters():
        if ".bias" not in name:
            assert parameter.grad is not None, name
            # skips included: no block of input channels is without a gradient
            assert (parameter.grad != 0).float().mean() > 0.6, name


@pytest.mark.parametrize("make", [*TINY, *SMALL, fc_densenet103])
def test_dropout_is_there_when_asked_for(make):
    def layers(network: nn.Module) -> list[nn.Dropout]:
        return [m for m in network.modules() if isinstance(m, nn.Dropout)]

    assert layers(make(dropout=0.0)) == []
    assert {m.p for m in layers(make(dropout=0.3))} == {0.3}


@pytest.mark.parametrize("make", TINY)
def test_classes_add_a_layer_that_reads_the_features(make):
    network = make(classes=5).eval()
    seen = []
    network.classifier.register_forward_pre_hook(lambda _, inputs: seen.append(inputs[0]))
    out = network(torch.rand(1, 3, 9, 7))
    assert out.shape == (1, 5, 9, 7)
    assert network.out_channels == 5
    assert seen[0].shape == (1, make().out_channels, 9, 7)


def test_normalisation_is_inside_the_network():
    network = UNet((4, 6)).eval()
    image = torch.rand(1, 3, 8, 8)
    features = network(image)
    network.normalise = Normalise(mean=(0.1, 0.2, 0.3), std=(1.0, 2.0, 4.0))
    shift, scale = torch.tensor([0.1, 0.2, 0.3]), torch.tensor([1.0, 2.0, 4.0])
    same = (image - 0.5) / 0.25 * scale.reshape(3, 1, 1) + shift.reshape(3, 1, 1)
    torch.testing.assert_close(network(same), features, atol=1e-5, rtol=1e-4)
    assert "normalise.mean" in network.state_dict()


def test_weights_are_he_uniform():
    weight = fc_densenet103().bottleneck.layers[3][2].weight.detach()
    bound = (6 / (weight.shape[1] * 9)) ** 0.5
    assert weight.abs().max() <= bound
    assert weight.std().item() == pytest.approx(bound / 3**0.5, rel=0.05)


@pytest.mark.parametrize("make", [*SMALL, *TINY])
def test_features_are_counted_by_one_pass(make) -> None:  # type: ignore[no-untyped-def]
    network = make()
    assert feature_channels(network) == network.out_channels
