"""Frozen dataclasses to plain YAML and back, with unknown or ill-typed entries named."""

from __future__ import annotations

import dataclasses
import types
from typing import Any, Literal, TypeVar, Union, get_args, get_origin, get_type_hints

from shapepu.errors import InputError

Settings = TypeVar("Settings")


def to_plain(value: Any) -> Any:
    """Dataclasses become dicts and tuples become lists, all the way down; the rest stays."""
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        return {f.name: to_plain(getattr(value, f.name)) for f in dataclasses.fields(value)}
    if isinstance(value, dict):
        return {key: to_plain(item) for key, item in value.items()}
    if isinstance(value, (list, tuple)):
        return [to_plain(item) for item in value]
    return value


def from_plain(
    kind: type[Settings], plain: Any, where: str = "config", default: Settings | None = None
) -> Settings:
    """The inverse of :func:`to_plain` for the dataclass ``kind``.

    Args:
        kind: what to make.
        plain: its settings; what is left out is as in ``default``, or has the default of its field.
        where: names the place in messages.
        default: the settings that ``plain`` may change.
    """
    if not isinstance(plain, dict):
        raise InputError(f"{where}: expected a mapping of settings, got {plain!r}.")
    hints = get_type_hints(kind)
    known = [f.name for f in dataclasses.fields(kind)]  # type: ignore[arg-type]
    unknown = sorted(set(plain) - set(known))
    if unknown:
        raise InputError(f"{where}: unknown setting {unknown[0]!r}. Known: {', '.join(known)}.")
    missing = [] if default is not None else sorted(_required(kind) - set(plain))
    if missing:
        raise InputError(f"{where}: {missing[0]!r} is missing; add it.")
    values = {name: _convert(hints[name], item, f"{where}.{name}") for name, item in plain.items()}
    return kind(**values) if default is None else dataclasses.replace(default, **values)  # type: ignore[type-var]


def _required(kind: type[Any]) -> set[str]:
    """Names of the fields that have no default."""
    absent = dataclasses.MISSING
    return {f.name for f in dataclasses.fields(kind) if f.default is absent and f.default_factory is absent}


def _convert(hint: Any, item: Any, where: str) -> Any:
    if hint is Any:
        return item
    if dataclasses.is_dataclass(hint) and isinstance(hint, type):
        return from_plain(hint, item, where)
    origin, arguments = get_origin(hint), get_args(hint)
    if origin in (Union, types.UnionType):
        return _convert_union(arguments, item, where)
    if origin is Literal:
        return _checked(item in arguments, item, f"one of {', '.join(map(str, arguments))}", where)
    if origin is tuple:
        return _convert_tuple(arguments, item, where)
    if origin is dict:
        _checked(isinstance(item, dict), item, "a mapping", where)
        return {key: _convert(arguments[1], value, f"{where}.{key}") for key, value in item.items()}
    if hint is float:
        number = isinstance(item, (int, float)) and not isinstance(item, bool)
        return float(_checked(number, item, "a number", where))
    right = isinstance(item, hint) and not (hint is int and isinstance(item, bool))
    return _checked(right, item, f"a value of type {hint.__name__}", where)


def _convert_union(arguments: tuple[Any, ...], item: Any, where: str) -> Any:
    if item is None and type(None) in arguments:
        return None
    problems = []
    for candidate in arguments:
        if candidate is type(None):
            continue
        try:
            return _convert(candidate, item, where)
        except InputError as error:
            problems.append(error)
    raise problems[0]


def _convert_tuple(arguments: tuple[Any, ...], item: Any, where: str) -> tuple[Any, ...]:
    _checked(isinstance(item, (list, tuple)), item, "a list", where)
    if len(arguments) == 2 and arguments[1] is Ellipsis:
        arguments = (arguments[0],) * len(item)
    _checked(len(item) == len(arguments), item, f"a list of {len(arguments)} values", where)
    return tuple(_convert(hint, part, where) for hint, part in zip(arguments, item, strict=True))


def _checked(right: bool, item: Any, expected: str, where: str) -> Any:
    if not right:
        raise InputError(f"{where}: expected {expected}, got {item!r}.")
    return item
