"""Values that do not fit a setting, and texts that look like something else."""

from __future__ import annotations

from pathlib import Path

import pytest
from tiny_files import write_folder

from onesigma.training import RecipeError, load_recipe
from onesigma.training.arguments import parse_overrides
from onesigma.training.components import build_dataset


@pytest.mark.parametrize(
    ("key", "value", "says"),
    [
        ("stages.size", "96", "is 96; it wants two numbers, [rows, columns], or null."),
        ("stages.size", "[96, a]", "is [96, 'a']; it wants two numbers, [rows, columns], or null."),
        ("stages.0.epochs", "many", "is many; it wants a whole number."),
        ("prior.mean", "x", "is x; it wants a number or a list such as [0.8, 0.1] or shares."),
        ("prior.learn", "mean", "is mean; it wants a list of names such as [a, b]."),
        ("transform.name", "lg", "is lg; it wants one of affine, log or null. Did you mean 'log'?"),
        ("data.options.classes", "road", "wants a list of names such as [a, b] or a whole number."),
        ("data.options.fractions", "0.5", "wants three numbers such as [0.8, 0.1, 0.1]."),
        ("data.options.split", "foo", "is foo; it wants one of train, val, test."),
    ],
)
def test_a_value_that_does_not_fit_is_told_in_words(
    key: str, value: str, says: str, tmp_path: Path
) -> None:
    settings = {"data.root": str(tmp_path), **parse_overrides([f"--{key}", value])}
    with pytest.raises(RecipeError) as caught:
        build_dataset(load_recipe("folder-segmentation", settings).data, "train", None)
    assert str(caught.value).startswith(key.replace(".0", ""))
    assert str(caught.value).endswith(says)


def test_texts_stay_texts(tmp_path: Path) -> None:
    root = write_folder(tmp_path / "data")
    for words, names in (("[on, off, 2024_01]", ("on", "off", "2024_01")), ("3", ("0", "1", "2"))):
        settings = parse_overrides(["--data.options.classes", words, "--data.root", str(root)])
        recipe = load_recipe("folder-segmentation", settings)
        assert build_dataset(recipe.data, "train", None).classes == names
    settings = parse_overrides(["--data.root", "2024_01", "--description", "no", "--seed", "1_0"])
    recipe = load_recipe("scenes-depth", settings)
    assert (recipe.data.root, recipe.description, recipe.seed) == ("2024_01", "no", 10)
    assert load_recipe("scenes-depth", parse_overrides(["--data.root", "null"])).data.root is None
