"""Run benchmarks one after the other: `python benchmarks/run.py [NAME ...]`, all when left out.

Each runs in a process of its own: memory that another has used and freed makes later ones faster.
"""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

from measuring import RESULTS

NAMES = ("import_time", "kl", "kl_scaling", "prior", "regression", "boltzmann", "metrics")


def main(names: list[str]) -> int:
    unknown = set(names) - set(NAMES)
    if unknown:
        print(f"No benchmark {sorted(unknown)}; there are {', '.join(NAMES)}.", file=sys.stderr)
        return 2
    for name in names or NAMES:
        print(f"\n{name}", flush=True)
        subprocess.run([sys.executable, Path(__file__).with_name(f"{name}.py")], check=True)
        print((RESULTS / f"{name}.json").read_text())
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
