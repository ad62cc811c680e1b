"""The declared noise against many draws, and against slow loops."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from onesigma.data import SceneNoise, Scenes

DRAWS = 4000


@pytest.mark.parametrize(("law", "kurtosis"), [("gaussian", 3.0), ("laplace", 6.0)])
def test_depth_noise_has_the_declared_deviation(law: str, kurtosis: float) -> None:
    rng = np.random.default_rng(0)
    noise = SceneNoise(law=law)
    depth = np.array([[2.0, 10.0], [40.0, 80.0]], np.float32)
    image = np.broadcast_to(np.array([[0.0, 1.0], [0.2, 0.6]], np.float32), (3, 2, 2))
    std = noise.depth_std(depth, image)
    draws = np.stack([noise.observe_depth(depth, std, rng) for _ in range(DRAWS)])
    # standard error of a standard deviation: σ √((κ − 1)/4N); of a mean: σ/√N
    error = std * np.sqrt((kurtosis - 1) / (4 * DRAWS))
    assert (np.abs(draws.std(0) - std) < 4 * error).all()
    assert (np.abs(draws.mean(0) - depth) < 4 * std / np.sqrt(DRAWS)).all()
    measured = (((draws - depth) / std) ** 4).mean()
    assert measured == pytest.approx(kurtosis, rel=0.15)


def test_depth_noise_grows_with_distance_and_on_dark_surfaces() -> None:
    noise = SceneNoise(floor=0.1, slope=0.02, dark=2.0)
    depth = np.array([[1.0, 2.0, 2.0]], np.float32)
    grey = np.array([[1.0, 0.5, 0.0]], np.float32)
    std = noise.depth_std(depth, np.stack([grey] * 3))
    # (0.1 + 0.02 z)(1 + 2 (1 − Y)²)
    np.testing.assert_allclose(std, [[0.12, 0.21, 0.42]], rtol=1e-5)


def test_residuals_of_whole_scenes_are_standardised_by_the_declared_noise() -> None:
    residuals = []
    for i in range(8):
        sample = Scenes("depth", size=(48, 64), truth=True)[i]
        valid = sample["target"].isfinite()
        assert torch.equal(valid, sample["noise"].isfinite())
        assert torch.equal(valid, sample["depth"].isfinite())
        residuals.append(((sample["target"] - sample["depth"]) / sample["noise"])[valid])
    pooled = torch.cat(residuals)
    error = (5 / (4 * len(pooled))) ** 0.5
    assert abs(pooled.std() - 1) < 4 * error
    assert abs(pooled.mean()) < 4 / len(pooled) ** 0.5


def test_the_law_of_labels_is_the_slow_sum_over_shifts() -> None:
    rng = np.random.default_rng(1)
    label = rng.integers(-1, 3, (7, 9))
    noise = SceneNoise(border=0.4, width=0.3)
    offsets, probabilities = noise.shifts(7)
    assert offsets.tolist() == [-2, -1, 0, 1, 2]
    np.testing.assert_allclose(probabilities, [0.1, 0.1, 0.6, 0.1, 0.1])
    law = np.zeros((3, 7, 9))
    for i in range(7):
        for j in range(9):
            for down, p in zip(offsets, probabilities, strict=True):
                for right, q in zip(offsets, probabilities, strict=True):
                    seen = label[min(max(i + down, 0), 6), min(max(j + right, 0), 8)]
                    if seen >= 0:
                        law[seen, i, j] += p * q
    np.testing.assert_allclose(noise.label_law(label, 3), law, atol=1e-6)


def test_labels_are_drawn_from_the_declared_law() -> None:
    rng = np.random.default_rng(2)
    label = np.zeros((6, 8), np.int64)
    label[:, 4:], label[3:, :3] = 1, 2
    noise = SceneNoise(border=0.5, width=0.2)
    law = noise.label_law(label, 3)
    counts = np.zeros((3, 6, 8))
    for _ in range(DRAWS):
        counts += noise.observe_label(label, rng) == np.arange(3)[:, None, None]
    # standard error of a share: √(p(1 − p)/N)
    error = np.sqrt(law * (1 - law) / DRAWS) + 1e-6
    assert (np.abs(counts / DRAWS - law) < 4.5 * error).all()


def test_only_borders_are_uncertain_and_labels_sum_to_one() -> None:
    sample = Scenes(size=(48, 64), truth=True)[0]
    law, labels = sample["label_probs"], sample["labels"]
    torch.testing.assert_close(law.sum(0), torch.ones(48, 64))
    inner = labels.unfold(0, 3, 1).unfold(1, 3, 1).flatten(2)
    flat = (inner == inner[..., :1]).all(-1)
    certain = law.amax(0)[1:-1, 1:-1] > 1 - 1e-5
    assert torch.equal(flat, certain)
    assert torch.equal(sample["target"][1:-1, 1:-1][flat], labels[1:-1, 1:-1][flat])
    assert (~flat).any()


def test_void_takes_its_share_of_the_law() -> None:
    sample = Scenes(size=(48, 64), truth=True, odd="objects")[0]
    missing = 1 - sample["label_probs"].sum(0)
    assert missing.max() > 0.99
    # pixels that may be void are the object and its border
    near = torch.nn.functional.max_pool2d(sample["ood"].float()[None], 3, 1, 1)[0].bool()
    assert torch.equal(missing > 1e-5, near)


def test_impossible_noise_is_refused() -> None:
    with pytest.raises(ValueError, match="border"):
        SceneNoise(border=1.5)
    with pytest.raises(ValueError, match="≥ 0"):
        SceneNoise(slope=-0.1)
