"""What a person sees while waiting: one line at once, then progress with an ETA, or plain lines in a log.

Results go to stdout; everything here goes to stderr, so that output can be piped.
"""

from __future__ import annotations

import sys
from collections.abc import Iterable, Iterator
from typing import TypeVar

from tqdm import tqdm

Item = TypeVar("Item")


def say(text: str, *, quiet: bool = False) -> None:
    """One line for the person at the terminal, at once, above any progress bar that is shown."""
    if not quiet:
        tqdm.write(text, file=sys.stderr)
        sys.stderr.flush()


def progress(
    items: Iterable[Item], *, what: str, total: int | None = None, unit: str = "it", quiet: bool = False
) -> Iterator[Item]:
    """``items`` with a progress bar and ETA at a terminal; a log file gets none."""
    return iter(
        tqdm(
            items,
            desc=what,
            total=total,
            unit=unit,
            disable=quiet or not sys.stderr.isatty(),
            dynamic_ncols=True,
            leave=False,
            file=sys.stderr,
        )
    )
