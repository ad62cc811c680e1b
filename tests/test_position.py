"""Coordinates against hand-made ones, parts against the whole."""

from __future__ import annotations

from dataclasses import replace

import pytest
import torch

from onesigma.heads import CovarianceHeads, HeadOptions
from onesigma.position import part_of, positions


def test_rows_go_down_and_columns_out_from_the_middle() -> None:
    row, column = positions(torch.zeros(5, 7, 4, 3))[0]
    assert row[:, 0].tolist() == [-0.75, -0.25, 0.25, 0.75]
    torch.testing.assert_close(column[0], torch.tensor([2 / 3, 0.0, 2 / 3]))
    assert torch.equal(row, row[:, :1].expand(4, 3))
    assert torch.equal(column, column[:1].expand(4, 3))


def test_a_part_knows_where_it_is_and_forgets_it_afterwards() -> None:
    image = torch.zeros(1, 3, 9, 14)
    whole, part = positions(image), image[..., 2:7, 5:]
    with part_of(image, 2, 5):
        torch.testing.assert_close(positions(part), whole[..., 2:7, 5:])
        with part_of(part, 1, 0):
            inner = positions(part[..., 1:, :])
    torch.testing.assert_close(inner, positions(part)[..., 1:, :])
    with pytest.raises(KeyboardInterrupt), part_of(image, 2, 5):
        raise KeyboardInterrupt
    assert torch.equal(positions(image), whole)


def test_position_changes_log_scale_and_nothing_else() -> None:
    # bounds so wide that log σ is not bent
    wide = HeadOptions(scale_window=3, log_scale_bounds=(-1e3, 1e3))
    torch.manual_seed(0)
    with_it = CovarianceHeads(4, 2, 3, 1e-3, replace(wide, scale_position=True))
    without = CovarianceHeads(4, 2, 3, 1e-3, wide)
    assert with_it.scale_position is not None
    torch.nn.init.normal_(with_it.scale_position.slopes)
    without.load_state_dict(with_it.state_dict(), strict=False)
    features = torch.randn(2, 4, 6, 8)
    assert torch.equal(with_it.factors(features), without.factors(features))
    assert torch.equal(with_it.diagonal(features), without.diagonal(features))
    added = with_it.scale(features) - without.scale(features)
    wanted = torch.einsum("sk,nkhw->nshw", with_it.scale_position.slopes, positions(features))
    torch.testing.assert_close(added, wanted.expand_as(added), rtol=0, atol=1e-3)


def test_it_starts_at_nothing_and_learns() -> None:
    torch.manual_seed(0)
    made = CovarianceHeads(4, 1, 3, 1e-3, HeadOptions(scale_position=True))
    assert made.scale_position is not None
    assert made.scale_position.slopes.abs().max() == 0
    made.scale(torch.randn(2, 4, 6, 8)).square().sum().backward()
    assert made.scale_position.slopes.grad is not None
    assert made.scale_position.slopes.grad.abs().min() > 0


def test_no_scale_has_no_position() -> None:
    for scale in ("none", "image"):
        with pytest.raises(ValueError, match=rf'scale_position is added.*"{scale}"'):
            HeadOptions(scale=scale, scale_position=True)  # type: ignore[arg-type]
