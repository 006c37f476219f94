"""What differs between two sets of settings, line by line."""

from __future__ import annotations

from typing import Any

Difference = tuple[str, str, str]
"""The dotted name of a setting, and its two values; a dash where there is none."""

ABSENT = "-"

UNSAID = "None"
"""A setting that has no value."""


def differing_lines(first: Any, second: Any, *, common_only: bool = False) -> list[Difference]:
    """The settings in which two plain mappings differ, in their order.

    Args:
        first, second: as in ``config.yaml``.
        common_only: leave out settings that only one of them has.
    """
    left, right = flattened(first), flattened(second)
    names = [
        name for name in dict.fromkeys((*left, *right)) if not common_only or (name in left and name in right)
    ]
    pairs = ((name, left.get(name, ABSENT), right.get(name, ABSENT)) for name in names)
    return [(name, one, other) for name, one, other in pairs if one != other]


def flattened(plain: Any, prefix: str = "") -> dict[str, str]:
    """Dotted name to value, of a nested mapping."""
    if not isinstance(plain, dict):
        return {prefix: _told(plain)}
    lines: dict[str, str] = {}
    for name, value in plain.items():
        lines |= flattened(value, f"{prefix}.{name}" if prefix else str(name))
    return lines


def _told(value: Any) -> str:
    """Numbers as people write them: 8.0 and 8 are the same setting."""
    if isinstance(value, bool) or not isinstance(value, (int, float)):
        return str(value)
    return f"{value:.12g}"
