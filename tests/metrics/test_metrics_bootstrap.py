import numpy as np
import pytest
import torch

from onesigma.metrics import (
    bootstrap_intervals,
    format_comparison,
    format_rows,
    paired_bootstrap,
)
from onesigma.metrics.bootstrap import pooled_value, resample_weights


def records(values, pixels=None, names=None):
    pixels = np.ones(len(values)) if pixels is None else pixels
    names = names or [str(i) for i in range(len(values))]
    return [
        {"name": n, "x": float(v), "pixels": int(p)}
        for n, v, p in zip(names, values, pixels, strict=True)
    ]


def run(values, **kwargs):
    """The part of a metrics.json that a comparison reads."""
    rows = records(values, **kwargs)
    return {"per_image": rows, "intervals": {"x": {"over": "images"}}}


@pytest.fixture
def rng():
    return np.random.default_rng(0)


def slow_statistic(rule, values, pixels):
    if rule == "images":
        return values.mean()
    if rule == "pixels":
        return np.average(values, weights=pixels)
    return np.average(values**2, weights=pixels) ** 0.5


@pytest.mark.parametrize("rule", ["images", "pixels", "squares"])
def test_intervals_against_a_loop(rng, rule):
    values, pixels = rng.gamma(2, size=40), rng.integers(1, 100, 40)
    found = bootstrap_intervals(records(values, pixels), {"x": rule}, resamples=4000)["x"]
    assert found["value"] == pytest.approx(slow_statistic(rule, values, pixels))
    draws = []
    for _ in range(4000):
        chosen = rng.integers(0, 40, 40)
        draws.append(slow_statistic(rule, values[chosen], pixels[chosen]))
    low, high = np.quantile(draws, [0.025, 0.975])
    # the error of a 2.5 % quantile of 4000 draws is about 0.07 standard deviations
    assert found["low"] == pytest.approx(low, abs=0.3 * np.std(draws))
    assert found["high"] == pytest.approx(high, abs=0.3 * np.std(draws))


def test_miou_is_pooled_by_class():
    rows = [
        {"name": "a", "pixels": 4, "intersection": [1, 0, 0], "union": [4, 0, 0]},
        {"name": "b", "pixels": 4, "intersection": [3, 1, 0], "union": [4, 2, 0]},
    ]
    found = bootstrap_intervals(rows, {"miou": "classes"})["miou"]
    assert found["value"] == pytest.approx((4 / 8 + 1 / 2) / 2)
    # sets of the first image alone have IoU 1/4, of the second (3/4 + 1/2)/2
    assert found["low"] == pytest.approx(0.25)
    assert found["high"] == pytest.approx(0.625)


def test_miou_of_drawn_sets_against_a_loop(rng):
    union = rng.integers(0, 50, (6, 3))
    both = (union * rng.random((6, 3))).astype(int)
    rows = [
        {"intersection": i, "union": u} for i, u in zip(both.tolist(), union.tolist(), strict=True)
    ]
    weights = resample_weights(6, 20)
    found = pooled_value(rows, "miou", "classes", weights)
    for row, value in zip(weights.int().tolist(), found.tolist(), strict=True):
        drawn = [i for i, times in enumerate(row) for _ in range(times)]
        expected = (both[drawn].sum(0) / union[drawn].sum(0)).mean()
        assert value == pytest.approx(expected)


def test_intervals_hold_the_truth_as_often_as_they_say(rng):
    hits = 0
    for i in range(150):
        generator = torch.Generator().manual_seed(i)
        found = bootstrap_intervals(
            records(rng.normal(size=50)), {"x": "images"}, 400, 0.9, generator
        )["x"]
        hits += found["low"] < 0 < found["high"]
    # 90 % promised, a few percent less is the percentile bootstrap's own bias at n = 50
    assert 0.83 < hits / 150 < 0.95


