"""The colours of every figure, stated once: a structure keeps its colour from the log picture to the report.

The first three hues stay apart for people with any of the common forms of colour blindness, and all are of
middling lightness, so that the same line can be seen on white paper, on a dark page and on a grey image.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterable

INK = "#1f2328"
"""Text and the lines that matter most."""

MUTED = "#667079"
"""Axis labels, and lines that stand for nothing a reader has to tell apart."""

GRID = "#dde2e7"
PAPER = "#ffffff"

BACKGROUND = "#b4bec8"
"""The background class, where it is shown at all."""

STRUCTURES = (
    "#2e86de",
    "#e08a00",
    "#d6408a",
    "#1f8f6b",
    "#6a4be0",
    "#7a5215",
    "#3bb8d6",
    "#b3a14a",
)

TERMS = ("#0f8b8d", "#9a5b2c", "#6b5fc7", "#7c8a25", "#a03c5b")
"""Loss terms, method options and the like: whatever is not a structure."""

_KNOWN = {
    STRUCTURES[0]: ("rv", "right ventricle", "right ventricular cavity"),
    STRUCTURES[1]: ("myo", "myocardium", "lv myocardium", "left ventricular myocardium"),
    STRUCTURES[2]: ("lv", "left ventricle", "left ventricular cavity"),
}


def structure_colours(names: Iterable[str]) -> dict[str, str]:
    """A colour for each name, in their order: the heart's own for a known one, else the next free."""
    names = list(names)
    known = {name: _known_colour(name) for name in names}
    free = itertools.cycle([c for c in STRUCTURES if c not in known.values()] or STRUCTURES)
    return {name: known[name] or next(free) for name in known}


def class_colours(names: Iterable[str]) -> dict[str, str]:
    """As :func:`structure_colours`, for names of which the first is the background."""
    background, *structures = names
    return {background: BACKGROUND, **structure_colours(structures)}


def _known_colour(name: str) -> str | None:
    plain = name.casefold().replace("_", " ").replace("-", " ").strip()
    return next((colour for colour, synonyms in _KNOWN.items() if plain in synonyms), None)
