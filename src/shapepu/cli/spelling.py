"""From settings back to the command line that says them."""

from __future__ import annotations

import shlex
from collections.abc import Iterator
from dataclasses import fields, is_dataclass
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from shapepu.settings import TrainSettings

MEASURED = ("statistics",)
"""Settings that no option says: they are found out from the data."""


ENDS = ("epochs", "minutes", "steps")
"""As soon as one of them is said, a recipe's own is not in force."""


def section_fields(method: str) -> dict[str, str]:
    """What the command line calls its sections of options, and the fields of the settings that they fill."""
    return {
        method.replace("-", "_"): "method_options",  # tyro writes it with the dash again
        "net": "network_options",
        "training_data": "data",  # DATA itself is the folder
        **{name: name for name in ("preprocessing", "augmentation", "optimisation")},
    }


def train_command(settings: TrainSettings, data: str, run: str) -> str:
    """The command that trains with ``settings``: what its recipe says by itself is not said again."""
    from shapepu.settings import settings_for

    names = {field: section for section, field in section_fields(settings.method).items()} | {"start": "from"}
    recipe = settings_for(settings.recipe, settings.method)
    words = ["shapepu", "train", data, "-o", run, "--method", settings.method, "--recipe", settings.recipe]
    words += _differences(settings, recipe, "", names)
    return shlex.join(words)


def _differences(ours: Any, theirs: Any, prefix: str, names: dict[str, str]) -> Iterator[str]:
    """The options that turn ``theirs`` into ``ours``, level by level."""
    same_kind = type(ours) is type(theirs)
    for each in fields(ours):
        option = prefix + names.get(each.name, each.name).replace("_", "-")
        value, default = getattr(ours, each.name), getattr(theirs, each.name) if same_kind else None
        if (same_kind and value == default) or each.name in MEASURED:
            continue
        if value is None and each.name in ENDS:
            continue
        if is_dataclass(value):
            yield from _differences(value, default, f"{option}.", {})
        else:
            yield from _spelt(option, value)


def _spelt(option: str, value: Any) -> Iterator[str]:
    if isinstance(value, bool):
        section, dot, name = option.rpartition(".")
        yield f"--{section}{dot}{name}" if value else f"--{section}{dot}no-{name}"
        return
    yield f"--{option}"
    yield from map(str, value if isinstance(value, tuple) else (value,))
