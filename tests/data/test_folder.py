"""Any folder of pairs, its splits and its errors."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import torch
from PIL import Image

from onesigma.data import Folder, TargetSpec
from onesigma.data.base import Split
from onesigma.data.folder import _palette, split_names


def make(root: Path, count: int = 10, depth: bool = False) -> Path:
    for folder in ("images", "targets"):
        (root / folder).mkdir()
    for i in range(count):
        Image.new("RGB", (4, 3), (i, i, i)).save(root / "images" / f"im{i:02d}.png")
        if depth:
            np.save(root / "targets" / f"im{i:02d}.npy", np.full((3, 4), 100.0 * (i + 1)))
        else:
            labels = np.full((3, 4), i % 3, np.uint8)
            labels[0, 0] = 255
            Image.fromarray(labels).save(root / "targets" / f"im{i:02d}.png")
    (root / "images" / "Thumbs.db").write_text("not an image")
    (root / "images" / "._im00.png").write_text("what macOS leaves beside a file")
    return root


def names(data: Folder) -> list[str]:
    return [sample["name"] for sample in data]


def test_labels_and_classes(tmp_path: Path) -> None:
    data = Folder(make(tmp_path), "segmentation", classes=("road", "grass", "sky"))
    assert (data.classes, data.num_outputs, data.task) == (
        ("road", "grass", "sky"),
        3,
        "segmentation",
    )
    assert len(set(data.palette)) == 3
    sample = data[0]
    wanted = torch.full((3, 4), int(sample["name"][2:]) % 3)
    wanted[0, 0] = -1
    assert torch.equal(sample["target"], wanted)
    assert Folder(tmp_path, "segmentation", classes=4).classes == ("0", "1", "2", "3")


def test_depth_in_centimetres(tmp_path: Path) -> None:
    data = Folder(make(tmp_path, depth=True), "depth", unit_scale=0.01)
    assert (data.unit, data.num_outputs, data.classes) == ("m", 1, ())
    for sample in data:
        assert (sample["target"] == int(sample["name"][2:]) + 1).all()
        assert sample["target"].shape == (1, 3, 4)
    assert data[0]["image"].shape == (3, 3, 4)
    assert Folder(tmp_path, "depth", size=(6, 8))[0]["target"].shape == (1, 6, 8)


def test_fractions_divide_the_names(tmp_path: Path) -> None:
    root = make(tmp_path)
    splits = [Folder(root, "segmentation", split, classes=3) for split in ("train", "val", "test")]
    assert [len(split) for split in splits] == [8, 1, 1]
    together = sorted(name for split in splits for name in names(split))
    assert together == [f"im{i:02d}" for i in range(10)]
    again = Folder(root, "segmentation", "train", classes=3)
    assert names(again) == names(splits[0])
    others = {tuple(names(Folder(root, "segmentation", classes=3, seed=s))) for s in range(8)}
    assert len(others) > 1


def test_one_file_less_moves_only_images_at_the_borders() -> None:
    everything = [f"im{i:03d}" for i in range(200)]
    splits: tuple[Split, ...] = ("train", "val", "test")

    def split_of(known: list[str]) -> dict[str, str]:
        return {x: s for s in splits for x in split_names(known, s, (0.8, 0.1, 0.1), 0)}

    before = split_of(everything)
    for gone in everything[::20]:
        after = split_of([name for name in everything if name != gone])
        assert sum(before[name] != split for name, split in after.items()) <= 2


def test_colours_of_classes_differ_clearly() -> None:
    for count in (2, 9, 16):
        colours = np.array(_palette(count), float)
        for i, colour in enumerate(colours):
            assert (np.linalg.norm(colours[:i] - colour, axis=1) >= 60).all()


def test_fractions_must_be_shares() -> None:
    with pytest.raises(ValueError, match="sum to 1"):
        split_names(["a"], "train", (0.5, 0.1, 0.1), 0)
    with pytest.raises(ValueError, match="'test' is empty"):
        split_names(["a", "b"], "test", (0.9, 0.1, 0.0), 0)


def test_lists_come_before_fractions(tmp_path: Path) -> None:
    root = make(tmp_path)
    (root / "train.txt").write_text("im03\nimages/im01.png\n")
    (root / "val.txt").write_text("im02.png\n")
    assert names(Folder(root, "segmentation", classes=3)) == ["im03", "im01"]
    assert names(Folder(root, "segmentation", "val", classes=3)) == ["im02"]
    with pytest.raises(FileNotFoundError, match=r"no split 'test' here; .*train\.txt, val\.txt"):
        Folder(root, "segmentation", "test", classes=3)
    (root / "val.txt").write_text("im77\n")
    with pytest.raises(FileNotFoundError, match=r"val\.txt names 'im77'"):
        Folder(root, "segmentation", "val", classes=3)


@pytest.mark.parametrize(("folder", "partner"), [("images", "targets"), ("targets", "images")])
def test_a_missing_partner_is_named(tmp_path: Path, folder: str, partner: str) -> None:
    root = make(tmp_path)
    (root / folder / "im04.png").unlink()
    with pytest.raises(FileNotFoundError, match=rf"{partner}/im04\.png has no partner .*{folder}"):
        Folder(root, "segmentation", classes=3)


def test_broken_pairs_are_named(tmp_path: Path) -> None:
    root = make(tmp_path)
    (root / "train.txt").write_text("im00\nim01\nim02\n")
    Image.fromarray(np.full((3, 4), 9, np.uint8)).save(root / "targets" / "im00.png")
    Image.new("RGB", (9, 3)).save(root / "images" / "im01.png")
    (root / "images" / "im02.png").write_bytes(b"?")
    data = Folder(root, "segmentation", classes=3)
    for i, message in enumerate(["label 9", "is 3x9", "cannot be read"]):
        with pytest.raises(ValueError, match=rf"im0{i}\.png .*{message}"):
            _ = data[i]


def test_missing_folders_and_double_names_are_named(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError, match="images is not a folder"):
        Folder(tmp_path, "depth")
    (tmp_path / "images" / "sub").mkdir(parents=True)
    with pytest.raises(FileNotFoundError, match=r"images holds no images \(\.png.*sub-folders"):
        Folder(tmp_path, "depth")
    (tmp_path / "mine").mkdir()
    root = make(tmp_path / "mine")
    Image.new("RGB", (4, 3)).save(root / "images" / "im00.jpg")
    with pytest.raises(ValueError, match=r"im00\.jpg and .*im00\.png have the same name"):
        Folder(root, "segmentation", classes=3)


def test_a_task_needs_its_classes(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="segmentation got 0 classes"):
        Folder(make(tmp_path), "segmentation")
    with pytest.raises(ValueError, match="depth got 2 classes"):
        Folder(tmp_path, "depth", classes=2)
    with pytest.raises(ValueError, match="'a' is named twice"):
        Folder(tmp_path, "segmentation", classes=("a", "b", "a"))
    with pytest.raises(ValueError, match="2 classes got 1 colours"):
        TargetSpec("segmentation", ("a", "b"), ((0, 0, 0),))
