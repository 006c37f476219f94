"""``shapepu methods``: what can be trained, from what, and where it was published."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated

import tyro

from shapepu.cli.arguments import parse
from shapepu.cli.listing import print_rows


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
    print_rows(rows, as_json=arguments.as_json)
    return 0
