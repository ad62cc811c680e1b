"""What all benchmarks share: the machine, interleaved times, peak memory, result files.

Times on a shared machine mean something only as ratios measured in one run, so candidates are
timed in turns and compared by their medians.
"""

from __future__ import annotations

import ctypes
import json
import multiprocessing
import platform
import resource
import statistics
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch

RESULTS = Path(__file__).parent / "results"


def machine() -> dict[str, Any]:
    """The machine and the versions, without its name."""
    return {
        "cpu": _cpu_model(),
        "cores": multiprocessing.cpu_count(),
        "threads": torch.get_num_threads(),
        "python": platform.python_version(),
        "torch": torch.__version__,
    }


def seconds(candidates: dict[str, Callable[[], object]], repeats: int = 5) -> dict[str, float]:
    """Median seconds of each candidate, timed in turns after one warm-up each."""
    for candidate in candidates.values():
        candidate()
    times: dict[str, list[float]] = {name: [] for name in candidates}
    for _ in range(repeats):
        for name, candidate in candidates.items():
            start = time.perf_counter()
            candidate()
            times[name].append(time.perf_counter() - start)
    return {name: statistics.median(values) for name, values in times.items()}


def extra_megabytes(prepare: Callable[[], Callable[[], object]]) -> float:
    """Peak resident memory of a call beyond what its inputs hold, in a process of its own."""
    context = multiprocessing.get_context("fork")
    receiver, sender = context.Pipe(duplex=False)
    process = context.Process(target=_measure_peak, args=(prepare, sender))
    process.start()
    peak = receiver.recv()
    process.join()
    return float(peak)


def write(name: str, result: dict[str, Any]) -> Path:
    """Results beside the scripts, with the machine they were measured on."""
    RESULTS.mkdir(exist_ok=True)
    path = RESULTS / f"{name}.json"
    path.write_text(json.dumps({"machine": machine(), **result}, indent=2) + "\n")
    return path


def _measure_peak(prepare: Callable[[], Callable[[], object]], sender: Any) -> None:
    torch.set_num_threads(1)
    call = prepare()
    ctypes.CDLL(None).malloc_trim(0)  # what others freed before would be used again, uncounted
    Path("/proc/self/clear_refs").write_text("5")  # forget the peak of the preparation
    before = _status("VmRSS")
    call()
    sender.send((_status("VmHWM") - before) / 1024)


def _status(key: str) -> int:
    for line in Path("/proc/self/status").read_text().splitlines():
        if line.startswith(key + ":"):
            return int(line.split()[1])
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss


def _cpu_model() -> str:
    for line in Path("/proc/cpuinfo").read_text().splitlines():
        if line.startswith("model name"):
            return line.split(":", 1)[1].strip()
    return platform.processor() or "unknown"
