"""Gradients, duplicated and black images, float32, and what is refused."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor

from onesigma import kernels
from onesigma.kernels import KernelState


def noise(n: int, h: int, w: int, seed: int = 3) -> Tensor:
    generator = torch.Generator().manual_seed(seed)
    return torch.rand(n, 3, h, w, generator=generator, dtype=torch.float64)


def blocks(kernel: kernels.Layer, x: Tensor) -> Tensor:
    return kernel.propagate(KernelState.of_images(x)).blocks()


relu_net = kernels.Sequential(
    kernels.Conv((3, 2), 0.4, 0.1, stride=2, padding=1, dilation=1),
    kernels.ReLU(),
    kernels.Conv(2, 0.5),
    kernels.ReLU(),
)
erf_net = kernels.Sequential(
    kernels.Standardise(0.4, 0.3), kernels.Conv(3, 0.4, padding=2, dilation=2), kernels.Erf()
)
norm_net = kernels.Sequential(
    kernels.LocalContrast(3),
    kernels.Residual(kernels.Conv(3, 0.3, 0.1, padding=1)),
    kernels.ChannelNorm(),
    kernels.DenseConcat(kernels.Conv(3, 0.4), kernels.Erf(), share=0.3),
    kernels.BilinearUpsampleApproximation(5, 4),
    kernels.NearestUpsample(2, 7),
)


@pytest.mark.parametrize("kernel", [relu_net, erf_net, norm_net])
def test_gradients_to_images(kernel: kernels.Layer) -> None:
    x = noise(3, 5, 4).requires_grad_()
    assert torch.autograd.gradcheck(lambda y: blocks(kernel, y), x, fast_mode=True)


def test_gradients_to_learned_variances() -> None:
    kernel = kernels.Sequential(
        kernels.Conv(2, 0.4, 0.1), kernels.ReLU(), kernels.Scale(1.5)
    ).double()
    for part in kernel.modules():
        if isinstance(part, kernels.Positive):
            part.learn()
    kernel = kernel.double()
    parameters = list(kernel.parameters())
    assert len(parameters) == 3
    x = noise(3, 3, 3)
    base = blocks(kernel, x).sum()
    base.backward()
    for parameter in parameters:
        with torch.no_grad():
            parameter += 1e-6
            slope = (blocks(kernel, x).sum() - base) / 1e-6
            parameter -= 1e-6
        torch.testing.assert_close(parameter.grad, slope, rtol=1e-4, atol=0)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("layer", [kernels.ReLU(), kernels.Erf()])
def test_duplicates_have_the_covariance_and_gradient_of_one(
    layer: kernels.Layer, dtype: torch.dtype
) -> None:
    x = noise(1, 6, 6).to(dtype).repeat(2, 1, 1, 1).requires_grad_()
    kernel = kernels.Sequential(kernels.Conv(3, 0.3, 0.1), layer, kernels.Conv(3, 0.3), layer)
    K = blocks(kernel, x)
    torch.testing.assert_close(K[0, 1], K[0, 0])
    (cross,) = torch.autograd.grad(K[0, 1].sum(), x, retain_graph=True)
    (alone,) = torch.autograd.grad(K[0, 0].sum(), x)
    # dK(x, x)/dx counts both arguments, dK(x, x')/dx one
    tolerance = (
        {"rtol": 2e-3, "atol": 1e-3} if dtype == torch.float32 else {"rtol": 1e-6, "atol": 1e-6}
    )
    torch.testing.assert_close(2 * cross[0], alone[0], **tolerance)


@pytest.mark.parametrize("layer", [kernels.ReLU(), kernels.Erf()])
def test_black_images_without_bias(layer: kernels.Layer) -> None:
    x = noise(3, 6, 6).float()
    x[0] = 0
    x.requires_grad_()
    K = blocks(kernels.Sequential(kernels.Conv(3, 0.3), layer, kernels.Conv(1, 1.0), layer), x)
    assert (K[0] == 0).all()
    assert (K[1, 2] > 0).all()
    K.sum().backward()
    assert x.grad is not None
    assert x.grad.isfinite().all()


@pytest.mark.parametrize("upsample", ["nearest", "bilinear"])
@pytest.mark.parametrize("make", [kernels.paper_kernel, kernels.dense_paper_kernel])
def test_float32_is_accurate(make: type, upsample: str) -> None:
    x = noise(4, 64, 48)
    x[1] = x[0]
    x[2] = x[0] + 1e-3 * x[3]  # correlation one, and nearly one
    kernel = make(64, 48, upsample=upsample)
    exact = blocks(kernel, x.float().double())
    relative = (blocks(kernel, x.float()).double() / exact - 1).abs().max()
    assert relative < 1e-6


def test_correlations_never_leave_the_unit_interval() -> None:
    x = noise(3, 32, 32).float()
    x[1] = x[0]
    K = blocks(kernels.paper_kernel(32, 32), x)
    variance = torch.einsum("iihw->ihw", K)
    rho = K / (variance[:, None] * variance[None]).sqrt()
    assert rho.max() <= 1 + 1e-6
    assert torch.linalg.eigvalsh(K.double().movedim((0, 1), (-2, -1))).min() > -1e-7


refused = {
    "relu of the image": [kernels.ReLU()],
    "erf of relu": [kernels.Conv(1, 1.0), kernels.ReLU(), kernels.Erf()],
    "x + relu(x)": [kernels.Conv(1, 1.0), kernels.Residual(kernels.ReLU())],
    "x + x": [kernels.Conv(1, 1.0), kernels.Residual()],
    "x + relu(conv(x))": [kernels.Residual(kernels.Conv(1, 1.0), kernels.ReLU())],
    "x + (x + conv(x))": [kernels.Residual(kernels.Residual(kernels.Conv(1, 1.0)))],
    "x + [x, conv(x)]": [
        kernels.Conv(1, 1.0),
        kernels.Residual(kernels.DenseConcat(kernels.Conv(1, 1.0), share=0.5)),
    ],
    "relu of a sum with the image": [kernels.Residual(kernels.Conv(1, 1.0)), kernels.ReLU()],
    "relu of a concatenation": [
        kernels.Conv(1, 1.0),
        kernels.DenseConcat(kernels.Conv(1, 1.0), share=0.5),
        kernels.ReLU(),
    ],
    "branch of another size": [kernels.Residual(kernels.Conv(3, 1.0))],
    "concatenation off centre": [kernels.DenseConcat(kernels.Conv(2, 1.0), share=0.5)],
    "convolution beyond the map": [kernels.Conv(9, 1.0)],
    "standardise later": [kernels.Conv(1, 1.0), kernels.Standardise(0.5, 1.0)],
    "standardise other channels": [kernels.Standardise([0.5, 0.5], 1.0)],
}


@pytest.mark.parametrize("layers", refused.values(), ids=refused.keys())
def test_refusals(layers: list[kernels.Layer]) -> None:
    with pytest.raises(ValueError, match="want"):
        blocks(kernels.Sequential(*layers), noise(2, 5, 5))


accepted = {
    "z + conv(z) after conv": [
        kernels.Conv(1, 1.0),
        kernels.Residual(kernels.Conv(1, 1.0), kernels.Scale(0.5), kernels.ChannelNorm()),
        kernels.ReLU(),
    ],
    "branch with an inner residual": [
        kernels.Residual(kernels.Conv(1, 1.0), kernels.Residual(kernels.Conv(1, 1.0)))
    ],
}


@pytest.mark.parametrize("layers", accepted.values(), ids=accepted.keys())
def test_exact_sums_are_accepted(layers: list[kernels.Layer]) -> None:
    x = noise(2, 5, 5)
    assert blocks(kernels.Sequential(*layers), x).shape == (2, 2, 5, 5)


@pytest.mark.parametrize(
    "make",
    [
        lambda: kernels.Conv(0, 1.0),
        lambda: kernels.Conv(3, -1.0),
        lambda: kernels.Conv(3, 1.0, padding=-1),
        lambda: kernels.Conv(3, 1.0, float("nan")),
        lambda: kernels.Scale(-2.0),
        lambda: kernels.DenseConcat(kernels.Conv(1, 1.0), share=1.0),
        lambda: kernels.NearestUpsample(0, 3),
        lambda: kernels.BilinearUpsampleApproximation(3, 0),
        lambda: kernels.LocalContrast(4),
        lambda: kernels.Standardise(0.5, 0.0),
        lambda: kernels.ChannelNorm(0.0),
        lambda: kernels.paper_kernel(20, 30),
        lambda: KernelState(torch.zeros(4, 2, 2), 2),
        lambda: kernels.Residual(kernels.Conv(1, 1.0)).network(3, 8),
    ],
)
def test_bad_arguments(make: object) -> None:
    with pytest.raises(ValueError, match="want"):
        make()  # type: ignore[operator]


@pytest.mark.parametrize("gap", [1e-2, 1e-4, 1e-5, 1e-6, 3e-7, 6e-8])
def test_relu_in_float32_next_to_correlation_one(gap: float) -> None:
    maps = torch.tensor([1.0, 1.0, 1.0 - gap]).view(3, 1, 1)
    single, double = (
        kernels.ReLU().propagate(KernelState(m, 2, gaussian=True)).maps.double()
        for m in (maps, maps.double())
    )
    torch.testing.assert_close(single, double, rtol=2e-7, atol=0)


def test_relu_at_its_ends() -> None:
    alone = kernels.ReLU().propagate(KernelState(torch.full((1, 2, 3), 0.7), 1, gaussian=True))
    torch.testing.assert_close(alone.maps, torch.full((1, 2, 3), 0.35))
    # ρ = 1 (rounded above it), 0 and −1: E relu(z) relu(z') = K/2, K/2π and 0
    cross = torch.tensor([1 + 1e-6, 0.0, -1 - 1e-6]).view(1, 1, 3)
    maps = torch.cat([torch.ones(2, 1, 3), cross])
    out = kernels.ReLU().propagate(KernelState(maps, 2, gaussian=True)).maps[2, 0]
    torch.testing.assert_close(out, torch.tensor([0.5, 0.5 / torch.pi, 0.0]), rtol=1e-6, atol=1e-7)
