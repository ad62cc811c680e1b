"""Time of the divergence per output over the number of outputs: n = 2, r = 4."""

from __future__ import annotations

from typing import Any

import torch

from kl import Problem, fused
from measuring import seconds, write

OUTPUTS = (100_000, 1_000_000, 10_000_000)


def run() -> dict[str, Any]:
    torch.set_num_threads(1)
    problems = {f"{count:.0e}": Problem(2, 4, count) for count in OUTPUTS}
    times = seconds({name: lambda p=p: p.step(fused) for name, p in problems.items()}, 9)  # type: ignore[misc]
    each = {name: 1e9 * times[name] / problems[name].mean.shape[-1] for name in problems}
    largest_over_smallest = max(each.values()) / min(each.values())
    return {"nanoseconds per output": each, "largest over smallest": largest_over_smallest}


if __name__ == "__main__":
    print(write("kl_scaling", run()))
