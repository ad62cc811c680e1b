"""Recipes: YAML files, ours by name, with dotted overrides; mistyped keys get the nearest one."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import asdict, fields, is_dataclass, replace
from difflib import get_close_matches
from importlib import resources
from pathlib import Path
from typing import Any, get_args, get_type_hints

import yaml

from onesigma.training.config import Recipe
from onesigma.training.errors import RecipeError
from onesigma.training.wording import explain

# PyYAML reads 1e-3 as a string: YAML 1.1 wants a point
_FLOAT = re.compile(
    r"([-+]?(\d+\.?\d*|\.\d+)([eE][-+]?\d+)?|[-+]?\.(inf|Inf|INF)|\.(nan|NaN|NAN))$"
)


class _Loader(yaml.SafeLoader):
    """Safe YAML in which 1e-3 is a number."""


_NAMES = ("name", "class_path", "kernel")

_Loader.add_implicit_resolver("tag:yaml.org,2002:float", _FLOAT, list("-+0123456789."))


def recipe_names() -> list[str]:
    """The recipes that come with the library."""
    return sorted(path.stem for path in _folder() if path.name.endswith(".yaml"))


def describe_recipes() -> dict[str, str]:
    """One line for each recipe, by name."""
    return {name: str(recipe_tree(name).get("description", "")) for name in recipe_names()}


def load_recipe(source: str | Path, overrides: Mapping[str, Any] | None = None) -> Recipe:
    """A recipe by name or from a YAML file, with overrides by dotted key.

    Args:
        source: a name of `recipe_names()` or a path.
        overrides: values by dotted key; `stages.0.epochs` is the first stage's, `stages.epochs`
            that of every stage.
    """
    tree = recipe_tree(source)
    settings = overrides or {}
    # a new name drops the options of the old one, so names come before options
    for key in sorted(settings, key=lambda key: key.rpartition(".")[2] not in _NAMES):
        override(tree, key, settings[key])
    return recipe_from_tree(tree)


def recipe_tree(source: str | Path) -> dict[str, Any]:
    """The settings that a recipe spells out, those of its `base` included."""
    tree = _read_yaml(_recipe_path(source))
    base = tree.pop("base", None)
    return tree if base is None else _merge(recipe_tree(_beside(source, base)), tree)


def override(tree: dict[str, Any], key: str, value: Any) -> None:
    """Set one dotted key of a tree, in place; a list without a number means all its entries."""
    _check_dotted(key)
    _set(tree, key.split("."), _plain(value), key)


def recipe_from_tree(tree: Mapping[str, Any]) -> Recipe:
    """The typed recipe, with defaults for what the tree leaves out.

    Args:
        tree: nested settings.
    """
    check_keys(tree, Recipe)
    own = [
        name for name, part in tree.items() if isinstance(part, Mapping) and "class_path" in part
    ]
    # alone in its section, jsonargparse would take that class for the section's type
    sections = {**tree, **{name: {"options": {}, **tree[name]} for name in own}}
    recipe: Recipe = parse_as(Recipe, sections, "recipe")
    if not recipe.stages:
        raise RecipeError("stages is empty; a recipe wants at least one.")
    # a class_path takes the place of our default's name
    unnamed = {
        name: replace(part, name=None)
        for name in ("data", "network", "likelihood", "context")
        if (part := getattr(recipe, name)).class_path is not None
    }
    return replace(recipe, **unnamed)


def parse_as(kind: Any, value: Any, key: str) -> Any:
    """A value as a typed object, by jsonargparse.

    Args:
        kind: a dataclass or any other type.
        value: plain data.
        key: its name, for the error.
    """
    from argparse import ArgumentError

    from jsonargparse import ArgumentParser

    parser = ArgumentParser(exit_on_error=False)
    parser.add_argument(f"--{key}", type=kind)
    try:
        return parser.instantiate(parser.parse_object({key: _plain(value)}))[key]
    except ArgumentError as error:
        text = str(error).replace(f'"{key}.', '"')
        raise RecipeError(explain(text, "", lambda words: _type_below(kind, words))) from error


def as_tree(recipe: Recipe) -> dict[str, Any]:
    """The recipe as plain data for YAML."""
    tree: dict[str, Any] = _plain(asdict(recipe))
    return tree


def write_yaml(recipe: Recipe) -> str:
    """The text of `config.yaml`."""
    return yaml.safe_dump(as_tree(recipe), sort_keys=False, allow_unicode=True)


def parse_value(text: str) -> Any:
    """A value of the command line: YAML, so that 1e-3, [96, 128], true and null mean what they say.

    Args:
        text: what the user wrote.
    """
    return _parse(text, _Loader)


def _parse(text: str, loader: type[yaml.BaseLoader] | type[yaml.SafeLoader]) -> Any:
    try:
        return yaml.load(text, loader)
    except yaml.YAMLError:
        return text


def parse_setting(key: str, text: str) -> Any:
    """The value of one setting; where it is a text or names, 2024_01, on and no are no numbers.

    Args:
        key: dotted.
        text: what the user wrote.
    """
    kind = _type_below(Recipe, key.split("."))
    if kind == (str | None) and text == "null":
        return None
    if kind in (str, str | None):
        return text
    if not key.endswith("classes"):
        return parse_value(text)
    names = _parse(text, yaml.BaseLoader)
    return int(names) if isinstance(names, str) and names.isdigit() else names


def check_keys(tree: Any, kind: type, path: str = "") -> None:
    """Refuse a key that no setting has, naming the nearest one that there is."""
    if not isinstance(tree, Mapping):
        raise RecipeError(
            f"{path or 'The recipe'} is {tree!r}; it wants settings by name: "
            f"{', '.join(field.name for field in fields(kind))}."
        )
    hints = get_type_hints(kind)
    for key, value in tree.items():
        if key not in hints:
            raise RecipeError(_unknown(f"{path}{key}", str(key), list(hints), path))
        inner = _nested(hints[key])
        if inner is None or value is None:
            continue
        many = isinstance(value, Sequence) and not isinstance(value, str)
        for i, entry in enumerate(value if many else [value]):
            check_keys(entry, inner, f"{path}{key}.{f'{i}.' if many else ''}")


def nearest(word: str, known: Sequence[str]) -> str:
    """A sentence that suggests the nearest of the known words, or lists them."""
    close = get_close_matches(word, known, n=1, cutoff=0.5)
    if close:
        return f"Did you mean {close[0]!r}?"
    return f"Choose from {', '.join(known)}." if known else "There are none."


def _unknown(full: str, word: str, known: Sequence[str], path: str) -> str:
    return f"There is no setting {full!r}. {_suggest(word, known, path)}"


def _suggest(word: str, known: Sequence[str], path: str) -> str:
    close = get_close_matches(word, known, n=1, cutoff=0.5)
    if close:
        return f"Did you mean {path + close[0]!r}?"
    return f"The settings of {path.rstrip('.') or 'a recipe'} are {', '.join(known)}."


def _check_dotted(key: str) -> None:
    """Walk the schema along a dotted key; what is below free-form options is not checked here."""
    kind: Any = Recipe
    path = ""
    for word in key.split("."):
        if kind is None:
            return
        if word.isdigit():
            path += f"{word}."
            continue
        hints = get_type_hints(kind)
        if word not in hints:
            raise RecipeError(_unknown(key, word, list(hints), path))
        path += f"{word}."
        kind = _nested(hints[word])
    if path.rstrip(".") != key:
        raise RecipeError(f"There is no setting {key!r}.")


def _type_below(kind: Any, words: Sequence[str]) -> Any:
    """The type of the setting at a key of a dataclass, or None where there is none."""
    for word in words:
        inner = _nested(kind)
        kind = inner and (inner if word.isdigit() else get_type_hints(inner).get(word))
    return kind


def _nested(hint: Any) -> Any:
    """The dataclass in a type, in a list of it too, or None."""
    if is_dataclass(hint):
        return hint
    return next((arg for arg in get_args(hint) if is_dataclass(arg)), None)


def _set(node: Any, words: list[str], value: Any, key: str) -> None:
    word, *rest = words
    if isinstance(node, list):
        _set_in_list(node, words, value, key)
    elif rest:
        child = node.get(word)
        node[word] = child if isinstance(child, dict | list) else _default_of(key, word)
        _set(node[word], rest, value, key)
    else:
        merged = _merge(node, {word: value})
        node.clear()
        node.update(merged)


def _default_of(key: str, word: str) -> Any:
    return [{}] if word == "stages" else {}


def _set_in_list(node: list[Any], words: list[str], value: Any, key: str) -> None:
    word, *rest = words
    if not word.isdigit():
        for entry in node:
            _set(entry, words, value, key)
        return
    if int(word) >= len(node):
        raise RecipeError(f"{key!r}: there are {len(node)} entries, the last is {len(node) - 1}.")
    if rest:
        _set(node[int(word)], rest, value, key)
    else:
        node[int(word)] = value


def _merge(base: Mapping[str, Any], top: Mapping[str, Any]) -> dict[str, Any]:
    """`top` over `base`; a new name drops the options of the old one, {} empties a section."""
    merged = dict(base)
    if any(name in top and top[name] != base.get(name) for name in _NAMES):
        merged = {key: value for key, value in base.items() if key not in ("options", *_NAMES)}
    for key, value in top.items():
        both = isinstance(value, Mapping) and isinstance(merged.get(key), Mapping)
        merged[key] = _merge(merged[key], value) if both and value else value
    return merged


def _folder() -> list[Any]:
    return list((resources.files("onesigma") / "recipes").iterdir())


def _recipe_path(source: str | Path) -> Path:
    path = Path(source)
    if path.suffix in (".yaml", ".yml"):
        if not path.is_file():
            raise RecipeError(f"There is no file {path}; give a recipe's name or a YAML file.")
        return path
    known = {Path(str(entry)).stem: Path(str(entry)) for entry in _folder()}
    if str(source) not in known or str(source) not in recipe_names():
        raise RecipeError(
            f"There is no recipe {str(source)!r}. {nearest(str(source), recipe_names())}"
        )
    return known[str(source)]


def _beside(source: str | Path, base: str) -> str | Path:
    beside = Path(source).parent / base
    return beside if base.endswith((".yaml", ".yml")) else base


def _read_yaml(path: Path) -> dict[str, Any]:
    try:
        tree = yaml.load(path.read_text(encoding="utf-8"), _Loader)
    except (yaml.YAMLError, UnicodeDecodeError) as error:
        raise RecipeError(f"{path} is not YAML: {error}") from error
    if not isinstance(tree, dict):
        raise RecipeError(f"{path} holds {type(tree).__name__}; a recipe is settings by name.")
    return tree


def _plain(value: Any) -> Any:
    """A copy as dicts, lists and scalars; jsonargparse writes into what it is given."""
    if isinstance(value, Mapping):
        return {str(key): _plain(entry) for key, entry in value.items()}
    if isinstance(value, list | tuple):
        return [_plain(entry) for entry in value]
    return value
