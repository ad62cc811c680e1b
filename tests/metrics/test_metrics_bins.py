import numpy as np
import pytest
import torch

from onesigma.metrics.bins import SCORE_BINS, ScoreHistogram, score_keys, uniform_bins
from onesigma.metrics.calibration import cumulated, frequency_table, merge_bins


def slow_bin(value, edges):
    """(lo, hi] by comparison, 0 in the first, more than 1 in the last."""
    for k in range(len(edges) - 1):
        if value <= edges[k + 1]:
            return k
    return len(edges) - 2


@pytest.mark.parametrize("bins", [1, 2, 9, 10, 15, 90, 100])
@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_edges_belong_to_the_interval_below(bins, dtype):
    edges = np.arange(bins + 1, dtype=dtype) / dtype(bins)
    up, down = np.nextafter(edges, dtype(2)), np.nextafter(edges, dtype(-1))
    values = np.concatenate([edges, up, down[1:], [dtype(1.00001)]]).astype(dtype)
    expected = [slow_bin(v, edges) for v in values]
    assert uniform_bins(torch.from_numpy(values), bins).tolist() == expected
    assert uniform_bins(torch.from_numpy(edges), bins).tolist() == [0, *range(bins)]


def test_uniform_bins_inside(generator):
    values = torch.rand(20000, generator=generator)
    edges = np.arange(16, dtype=np.float32) / np.float32(15)
    expected = np.searchsorted(edges[1:-1], values.numpy(), side="left")
    assert np.array_equal(uniform_bins(values, 15).numpy(), expected)


def test_score_keys_are_monotone_over_all_magnitudes(generator):
    size = torch.logspace(-37, 37, 5000)
    scores = torch.cat([-size.flip(0), torch.zeros(1), size])
    keys = score_keys(scores)
    assert (keys.diff() >= 0).all()
    assert keys.min() >= 0
    assert keys.max() < SCORE_BINS


def test_score_keys_resolve_a_fifth_of_a_percent_at_any_size():
    for size in (1e-30, 1e-12, 1e-3, 1.0, 1e20):
        pair = torch.tensor([size, size * 1.004, -size, -size * 1.004])
        keys = score_keys(pair)
        assert keys[0] < keys[1]
        assert keys[2] > keys[3]


def test_special_scores():
    keys = score_keys(torch.tensor([-torch.inf, -0.0, 0.0, torch.inf, torch.nan]))
    assert keys[1] == keys[2]
    assert keys[0] < keys[1] < keys[3] < keys[4] < SCORE_BINS


def test_histogram_holds_every_pixel_once(generator):
    scores = torch.randn(5000, generator=generator)
    weight = torch.rand(5000, generator=generator)
    rows = ScoreHistogram.of(scores, weight).rows
    order = scores.argsort()
    assert rows[0].sum() == 5000
    torch.testing.assert_close(rows[1].sum(), weight.double().sum())
    # the first 100 occupied bins hold the smallest scores
    first = int(rows[0].cumsum(0)[100])
    torch.testing.assert_close(rows[1][:101].sum(), weight.double()[order[:first]].sum())


@pytest.mark.parametrize("bins", [9, 10, 15])
def test_merged_table_equals_the_direct_one(generator, bins):
    flat = torch.rand(3, 4000, generator=generator)
    flat[:, :91] = torch.arange(91) / 90
    labels = torch.randint(0, 3, (4000,), generator=generator)
    fine = frequency_table(flat, labels, 90)
    torch.testing.assert_close(merge_bins(fine, bins), frequency_table(flat, labels, bins))
    with pytest.raises(ValueError, match="multiple"):
        merge_bins(fine, 7)


def test_cumulated_against_sorting(generator):
    pixels = torch.randint(0, 4, (50,), generator=generator).double()
    values = torch.rand(50, generator=generator).double() * (pixels > 0)
    each = torch.cat(
        [v / n * torch.ones(int(n)).double() for n, v in zip(pixels, values, strict=True) if n]
    )
    at = torch.arange(0, len(each) + 1).double()
    expected = torch.cat([torch.zeros(1).double(), each.cumsum(0)])
    torch.testing.assert_close(cumulated(pixels[pixels > 0], values[pixels > 0], at), expected)
