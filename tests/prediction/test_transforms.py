"""Target transforms: round trips, Jacobians by autograd, one constant per output."""

import math

import pytest
import torch

from onesigma.prediction.transforms import Affine, Log

TRANSFORMS = [
    Affine(2.0, 3.0),
    Log(0.3, 0.5),
    Affine(torch.tensor([1.0, -2.0]).reshape(2, 1, 1), torch.tensor([0.5, 4.0]).reshape(2, 1, 1)),
    Log(torch.tensor([1.0, -2.0]).reshape(2, 1, 1), 2.0),
    Log(0.3, 0.5, offset=2.0),
]


@pytest.mark.parametrize("transform", TRANSFORMS)
def test_round_trip_and_jacobian(transform, generator):
    y = torch.rand(3, 2, 4, 5, generator=generator).double().add(0.1).requires_grad_()
    z = transform.to_model(y)
    torch.testing.assert_close(transform.to_unit(z), y)
    slope = torch.autograd.grad(z.sum(), y)[0]
    torch.testing.assert_close(transform.log_abs_det(y), slope.log())


def test_formulas():
    y = torch.full((1, 1, 1, 1), 5.0)
    assert Affine(2.0, 3.0).to_model(y).item() == pytest.approx(1.0)
    assert Log(2.0, 0.5).to_model(y).item() == pytest.approx((math.log(5) - 2) / 0.5)
    assert Log(2.0, 0.5, 3.0).to_model(y).item() == pytest.approx((math.log(8) - 2) / 0.5)


@pytest.mark.parametrize("offset", [-1.0, math.inf, math.nan])
def test_offsets_are_not_negative(offset):
    with pytest.raises(ValueError, match=r"offset=.* at least 0"):
        Log(offset=offset)


@pytest.mark.parametrize("scale", [0.0, -1.0, torch.tensor([1.0, 0.0]).reshape(2, 1, 1)])
def test_scales_are_positive(scale):
    with pytest.raises(ValueError, match="positive scale"):
        Affine(0.0, scale)


def test_dtype_is_kept():
    y = torch.ones(1, 2, 1, 1)
    wide = torch.ones(2, 1, 1, dtype=torch.float64)
    assert Log(wide, wide).to_model(y).dtype == torch.float32
