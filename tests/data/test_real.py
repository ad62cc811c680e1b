"""The real data, where ONESIGMA_DATA names the folder that holds it."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
import torch

from onesigma.data import CamVid, NYUv2

DATA = Path(os.environ.get("ONESIGMA_DATA", "/nonexistent"))
real = pytest.mark.skipif(not DATA.is_dir(), reason="ONESIGMA_DATA does not name a data folder")


def folder(name: str) -> Path:
    return next(DATA.glob(f"{name}*"))


@real
def test_camvid_has_the_published_counts_and_class_shares() -> None:
    train, val = (CamVid(folder("camvid"), split) for split in ("train", "val"))
    assert (len(train), len(val)) == (367, 101)
    counts = sum(torch.bincount(train[i]["target"].flatten() + 1, minlength=12) for i in range(367))
    shares = counts / counts.sum()
    wanted = [0.040, 0.169, 0.233, 0.010, 0.317, 0.045, 0.097, 0.012, 0.011, 0.059, 0.006, 0.003]
    torch.testing.assert_close(shares, torch.tensor(wanted), atol=2e-3, rtol=0)


@real
def test_nyu_depth_has_the_published_range_and_baseline() -> None:
    train, val = (NYUv2(folder("nyuv2"), split) for split in ("train", "val"))
    mean = torch.stack([sample["target"] for sample in train]).mean(0)
    error = []
    for sample in val:
        valid = sample["target"].isfinite()
        truth = sample["target"][valid]
        assert truth.min() >= 0.5
        assert truth.max() <= 10.01
        error.append(((mean[valid] - truth).abs() / truth).mean())
    # the mean depth of each pixel scores about 0.33 on test
    assert 0.2 < torch.stack(error).mean() < 0.45