def test_undefined_and_infinite_images():
    rows = records([1.0, 2.0, 3.0])
    rows[1]["x"] = None
    found = bootstrap_intervals(rows, {"x": "images"})["x"]
    assert found["value"] == pytest.approx(2.0)
    assert found["low"] == pytest.approx(1.0)
    rows[1]["x"] = "inf"
    found = bootstrap_intervals(rows, {"x": "images"})["x"]
    assert found["value"] == float("inf")
    assert found["low"] < 3
    assert found["high"] == float("inf")
    one = bootstrap_intervals(rows[:1], {"x": "images"})["x"]
    assert one["value"] == 1.0
    assert np.isnan(one["low"])


@pytest.mark.parametrize("rule", ["pixels", "squares"])
def test_an_image_that_spoils_the_mean_over_pixels_spoils_its_interval(rule):
    rows = records([1.0, 2.0, 3.0, np.nan], [5, 5, 5, 0])
    assert bootstrap_intervals(rows, {"x": rule})["x"]["value"] < 3
    rows[3]["pixels"] = 1
    assert np.isnan(bootstrap_intervals(rows, {"x": rule})["x"]["low"])
    del rows[3]["x"]  # it was not asked
    assert bootstrap_intervals(rows, {"x": rule})["x"]["value"] < 3


def test_weights_are_drawn_with_replacement():
    weights = resample_weights(30, 500)
    assert (weights.sum(1) == 30).all()
    # an image is missing from a set with probability (1 - 1/30)^30
    missing = (weights == 0).double().mean().item()
    assert missing == pytest.approx((1 - 1 / 30) ** 30, abs=0.01)
    assert torch.equal(weights, resample_weights(30, 500))
    other = resample_weights(30, 500, torch.Generator().manual_seed(1))
    assert not torch.equal(weights, other)


def test_pairing_finds_what_unpaired_intervals_hide(rng):
    # images differ by far more than the runs do
    base = rng.normal(scale=5, size=60)
    better = base - 0.3 + 0.1 * rng.normal(size=60)
    order = rng.permutation(60)
    second = run(better[order], names=[str(i) for i in order])
    found = paired_bootstrap(run(base), second)["x"]
    assert found["difference"] == pytest.approx((better - base).mean())
    assert found["excludes_zero"]
    assert -0.4 < found["low"] < found["high"] < -0.2
    noise = paired_bootstrap(run(base), run(rng.permutation(base)))["x"]
    assert noise["difference"] == pytest.approx(0, abs=1e-9)
    assert not noise["excludes_zero"]


def test_differences_exclude_zero_as_rarely_as_they_should(rng):
    marked = 0
    for i in range(150):
        first, second = run(rng.normal(size=40)), run(rng.normal(size=40))
        generator = torch.Generator().manual_seed(i)
        marked += paired_bootstrap(first, second, 300, generator=generator)["x"]["excludes_zero"]
    assert 0.0 < marked / 150 < 0.12


def test_seeds_count_by_their_mean(rng):
    seeds = [rng.normal(size=30) for _ in range(3)]
    other = rng.normal(size=30)
    found = paired_bootstrap(run(other), [run(x) for x in seeds])["x"]
    once = paired_bootstrap(run(other), run(np.mean(seeds, axis=0)))["x"]
    assert found == pytest.approx(once)
    both = paired_bootstrap([run(other), run(seeds[0])], [run(x) for x in seeds])["x"]
    assert both["first"] == pytest.approx((other.mean() + seeds[0].mean()) / 2)
    with pytest.raises(ValueError, match="same images"):
        paired_bootstrap(run([1, 2]), [run([1, 2]), run([1, 2, 3])])


def test_unpaired_images_are_an_error():
    with pytest.raises(ValueError, match="same images"):
        paired_bootstrap(run([1, 2]), run([1, 2], names=["0", "5"]))


def test_comparison_table(rng):
    base = rng.normal(size=60)
    lines = format_comparison({"old": run(base), "new": run(base - 1), "same": run(base)})
    assert len(lines) == 3
    assert "new - old" in lines[0]
    assert lines[2].count("*") == 1
    assert "-1 " in lines[2]
    with pytest.raises(ValueError, match="two or more"):
        format_comparison({"old": run(base)})


def test_rows_are_aligned():
    lines = format_rows([("name", "a"), ("x", "1.5"), ("longer", "10")])
    assert lines == ["name      a", "-----------", "x       1.5", "longer   10"]
