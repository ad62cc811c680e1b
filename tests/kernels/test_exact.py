"""Same-pixel propagation against all pixel pairs (O((n h w)²)), quadrature and hand numbers."""

from __future__ import annotations

import math
from itertools import product

import pytest
import torch
from torch import Tensor
from torch.nn.functional import interpolate

from onesigma import kernels
from onesigma.kernels import KernelState


class Twin:
    """K[(i, p), (j, q)] for all pixels p, q: slow, obvious, exact also for bilinear resizing."""

    def __init__(self, x: Tensor) -> None:
        self.n, _, self.h, self.w = x.shape
        flat = x.movedim(1, -1).reshape(-1, x.shape[1])
        self.K = flat @ flat.T / x.shape[1]

    def _linear(self, operators: list[Tensor], h: int, w: int) -> None:
        # K' = Σ_t A_t K A_tᵀ with A_t acting on the pixels of every image
        blocks = [torch.block_diag(*[operator] * self.n) for operator in operators]
        self.K = sum((A @ self.K @ A.T for A in blocks), torch.zeros(()))
        self.h, self.w = h, w

    def conv(self, layer: kernels.Conv) -> None:
        (th, tw), s, p, d = layer.size, layer.stride, layer.padding, layer.dilation
        h = (self.h + 2 * p - d * (th - 1) - 1) // s + 1
        w = (self.w + 2 * p - d * (tw - 1) - 1) // s + 1
        taps = []
        for a, b in product(range(th), range(tw)):
            A = torch.zeros(h * w, self.h * self.w, dtype=torch.float64)
            for y, x in product(range(h), range(w)):
                i, j = y * s + a * d - p, x * s + b * d - p
                if 0 <= i < self.h and 0 <= j < self.w:
                    A[y * w + x, i * self.w + j] = 1
            taps.append(A)
        self._linear(taps, h, w)
        self.K = layer.bias_variance() + layer.weight_variance() * self.K

    def resize(self, size: tuple[int, int], mode: str) -> None:
        basis = torch.eye(self.h * self.w, dtype=torch.float64).view(-1, 1, self.h, self.w)
        corners = False if mode == "bilinear" else None
        A = interpolate(basis, size, mode=mode, align_corners=corners).flatten(1).T
        self._linear([A], *size)

    def relu(self) -> None:
        v = self.K.diagonal()
        scale = (v[:, None] * v[None]).sqrt()
        theta = (self.K / scale).clamp(-1, 1).acos()
        self.K = scale * (theta.sin() + (math.pi - theta) * theta.cos()) / (2 * math.pi)

    def erf(self) -> None:
        v = 1 + 2 * self.K.diagonal()
        self.K = 2 / math.pi * (2 * self.K / (v[:, None] * v[None]).sqrt()).asin()

    def run(self, kernel: kernels.Sequential) -> Twin:
        for layer in kernel:
            match layer:
                case kernels.Conv():
                    self.conv(layer)
                case kernels.ReLU():
                    self.relu()
                case kernels.Erf():
                    self.erf()
                case kernels.NearestUpsample():
                    self.resize(layer.size, "nearest")
                case kernels.BilinearUpsampleApproximation():
                    self.resize(layer.size, "bilinear")
                case _:
                    raise TypeError(layer)
        return self

    def same_pixel(self) -> Tensor:
        P = self.h * self.w
        blocks = self.K.view(self.n, P, self.n, P).diagonal(dim1=1, dim2=3)
        return blocks.reshape(self.n, self.n, self.h, self.w)


def noise(n: int, h: int, w: int, centre: float = 0.0) -> Tensor:
    generator = torch.Generator().manual_seed(2)
    return torch.rand(n, 3, h, w, generator=generator, dtype=torch.float64) - centre


def blocks(kernel: kernels.Layer, x: Tensor) -> Tensor:
    return kernel.propagate(KernelState.of_images(x)).blocks()


