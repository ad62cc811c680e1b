"""A module imports only what stands above it here; the core imports torch and jaxtyping only."""

from __future__ import annotations

import ast
import sys
from pathlib import Path

import pytest

import onesigma

ROOT = Path(onesigma.__file__).parent

CORE = [
    "precision",
    "block_inverse",
    "covariance",
    "field",
    "grid",
    "divergence",
    "kernels",
    "priors",
    "context",
    "prediction",
    "likelihoods",
    "modes",
    "familiarity",
    "position",
    "heads",
    "posterior",
    "views",
    "wrap",
    "objective",
]
ABOVE = ["networks", "baselines", "data", "metrics", "tiling", "training", "report"]
COMMANDS = ["console", "cli", "__main__"]
ROOMS = [*CORE, *ABOVE, *COMMANDS]


def room(path: Path) -> str:
    return path.relative_to(ROOT).parts[0].removesuffix(".py")


def imports(path: Path) -> set[str]:
    """Dotted names of everything a file imports, wherever in the file."""
    found = set()
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"{path.name} uses a relative import"
            found |= {f"{node.module}.{alias.name}" for alias in node.names}
        elif isinstance(node, ast.Import):
            found |= {alias.name for alias in node.names}
    return found


FILES = [path for path in sorted(ROOT.rglob("*.py")) if path != ROOT / "__init__.py"]


@pytest.mark.parametrize("path", FILES, ids=lambda p: str(p.relative_to(ROOT)))
def test_imports_go_up_the_list(path: Path) -> None:
    here = room(path)
    assert here in ROOMS, f"{here} is not in the list of rooms"
    allowed = set(ROOMS[: ROOMS.index(here) + 1])
    ours = {name.split(".")[1] for name in imports(path) if name.startswith("onesigma.")}
    assert ours <= allowed, f"{here} imports {sorted(ours - allowed)}, which stand below it"


@pytest.mark.parametrize(
    "path", [p for p in FILES if room(p) in CORE], ids=lambda p: str(p.relative_to(ROOT))
)
def test_the_core_needs_torch_and_jaxtyping_only(path: Path) -> None:
    outside = {name.split(".")[0] for name in imports(path)} - {"onesigma"}
    assert outside - set(sys.stdlib_module_names) <= {"torch", "jaxtyping"}
