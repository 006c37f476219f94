"""Dice of every volume and of every seed, a line of points for each row."""

from __future__ import annotations

import math

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from shapepu.evaluation.report.axes import BOXES_FROM, draw_box, sideways, tenth_below
from shapepu.evaluation.report.palette import INK, TERMS, structure_colours
from shapepu.evaluation.statistics import mean_sd
from shapepu.experiments.figures.drawing import WIDTH, Drawing, label_inches, name_rows, style_lying
from shapepu.experiments.outcome import DataOutcome
from shapepu.experiments.tables import structure_title

MOST_STRUCTURES = 4
"""Panels beside that of the average; more would be too narrow to read."""


def volumes_drawing(table: DataOutcome) -> Drawing:
    """Dice of every volume by row, on average and for each structure."""
    rows = table.finished
    colours = structure_colours(table.structures)
    panels: list[tuple[str | None, str]] = [(None, TERMS[0])]
    if 1 < len(table.structures) <= MOST_STRUCTURES:
        panels += colours.items()
    values = {name: [row.values("dice", name) for row in rows] for name, _ in panels}
    lowest = min(float(np.nanmin(each)) for found in values.values() for each in found)
    figure, axes = _lying_panels(table, len(panels), 0.44)
    for place, ((name, colour), panel) in enumerate(zip(panels, axes, strict=True)):
        style_lying(panel, "Average" if name is None else structure_title(name))
        for position, each in enumerate(values[name]):
            found = sorted(each[~np.isnan(each)])
            draw_box(panel, position, found, lying=True)
            beside = position + 1.6 * sideways(len(found))
            panel.scatter(found, beside, s=11, color=colour, alpha=0.8, linewidths=0, clip_on=False)
        panel.set_xlim(tenth_below(lowest), 1.0)
        name_rows(panel, rows, shown=place == 0)
    seeds = " after averaging seeds" if _several_seeds(table) else ""
    boxes = (
        "Boxes are quartiles, whiskers reach the extremes, the thick line is the median."
        if len(table.cases) >= BOXES_FROM
        else "The line is the median."
    )
    caption = f"Dice of each of {len(table.cases)} volumes{seeds}, on the native grid. {boxes}"
    return Drawing(f"{table.data}-dice", "Dice by volume", caption, figure)


def seeds_drawing(table: DataOutcome) -> Drawing:
    """The average Dice of every run, and each row's mean over seeds."""
    rows = table.finished
    figure, (axes,) = _lying_panels(table, 1, 0.3)
    style_lying(axes, "Average Dice of each run")
    for position, row in enumerate(rows):
        means = [mean_sd(row.of_run(record, "dice")).mean for record in row.records]
        if len(means) > 1:
            mean = float(np.mean(means))
            axes.vlines(mean, position - 0.28, position + 0.28, color=INK, linewidth=2.0)
        axes.scatter(means, [position] * len(means), s=30, color=TERMS[0], alpha=0.75, linewidths=0, zorder=3)
    name_rows(axes, rows)
    axes.margins(x=0.06)
    caption = "Each point is a run: the mean over volumes of its average Dice."
    if _several_seeds(table):
        caption += " The line is the mean over seeds."
    else:
        caption += " Every row has one run here, so nothing is known yet of how much its seed matters."
    return Drawing(f"{table.data}-seeds", "Stability over seeds", caption, figure)


def _several_seeds(table: DataOutcome) -> bool:
    return any(len(row.seeds) > 1 for row in table.finished)


def _lying_panels(table: DataOutcome, count: int, row_inches: float) -> tuple[Figure, list[Axes]]:
    """Panels side by side with room for the rows' labels at the left."""
    lines = sum(1 + math.ceil(len(row.row.label) / 30 - 1) * 0.4 for row in table.finished)
    height = 0.75 + row_inches * max(lines, 2.0)
    figure = Figure(figsize=(WIDTH, height))
    left = label_inches(table.finished) / WIDTH
    grid = figure.add_gridspec(
        1, count, left=left, right=0.985, bottom=0.3 / height, top=1 - 0.36 / height, wspace=0.2
    )
    return figure, [figure.add_subplot(grid[place]) for place in range(count)]
