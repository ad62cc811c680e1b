"""The ready kernels against wide finite networks, and what they promise."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor

from onesigma import kernels
from onesigma.kernels import KernelState


def photographs(size: int) -> Tensor:
    """Two views of one generated scene, and another scene."""
    generator = torch.Generator().manual_seed(4)
    coarse = torch.rand(2, 3, 5, 5, generator=generator)
    fine = 0.2 * torch.rand(2, 3, size + 1, size + 1, generator=generator)
    scenes = torch.nn.functional.interpolate(coarse, (size + 1, size + 1), mode="bicubic") + fine
    return torch.stack([scenes[0, :, 1:, 1:], scenes[0, :, :-1, 1:], scenes[1, :, 1:, 1:]]).clamp(
        0, 1
    )


def blocks(kernel: kernels.Layer, x: Tensor) -> Tensor:
    return kernel.propagate(KernelState.of_images(x)).blocks()


def correlations(kernel: kernels.Layer, x: Tensor) -> Tensor:
    K = blocks(kernel, x)
    variance = torch.einsum("iihw->ihw", K)
    return K / (variance[:, None] * variance[None]).sqrt()


# Same-pixel variances of ReLU networks are unbiased at any width (E relu(z)² = E z² / 2 for every
# symmetric z); covariances, and variances behind erf and ChannelNorm, are off by O(depth / width).
@pytest.mark.parametrize(
    ("kernel", "size", "width", "variance_bias", "cross_bias"),
    [
        (kernels.paper_kernel(22, 22), 22, 48, 0.0, 15.0),
        (kernels.dense_paper_kernel(22, 22), 22, 24, 0.0, 15.0),
        (kernels.scene_kernel(0.7), 18, 48, 6.0, 6.0),
        (kernels.texture_kernel(0.7), 18, 48, 6.0, 6.0),
    ],
    ids=["paper", "dense", "scene", "texture"],
)
def test_monte_carlo(
    kernel: kernels.Layer, size: int, width: int, variance_bias: float, cross_bias: float
) -> None:
    nets = 50
    x = photographs(size)
    generator = torch.Generator().manual_seed(5)
    draws = []
    with torch.no_grad():
        for _ in range(nets):
            z = kernel.network(3, width, generator)(x)[..., ::3, ::3]
            draws.append(torch.einsum("ichw,jchw->ijhw", z, z) / z.shape[1])
    samples = torch.stack(draws)
    error = samples.std(0) / nets**0.5
    wanted = blocks(kernel, x)[..., ::3, ::3]
    bias = torch.where(torch.eye(3).bool(), variance_bias, cross_bias)[:, :, None, None] / width
    scale = torch.einsum("iihw->ihw", wanted).amax(0)
    # the bias of a covariance falls to that of a variance as the correlation goes to one
    slack = 4.5 * error + bias * scale * (1 - wanted / scale).abs().clamp_min(0.05)
    assert ((samples.mean(0) - wanted).abs() <= slack).all()


@pytest.mark.parametrize("make", [kernels.scene_kernel, kernels.texture_kernel])
def test_informative_kernels_have_the_variance_they_are_given(make: type) -> None:
    x = photographs(24)
    x[2] = 0.5  # a flat image has a prior too
    variance = torch.einsum("iihw->ihw", blocks(make(2.5), x))
    torch.testing.assert_close(variance, torch.full_like(variance, 2.5), rtol=2e-3, atol=0)


def test_informative_kernels_tell_scenes_apart() -> None:
    x = photographs(64)
    paper, scene, texture = (
        correlations(kernel, x)
        for kernel in (
            kernels.paper_kernel(64, 64),
            kernels.scene_kernel(),
            kernels.texture_kernel(),
        )
    )
    assert paper[0, 2].median() > 0.98
    assert scene[0, 2].median() < 0.8
    assert texture[0, 2].median() < 0.4
    for rho in (paper, scene, texture):
        assert rho[0, 1].median() > rho[0, 2].median()


def test_presets_keep_the_size_of_the_images() -> None:
    x = photographs(31)[..., :25]
    for kernel in (
        kernels.paper_kernel(31, 25),
        kernels.dense_paper_kernel(31, 25),
        kernels.scene_kernel(),
        kernels.texture_kernel(),
    ):
        assert blocks(kernel, x).shape == (3, 3, 31, 25)


def test_unknown_upsampling_is_refused() -> None:
    with pytest.raises(Exception, match="bicubic"):
        kernels.paper_kernel(32, 32, upsample="bicubic")  # type: ignore[arg-type]
