"""Several runs trained at the same time, each in a process of its own, under common progress bars.

Two networks on two cores: one thread each wastes nothing, and is not slowed down when something
else runs on one of the cores, as two threads that wait for each other at every layer are.
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml
from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

from onesigma.report.curves import read_logs

_POLL_SECONDS = 0.5


@dataclass(frozen=True)
class Job:
    """A run to train.

    Attributes:
        name: beside its progress bar.
        recipe: settings over those of its `base`; written to FOLDER.yaml.
        folder: of the run; a run that was begun there goes on.
        steps: of the whole training.
    """

    name: str
    recipe: Mapping[str, Any]
    folder: Path
    steps: int

    @property
    def file(self) -> Path:
        """The recipe as a file, beside the folder."""
        return self.folder.with_suffix(".yaml")

    @property
    def output(self) -> Path:
        """What the training process says."""
        return self.folder.with_suffix(".log")

    @property
    def command(self) -> list[str]:
        """The command that trains, after the program's name."""
        return ["train", str(self.file), "--out", str(self.folder), "--resume", "--quiet"]

    @property
    def place(self) -> tuple[int, str]:
        """Steps done, and the newest terms as text."""
        logs = read_logs(self.folder / "logs")
        terms = [f"{name} {logs[name][-1][1]:.3f}" for name in ("fit", "kl") if name in logs]
        steps = [rows[-1][0] for rows in logs.values()]
        return int(max(steps, default=0)), "  ".join(terms)


def train_side_by_side(jobs: Sequence[Job], console: Console, threads: int = 1) -> None:
    """Train all jobs; raises RuntimeError with the last words of one that fails.

    Args:
        jobs: with different folders.
        console: where the bars are drawn.
        threads: of each process.
    """
    processes = [_start(job, threads) for job in jobs]
    try:
        _watch(jobs, processes, console)
    finally:
        _stop(processes)
    for job, process in zip(jobs, processes, strict=True):
        if process.returncode:
            words = job.output.read_text(encoding="utf-8").strip().splitlines()[-5:]
            raise RuntimeError(
                f"Training {job.name} ended with status {process.returncode}; {job.output} "
                "says:\n" + "\n".join(words)
            )


def _start(job: Job, threads: int) -> subprocess.Popen[bytes]:
    job.folder.parent.mkdir(parents=True, exist_ok=True)
    job.file.write_text(yaml.safe_dump(dict(job.recipe), sort_keys=False), encoding="utf-8")
    with job.output.open("wb") as output:
        return subprocess.Popen(
            [sys.executable, "-m", "onesigma.cli", *job.command],
            stdout=output,
            stderr=subprocess.STDOUT,
            env={**os.environ, "OMP_NUM_THREADS": str(threads)},
            start_new_session=True,  # Ctrl-C reaches us alone, and we pass it on once
        )


def _watch(
    jobs: Sequence[Job], processes: Sequence[subprocess.Popen[bytes]], console: Console
) -> None:
    """Draw until all have ended, or one has failed."""
    columns = (
        TextColumn("{task.description:<13}"),
        BarColumn(),
        MofNCompleteColumn(),
        TimeRemainingColumn(),
        TextColumn("{task.fields[terms]}"),
    )
    with Progress(*columns, console=console) as progress:
        tasks = [progress.add_task(job.name, total=job.steps, terms="") for job in jobs]
        while True:
            ended = [process.poll() for process in processes]
            for task, job in zip(tasks, jobs, strict=True):
                step, terms = job.place
                progress.update(task, completed=step, terms=terms)
            if any(ended) or None not in ended:
                return
            time.sleep(_POLL_SECONDS)


def _stop(processes: Sequence[subprocess.Popen[bytes]]) -> None:
    """Ask those still running to save and stop, and wait for them."""
    for process in processes:
        if process.poll() is None:
            process.send_signal(signal.SIGINT)
    for process in processes:
        process.wait()
