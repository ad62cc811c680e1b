"""Settings on the command line: --any.setting VALUE, wherever it stands."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from difflib import get_close_matches
from typing import Any

from onesigma.training.errors import RecipeError
from onesigma.training.recipes import parse_setting

_OWN_FLAGS = {
    "train": ("--out", "--resume", "--quiet", "--help"),
    "evaluate": ("--out", "--split", "--device", "--help"),
}


def split_overrides(words: Sequence[str]) -> tuple[list[str], list[str]]:
    """What the command's parser knows, and --key value pairs of recipes, wherever they stand.

    Args:
        words: the command line.
    """
    own = _OWN_FLAGS.get(words[0]) if words else None
    if own is None:
        return list(words), []
    kept: list[str] = []
    rest: list[str] = []
    left = list(words)
    while left:
        word = left.pop(0)
        ours = not word.startswith("--") or word.partition("=")[0] in own
        (kept if ours else rest).append(word)
        if not ours and "=" not in word and left and not left[0].startswith("--"):
            rest.append(left.pop(0))
    return kept, rest


def parse_overrides(words: Sequence[str]) -> dict[str, Any]:
    """Values by dotted key from --key value or --key=value.

    Args:
        words: what is left of the command line.
    """
    found: dict[str, Any] = {}
    left = list(words)
    while left:
        word = left.pop(0)
        if not word.startswith("--"):
            raise RecipeError(f"{word!r} stands alone; settings are --key value.")
        key, equals, text = word[2:].partition("=")
        if not equals:
            if not left or left[0].startswith("--"):
                raise RecipeError(f"--{key} wants a value.")
            text = left.pop(0)
        found[key] = parse_setting(key, text)
    return found


def data_overrides(overrides: Mapping[str, Any]) -> tuple[str | None, dict[str, Any]]:
    """The root and the options of a data set, the only settings that an evaluation may change.

    Args:
        overrides: values by dotted key.
    """
    root, extra = overrides.get("data.root"), {}
    for key, value in overrides.items():
        if key == "data.root":
            continue
        if not key.startswith("data.options."):
            close = get_close_matches(key, ["data.root", "data.options", "split", "out"], n=1)
            hint = f"Did you mean --{close[0]}?" if close else "It takes --data.root and --split."
            raise RecipeError(f"evaluate has no setting --{key}. {hint}")
        extra[key.removeprefix("data.options.")] = value
    return None if root is None else str(root), extra
