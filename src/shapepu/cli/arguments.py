"""From a frozen dataclass to command-line options, the same way for every verb."""

from __future__ import annotations

from typing import TypeVar

import tyro

Arguments = TypeVar("Arguments")


def parse(arguments: type[Arguments], argv: list[str], verb: str) -> Arguments:
    """Fill ``arguments`` from ``argv``; its docstring and the docstrings of its fields are the help text.

    A malformed command line prints a message and exits with code 2, as wrong input does everywhere here.
    """
    return tyro.cli(arguments, args=argv, prog=f"shapepu {verb}")
