"""NYUv2 and Make3D from tiny files in their real formats."""

from __future__ import annotations

import sys
from pathlib import Path

import numpy as np
import pytest
import scipy.io
import torch
from PIL import Image

from onesigma.data import Make3D, NYUv2, evaluation_crop


def make_nyu(root: Path, size: tuple[int, int] = (24, 32)) -> Path:
    for folder in ("rgb", "depth"):
        (root / folder).mkdir()
    for i in (1, 2):
        Image.new("RGB", size[::-1], (i * 40, 0, 0)).save(root / "rgb" / f"{i}.jpg")
        stored = np.full(size, 1000 * i + 234, np.uint16)
        stored[0, 0] = 0
        Image.fromarray(stored).save(root / "depth" / f"{i}.png")
    (root / "train.txt").write_text("1\n2\n")
    (root / "val.txt").write_text("2\n")
    return root


def test_nyu_depth_is_in_metres(tmp_path: Path) -> None:
    data = NYUv2(make_nyu(tmp_path))
    assert (len(data), data.task, data.unit, data.num_outputs) == (2, "depth", "m", 1)
    sample = data[1]
    assert sample["name"] == "2"
    assert sample["target"].shape == (1, 24, 32)
    assert sample["target"][0, 5, 5] == pytest.approx(2.234)
    assert sample["target"][0, 0, 0].isnan()
    assert sample["target"].isnan().sum() == 1


def test_nyu_is_scored_inside_the_usual_crop(tmp_path: Path) -> None:
    root = make_nyu(tmp_path)
    inside = NYUv2(root, "val")[0]["target"][0].isfinite()
    # a tenth of rows 22:236 and columns 20:301
    wanted = torch.zeros(24, 32).bool()
    wanted[2:24, 2:30] = True
    assert torch.equal(inside, wanted)
    assert NYUv2(root, "val", crop=False)[0]["target"].isfinite().sum() == 24 * 32 - 1
    assert torch.equal(NYUv2(root, "train", crop=True)[1]["target"][0].isfinite(), wanted)


def test_the_crop_at_half_size_is_the_published_one() -> None:
    crop = evaluation_crop(240, 320)
    rows, cols = crop.any(1).nonzero().flatten(), crop.any(0).nonzero().flatten()
    assert (rows[0], rows[-1] + 1, cols[0], cols[-1] + 1) == (22, 236, 20, 301)
    assert crop.sum() == (236 - 22) * (301 - 20)


def test_nyu_is_resized_without_new_depths(tmp_path: Path) -> None:
    sample = NYUv2(make_nyu(tmp_path), size=(12, 16))[0]
    assert sample["image"].shape == (3, 12, 16)
    values = sample["target"][sample["target"].isfinite()].unique()
    assert values.tolist() == [pytest.approx(1.234)]


def test_folds_of_nyu_cover_train_and_val_once_in_order(tmp_path: Path) -> None:
    (tmp_path / "train.txt").write_text("10\n9\n7\n")
    (tmp_path / "val.txt").write_text("8\n11\n")
    folds = [NYUv2(tmp_path, "val", fold=(k, 2)).names for k in (0, 1)]
    assert folds == [["7", "8"], ["9", "10", "11"]]
    assert [NYUv2(tmp_path, "train", fold=(k, 2)).names for k in (1, 0)] == folds
    with pytest.raises(ValueError, match=r"fold=\(2, 2\) of 5 images"):
        NYUv2(tmp_path, fold=(2, 2))


def test_broken_nyu_is_named(tmp_path: Path) -> None:
    root = make_nyu(tmp_path)
    with pytest.raises(FileNotFoundError, match=r"'test' here; .*train\.txt, val\.txt"):
        NYUv2(root, "test")
    data = NYUv2(root)
    (root / "depth" / "1.png").unlink()
    with pytest.raises(FileNotFoundError, match=r"depth/1\.png does not exist"):
        _ = data[0]
    (root / "rgb" / "2.jpg").unlink()
    with pytest.raises(FileNotFoundError, match=r"rgb/2\.jpg does not exist"):
        _ = data[1]


def make_make3d(root: Path) -> Path:
    for folder in ("Train400Img", "Train400Depth"):
        (root / folder).mkdir()
    name = "10.21op2-p-015t000"
    Image.new("RGB", (34, 46), (0, 90, 0)).save(root / "Train400Img" / f"img-{name}.jpg")
    grid = np.zeros((55, 305, 4))
    grid[..., 3] = np.linspace(1, 81, 55)[:, None]
    path = root / "Train400Depth" / f"depth_sph_corr-{name}.mat"
    scipy.io.savemat(path, {"Position3DGrid": grid})
    return path


def test_make3d_reads_the_lasers_fourth_plane(tmp_path: Path) -> None:
    make_make3d(tmp_path)
    data = Make3D(tmp_path)
    sample = data[0]
    assert (len(data), data.unit, sample["name"]) == (1, "m", "10.21op2-p-015t000")
    assert sample["image"].shape == (3, 46, 34)
    rows = ((np.arange(46) + 0.5) * 55 / 46).astype(int)
    wanted = np.linspace(1, 81, 55)[rows]
    wanted[wanted > 70] = np.nan
    np.testing.assert_allclose(sample["target"][0, :, 3].numpy(), wanted, rtol=1e-5)
    laser = Make3D(tmp_path, size=(55, 305), max_depth=100.0)[0]["target"]
    np.testing.assert_allclose(laser[0, :, 0].numpy(), np.linspace(1, 81, 55), rtol=1e-5)


def test_broken_make3d_is_named(tmp_path: Path) -> None:
    path = make_make3d(tmp_path)
    scipy.io.savemat(path, {"Other": np.zeros(3)})
    with pytest.raises(ValueError, match=r"no Position3DGrid .* \['Other'\]"):
        _ = Make3D(tmp_path)[0]
    path.write_bytes(b"nothing of the kind" * 20)
    with pytest.raises(ValueError, match=r"\.mat cannot be read"):
        _ = Make3D(tmp_path)[0]
    path.unlink()
    with pytest.raises(FileNotFoundError, match="depth_sph_corr-10"):
        _ = Make3D(tmp_path)[0]
    with pytest.raises(FileNotFoundError, match=r"Test134 holds no img-\*\.jpg"):
        Make3D(tmp_path, "test")


def test_make3d_says_what_to_install(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    make_make3d(tmp_path)
    monkeypatch.setitem(sys.modules, "scipy.io", None)
    with pytest.raises(ImportError, match="pip install scipy"):
        Make3D(tmp_path)
