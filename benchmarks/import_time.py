"""What `import onesigma` costs beside `import torch`, in fresh interpreters."""

from __future__ import annotations

import statistics
import subprocess
import sys
from typing import Any

from measuring import write

PROGRAM = "import time; a = time.perf_counter(); import {}; print(time.perf_counter() - a)"


def once(module: str) -> float:
    program = PROGRAM.format(module)
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, check=True)
    return float(done.stdout)


def run() -> dict[str, Any]:
    times: dict[str, list[float]] = {"torch": [], "onesigma": []}
    for _ in range(7):
        for module, seen in times.items():
            seen.append(once(module))
    medians = {module: statistics.median(seen) for module, seen in times.items()}
    return {"seconds": medians, "onesigma over torch": medians["onesigma"] / medians["torch"]}


if __name__ == "__main__":
    print(write("import_time", run()))
