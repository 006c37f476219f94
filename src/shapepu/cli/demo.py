"""``shapepu demo``: everything once, on synthetic hearts, in three minutes."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

import tyro

from shapepu.cli.arguments import parse
from shapepu.console import say


@dataclass(frozen=True)
class DemoArguments:
    """Make synthetic hearts with scribbles, train ShapePU and PCE on them, and score both on unseen cases."""

    output: Annotated[Path, tyro.conf.arg(aliases=["-o"])] = Path("demo")
    """Folder for data, runs, predictions and report; what is finished in it is used again, and an interrupted
    run goes on."""
    epochs: int = 30
    """Training epochs of each of the two methods."""
    seed: int = 0
    """Of the data and of both runs."""
    quiet: bool = False
    """Print the table alone."""


def run(argv: list[str]) -> int:
    arguments = parse(DemoArguments, argv, "demo")
    say("shapepu demo: synthetic hearts, scribbles, two models, about three minutes", quiet=arguments.quiet)
    from shapepu.demo import run_demo
    from shapepu.evaluation.tables import methods_table

    result = run_demo(
        arguments.output,
        epochs=arguments.epochs,
        seed=arguments.seed,
        quiet=arguments.quiet,
    )
    taught = f"{arguments.epochs} epochs on the same scribbles, seed {arguments.seed}"
    print(f"\nUnseen synthetic hearts, after {taught}:\n")
    print(methods_table(result.scores))
    print(f"\nreport:  {result.report}\npicture: {result.picture}\ntime:    {result.minutes:.1f} minutes")
    return 0
