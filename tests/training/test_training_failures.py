"""What goes wrong is said at once, and what was good is kept."""

from __future__ import annotations

import os
import shutil
import signal
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file
from tiny import tiny_recipe

from onesigma.data import Scenes
from onesigma.training import NonFiniteLossError, RecipeError, RunFolderError, load, train
from onesigma.training.checkpoint import (
    Checkpoint,
    Place,
    load_checkpoint,
    newest_checkpoint,
    save_checkpoint,
)
from onesigma.training.locate import describe_non_finite
from onesigma.training.method import Batch, Terms


@pytest.fixture
def nan_at_third_scene(monkeypatch: pytest.MonkeyPatch) -> None:
    """A pixel of one training image is not a number."""
    whole = Scenes.__getitem__

    def broken(self: Scenes, index: int) -> Any:
        sample = whole(self, index)
        if self.split == "train" and index == 2:
            sample["image"][1, 5, 7] = torch.nan
        return sample

    monkeypatch.setattr(Scenes, "__getitem__", broken)


@pytest.mark.usefixtures("nan_at_third_scene")
@pytest.mark.parametrize("method", ["functional_vi", "deterministic"])
def test_a_loss_that_is_not_finite_names_term_image_and_pixel(tmp_path: Path, method: str) -> None:
    recipe = tiny_recipe(
        method__name=method,
        trainer__checkpoint_steps=1,
        stages=[{"epochs": 2, "batch": 1, "augment": {"flip": 0.0}}],
    )
    listening = signal.getsignal(signal.SIGINT)
    with pytest.raises(NonFiniteLossError) as caught:
        train(recipe, tmp_path / "run")
    assert signal.getsignal(signal.SIGINT) is listening
    message = str(caught.value)
    assert "term fit" in message
    assert "train-clean-0-000002" in message
    assert "row 5, column 7" in message
    kept = newest_checkpoint(tmp_path / "run" / "checkpoints")
    assert kept is not None
    assert all(t.isfinite().all() for t in kept.weights.values() if t.is_floating_point())
    assert not (tmp_path / "run" / "weights.safetensors").exists()


def test_the_broken_term_and_pixel_are_found_in_maps() -> None:
    batch = Batch(torch.rand(2, 3, 4, 4), torch.zeros(2, 4, 4), torch.ones(2, 4, 4).bool(), "ab")
    fit, kl, zero = torch.zeros(2, 4, 4), torch.zeros(3, 4, 4), torch.zeros(())
    fit[1, 2, 3] = torch.inf
    text = describe_non_finite(batch, Terms(zero, zero, zero, {"fit": fit, "kl": kl}))
    assert "term fit is inf in the image 'b' at row 2, column 3" in text
    kl[2, 0, 1] = torch.nan
    text = describe_non_finite(batch, Terms(zero, zero, zero, {"kl": kl}))
    assert "term kl of output 2 is nan at row 0, column 1" in text


def test_weights_that_are_not_finite_never_replace_a_good_checkpoint(tmp_path: Path) -> None:
    good = Checkpoint(Place(0, 1, 2, 5), {"w": torch.ones(3)}, {0: {"step": 5.0}}, {})
    save_checkpoint(tmp_path, good)
    bad = Checkpoint(Place(0, 1, 3, 6), {"w": torch.tensor([1.0, torch.nan])}, {}, {})
    with pytest.raises(NonFiniteLossError, match="'w'"):
        save_checkpoint(tmp_path, bad)
    newest = newest_checkpoint(tmp_path)
    assert newest is not None
    assert newest.place == good.place
    assert newest.optimiser == {0: {"step": 5.0}}
    assert torch.equal(newest.weights["w"], torch.ones(3))


def test_a_pickle_is_not_loaded(tmp_path: Path) -> None:
    class Bomb:
        def __reduce__(self) -> Any:
            return os.mkdir, (str(tmp_path / "exploded"),)

    path = tmp_path / "step-000000001.safetensors"
    torch.save({"w": Bomb()}, path)
    with pytest.raises(RunFolderError, match="safetensors"):
        load_checkpoint(path)
    assert not (tmp_path / "exploded").exists()


def test_a_write_that_fails_leaves_the_old_file(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    first = Checkpoint(Place(done=1), {"w": torch.ones(3)}, {}, {})
    save_checkpoint(tmp_path, first)

    def full(handle: int) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "fsync", full)
    with pytest.raises(OSError, match=r"No space.*/step-000000002\.safetensors'$"):
        save_checkpoint(tmp_path, Checkpoint(Place(done=2), {"w": torch.zeros(3)}, {}, {}))
    assert [path.name for path in tmp_path.iterdir()] == ["step-000000001.safetensors"]


def test_a_folder_that_cannot_be_written_is_refused_at_the_start(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("not a folder")
    with pytest.raises(RunFolderError, match="Cannot write into"):
        train(tiny_recipe(), tmp_path / "file" / "run")


def test_a_full_disk_is_refused_at_the_start(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    full = shutil.disk_usage(tmp_path)._replace(free=1000)
    monkeypatch.setattr(shutil, "disk_usage", lambda path: full)
    with pytest.raises(RunFolderError, match="MB free"):
        train(tiny_recipe(), tmp_path / "run")


def test_a_folder_with_other_things_is_refused_and_untouched(tmp_path: Path) -> None:
    (tmp_path / "thesis.tex").write_text("precious")
    with pytest.raises(RunFolderError, match=r"thesis\.tex"):
        train(tiny_recipe(), tmp_path)
    assert [path.name for path in tmp_path.iterdir()] == ["thesis.tex"]


def test_a_run_that_made_no_step_is_no_obstacle(tmp_path: Path) -> None:
    whole = train(tiny_recipe(stages=[{"epochs": 1, "batch": 6}]), tmp_path / "run")
    whole.folder.weights.unlink()
    for path in whole.folder.checkpoints.iterdir():
        path.unlink()
    again = train(tiny_recipe(stages=[{"epochs": 1, "batch": 3}]), tmp_path / "run")
    assert again.folder.read_recipe().stages[0].batch == 3


def test_data_that_are_not_there_leave_no_run_behind(tmp_path: Path) -> None:
    files = {"data__options": {}, "data__splits": {}}
    recipe = tiny_recipe("camvid-small", data__root=str(tmp_path / "nowhere"), **files)
    with pytest.raises(FileNotFoundError, match="nowhere"):
        train(recipe, tmp_path / "runs" / "first")
    assert not [*tmp_path.iterdir()]
    with pytest.raises(RecipeError, match=r"--data\.root"):
        train(tiny_recipe("camvid-small", **files), tmp_path / "run")


def test_weights_of_another_network_do_not_load(tmp_path: Path) -> None:
    run = train(tiny_recipe(stages=[{"epochs": 1, "batch": 6}]), tmp_path / "run")
    text = run.folder.config.read_text().replace("rank: 2", "rank: 3")
    run.folder.config.write_text(text)
    with pytest.raises(RunFolderError, match="do not fit"):
        load(run.path)
    assert "posterior.heads.factor.weight" in load_file(run.folder.weights)
