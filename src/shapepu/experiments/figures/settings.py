"""Dice against a setting: how a method does with fewer cases, shorter scribbles and the like."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any, NamedTuple

from matplotlib.figure import Figure
from matplotlib.ticker import NullLocator

from shapepu.evaluation.report.axes import style_axes
from shapepu.evaluation.report.palette import MUTED
from shapepu.evaluation.statistics import Interval
from shapepu.experiments.definition import Curve
from shapepu.experiments.figures.drawing import WIDTH, Drawing, legend_right, row_style, wrapped
from shapepu.experiments.outcome import DataOutcome, Outcome, RowOutcome

LOG_SCALE_FROM = 10.0
"""The axis is logarithmic when the largest value of the setting is this many times the smallest."""

ALL_CASES = "data.cases"
"""The setting that may be None, for as many patients as there are."""


class Point(NamedTuple):
    x: float
    mean: float
    interval: Interval


def setting_drawings(outcome: Outcome, table: DataOutcome) -> list[Drawing]:
    """A figure for each curve that the experiment asks for and that has a point."""
    made = [
        _drawing(outcome, table, curve, f"{table.data}-curve{place}")
        for place, curve in enumerate(outcome.experiment.curves, start=1)
    ]
    return [drawing for drawing in made if drawing is not None]


def points_by_method(outcome: Outcome, table: DataOutcome, curve: Curve) -> dict[str, list[Point]]:
    """The finished rows of a curve, by method and from left to right; rows without a number are left out."""
    rows = [row for row in table.finished if row.row.name in curve.rows]
    found: dict[str, list[Point]] = {}
    for row in rows:
        x = _setting(outcome, row, curve.x, rows)
        if x is not None:
            point = Point(x, row.spread("dice").mean, table.interval(row, "dice"))
            found.setdefault(row.row.method, []).append(point)
    return {method: sorted(points) for method, points in found.items()}


def _drawing(outcome: Outcome, table: DataOutcome, curve: Curve, name: str) -> Drawing | None:
    found = points_by_method(outcome, table, curve)
    if not found:
        return None
    figure = Figure(figsize=(WIDTH, 3.4))
    axes = figure.add_axes((0.05, 0.15, 0.68, 0.73))
    style_axes(axes, "Average Dice", legend=False)
    ticks = sorted({point.x for points in found.values() for point in points})
    if ticks[0] > 0 and ticks[-1] >= LOG_SCALE_FROM * ticks[0]:
        axes.set_xscale("log")
    for place, (method, points) in enumerate(found.items()):
        style = row_style(place)
        x, means = [point.x for point in points], [point.mean for point in points]
        axes.plot(x, means, **style, linewidth=1.8, marker="o", markersize=5, label=wrapped(method))
        for point in points:
            if not math.isnan(point.interval.low):
                low, high = point.interval.low, point.interval.high
                axes.vlines(point.x, low, high, color=style["color"], linewidth=1.1, alpha=0.7)
    axes.set_xticks(ticks, [f"{tick:g}" for tick in ticks])
    axes.xaxis.set_minor_locator(NullLocator())
    label = curve.label or curve.x
    axes.set_xlabel(label, color=MUTED, fontsize=9, loc="right", labelpad=2, parse_math=False)
    if len(found) > 1:
        legend_right(axes)
    caption = (
        f"Mean over {len(table.cases)} volumes of the average Dice against {label}; upright lines are 95 % "
        "bootstrap intervals that draw patients."
    )
    lacking = [name for name in curve.rows if name not in {row.row.name for row in table.finished}]
    if lacking:
        caption += f" Not there: {', '.join(outcome.experiment.row(name).label for name in lacking)}."
    return Drawing(name, f"Dice against {label}", caption, figure)


def _setting(outcome: Outcome, row: RowOutcome, name: str, others: Sequence[RowOutcome]) -> float | None:
    """The value of a setting of a row, as a number."""
    value = _at(row.records[0].settings, name)
    if value is None and name == ALL_CASES:
        return _all_patients(row, others)
    return float(value) if isinstance(value, (int, float)) and not isinstance(value, bool) else None


def _at(settings: Any, name: str) -> Any:
    for part in name.split("."):
        settings = settings.get(part) if isinstance(settings, dict) else None
    return settings


def _all_patients(row: RowOutcome, others: Sequence[RowOutcome]) -> float:
    """How many patients all volumes are of, by the volumes of a row that says its number of patients."""
    volumes = row.records[0].training_cases
    for other in others:
        first = other.records[0]
        if patients := _at(first.settings, ALL_CASES):
            return float(round(volumes * patients / first.training_cases))
    return float(volumes)
