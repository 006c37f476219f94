"""Rows that a verb lists: aligned for a terminal, or as JSON."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any


def print_rows(rows: Sequence[Mapping[str, Any]], *, as_json: bool) -> None:
    """Print ``rows``, which have the same columns; a table leaves the last column ragged."""
    if as_json:
        print(json.dumps(rows, indent=1))
        return
    columns = list(rows[0])
    widths = {name: max(len(name), *(len(str(row[name])) for row in rows)) for name in columns}
    for row in [{name: name for name in columns}, *rows]:
        print("  ".join(str(row[name]).ljust(widths[name]) for name in columns).rstrip())
