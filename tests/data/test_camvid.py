"""CamVid from tiny files in SegNet's layout."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import torch
from PIL import Image

from onesigma.data import CamVid
from onesigma.data.camvid import CAMVID_COUNTS

NAMES = ["0001TP_006690", "0006R0_f00930", "0016E5_07959"]


def labels_of(i: int) -> np.ndarray:
    return (np.arange(12, dtype=np.uint8).reshape(3, 4) + i) % 12


def make(root: Path, suffix: str = "png", prefix: str = "", listed: str = "png") -> Path:
    for folder in ("train", "trainannot"):
        (root / folder).mkdir(parents=True)
    lines = []
    for i, name in enumerate(NAMES):
        Image.new("RGB", (4, 3), (50 * i, 0, 0)).save(root / "train" / f"{name}.{suffix}")
        Image.fromarray(labels_of(i)).save(root / "trainannot" / f"{name}.png")
        lines.append(f"{prefix}train/{name}.{listed} {prefix}trainannot/{name}.png\n")
    (root / "train.txt").write_text("".join(lines) + "\n")
    return root


@pytest.fixture(autouse=True)
def counts(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(CAMVID_COUNTS, "train", len(NAMES))


@pytest.mark.parametrize(
    ("suffix", "prefix", "listed"),
    [
        ("png", "/SegNet/CamVid/", "png"),
        ("png", "", "png"),
        ("jpg", "", "jpg"),
        ("jpg", "/SegNet/CamVid/", "png"),
    ],
)
def test_every_published_form_is_read(
    tmp_path: Path, suffix: str, prefix: str, listed: str
) -> None:
    data = CamVid(make(tmp_path, suffix, prefix, listed))
    assert len(data) == 3
    for i, name in enumerate(NAMES):
        sample = data[i]
        assert sample["name"] == name
        wanted = labels_of(i).astype(int)
        np.testing.assert_array_equal(sample["target"].numpy(), np.where(wanted == 11, -1, wanted))
        assert sample["image"].shape == (3, 3, 4)
        assert sample["image"][0].mean() == pytest.approx(50 * i / 255, abs=0.02)
    assert data.classes[8] == "car"
    assert data.palette[8] == (64, 0, 128)
    assert (data.task, data.num_outputs, data.unit) == ("segmentation", 11, "")


def test_the_published_counts_are_known_and_others_warned_of(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.undo()
    assert CAMVID_COUNTS == {"train": 367, "val": 101, "test": 233}
    with pytest.warns(UserWarning, match=r"train\.txt lists 3 pairs.*367"):
        CamVid(make(tmp_path))


def test_excluded_classes_become_void(tmp_path: Path) -> None:
    data = CamVid(make(tmp_path), exclude_classes=("car", "sky"))
    plain = CamVid(tmp_path)
    gone = (plain[0]["target"] == 8) | (plain[0]["target"] == 0)
    assert gone.sum() == 2
    assert torch.equal(data[0]["target"], plain[0]["target"].masked_fill(gone, -1))
    assert torch.equal(data[0]["ood"], gone)
    assert "ood" not in plain[0]
    assert data.num_outputs == 11
    with pytest.raises(ValueError, match=r"giraffe.*choose from"):
        CamVid(tmp_path, exclude_classes=["giraffe"])


def test_sequences_are_held_out_by_their_prefix(tmp_path: Path) -> None:
    root = make(tmp_path)
    only = CamVid(root, only_sequences=["0006R0"])
    rest = CamVid(root, without_sequences=["0006R0"])
    assert [s["name"] for s in only] == NAMES[1:2]
    assert [s["name"] for s in CamVid(root, only_sequences="0006R0")] == NAMES[1:2]
    assert [s["name"] for s in rest] == [NAMES[0], NAMES[2]]
    with pytest.raises(ValueError, match=r"0001TP.*0006R0.*0016E5"):
        CamVid(root, only_sequences=["0099XX"])


def test_sizes_are_changed_together(tmp_path: Path) -> None:
    sample = CamVid(make(tmp_path), size=(6, 8))[0]
    assert sample["image"].shape == (3, 6, 8)
    wanted = np.where(labels_of(0) == 11, -1, labels_of(0).astype(int)).repeat(2, 0).repeat(2, 1)
    np.testing.assert_array_equal(sample["target"].numpy(), wanted)


def test_a_missing_split_lists_what_is_there(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError, match=r"no split 'test' here; .* has train\.txt"):
        CamVid(make(tmp_path), "test")
    with pytest.raises(FileNotFoundError, match="not a folder"):
        CamVid(tmp_path / "elsewhere")


def test_broken_data_is_named(tmp_path: Path) -> None:
    root = make(tmp_path)
    Image.fromarray(np.full((3, 4), 77, np.uint8)).save(root / "trainannot" / f"{NAMES[0]}.png")
    Image.new("RGB", (5, 3)).save(root / "train" / f"{NAMES[1]}.png")
    data = CamVid(root)
    with pytest.raises(ValueError, match=rf"{NAMES[0]}\.png has the label 77"):
        _ = data[0]
    with pytest.raises(ValueError, match=rf"{NAMES[1]}\.png is 3x5"):
        _ = data[1]
    (root / "trainannot" / f"{NAMES[2]}.png").unlink()
    with pytest.raises(FileNotFoundError, match=rf"trainannot/{NAMES[2]}\.png does not exist"):
        CamVid(root)


def test_a_malformed_list_is_named(tmp_path: Path) -> None:
    root = make(tmp_path)
    (root / "train.txt").write_text("train/only_one.png\n" * 3)
    with pytest.raises(ValueError, match=r"train\.txt has the line 'train/only_one\.png'"):
        CamVid(root)
    (root / "train.txt").write_text("\n")
    with pytest.raises(ValueError, match=r"train\.txt is empty"):
        CamVid(root)
