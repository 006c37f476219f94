"""The numbers of a report as they are printed: a page arranges them and computes nothing."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from shapepu.evaluation.report.contents import Metrics, Scores, ScribbledCase
from shapepu.evaluation.report.palette import class_colours, structure_colours
from shapepu.evaluation.statistics import mean_sd

FEW_CASES = 10

LEVELS = (
    (0.85, "The outlines follow the reference closely."),
    (0.75, "The structures are found and roughly right; expect to correct their outlines."),
    (0.50, "The structures are found in part; the result needs much correction."),
    (0.00, "This is not a segmentation yet."),
)
"""What an average Dice means to a person, from the lowest value it is said of."""


@dataclass(frozen=True)
class Column:
    """A score, how its column is headed and with how many decimals it is printed."""

    name: str
    title: str
    decimals: int

    def show(self, value: float) -> str:
        return f"{value:.{self.decimals}f}".replace("-", "−") if math.isfinite(value) else "–"


COLUMNS = (
    Column("dice", "Dice", 3),
    Column("hd_mm", "HD (mm)", 1),
    Column("hd95_mm", "HD95 (mm)", 1),
    Column("assd_mm", "ASSD (mm)", 2),
    Column("volume_error_ml", "Volume error (ml)", 1),
)
DICE, HD95 = COLUMNS[0], COLUMNS[2]


@dataclass(frozen=True)
class Cell:
    """What is printed, and the number behind it for sorting."""

    text: str
    value: float | None = None
    count: int | None = None
    """Said only where it differs from the count of the row."""


@dataclass(frozen=True)
class Row:
    """A line of a table."""

    title: str
    cells: tuple[Cell, ...]
    colour: str | None = None
    count: int | None = None
    note: str = ""


@dataclass(frozen=True)
class Coverage:
    """How much is scribbled, per class and per case."""

    classes: tuple[Row, ...]
    cases: tuple[Row, ...]
    bars: tuple[tuple[tuple[str, str, float], ...], ...]
    """For each case (class, colour, width in percent of the longest bar)."""
    never_drawn: tuple[str, ...]
    longest_percent: str


def present_columns(scores: Scores) -> tuple[Column, ...]:
    """The columns for which any case has a value."""
    return tuple(
        column
        for column in COLUMNS
        if any(scores.of_structure(structure, column.name) for structure in scores.structures)
    )


def score_rows(scores: Scores, columns: Sequence[Column]) -> tuple[Row, ...]:
    """Mean and sample deviation over cases for each structure, and the average over structures below."""
    rows = []
    for structure, colour in structure_colours(scores.structures).items():
        of_structure = [row for row in scores.rows if row.structure == structure]
        values = (scores.of_structure(structure, column.name) for column in columns)
        cells = _summaries(values, columns, len(of_structure))
        notes = Counter(row.note for row in of_structure if row.note)
        note = ", ".join(f"{count} {text}" for text, count in sorted(notes.items()))
        rows.append(Row(structure, cells, colour, len(of_structure), note))
    if len(rows) > 1:
        means = (list(scores.case_means(column.name).values()) for column in columns)
        rows.append(Row("average", _summaries(means, columns, len(scores.cases)), None, len(scores.cases)))
    return tuple(rows)


def case_rows(scores: Scores) -> tuple[Row, ...]:
    """For each case its mean Dice, then Dice and HD95 of each structure."""
    means = scores.case_means("dice")
    rows = []
    for case in scores.cases:
        found = scores.of_case(case)
        values = [(DICE, means.get(case, math.nan))]
        for column in (DICE, HD95):
            values += [(column, found[s][column.name] if s in found else math.nan) for s in scores.structures]
        cells = tuple(_cell(column, value) for column, value in values)
        notes = "; ".join(f"{name}: {score.note}" for name, score in found.items() if score.note)
        rows.append(Row(case, cells, note=notes))
    return tuple(rows)


def coverage(cases: Sequence[ScribbledCase]) -> Coverage | None:
    """How much is scribbled; None when no case is listed."""
    names = tuple(dict.fromkeys(name for case in cases for name in case.labelled))
    if not cases or len(names) < 2:
        return None
    colours = class_colours(names)
    longest = max(case.share() for case in cases) or 1.0
    labelled, pixels = sum(case.total for case in cases), sum(case.pixels for case in cases)
    totals = {name: sum(case.labelled.get(name, 0) for case in cases) for name in names}
    drawn_in = {name: sum(case.labelled.get(name, 0) > 0 for case in cases) for name in names}
    return Coverage(
        classes=tuple(
            Row(
                title=name,
                cells=(
                    Cell(f"{totals[name]:,}"),
                    Cell(_percent(totals[name] / labelled) if labelled else "–"),
                    Cell(_percent(totals[name] / pixels) if pixels else "–"),
                    Cell(f"{drawn_in[name]} of {len(cases)}"),
                ),
                colour=colours[name],
            )
            for name in names
        ),
        cases=tuple(
            Row(
                title=case.name,
                cells=(
                    Cell(str(case.slices), case.slices),
                    *(Cell(_percent(case.share(name)), case.share(name)) for name in names),
                    Cell(_percent(case.share()), case.share()),
                ),
            )
            for case in cases
        ),
        bars=tuple(
            tuple((name, colours[name], 100 * case.share(name) / longest) for name in names) for case in cases
        ),
        never_drawn=tuple(name for name in names if not totals[name]),
        longest_percent=_percent(longest),
    )


def verdict(scores: Scores) -> str:
    """In a few plain sentences, what the scores say and where they are weakest."""
    average = scores.average("dice")
    if average is None:
        return "No case has a Dice score."
    sentences = [next(text for lowest, text in LEVELS if average >= lowest)]
    means = {
        structure: mean_sd(scores.of_structure(structure, "dice")).mean for structure in scores.structures
    }
    structures = {structure: mean for structure, mean in means.items() if math.isfinite(mean)}
    if len(structures) > 1:
        weakest = min(structures, key=lambda s: structures[s])
        sentences.append(f"Weakest structure: {weakest} ({structures[weakest]:.3f}).")
    cases = scores.case_means("dice")
    if len(cases) > 1:
        weakest = min(cases, key=lambda case: (cases[case], case))
        sentences.append(f"Weakest case: {weakest} ({cases[weakest]:.3f}).")
    for structure in structures:
        missed = sum(row.structure == structure and row.missed for row in scores.rows)
        if missed:
            sentences.append(f"{structure} is missed altogether in {missed} of {len(scores.cases)} cases.")
    if len(cases) < FEW_CASES:
        sentences.append(f"With {_cases(len(cases))} this is an indication only.")
    return " ".join(sentences)


def unfinished(
    metrics: Metrics | None, epochs: float | None, minutes: float | None, steps: float | None = None
) -> str:
    """How far an unfinished run has come; empty for one that has ended, or of which nothing is known."""
    columns = {"epochs": "epoch", "minutes": "minutes", "steps": "step"}
    ends = {"epochs": epochs, "minutes": minutes, "steps": steps}
    done = {unit: (metrics.last(column) if metrics else None) or 0.0 for unit, column in columns.items()}
    shares = [done[unit] / end for unit, end in ends.items() if end]
    # Times are written with six digits.
    if not shares or max(shares) > 0.9999:
        return ""
    planned = [f"{end:.10g} {unit}" for unit, end in ends.items() if end]
    counted = f"{done['epochs']:.0f} epochs" + (f", {done['steps']:.0f} steps" if steps else "")
    return (
        f"Training has not ended: {counted} and {done['minutes']:.1f} minutes are done of "
        f"{' or '.join(planned)}."
    )


def _cell(column: Column, value: float) -> Cell:
    return Cell(column.show(value), value if math.isfinite(value) else None)


def _summaries(values: Iterable[list[float]], columns: Sequence[Column], count: int) -> tuple[Cell, ...]:
    """Mean ± sd of each column, and over how many cases where it is not all ``count`` of them."""
    cells = []
    for column, found in zip(columns, values, strict=True):
        spread = mean_sd(found)
        text = column.show(spread.mean)
        if math.isfinite(spread.sd):
            text += f" ± {column.show(spread.sd)}"
        left_out = spread.count if 0 < spread.count < count else None
        cells.append(Cell(text, spread.mean if spread.count else None, left_out))
    return tuple(cells)


def _percent(share: float) -> str:
    return f"{100 * share:.2f} %"


def _cases(count: int) -> str:
    return "one case" if count == 1 else f"{count} cases"
