"""The registry: every method, what it learns from, and where it was published."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from shapepu.errors import unknown_name
from shapepu.methods.base import Batch, EpochStart, Method, NetworkBuilder, Supervision, Task
from shapepu.methods.full import Full
from shapepu.methods.pce import PCE
from shapepu.methods.shapepu import FAST, ShapePU

__all__ = ["METHODS", "Batch", "EpochStart", "Method", "MethodEntry", "Task", "find_method"]


@dataclass(frozen=True)
class MethodEntry:
    """One row of the registry.

    Args:
        method: the class; its ``Config`` holds the options, its ``needs`` the supervision.
        title: a few words for tables and for ``shapepu methods``.
        paper: where it was published.
        recipes: options that a recipe sets away from the paper's defaults, by the recipe's name.
    """

    method: type[Method]
    title: str
    paper: str
    recipes: Mapping[str, Any] = field(default_factory=dict)

    @property
    def config(self) -> type[Any]:
        return self.method.Config

    def options(self, recipe: str) -> Any:
        """The method's options under ``recipe``."""
        return self.recipes.get(recipe, self.config())

    @property
    def needs(self) -> frozenset[Supervision]:
        return self.method.needs


METHODS: dict[str, MethodEntry] = {
    "pce": MethodEntry(PCE, "partial cross-entropy", "Tang et al., CVPR 2018"),
    "shapepu": MethodEntry(
        ShapePU,
        "mixture ratios, negative loss, global consistency",
        "Zhang & Zhuang, MICCAI 2022",
        {"fast": FAST},
    ),
    "full": MethodEntry(Full, "full supervision by dense masks", "Baumgartner et al., STACOM 2017"),
}


def find_method(name: str) -> MethodEntry:
    """The registered method called ``name``; an unknown name lists the known ones."""
    if name not in METHODS:
        raise unknown_name("method", name, tuple(METHODS))
    return METHODS[name]


def build_method(name: str, options: Any, task: Task, build_network: NetworkBuilder) -> Method:
    """An instance of the method called ``name``; ``options`` None means its defaults."""
    entry = find_method(name)
    return entry.method(entry.config() if options is None else options, task, build_network)
