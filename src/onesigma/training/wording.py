"""What jsonargparse says of a value that does not fit its type, in our words."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from difflib import get_close_matches
from types import NoneType, UnionType
from typing import Any, Literal, Union, get_args, get_origin

_KEY = re.compile(r'Parser key "([^"]+)"')
# the last one: parts of a value come before the whole
_VALUE = re.compile(r".*(?:Given|Got) value: (.*)$", re.DOTALL)
_WORDS = {
    int: "a whole number",
    float: "a number",
    bool: "true or false",
    str: "a text",
    NoneType: "null",
}
_NUMBERS = {1: "one", 2: "two", 3: "three", 4: "four"}
_EXAMPLES: dict[Any, tuple[str, ...]] = {
    int: ("96", "128", "3", "4"),
    float: ("0.8", "0.1", "0.1", "0.5"),
}


def explain(message: str, prefix: str, type_of: Callable[[list[str]], Any]) -> str:
    """Which setting has which value, and what it wants.

    Args:
        message: of jsonargparse.
        prefix: what stands before its keys in a recipe, with a dot, or nothing.
        type_of: the type of the setting at a key, or None where nobody knows.
    """
    key = ".".join(_KEY.findall(message))
    value, kind = _VALUE.search(message), type_of(key.split("."))
    if value is None or kind is None:
        text = " ".join(line.strip() for line in message.splitlines())
        return text.replace('Parser key "', f'Setting "{prefix}')
    got = " ".join(value[1].split())
    known = [str(x) for part in _parts(kind) if get_origin(part) is Literal for x in get_args(part)]
    close = get_close_matches(got, known, n=1, cutoff=0.5)
    hint = f" Did you mean {close[0]!r}?" if close else ""
    wants = wanted(kind)
    if key.endswith(("size", "crop")):
        wants = wants.replace(" such as [96, 128]", ", [rows, columns],").removesuffix(",")
    return f"{prefix}{key} is {got}; it wants {wants}.{hint}"


def wanted(kind: Any) -> str:
    """A type in words, with an example where its form is not plain.

    Args:
        kind: a type, as annotations have it.
    """
    return " or ".join(map(_one, _parts(kind)))


def _parts(kind: Any) -> tuple[Any, ...]:
    return get_args(kind) if get_origin(kind) in (Union, UnionType) else (kind,)


def _one(kind: Any) -> str:
    origin, inside = get_origin(kind) or kind, get_args(kind)
    if origin is Literal:
        return f"one of {', '.join(map(str, inside))}" if len(inside) > 1 else str(inside[0])
    if origin is tuple and inside and inside[-1] is not Ellipsis:
        count, example = len(inside), ", ".join(_EXAMPLES.get(inside[0], "abcd")[: len(inside)])
        return f"{_NUMBERS.get(count, count)} numbers such as [{example}]"
    if isinstance(origin, type) and origin is not str and issubclass(origin, Sequence):
        if inside == (str,):
            return "a list of names such as [a, b]"
        example = ", ".join(_EXAMPLES.get(inside[0] if inside else int, "ab")[:2])
        return f"a list such as [{example}]"
    if isinstance(origin, type) and issubclass(origin, Mapping):
        return "settings by name such as {name: value}"
    return _WORDS.get(origin, f"a {getattr(origin, '__name__', origin)}")
