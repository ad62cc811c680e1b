"""Every layer against wide finite networks, by Monte Carlo with its standard error."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor

from onesigma import kernels
from onesigma.kernels import KernelState


def images(n: int = 3, k: int = 3, h: int = 6, w: int = 7, seed: int = 0) -> Tensor:
    generator = torch.Generator().manual_seed(seed)
    x = torch.rand(n, k, h, w, generator=generator, dtype=torch.float64)
    x[1] = 0.8 * x[0] + 0.2 * x[1]  # some pairs alike, some not
    return x


def network_moments(
    layer: kernels.Layer, x: Tensor, width: int, nets: int
) -> tuple[Tensor, Tensor]:
    """Mean over networks of mean over channels of z_i z_j, and its standard error."""
    generator = torch.Generator().manual_seed(1)
    draws = []
    for _ in range(nets):
        with torch.no_grad():
            z = layer.network(x.shape[1], width, generator).double()(x)
        draws.append(torch.einsum("ichw,jchw->ijhw", z, z) / z.shape[1])
    stacked = torch.stack(draws)
    return stacked.mean(0), stacked.std(0) / nets**0.5


def blocks(layer: kernels.Layer, x: Tensor) -> Tensor:
    return layer.propagate(KernelState.of_images(x)).blocks()


conv = kernels.Conv(3, 0.3, 0.1)
wide = kernels.Conv(1, 1.0, 0.1)


class LayerContract:
    """Four lines make a test: a kernel whose activations are Gaussian after one layer of weights.

    Then the expectation is exact at any width; `bias` allows for O(1/width) otherwise.
    """

    kernel: kernels.Layer
    k = 3
    width = 512
    nets = 50
    bias = 0.0

    def test_monte_carlo(self) -> None:
        x = images(k=self.k)
        mean, error = network_moments(self.kernel, x, self.width, self.nets)
        wanted = blocks(self.kernel, x)
        assert mean.shape == wanted.shape
        slack = 4.5 * error + self.bias / self.width * wanted.abs() + 1e-12
        assert ((mean - wanted).abs() <= slack).all()
        assert (error < 0.1 * wanted.abs().max()).all()  # the test can see something


class TestConv(LayerContract):
    kernel = conv


class TestConvEverything(LayerContract):
    kernel = kernels.Conv((3, 2), 0.3, 0.1, stride=2, padding=2, dilation=2)


class TestReLU(LayerContract):
    kernel = kernels.Sequential(conv, kernels.ReLU())


class TestErf(LayerContract):
    kernel = kernels.Sequential(conv, kernels.Erf())


class TestNearestUp(LayerContract):
    kernel = kernels.Sequential(conv, kernels.NearestUpsample(9, 8), kernels.ReLU())


class TestNearestDown(LayerContract):
    kernel = kernels.Sequential(conv, kernels.ReLU(), kernels.NearestUpsample(3, 2))


class TestScale(LayerContract):
    kernel = kernels.Sequential(conv, kernels.Scale(2.5), kernels.Erf())


class TestResidual(LayerContract):
    kernel = kernels.Sequential(
        wide, kernels.Residual(kernels.Conv(3, 0.2, 0.05, padding=1)), kernels.ReLU()
    )
    width = 192
    bias = 3.0  # relu of a sum that is Gaussian only at infinite width: two layers of weights


class TestResidualOnImage(LayerContract):
    kernel = kernels.Residual(kernels.Conv(3, 0.2, padding=1))
    k = width = 192


class TestResidualOfNonlinearSkip(LayerContract):
    kernel = kernels.Sequential(wide, kernels.ReLU(), kernels.Residual(kernels.Conv(1, 0.7, 0.1)))
    width = 192


class TestDenseConcat(LayerContract):
    kernel = kernels.Sequential(wide, kernels.ReLU(), kernels.DenseConcat(conv, share=0.25))
    width = 192


class TestDenseConcatWithNonlinearity(LayerContract):
    kernel = kernels.Sequential(
        wide, kernels.ReLU(), kernels.DenseConcat(conv, kernels.ReLU(), share=0.5)
    )
    width = 192
    bias = 3.0


class TestChannelNorm(LayerContract):
    kernel = kernels.Sequential(conv, kernels.ChannelNorm())
    bias = 3.0  # E z_i z_j / (|z_i| |z_j|) = ρ (1 − (1 − ρ²) / 2 width + ...)


class TestStandardise(LayerContract):
    kernel = kernels.Sequential(kernels.Standardise([0.4, 0.5, 0.3], 0.3), conv, kernels.ReLU())


class TestLocalContrast(LayerContract):
    kernel = kernels.Sequential(kernels.LocalContrast(3), conv, kernels.Erf())


def test_monte_carlo_is_sharp() -> None:
    """The contract fails for a kernel that is 6 % off; exact tests see the rest."""
    x = images()
    mean, error = network_moments(TestReLU.kernel, x, 512, 50)
    off = 1.06 * blocks(TestReLU.kernel, x)
    assert not ((mean - off).abs() <= 4.5 * error).all()


def test_bilinear_network_has_less_variance_than_its_approximation() -> None:
    x = images() - 0.5  # centred white noise: neighbours are uncorrelated, the worst case
    kernel = kernels.Sequential(kernels.Conv(1, 1.0), kernels.BilinearUpsampleApproximation(11, 13))
    mean, error = network_moments(kernel, x, 512, 50)
    approximate = blocks(kernel, x)
    variance = torch.einsum("iihw->ihw", mean - approximate)
    assert (variance <= 4.5 * torch.einsum("iihw->ihw", error)).all()
    assert variance.mean() < -0.1 * approximate.mean()


def test_networks_follow_their_generator() -> None:
    kernel = kernels.Sequential(conv, kernels.ReLU())
    x = images()
    torch.manual_seed(3)
    state = torch.get_rng_state()
    first, second, other = (
        kernel.network(3, 8, torch.Generator().manual_seed(seed)).double()(x) for seed in (5, 5, 6)
    )
    assert torch.equal(first, second)
    assert not torch.equal(first, other)
    assert torch.equal(torch.get_rng_state(), state)


def test_channels_say_what_networks_give() -> None:
    kernel = kernels.Sequential(
        conv, kernels.ReLU(), kernels.DenseConcat(wide, share=1 / 3), kernels.Scale(2.0)
    )
    assert kernel.network(3, 10)(images().float()).shape[1] == kernel.channels(3, 10) == 15


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_dtype_is_kept(dtype: torch.dtype) -> None:
    kernel = kernels.Sequential(conv, kernels.Erf(), kernels.Scale(2.0), kernels.ChannelNorm())
    assert blocks(kernel, images().to(dtype)).dtype == dtype
