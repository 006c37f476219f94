"""From a frozen dataclass to command-line options, the same way for every verb."""

from __future__ import annotations

import io
import re
import sys
from collections.abc import Iterator
from contextlib import contextmanager, redirect_stderr
from dataclasses import MISSING, fields, is_dataclass
from typing import Any, TypeVar

import tyro

from shapepu.errors import InputError

Arguments = TypeVar("Arguments")


def parse(arguments: type[Arguments], argv: list[str], verb: str) -> Arguments:
    """Fill ``arguments`` from ``argv``; its docstring and the docstrings of its fields are the help text.

    A malformed command line prints a message and exits with code 2, as wrong input does everywhere here.
    """
    with _own_words():
        return tyro.cli(arguments, args=argv, prog=f"shapepu {verb}")


def parse_known(arguments: type[Arguments], argv: list[str], verb: str) -> tuple[Arguments, list[str]]:
    """As :func:`parse`, with what it does not know left over for the caller to judge."""
    with _own_words():
        return tyro.cli(arguments, args=argv, prog=f"shapepu {verb}", return_unknown_args=True)


@contextmanager
def _own_words() -> Iterator[None]:
    """A value that a dataclass refuses is told in its own line, not in a frame drawn around it."""
    said = io.StringIO()
    try:
        with redirect_stderr(said):
            yield
    except SystemExit as stop:
        cause: BaseException | None = stop
        while cause is not None and not isinstance(cause, InputError):
            cause = cause.__cause__ or cause.__context__
        if cause is not None:
            raise cause from None
        sys.stderr.write(said.getvalue())
        raise


def remove_markup(options: type[Any]) -> None:
    """Take the marks that are meant for documentation pages out of the docstrings of a dataclass of options.

    Help texts are made from these docstrings, and at a terminal such marks are noise.
    """
    text = options.__doc__ or ""
    options.__doc__ = re.sub(r":\w+:`~?([^`]*)`", r"\1", text).replace("``", "")
    for each in fields(options):
        default = each.default_factory() if each.default_factory is not MISSING else each.default
        if is_dataclass(default):
            remove_markup(type(default))
