"""Before a run begins: settings that cannot be, and what its user may not know."""

from __future__ import annotations

import warnings

import torch

from onesigma.data.base import PixelDataset
from onesigma.training.components import build_dataset
from onesigma.training.config import Recipe, Size
from onesigma.training.errors import RecipeError, RunFolderError
from onesigma.training.folder import RunFolder
from onesigma.training.loading import valid_pixels

# no camera's image has a median depth of so many metres
_FAR = 200.0
_FEW_IMAGES = 20


def check_settings(recipe: Recipe) -> None:
    """Refuse numbers that no run can have, by the names of their settings.

    Args:
        recipe: as loaded.
    """
    lowest: dict[str, tuple[int | Size | None, int]] = {
        "method.members": (recipe.method.members, 1),
        "method.passes": (recipe.method.passes, 1),
        "data.workers": (recipe.data.workers, 0),
        "data.eval_size": (recipe.data.eval_size, 1),
        "trainer.threads": (recipe.trainer.threads, 1),
    }
    for i, stage in enumerate(recipe.stages):
        for name in ("epochs", "batch", "size", "crop"):
            lowest[f"stages.{i}.{name}"] = getattr(stage, name), 1
    for key, (value, least) in lowest.items():
        numbers = value if isinstance(value, tuple | list) else (value,)
        if any(number is not None and number < least for number in numbers):
            raise RecipeError(f"{key} is {_text(value)}; it wants at least {least}.")
    for i, stage in enumerate(recipe.stages):
        if not stage.optimiser.lr > 0:
            raise RecipeError(
                f"stages.{i}.optimiser.lr is {stage.optimiser.lr:g}; it wants more than 0."
            )
        if stage.crop and stage.size and any(map(int.__gt__, stage.crop, stage.size)):
            raise RecipeError(
                f"stages.{i}.crop is {_text(stage.crop)}, which does not fit into images of "
                f"stages.{i}.size {_text(stage.size)}; make the crop smaller or the size larger."
            )


def check_targets(dataset: PixelDataset) -> None:
    """Refuse training data without one target; tell of depth that is hardly in metres.

    Args:
        dataset: training data.
    """
    targets = (dataset[i]["target"][None] for i in range(len(dataset)))
    if not any(bool(valid_pixels(target, dataset.num_outputs).any()) for target in targets):
        raise RecipeError(
            f"None of the {len(dataset)} training targets has a valid pixel: all are void; look at "
            "the files and at what they use for void."
        )
    if dataset.unit != "m":
        return
    few = (dataset[i]["target"] for i in range(0, len(dataset), 1 + len(dataset) // _FEW_IMAGES))
    medians = torch.stack([target.nanmedian() for target in few]).nanmedian()
    if medians > _FAR:
        warnings.warn(
            f"The training targets have a median of {float(medians):.4g} m. If the files hold "
            "millimetres, add --data.options.unit_scale 0.001.",
            stacklevel=1,
        )


def check_splits(recipe: Recipe) -> None:
    """Refuse if a split that training needs at its end is not there; tell if evaluation's is not.

    Args:
        recipe: as loaded.
    """
    if recipe.method.temperature or recipe.trainer.validate_epochs:
        build_dataset(recipe.data, "val", None)
    split = recipe.data.evaluate
    try:
        missing = "it is empty" if not len(build_dataset(recipe.data, split, None)) else ""
    except (ValueError, OSError, ImportError) as error:
        missing = str(error)
    if missing:
        warnings.warn(
            f"The run will not be evaluated on the split {split!r} that data.evaluate names: "
            f"{missing}",
            stacklevel=1,
        )


def check_sizes(recipe: Recipe) -> None:
    """Tell if things in the images will be of another size at prediction than in training.

    Crops keep their size; zooms change it.

    Args:
        recipe: as loaded.
    """
    last, seen = recipe.stages[-1], recipe.data.eval_size
    lowest, highest = last.augment.get("scale") or (1.0, 1.0)
    if last.size == seen and lowest <= 1 <= highest:
        return
    rows, cols = build_dataset(recipe.data, "train", None)[0]["image"].shape[1:]
    full, seen = last.size or (rows, cols), seen or (rows, cols)
    least, most = _zoomed(full, lowest), _zoomed(full, highest)
    # a pixel is the rounding of a zoom
    if all(a - 1 <= size <= b + 1 for a, size, b in zip(least, seen, most, strict=True)):
        return
    nearest = _zoomed(full, min(max(1.0, lowest), highest))
    trained = " to ".join(dict.fromkeys(_times(size) for size in (least, most)))
    warnings.warn(
        f"The network is trained on images of {trained} and predicts at {_times(seen)} (rows x "
        f'columns). To predict at the size of training, add --data.eval_size "{_text(nearest)}".',
        stacklevel=1,
    )


def _zoomed(size: Size, zoom: float) -> Size:
    return round(zoom * size[0]), round(zoom * size[1])


def _times(size: Size) -> str:
    return f"{size[0]}x{size[1]}"


def check_same_images(folder: RunFolder, recipe: Recipe) -> None:
    """Refuse to go on with other training images than a run began with.

    Args:
        folder: of the run.
        recipe: with the data as they are now.
    """
    before, now = folder.read_images(), [*build_dataset(recipe.data, "train", None).names]
    if not before or before == now:
        return
    changed = sorted({*before} ^ {*now})
    what = f"{changed[0]!r} came or went" if changed else "their order changed"
    raise RunFolderError(
        f"{folder.path} was begun with other training images: {what}. Put the data back as they "
        "were, or train a new run with --out."
    )


def warn_of_trained(folder: RunFolder, dataset: PixelDataset, split: str) -> None:
    """Tell if images that are about to be scored were trained on.

    Args:
        folder: of the run.
        dataset: to be scored, from the root that the run learned from.
        split: its name.
    """
    trained = {*folder.read_images()} & {*dataset.names}
    if trained and split != "train":
        warnings.warn(
            f"{len(trained)} of the {len(dataset)} images of the split {split!r} were trained on, "
            f"such as {min(trained)!r}; the scores are too good. Put back the files that came or "
            "went since, or write lists that give every image one split and train again.",
            stacklevel=1,
        )


def _text(value: int | Size | None) -> str:
    return str([*value]) if isinstance(value, tuple | list) else str(value)
