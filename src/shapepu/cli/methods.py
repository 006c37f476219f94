"""``shapepu methods``: what can be trained, from what, and where it was published."""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import Annotated

import tyro

from shapepu.cli.arguments import parse


@dataclass(frozen=True)
class MethodsArguments:
    """List the training methods, the supervision each needs, and where it was published."""

    as_json: Annotated[tyro.conf.FlagCreatePairsOff[bool], tyro.conf.arg(name="json")] = False
    """Print JSON instead of a table."""


def run(argv: list[str]) -> int:
    arguments = parse(MethodsArguments, argv, "methods")
    from shapepu.methods import METHODS

    rows = [
        {"method": name, "what": entry.title, "needs": ", ".join(sorted(entry.needs)), "paper": entry.paper}
        for name, entry in METHODS.items()
    ]
    if arguments.as_json:
        print(json.dumps(rows, indent=1))
        return 0
    columns = list(rows[0])
    widths = {c: max(len(c), *(len(row[c]) for row in rows)) for c in columns}
    for row in [{c: c for c in columns}, *rows]:
        print("  ".join(row[c].ljust(widths[c]) for c in columns).rstrip())
    return 0