small_net = kernels.Sequential(
    kernels.Conv(3, 0.3, 0.02, padding=1, dilation=2),
    kernels.ReLU(),
    kernels.NearestUpsample(9, 11),
    kernels.Conv((2, 3), 0.2, 0.0, stride=2),
    kernels.Erf(),
    kernels.NearestUpsample(3, 4),
    kernels.Conv(1, 0.7, 0.1),
)


def test_same_pixel_propagation_closes() -> None:
    x = noise(3, 7, 8)
    wanted = Twin(x).run(small_net).same_pixel()
    torch.testing.assert_close(blocks(small_net, x), wanted, rtol=1e-12, atol=1e-13)


def test_paper_kernel_nearest_is_exact() -> None:
    x = noise(2, 22, 21)
    kernel = kernels.paper_kernel(22, 21, upsample="nearest")
    wanted = Twin(x).run(kernel).same_pixel()
    torch.testing.assert_close(blocks(kernel, x), wanted, rtol=1e-9, atol=1e-12)


def test_paper_kernel_bilinear_overestimates_a_little() -> None:
    x = noise(2, 22, 21)
    kernel = kernels.paper_kernel(22, 21, upsample="bilinear")
    exact = Twin(x).run(kernel).same_pixel()
    excess = torch.einsum("iihw->ihw", blocks(kernel, x) / exact - 1)
    assert (excess > -1e-12).all()  # Σ a K ≥ Σ a a' K since K(p, p') ≤ (K(p) + K(p')) / 2
    assert 1e-4 < excess.mean() < 0.01


def test_bilinear_approximation_is_the_interpolated_kernel() -> None:
    x = noise(3, 6, 7)
    ours = blocks(kernels.BilinearUpsampleApproximation(9, 4), x)
    wanted = torch.empty(3, 3, 9, 4, dtype=torch.float64)
    for i, j in product(range(3), range(3)):
        kernel = (x[i] * x[j]).mean(0)[None, None]
        wanted[i, j] = interpolate(kernel, (9, 4), mode="bilinear", align_corners=False)
    torch.testing.assert_close(ours, wanted)


@pytest.mark.parametrize("make", [kernels.paper_kernel, kernels.dense_paper_kernel])
def test_paper_fixed_point_is_016(make: type) -> None:
    # hidden 0.8 = 0.08 + 9 · 0.2 · 0.8 / 2, output 0.16 = 0.08 + 0.2 · 0.8 / 2
    x = torch.full((2, 3, 24, 24), 0.8**0.5)
    x[1] *= -1
    start = KernelState.of_images(x)
    first = kernels.Conv(
        1, 0.72 / 0.8, 0.08
    )  # 0.8 → 0.8, so that the chain starts at its fixed point
    inner = kernels.Sequential(first, kernels.ReLU(), *make(24, 24))
    variance = torch.einsum("iihw->ihw", inner.propagate(start).blocks())
    torch.testing.assert_close(variance, torch.full((2, 24, 24), 0.16), rtol=2e-6, atol=0)


def test_paper_layers_and_sizes() -> None:
    layers = list(kernels.paper_kernel(101, 57, upsample="bilinear"))
    kinds = [type(layer) for layer in layers]
    resize = kernels.BilinearUpsampleApproximation
    chain = [kernels.Conv, kernels.ReLU] * 10 + [resize, kernels.Conv, kernels.ReLU] * 4
    assert kinds == [*chain, resize, kernels.Conv]
    sizes = [layer.size for layer in layers if isinstance(layer, resize)]
    assert sizes == [(20, 11), (40, 22), (60, 34), (80, 45), (101, 57)]
    convolutions = [layer for layer in layers if isinstance(layer, kernels.Conv)]
    assert [c.size for c in convolutions] == [(3, 3)] * 14 + [(1, 1)]
    assert {(c.weight_variance(), c.bias_variance()) for c in convolutions} == {(0.2, 0.08)}


