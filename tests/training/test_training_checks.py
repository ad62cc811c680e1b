"""What cannot be trained is refused before there is a run; what is likely a mistake is told."""

from __future__ import annotations

import warnings
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image
from tiny import tiny_recipe
from tiny_files import write_folder, write_image

from onesigma.training import Recipe, RecipeError, RunFolderError, load, train
from onesigma.training.checks import check_sizes
from onesigma.training.resolve import resolve

STAGE = {"epochs": 1, "batch": 4, "size": [16, 16]}
PLAIN: dict[str, Any] = {
    "data__options": {"task": "segmentation", "classes": 3},
    "data__splits": {},
    "data__eval_size": [16, 16],
    "method__name": "deterministic",
    "stages": [STAGE],
}


def folder_recipe(root: Path, **changes: Any) -> Recipe:
    return tiny_recipe("folder-segmentation", **{**PLAIN, "data__root": str(root), **changes})


def depth_recipe(root: Path, **options: Any) -> Recipe:
    more = {"task": "depth", **options}
    return tiny_recipe("folder-depth", **{**PLAIN, "data__root": str(root), "data__options": more})


def write_depth(root: Path, values: np.ndarray) -> Path:
    (root / "targets").mkdir(parents=True)
    for i in range(10):
        write_image(root / "images" / f"{i}.png", 16, 16)
        Image.fromarray(values).save(root / "targets" / f"{i}.png")
    return root


@pytest.mark.parametrize(
    ("changes", "says"),
    [
        ({"stages": [STAGE, {**STAGE, "epochs": 0}]}, r"stages\.1\.epochs is 0; .* at least 1"),
        ({"stages": [{**STAGE, "batch": 0}]}, r"stages\.0\.batch is 0"),
        ({"stages": [{**STAGE, "size": [16, 0]}]}, r"stages\.0\.size is \[16, 0\]"),
        ({"stages": [{**STAGE, "crop": [17, 8]}]}, r"crop is \[17, 8\].*size \[16, 16\]"),
        ({"stages": [{**STAGE, "optimiser": {"lr": 0.0}}]}, r"stages\.0\.optimiser\.lr is 0"),
        ({"method__members": 0}, r"method\.members is 0"),
        ({"trainer__threads": 0}, r"trainer\.threads is 0"),
        ({"data__workers": -1}, r"data\.workers is -1; .* at least 0"),
        ({"trainer__precision": "17"}, r"trainer\.precision '17' .*16-mixed"),
        ({"trainer__accelerator": "abacus"}, r"trainer\.accelerator 'abacus'"),
    ],
)
def test_settings_that_cannot_be_are_named(
    changes: dict[str, Any], says: str, tmp_path: Path
) -> None:
    with pytest.raises(RecipeError, match=says):
        train(tiny_recipe(**changes), tmp_path / "run")
    assert not (tmp_path / "run").exists()


@pytest.mark.parametrize(
    ("recipe", "name", "says"),
    [
        ("scenes-segmentation", "laplace", "is 'laplace', but .* segmentation; choose boltzmann"),
        ("scenes-depth", "boltzmann", "is 'boltzmann', but .* depth; choose laplace"),
    ],
)
def test_a_likelihood_of_the_other_task_is_refused(
    recipe: str, name: str, says: str, tmp_path: Path
) -> None:
    with pytest.raises(RecipeError, match=says):
        train(tiny_recipe(recipe, likelihood__name=name), tmp_path / "run")
    assert not (tmp_path / "run").exists()


def test_labels_that_are_all_void_are_refused(tmp_path: Path) -> None:
    root = write_depth(tmp_path, np.full((16, 16), 255, np.uint8))
    with pytest.raises(RecipeError, match="None of the 8 training targets has a valid pixel"):
        resolve(folder_recipe(root))


def test_depth_in_millimetres_is_suspected(tmp_path: Path) -> None:
    stored = np.array([[0, 2500], [2400, 60000]], np.uint16).repeat(8, 0).repeat(8, 1)
    root = write_depth(tmp_path, stored)
    with pytest.warns(UserWarning, match=r"median of 2500 m\. .*unit_scale 0\.001"):
        resolve(depth_recipe(root))
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        resolve(depth_recipe(root, unit_scale=0.001))


def test_another_size_for_predictions_is_told(tmp_path: Path) -> None:
    recipe = folder_recipe(write_folder(tmp_path / "data"), data__eval_size=[32, 24])
    with pytest.warns(UserWarning, match=r"16x16 and predicts at 32x24 .*eval_size \"\[16, 16\]\""):
        train(recipe, tmp_path / "run")


def test_zooms_are_sizes_that_were_seen_and_crops_are_none(tmp_path: Path) -> None:
    stage: dict[str, Any] = {**STAGE, "size": [32, 32], "crop": [16, 16]}
    root = write_folder(tmp_path / "data")

    def check(size: list[int], **augment: Any) -> None:
        stages = [{**stage, "augment": augment}]
        check_sizes(folder_recipe(root, stages=stages, data__eval_size=size))

    with warnings.catch_warnings():
        warnings.simplefilter("error")
        check([32, 32])
        check([16, 16], scale=[0.51, 1.0])
        check([24, 24], scale=[0.51, 1.0])
    with pytest.warns(
        UserWarning, match=r"of 32x32 and predicts at 16x16 .*eval_size \"\[32, 32\]"
    ):
        check([16, 16])
    with pytest.warns(UserWarning, match=r"of 16x16 to 24x24 and predicts at 32x32 .*\[24, 24\]"):
        check([32, 32], scale=[0.5, 0.75])


def test_a_split_that_evaluation_will_miss_is_told(tmp_path: Path) -> None:
    root = write_folder(tmp_path / "data")
    (root / "train.txt").write_text("\n".join(map(str, range(8))))
    with pytest.warns(UserWarning, match=r"split 'test' that data\.evaluate names: .*test\.txt"):
        train(folder_recipe(root), tmp_path / "run")
    with pytest.raises(FileNotFoundError, match=r"val\.txt"):
        train(folder_recipe(root, method__temperature=True), tmp_path / "other")
    assert not (tmp_path / "other").exists()


def test_a_run_knows_what_it_learned_from(tmp_path: Path) -> None:
    root = write_folder(tmp_path / "data")
    recipe = folder_recipe(root)
    run = train(recipe, tmp_path / "run")
    trained = run.folder.read_images()
    assert len(trained) == 16
    run.evaluate("test")  # a warning would be an error
    for folder in ("images", "targets"):
        for name in [str(i) for i in range(20) if str(i) not in trained]:
            (root / folder / f"{name}.png").unlink()
    scored = r"of the 2 images of the split 'test' were trained on, such as '\d+'"
    with pytest.warns(UserWarning, match=scored):
        load(run.path).evaluate("test")
    load(run.path).evaluate("train")
    run.folder.weights.unlink()
    with pytest.raises(RunFolderError, match=r"other training images: '\d+' came or went"):
        train(recipe, run.path, resume=True)
