"""``shapepu methods``: what can be trained, from what, at what cost, and where it was published."""

from __future__ import annotations

import inspect
import textwrap
from collections.abc import Iterator
from dataclasses import asdict, dataclass, fields, is_dataclass
from typing import TYPE_CHECKING, Annotated, Any

import tyro

from shapepu.cli.arguments import parse
from shapepu.cli.listing import print_rows

if TYPE_CHECKING:
    from shapepu.methods import MethodEntry

FOOTER = """
time and memory are those of a training step, as multiples of pce's: python benchmarks/method_cost.py
more about one: shapepu methods NAME, and docs/methods.md"""


@dataclass(frozen=True)
class MethodsArguments:
    """List the training methods: what each learns from, what a step costs, and where it was published."""

    name: Annotated[str, tyro.conf.Positional, tyro.conf.arg(metavar="[NAME]")] = ""
    """Tell more about this one, with its options."""
    as_json: Annotated[tyro.conf.FlagCreatePairsOff[bool], tyro.conf.arg(name="json")] = False
    """Print JSON instead of a table."""


def run(argv: list[str]) -> int:
    arguments = parse(MethodsArguments, argv, "methods")
    from shapepu.methods import METHODS, find_method
    from shapepu.methods.cost import measured_costs

    costs = measured_costs()
    chosen = {arguments.name: find_method(arguments.name)} if arguments.name else METHODS
    if arguments.name and not arguments.as_json:
        print(_description(arguments.name, chosen[arguments.name]))
        return 0
    rows = [
        {
            "method": name,
            "what": entry.title,
            "needs": ", ".join(sorted(entry.needs)),
            "time": f"{costs[name].time:.1f}x",
            "memory": f"{costs[name].memory:.1f}x",
            "paper": entry.paper,
        }
        for name, entry in chosen.items()
    ]
    if arguments.as_json:
        # Numbers, where a table has words for people.
        rows = [row | asdict(costs[row["method"]]) for row in rows]
    print_rows(rows, as_json=arguments.as_json)
    if not arguments.as_json:
        print(FOOTER)
    return 0


def _description(name: str, entry: MethodEntry) -> str:
    """What the docstring says first, the facts, then the options of ``fast`` and how ``paper`` differs."""
    from shapepu.methods.cost import measured_costs

    said = (inspect.getdoc(entry.method) or "").split("\n\n", maxsplit=1)[0].replace("\n", " ")
    options = list(_options(entry.options("fast"), entry.options("paper")))
    width = max((len(option) for option, _ in options), default=0)
    return "\n".join(
        [
            f"{name}: {entry.title}",
            *textwrap.wrap(said, 100),
            "",
            f"needs   {', '.join(sorted(entry.needs))}",
            f"cost    {measured_costs()[name]}",
            f"paper   {entry.paper}",
            "",
            f"options of shapepu train --method {name}, as recipe fast has them"
            if options
            else "it has no options",
            *(f"  --{name}.{option:{width}}  {value}" for option, value in options),
        ]
    )


def _options(fast: Any, paper: Any, prefix: str = "") -> Iterator[tuple[str, str]]:
    """Every option by its name on the command line, with the value of ``paper`` where that differs."""
    for each in fields(fast):
        name, ours, theirs = (
            prefix + each.name.replace("_", "-"),
            *(getattr(options, each.name) for options in (fast, paper)),
        )
        if is_dataclass(ours):
            yield from _options(ours, theirs, f"{name}.")
        else:
            yield name, str(ours) if ours == theirs else f"{ours}  (recipe paper: {theirs})"
