"""The elementary special functions against scipy and mpmath, in both precisions."""

import math

import numpy as np
import pytest
import torch
from scipy import special

from onesigma.prediction.special import (
    gauss_legendre,
    log_ndtr,
    log_tilted_ndtr,
    mills,
    ndtr,
    ndtri,
    owens_t,
)

PRECISIONS = [(torch.float32, 2.5e-7), (torch.float64, 4e-15)]


@pytest.mark.parametrize(("dtype", "tolerance"), PRECISIONS)
def test_mills(dtype, tolerance):
    x = torch.cat(
        [torch.linspace(0, 50, 5001, dtype=dtype), torch.logspace(2, 18, 50, dtype=dtype)]
    )
    exact = math.sqrt(math.pi / 2) * special.erfcx(x.double().numpy() / math.sqrt(2))
    np.testing.assert_allclose(mills(x).double(), exact, rtol=tolerance)


@pytest.mark.parametrize(("dtype", "tolerance"), PRECISIONS)
def test_normal_cdf(dtype, tolerance):
    x = torch.linspace(-12, 8, 2001, dtype=dtype)
    wide = x.double().numpy()
    # exp(-x²/2) has x² times the rounding error
    np.testing.assert_allclose(ndtr(x).double(), special.ndtr(wide), rtol=40 * tolerance)
    np.testing.assert_allclose(
        log_ndtr(x).double(), special.log_ndtr(wide), rtol=20 * tolerance, atol=tolerance
    )
    assert log_ndtr(torch.tensor([-1e4], dtype=dtype)).item() == pytest.approx(
        float(special.log_ndtr(-1e4)), rel=2 * tolerance
    )


@pytest.mark.parametrize(("dtype", "tolerance"), PRECISIONS)
def test_normal_quantile(dtype, tolerance):
    u = torch.cat(
        [torch.logspace(-30, -1, 300, dtype=dtype), torch.linspace(0.1, 0.999, 300, dtype=dtype)]
    )
    exact = special.ndtri(u.double().numpy())
    np.testing.assert_allclose(ndtri(u).double(), exact, rtol=4 * tolerance, atol=4 * tolerance)


@pytest.mark.parametrize(("dtype", "tolerance"), PRECISIONS)
def test_owens_t(dtype, tolerance):
    h = torch.cat([torch.zeros(1, dtype=dtype), torch.logspace(-4, 2, 60, dtype=dtype)])[:, None]
    a = torch.logspace(-4, 5, 60, dtype=dtype)
    h, a = torch.broadcast_tensors(h, torch.cat([-a, a]))
    exact = special.owens_t(h.double().numpy(), a.double().numpy())
    np.testing.assert_allclose(owens_t(h, a).double(), exact, rtol=0, atol=tolerance)


@pytest.mark.parametrize(("dtype", "tolerance"), PRECISIONS)
def test_tilted_normal_cdf(dtype, tolerance):
    k = torch.logspace(-6, 4, 40, dtype=dtype)[:, None]
    t = torch.cat([-torch.logspace(-3, 2, 40, dtype=dtype), torch.logspace(-3, 2, 40, dtype=dtype)])
    k, t = (x.contiguous() for x in torch.broadcast_tensors(k, t))
    wide_k, wide_t = k.double().numpy(), t.double().numpy()
    gap = wide_t - wide_k
    # for t ≤ k the definition overflows: φ(t) R(k - t) by scipy's erfcx
    low = np.log(0.5 * special.erfcx(np.maximum(-gap, 0) / math.sqrt(2))) - wide_t**2 / 2
    high = wide_k * (wide_k / 2 - wide_t) + special.log_ndtr(np.maximum(gap, 0))
    exact = np.where(gap <= 0, low, high)
    np.testing.assert_allclose(
        log_tilted_ndtr(k, t).double(), exact, rtol=5 * tolerance, atol=5 * tolerance
    )


@pytest.mark.parametrize("num", [1, 2, 8, 20, 60])
def test_gauss_legendre(num):
    nodes, weights = np.polynomial.legendre.leggauss(num)
    ours = np.array(sorted(gauss_legendre(num)))
    np.testing.assert_allclose(ours[:, 0], (1 + nodes) / 2, atol=1e-14)
    np.testing.assert_allclose(ours[:, 1], weights / 2, atol=1e-14)
