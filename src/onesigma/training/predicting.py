"""Predict files one after the other; one that cannot be read does not stop the rest."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from pathlib import Path

from onesigma.baselines.base import Prediction
from onesigma.data.reading import IMAGE_SUFFIXES
from onesigma.training.errors import RunFolderError
from onesigma.training.predictor import Predictor

_KINDS = ("prediction", "total", "epistemic", "aleatoric")
Save = Callable[[Prediction, str, Path], list[Path]]


def predict_files(
    run: Predictor, images: Iterable[str], out: Path, save: Save, memory_mb: float | None = None
) -> tuple[list[str], list[tuple[Path, str]]]:
    """The names of what was predicted, and what could not be read, with the reason.

    Args:
        run: loaded.
        images: files, or folders of them.
        out: where results go; made if missing.
        save: writes one prediction under a name into a folder.
        memory_mb: limit of one pass of the network, above which images are cut into tiles.
    """
    _make(out)
    done: list[str] = []
    found, failed = find_images(images)
    for path in found:
        name = _free_name(path, done)
        try:
            prediction = run.predict(path, memory_mb)
        except (ValueError, OSError) as error:
            failed.append((path, str(error)))
            continue
        save(prediction, name, out)
        done.append(name)
    return done, failed


def find_images(images: Iterable[str]) -> tuple[list[Path], list[tuple[Path, str]]]:
    """Files as they are and the images in folders by name; folders without one, with the reason.

    Args:
        images: files or folders.
    """
    found: list[Path] = []
    empty: list[tuple[Path, str]] = []
    for entry in map(Path, images):
        inside = sorted(filter(_is_input, entry.iterdir())) if entry.is_dir() else [entry]
        found += inside
        if not inside:
            empty.append((entry, f"{entry} holds no images ({', '.join(IMAGE_SUFFIXES)})."))
    return found, empty


def _is_input(path: Path) -> bool:
    """An image that neither a system nor an earlier prediction has put there."""
    name, _, kind = path.stem.rpartition("_")
    ours = kind in _KINDS and path.with_name(f"{name}.npz").is_file()
    return path.suffix.lower() in IMAGE_SUFFIXES and not path.name.startswith(".") and not ours


def _make(out: Path) -> None:
    if out.is_file():
        raise RunFolderError(f"{out} is a file; --out wants a folder.")
    try:
        out.mkdir(parents=True, exist_ok=True)
        probe = out / ".onesigma-probe"
        probe.write_bytes(b"")
        probe.unlink()
    except OSError as error:
        raise RunFolderError(f"Cannot write into {out}: {error.strerror}.") from error


def _free_name(path: Path, taken: list[str]) -> str:
    """The stem, with the folder's name or a number before it where that is taken."""
    names = [path.stem, f"{path.resolve().parent.name}-{path.stem}"]
    names += [f"{path.stem}-{i}" for i in range(2, len(taken) + 3)]
    return next(name for name in names if name not in taken)