def gaussian_expectation(function: object, K: Tensor, nodes: int = 400) -> float:
    """E f(z₁) f(z₂) by the trapezoid rule in polar-free coordinates: z₁ = a u, z₂ = b u + c v."""
    u = torch.linspace(-9, 9, nodes, dtype=torch.float64)
    weight = (-0.5 * u.square()).exp() * (u[1] - u[0]) / math.sqrt(2 * math.pi)
    L = torch.linalg.cholesky(K)
    first = L[0, 0] * u[:, None]
    second = L[1, 0] * u[:, None] + L[1, 1] * u[None]
    return float((weight[:, None] * weight[None] * function(first) * function(second)).sum())  # type: ignore[operator]


@pytest.mark.parametrize(
    ("layer", "function"), [(kernels.ReLU(), torch.relu), (kernels.Erf(), torch.erf)]
)
@pytest.mark.parametrize("rho", [-0.95, -0.3, 0.0, 0.5, 0.9])
def test_nonlinearities_against_quadrature(
    layer: kernels.Layer, function: object, rho: float
) -> None:
    K = torch.tensor(
        [[0.7, rho * math.sqrt(0.7 * 2.0)], [rho * math.sqrt(0.7 * 2.0), 2.0]]
    ).double()
    maps = torch.stack([K[0, 0], K[1, 1], K[0, 1]]).view(3, 1, 1)
    out = layer.propagate(KernelState(maps, 2, gaussian=True)).maps[2].item()
    tolerance = 2e-4 if function is torch.relu else 1e-9  # the kink costs O(step²)
    assert abs(out - gaussian_expectation(function, K)) < tolerance


def test_packing_is_every_pair_in_order() -> None:
    x = noise(4, 2, 3)
    wanted = torch.einsum("ichw,jchw->ijhw", x, x) / 3
    state = KernelState.of_images(x)
    torch.testing.assert_close(state.blocks(), wanted)
    assert state.maps.shape == (10, 2, 3)
    rows, columns = state.pairs()
    torch.testing.assert_close(state.maps[4:], wanted[rows, columns])
    torch.testing.assert_close(KernelState.of_images(x[:1]).blocks(), wanted[:1, :1])


def test_batch_order_does_not_matter() -> None:
    x = noise(4, 21, 21)
    order = torch.tensor([2, 0, 3, 1])
    kernel = kernels.paper_kernel(21, 21)
    torch.testing.assert_close(blocks(kernel, x[order]), blocks(kernel, x)[order][:, order])


def test_dense_concat_crops_around_the_centre() -> None:
    x = noise(2, 6, 7)
    layer = kernels.DenseConcat(kernels.Conv(3, 0.5, 0.1), share=0.25)
    inner = blocks(kernels.Conv(3, 0.5, 0.1), x)
    wanted = 0.75 * blocks(kernels.Scale(1.0), x)[..., 1:-1, 1:-1] + 0.25 * inner
    torch.testing.assert_close(blocks(layer, x), wanted)


def test_local_contrast_is_the_window_loop() -> None:
    x = noise(1, 5, 6)
    half, centred = 1, torch.empty_like(x)
    for y, z in product(range(5), range(6)):
        rows, columns = slice(max(0, y - half), y + half + 1), slice(max(0, z - half), z + half + 1)
        centred[0, :, y, z] = x[0, :, y, z] - x[0, :, rows, columns].mean()
    wanted = torch.empty_like(x)
    for y, z in product(range(5), range(6)):
        rows, columns = slice(max(0, y - half), y + half + 1), slice(max(0, z - half), z + half + 1)
        spread = centred[0, :, rows, columns].square().mean()
        wanted[0, :, y, z] = centred[0, :, y, z] / (spread + 1e-3).sqrt()
    torch.testing.assert_close(kernels.LocalContrast(3).transform(x), wanted)
