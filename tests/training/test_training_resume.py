"""Killed at any moment and resumed, a run ends with the same bits."""

from __future__ import annotations

import multiprocessing
import os
import random
import signal
import time
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file
from tiny import tiny_recipe

from onesigma.training import Recipe, RunFolderError, TrainingInterrupted, train
from onesigma.training.folder import RunFolder
from onesigma.training.resolve import differences, resolve

FORK = multiprocessing.get_context("fork")  # a fresh interpreter would spend seconds on imports


@pytest.fixture(scope="module")
def reference(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """An uninterrupted run."""
    return train(tiny_recipe(), tmp_path_factory.mktemp("whole") / "run").path


def steps_saved(folder: Path) -> int:
    names = [path.stem for path in (folder / "checkpoints").glob("step-*.safetensors")]
    return max((int(name.removeprefix("step-")) for name in names), default=0)


def kill_after(recipe: Recipe, folder: Path, steps: int, delay: float) -> int:
    """Train in a process of its own, and kill it some time after it has saved so many steps."""
    child = FORK.Process(target=train, args=(recipe, folder, True))
    child.start()
    assert child.pid is not None
    deadline = time.monotonic() + 60
    while steps_saved(folder) < steps and child.is_alive() and time.monotonic() < deadline:
        time.sleep(0.002)
    time.sleep(delay)
    os.kill(child.pid, signal.SIGKILL)
    child.join()
    return steps_saved(folder)


def same_weights(first: Path, second: Path) -> bool:
    one, two = (load_file(folder / "weights.safetensors") for folder in (first, second))
    return one.keys() == two.keys() and all(torch.equal(one[k], two[k]) for k in one)


def test_killed_anywhere_and_resumed_is_the_same_run(reference: Path, tmp_path: Path) -> None:
    seed = random.randrange(2**32)
    rng = random.Random(seed)
    recipe = tiny_recipe(trainer__checkpoint_steps=1)
    reached = []
    # before the first step, within the first stage, at its end, within the second
    for steps in (0, rng.randint(1, 4), 6, 7):
        reached.append(kill_after(recipe, tmp_path / "run", steps, rng.uniform(0, 0.1)))
        assert not (tmp_path / "run" / "weights.safetensors").exists() or reached[-1] == 8
    train(recipe, tmp_path / "run", resume=True)
    assert reached[-1] >= 7
    assert same_weights(reference, tmp_path / "run"), f"seed {seed}, killed after {reached}"


def test_another_seed_is_another_run(reference: Path, tmp_path: Path) -> None:
    other = train(tiny_recipe(seed=1), tmp_path / "run")
    assert not same_weights(reference, other.path)


def test_ctrl_c_saves_and_resumes_to_the_same_run(reference: Path, tmp_path: Path) -> None:
    def interrupted() -> None:
        try:
            train(tiny_recipe(trainer__checkpoint_steps=1), tmp_path / "run")
        except TrainingInterrupted as stop:
            os._exit(77 if "saved" in str(stop) else 1)

    child = FORK.Process(target=interrupted)
    child.start()
    assert child.pid is not None
    while steps_saved(tmp_path / "run") < 1 and child.is_alive():
        time.sleep(0.002)
    os.kill(child.pid, signal.SIGINT)
    child.join()
    assert child.exitcode == 77
    train(tiny_recipe(trainer__checkpoint_steps=1), tmp_path / "run", resume=True)
    assert same_weights(reference, tmp_path / "run")


def test_a_finished_run_refuses_a_second_one_and_resumes_to_itself(reference: Path) -> None:
    before = (reference / "weights.safetensors").read_bytes()
    with pytest.raises(RunFolderError, match="already holds a run"):
        train(tiny_recipe(), reference)
    assert train(tiny_recipe(), reference, resume=True).path == reference
    assert (reference / "weights.safetensors").read_bytes() == before


def test_resuming_with_other_settings_is_refused_and_names_them(reference: Path) -> None:
    with pytest.raises(RunFolderError, match=r"posterior\.rank"):
        train(tiny_recipe(posterior__rank=3), reference, resume=True)


@pytest.mark.parametrize(
    ("key", "value", "free"),
    [
        ("transform.scale", None, True),
        ("transform.scale", 5.0, False),
        ("trainer.clip", 0.5, False),
        ("trainer.log_steps", 3, True),
        ("data.root", "elsewhere", True),
        ("data.evaluate", "train", False),
    ],
)
def test_what_may_be_changed_by_resuming(key: str, value: object, free: bool) -> None:
    begun = resolve(tiny_recipe("scenes-depth"))
    assert begun.transform.scale is not None
    again = tiny_recipe("scenes-depth", **{key.replace(".", "__"): value})
    assert differences(begun, again) == ([] if free else [key])


def test_two_processes_cannot_train_in_one_folder(tmp_path: Path) -> None:
    folder = RunFolder(tmp_path / "run")

    def second() -> None:
        try:
            train(tiny_recipe(), folder.path, resume=True)
        except RunFolderError as error:
            os._exit(77 if "Another process" in str(error) else 1)

    with folder.locked():
        child = FORK.Process(target=second)
        child.start()
        child.join()
        assert child.exitcode == 77


def test_a_damaged_checkpoint_gives_way_to_the_one_before(reference: Path, tmp_path: Path) -> None:
    recipe = tiny_recipe(trainer__checkpoint_steps=1)
    kill_after(recipe, tmp_path / "run", 3, 0.0)
    newest = max((tmp_path / "run" / "checkpoints").glob("step-*.safetensors"))
    newest.write_bytes(newest.read_bytes()[:100])
    train(recipe, tmp_path / "run", resume=True)
    assert same_weights(reference, tmp_path / "run")
