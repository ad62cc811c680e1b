"""What the command line says of files, devices and readers that are not what they should be."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from onesigma.cli import main

TINY = [
    *("--data.options.size", "[32, 32]", "--method.name", "deterministic"),
    *("--data.splits", "{train: {length: 3}, val: {length: 2}, test: {length: 2}}"),
    *("--network.name", "unet", "--network.options.widths", "[4, 8]"),
    *("--stages.epochs", "1", "--stages.batch", "3"),
    *("--trainer.threads", "1", "--trainer.accelerator", "cpu", "--quiet"),
]


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> str:
    path = str(tmp_path_factory.mktemp("a run") / "labels")
    assert main(["train", "scenes-segmentation", "--out", path, *TINY]) == 0
    return path


@pytest.fixture
def photos(tmp_path: Path) -> Path:
    folder = tmp_path / "photos"
    folder.mkdir()
    Image.fromarray(np.full((30, 36, 3), 90, np.uint8)).save(folder / "a.png")
    (folder / "._a.png").write_bytes(b"what macOS leaves beside a file")
    return folder


def test_predict_goes_on_after_an_empty_folder_and_leaves_its_own_maps_out(
    run: str, photos: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "empty").mkdir()
    words = ["predict", run, str(tmp_path / "empty"), str(photos), "--out", str(photos)]
    assert main(words) == 1
    printed = capsys.readouterr()
    assert "empty holds no images" in printed.err
    assert "._a.png" not in printed.err
    assert "1 image " in printed.out
    assert main(["predict", run, str(photos), "--out", str(photos)]) == 0
    assert {path.name for path in photos.glob("*.npz")} == {"a.npz"}
    (photos / "b.png").write_bytes(b"no image")
    assert main(["predict", run, str(photos), "--out", str(tmp_path / "maps")]) == 1
    assert capsys.readouterr().err.count("b.png") == 1


@pytest.mark.parametrize(
    ("words", "says"),
    [
        (["predict", "RUN", "PHOTOS", "--out", "FILE"], "is a file; --out wants a folder"),
        (["train", "scenes-depth", "--out", "FILE"], "is a file; --out wants a folder"),
        (["predict", "RUN", "PHOTOS", "--out", "m", "--device", "cuda:99"], "choose from cpu"),
        (["evaluate", "RUN", "--device", "abacus"], "no device 'abacus' here; choose from cpu"),
        (["evaluate", "RUN", "--out", "PHOTOS"], "is a folder; --out wants a file"),
        (["evaluate", "RUN", "--out", "FILE/x.json"], "Cannot make the folder"),
    ],
)
def test_mistakes_are_told_in_one_line(
    words: list[str], says: str, run: str, photos: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (photos / "file").write_text("")
    for name, path in {"RUN": run, "PHOTOS": photos, "FILE": photos / "file"}.items():
        words = [word.replace(name, str(path)) for word in words]
    assert main(words) == 1
    error = capsys.readouterr().err
    assert says in error
    assert error.count("\n") == 1


def test_memory_is_more_than_nothing(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        main(["predict", "run", "a.png", "--out", "maps", "--memory", "0"])
    assert "give more than 0 MB" in capsys.readouterr().err


def test_evaluate_says_what_it_replaces_and_makes_folders(
    run: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["evaluate", run, "--split", "val"]) == 0
    assert main(["evaluate", run, "--split", "val"]) == 0
    assert "replaced" not in capsys.readouterr().out
    assert main(["evaluate", run]) == 0
    assert "metrics.json was of val; it is replaced" in capsys.readouterr().out
    assert main(["evaluate", run, "--out", str(tmp_path / "new" / "m.json")]) == 0
    assert json.loads((tmp_path / "new" / "m.json").read_text())["task"] == "segmentation"


def test_compare_wants_evaluated_runs_of_one_task(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    runs = [tmp_path / "labels", tmp_path / "depth", tmp_path / "not evaluated"]
    for folder in runs:
        folder.mkdir()
    for folder, task in zip(runs, ("segmentation", "depth"), strict=False):
        (folder / "metrics.json").write_text(json.dumps({"split": "test", "task": task}))
    assert main(["compare", str(runs[0]), str(runs[1])]) == 1
    assert "different tasks" in capsys.readouterr().err
    (runs[2] / "config.yaml").write_text("seed: 0")
    assert main(["compare", str(runs[0]), str(runs[2])]) == 1
    assert f"onesigma evaluate '{runs[2]}'" in capsys.readouterr().err


def test_the_module_runs_and_a_reader_that_goes_away_is_no_error() -> None:
    reader, writer = os.pipe()
    os.close(reader)
    command = [sys.executable, "-m", "onesigma", "recipes"]
    ended = subprocess.run(command, stdout=writer, stderr=subprocess.PIPE, text=True, check=False)
    os.close(writer)
    assert (ended.returncode, ended.stderr) == (141, "")
