"""A comparison as one HTML file that needs nothing but itself: pictures, style and script are all inside."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from markupsafe import Markup

from shapepu._version import __version__
from shapepu.evaluation.report.inline_svg import inline_svg
from shapepu.evaluation.report.page import templates
from shapepu.experiments.figures.cases import ComparedCase
from shapepu.experiments.figures.drawing import Drawing
from shapepu.experiments.markup import grouped
from shapepu.experiments.outcome import DataOutcome, Outcome
from shapepu.experiments.tables import (
    BEST,
    DECIMALS,
    SECOND,
    DataTables,
    budget_line,
    command_line,
)

LONG_TABLE = 30
"""Lines; a longer table of differing settings is folded away."""


@dataclass(frozen=True)
class Section:
    """All that is shown of one data set."""

    table: DataOutcome
    tables: DataTables
    drawings: Sequence[Drawing]
    cases: Sequence[ComparedCase]


@dataclass(frozen=True)
class Picture:
    """A drawing inside the page."""

    title: str
    svg: Markup
    caption: str


@dataclass(frozen=True)
class CasePicture:
    """A case, and the drawing of it if there is one."""

    role: str
    name: str
    mean: str
    svg: Markup | None
    caption: str
    problems: tuple[str, ...]


def page(outcome: Outcome, sections: Sequence[Section]) -> str:
    """The report as text."""
    template = templates().get_template("comparison.html.jinja", globals=_NAMES)
    experiment = outcome.experiment
    return template.render(
        title=experiment.title or experiment.name,
        note=experiment.note,
        tiles=_tiles(outcome),
        verdicts=[sentence for table in outcome.tables if (sentence := verdict(table))],
        budget=budget_line(outcome.plan),
        command=command_line(outcome),
        absent=outcome.absent,
        failed=_failed(outcome),
        sections=[_section(section) for section in sections],
        version=__version__,
    )


_NAMES: dict[str, Any] = {"BEST": BEST, "SECOND": SECOND, "LONG_TABLE": LONG_TABLE, "grouped": grouped}


def verdict(table: DataOutcome) -> str:
    """The best row by the average Dice, in a sentence; empty while there is nothing to compare."""
    ranked = sorted(table.finished, key=lambda row: -row.spread("dice").mean)
    if len(ranked) < 2:
        return ""
    digits = DECIMALS["dice"]
    told = [f"{row.row.label} ({row.spread('dice').mean:.{digits}f})" for row in ranked[:2]]
    sentence = f"{table.data}: best average Dice {told[0]}, next {told[1]}."
    waiting = len(table.rows) - len(ranked)
    return f"{sentence} Of {len(table.rows)} rows, {waiting} without a result." if waiting else sentence


def _tiles(outcome: Outcome) -> list[tuple[str, str]]:
    """The figures at the top: title and value."""
    finished = sum(len(table.finished) for table in outcome.tables)
    asked = sum(len(table.rows) for table in outcome.tables)
    tiles = [
        ("rows with a result", f"{finished} of {asked}"),
        ("runs", str(len(outcome.records))),
        ("minutes of training in all", f"{sum(record.minutes for record in outcome.records):.0f}"),
    ]
    tiles += [
        (f"volumes of {table.data}, {table.patients} patients", str(len(table.cases)))
        for table in outcome.tables
    ]
    return tiles


def _failed(outcome: Outcome) -> list[str]:
    """A line for each run that ended in an error."""
    labels = {row.name: row.label for row in outcome.experiment.rows}
    return [
        f"{labels.get(run.row, run.row)} on {run.data}, seed {run.seed}, failed: {run.error}"
        for run in outcome.failed
    ]


def _section(section: Section) -> dict[str, Any]:
    return {
        "data": section.table.data,
        "tables": section.tables,
        "drawings": [_picture(drawing) for drawing in section.drawings],
        "cases": [_case_picture(case) for case in section.cases],
    }


def _picture(drawing: Drawing) -> Picture:
    description = f"{drawing.title}. {drawing.caption}"
    return Picture(
        drawing.title, Markup(inline_svg(drawing.figure, drawing.name, description)), drawing.caption
    )


def _case_picture(case: ComparedCase) -> CasePicture:
    picture = _picture(case.drawing) if case.drawing else None
    return CasePicture(
        role=case.role,
        name=case.name,
        mean=f"{case.mean_dice:.{DECIMALS['dice']}f}",
        svg=picture.svg if picture else None,
        caption=picture.caption if picture else "",
        problems=case.problems,
    )
