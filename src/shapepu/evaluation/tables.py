"""Scores as plain text, to read at a terminal and to paste into a message."""

from __future__ import annotations

import math
import textwrap
from collections.abc import Mapping, Sequence

from shapepu.evaluation.comparison import COMPARISON_DEFINITIONS, Comparison
from shapepu.evaluation.metrics import DEFINITIONS
from shapepu.evaluation.results import Evaluation
from shapepu.evaluation.statistics import Interval, Spread

_COLUMNS = {
    "dice": ("Dice", 3),
    "hd_mm": ("HD mm", 1),
    "hd95_mm": ("HD95 mm", 1),
    "assd_mm": ("ASSD mm", 2),
    "volume_error_ml": ("volume error ml", 1),
    "volume_error_percent": ("volume error %", 1),
}
"""The scores shown, with their heading and decimals."""


def scores_table(evaluation: Evaluation, *, footnotes: bool = True) -> str:
    """One row a structure and one for their average, then the definitions and notes."""
    header = ["", *(heading for heading, _ in _COLUMNS.values()), "volumes", "both empty", "one empty"]
    rows = []
    for structure in (*evaluation.structures, None):
        scores = [_spread(evaluation.spread(m, structure), digits) for m, (_, digits) in _COLUMNS.items()]
        empties = [str(evaluation.count(claim, structure)) for claim in ("both_empty", "one_empty")]
        rows.append([structure or "average", *scores, str(len(evaluation.cases)), *empties])
    table = aligned([header, *rows])
    return f"{table}\n\n{wrapped((DEFINITIONS, *evaluation.notes))}" if footnotes else table


def methods_table(evaluations: Mapping[str, Evaluation]) -> str:
    """One row a method: Dice of each structure and on average, and the average HD95."""
    structures = next(iter(evaluations.values())).structures
    header = ["", *(f"Dice {name}" for name in structures), "Dice average", "HD95 mm", "volumes"]
    rows = []
    for method, evaluation in evaluations.items():
        dice = [_spread(evaluation.spread("dice", name), 3) for name in (*structures, None)]
        hd95 = _spread(evaluation.spread("hd95_mm"), 1)
        rows.append([method, *dice, hd95, str(len(evaluation.cases))])
    return aligned([header, *rows])


def comparison_table(comparison: Comparison) -> str:
    """Mean difference, its interval and the p-values, for each score and structure."""
    header = [
        "",
        "",
        comparison.first,
        comparison.second,
        "difference",
        "95 % interval",
        "p",
        "p (Holm)",
        "n",
    ]
    rows = []
    for row in comparison.rows:
        heading, digits = _COLUMNS[row.metric]
        rows.append(
            [
                heading,
                row.structure,
                _number(row.first_mean, digits),
                _number(row.second_mean, digits),
                _number(row.difference, digits, signed=True),
                _interval(row.interval, digits),
                _p_value(row.test.p_value),
                _p_value(row.p_holm),
                str(row.test.pairs),
            ]
        )
    return "\n\n".join([aligned([header, *rows]), wrapped((COMPARISON_DEFINITIONS, *comparison.notes))])


def aligned(rows: Sequence[Sequence[str]]) -> str:
    """Columns of text: the first to the left, numbers to the right, a line under the heading."""
    widths = [max(len(cell) for cell in column) for column in zip(*rows, strict=True)]
    lines = []
    for row in rows:
        first, *others = (cell.rjust(width) for cell, width in zip(row, widths, strict=True))
        lines.append("  ".join([first.strip().ljust(widths[0]), *others]).rstrip())
    lines.insert(1, "-" * max(map(len, lines)))
    return "\n".join(lines)


def wrapped(notes: Sequence[str]) -> str:
    return "\n".join(textwrap.fill(note, 110) for note in notes)


def _number(value: float, digits: int, *, signed: bool = False) -> str:
    return "-" if math.isnan(value) else f"{value:{'+' if signed else ''}.{digits}f}"


def _spread(spread: Spread, digits: int) -> str:
    if math.isnan(spread.sd):
        return _number(spread.mean, digits)
    return f"{spread.mean:.{digits}f} ± {spread.sd:.{digits}f}"


def _interval(interval: Interval, digits: int) -> str:
    if math.isnan(interval.low):
        return "-"
    return f"{interval.low:+.{digits}f} to {interval.high:+.{digits}f}"


def _p_value(p: float) -> str:
    if math.isnan(p):
        return "-"
    return "<0.0001" if p < 0.0001 else f"{p:.4f}"
