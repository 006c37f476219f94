"""``shapepu report``: one HTML file about a run."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

import tyro

from shapepu.cli.arguments import parse


@dataclass(frozen=True)
class ReportArguments:
    """Write one HTML file about a run, to open offline: scores, cases, curves, scribbles, settings.

    Works for a run that has not ended, too. Prints the path of the file.
    """

    run: Annotated[tyro.conf.Positional[Path], tyro.conf.arg(metavar="RUN")]
    """A run folder, as written by `shapepu train`."""

    output: Annotated[Path | None, tyro.conf.arg(aliases=["-o"], metavar="FILE")] = None
    """The file to write; report.html in the run folder when not given."""


def run(argv: list[str]) -> int:
    """Write the report and print where it is."""
    arguments = parse(ReportArguments, argv, "report")

    from shapepu.evaluation.report.page import write_report

    print(write_report(arguments.run, arguments.output))
    return 0
