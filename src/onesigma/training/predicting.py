"""Predict files one after the other; one that cannot be read does not stop the rest."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from pathlib import Path

from onesigma.baselines.base import Prediction
from onesigma.data.reading import IMAGE_SUFFIXES
from onesigma.training.errors import RunFolderError
from onesigma.training.predictor import Predictor

Save = Callable[[Prediction, str, Path], list[Path]]


def predict_files(
    run: Predictor, images: Iterable[str], out: Path, save: Save, memory_mb: float | None = None
) -> tuple[list[str], list[tuple[Path, str]]]:
    """The names of what was predicted, and the files that could not be read, with the reason.

    Args:
        run: loaded.
        images: files, or folders of them.
        out: where results go; made if missing.
        save: writes one prediction under a name into a folder.
        memory_mb: limit of one pass of the network, above which images are cut into tiles.
    """
    _make(out)
    done: list[str] = []
    failed: list[tuple[Path, str]] = []
    for path in find_images(images):
        name = _free_name(path, done)
        try:
            prediction = run.predict(path, memory_mb)
        except (ValueError, OSError) as error:
            failed.append((path, str(error)))
            continue
        save(prediction, name, out)
        done.append(name)
    return done, failed


def find_images(images: Iterable[str]) -> list[Path]:
    """Files as they are, and the images in folders by name.

    Args:
        images: files or folders.
    """
    found: list[Path] = []
    for entry in map(Path, images):
        if not entry.is_dir():
            found.append(entry)
            continue
        inside = sorted(p for p in entry.iterdir() if p.suffix.lower() in IMAGE_SUFFIXES)
        if not inside:
            raise FileNotFoundError(f"{entry} holds no images ({', '.join(IMAGE_SUFFIXES)}).")
        found += inside
    return found


def _make(out: Path) -> None:
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
