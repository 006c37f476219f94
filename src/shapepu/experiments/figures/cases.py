"""The worst and the median case as every row sees them: one slice, a panel a row.

These pictures show patients, and they need the run folders, which do not have to come along with the records:
what cannot be drawn is said instead.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path

from shapepu.errors import InputError
from shapepu.evaluation.report.contents import ValidationCase, read_validation
from shapepu.evaluation.report.contours import CaseSlices, compared_figure, extremes, read_case
from shapepu.experiments.figures.drawing import Drawing, wrapped
from shapepu.experiments.outcome import DataOutcome, RowOutcome
from shapepu.experiments.records import RunRecord, run_folder
from shapepu.labels import LabelSet

ROLES = ("worst", "median", "only")
"""Of the cases that :func:`extremes` finds: the best is where rows differ least."""

TITLE_LETTERS = 32


@dataclass(frozen=True, eq=False)
class ComparedCase:
    """A case worth looking at.

    Args:
        role: what it stands for.
        name: of the volume.
        mean_dice: over structures, seeds and rows; by this it was chosen.
        drawing: None where no row can be drawn.
        problems: why rows are not drawn, a line each.
    """

    role: str
    name: str
    mean_dice: float
    drawing: Drawing | None = None
    problems: tuple[str, ...] = ()


def compared_cases(results: Path, table: DataOutcome) -> list[ComparedCase]:
    """The worst and the median case by the mean Dice of all rows, so that no row has its own choice."""
    chosen = extremes(table.case_means)
    return [_compared(results, table, role, chosen[role]) for role in ROLES if role in chosen]


def _compared(results: Path, table: DataOutcome, role: str, name: str) -> ComparedCase:
    read: list[CaseSlices] = []
    titles: list[str] = []
    lacking: dict[str, list[str]] = {}
    labels: LabelSet | None = None
    for row in table.finished:
        record = next((each for each in row.records if any(case.case == name for case in each.cases)), None)
        try:
            if record is None:
                raise InputError("was not scored on this case")
            labels, case = _read(run_folder(results, table.data, row.row.name, record.seed), name)
            if any(case.reference.shape != other.reference.shape for other in read):
                raise InputError("its volume has another shape")
            read.append(case)
            titles.append(_panel_title(row, record, name))
        except InputError as error:
            lacking.setdefault(str(error), []).append(row.row.label)
    problems = tuple(f"{', '.join(rows)}: {problem}." for problem, rows in lacking.items())
    mean = table.case_means[name]
    if labels is None or not read:
        return ComparedCase(role, name, mean, None, problems)
    several = any(len(row.seeds) > 1 for row in table.finished)
    caption = (
        "A prediction that is too ragged for a contour is filled. The slice is the one with most wrong "
        "pixels in all rows together, among those where the reference has a structure; it is cut around the "
        "reference, and what a row finds farther away is not seen. Above each picture: the "
        f"average Dice of the volume{' in the run that is shown' if several else ''}."
    )
    figure = compared_figure(read, titles, labels)
    drawing = Drawing(f"{table.data}-{role}-case", f"{role.capitalize()} case: {name}", caption, figure)
    return ComparedCase(role, name, mean, drawing, problems)


def _panel_title(row: RowOutcome, record: RunRecord, name: str) -> str:
    dice = dict(zip(row.cases, row.of_run(record, "dice"), strict=True))[name]
    seed = f", seed {record.seed}" if len(row.seeds) > 1 else ""
    return f"{wrapped(row.row.label, TITLE_LETTERS)}\nDice {dice:.3f}{seed}"


def _read(folder: Path, name: str) -> tuple[LabelSet, CaseSlices]:
    """A case of a run; errors name no folder, so that a report is the same wherever its results lie."""
    listing = folder / "validation" / "cases.json"
    if not listing.is_file():
        raise InputError("the run folder is not beside the records, or has no validation/cases.json")
    try:
        validation = read_validation(listing)
        case = next((case for case in validation.cases if case.name == name), None)
    except (InputError, OSError, ValueError, KeyError, TypeError, IndexError, json.JSONDecodeError) as error:
        raise InputError(f"validation/cases.json is damaged ({type(error).__name__})") from error
    if case is None:
        raise InputError("validation/cases.json does not name this case")
    for what, path in _files(case).items():
        if not path.exists():
            raise InputError(f"the {what} is not there any more ({path.name})")
    try:
        return validation.labels, read_case(case, validation.labels)
    except (InputError, OSError) as error:
        raise InputError("image, prediction or reference cannot be read, or their shapes differ") from error


def _files(case: ValidationCase) -> dict[str, Path]:
    return {"image": case.image, "prediction": case.prediction, "reference": case.reference}
