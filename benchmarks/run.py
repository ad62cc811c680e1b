"""Run benchmarks one after the other: `python benchmarks/run.py [NAME ...]`, all when left out."""

from __future__ import annotations

import importlib
import json
import sys

from measuring import write

NAMES = ("import_time", "kl", "prior", "regression", "boltzmann", "metrics")


def main(names: list[str]) -> int:
    unknown = set(names) - set(NAMES)
    if unknown:
        print(f"No benchmark {sorted(unknown)}; there are {', '.join(NAMES)}.", file=sys.stderr)
        return 2
    for name in names or NAMES:
        result = importlib.import_module(name).run()
        print(f"\n{name} -> {write(name, result).name}")
        print(json.dumps(result, indent=2))
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
