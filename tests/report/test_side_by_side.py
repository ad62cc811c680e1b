import time
from pathlib import Path

import pytest
from rich.console import Console

from onesigma.report import side_by_side
from onesigma.report.demo import DemoOptions, demo_recipe
from onesigma.report.side_by_side import Job, train_side_by_side

QUIET = Console(quiet=True)


def test_a_run_that_fails_says_why(tmp_path: Path) -> None:
    job = Job("depth", {"base": "scenes-depth", "netwrok": {}}, tmp_path / "depth", 1)
    with pytest.raises(RuntimeError, match=r"(?s)Training depth ended with status.*netwrok"):
        train_side_by_side([job], QUIET)


def test_interrupting_lets_the_run_save(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    recipe = demo_recipe("depth", 1000, DemoOptions(size=(24, 32), train_scenes=8))
    job = Job("depth", recipe | {"trainer": {"log_steps": 1}}, tmp_path / "depth", 2000)
    wait = time.sleep

    def interrupt(seconds: float) -> None:
        if job.place[0] >= 2:
            raise KeyboardInterrupt
        wait(seconds)

    monkeypatch.setattr(side_by_side.time, "sleep", interrupt)
    with pytest.raises(KeyboardInterrupt):
        train_side_by_side([job], QUIET)
    assert "everything so far is saved" in job.output.read_text(encoding="utf-8")
    assert list((job.folder / "checkpoints").iterdir())
    assert not (job.folder / "weights.safetensors").exists()
