"""What happened while the rows trained: Dice over minutes, and mixture ratios over epochs."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from matplotlib.ticker import MaxNLocator
from numpy.typing import NDArray

from shapepu.evaluation.report.axes import printable, style_axes, tenth_below
from shapepu.evaluation.report.contents import reach_of_pool
from shapepu.evaluation.report.palette import INK, MUTED, structure_colours
from shapepu.experiments.figures.drawing import WIDTH, Drawing, legend_right, row_style, wrapped
from shapepu.experiments.outcome import DataOutcome, RowOutcome
from shapepu.experiments.records import RunRecord

ACROSS = 3
"""Panels of mixture ratios side by side."""

FAINT = 0.35

Line = tuple[NDArray[np.float64], NDArray[np.float64]]


def curves_drawing(table: DataOutcome) -> Drawing | None:
    """Validation Dice over minutes of training; None where no run was watched."""
    styles = {row.row.name: row_style(place) for place, row in enumerate(table.rows)}
    lines = {row.row.name: [_curve(record) for record in row.records if record.curve] for row in table.rows}
    watched = [row for row in table.rows if lines[row.row.name]]
    if not watched:
        return None
    means = {row.row.name: mean_line(lines[row.row.name]) for row in watched}
    figure = Figure(figsize=(WIDTH, 3.6))
    axes = figure.add_axes((0.05, 0.13, 0.62, 0.76))
    style_axes(axes, "Validation Dice", legend=False)
    for row in sorted(watched, key=lambda row: -float(means[row.row.name][1][-1])):
        name = row.row.name
        several = len(lines[name]) > 1
        for minutes, dice in lines[name] if several else ():
            axes.plot(minutes, dice, **styles[name], linewidth=0.8, alpha=FAINT)
        minutes, dice = means[name]
        label = f"{wrapped(row.row.label)}  {dice[-1]:.3f}"
        mark = "o" if len(minutes) == 1 else None
        axes.plot(minutes, dice, **styles[name], linewidth=1.8, marker=mark, label=label)
    _minutes_axis(axes, [line for found in lines.values() for line in found])
    legend_right(axes)
    several = any(len(found) > 1 for found in lines.values())
    caption = (
        "Mean Dice on the validation volumes while training, as predicted on the training grid; the table "
        "has the native grid after post-processing. The legend goes by the last value."
    )
    if several:
        caption += " Thin: each seed. Thick: their mean, over the time that all of them have."
    return Drawing(f"{table.data}-training", "Dice over minutes of training", caption, figure)


def _curve(record: RunRecord) -> Line:
    points = [(point.minutes, point.dice) for point in record.curve]
    minutes, dice = np.array(points, dtype=np.float64).T
    return minutes, dice


def mean_line(lines: Sequence[Line]) -> Line:
    """The mean of several lines where all of them are; between two points a line is straight."""
    start, end = max(x[0] for x, _ in lines), min(x[-1] for x, _ in lines)
    together = np.unique(np.concatenate([x for x, _ in lines]))
    together = together[(together >= start) & (together <= end)]
    if not len(together):  # runs that never trained at the same time of their lives have no mean
        return lines[0]
    return together, np.mean([np.interp(together, x, y) for x, y in lines], axis=0)


def _minutes_axis(axes: Axes, lines: Sequence[Line]) -> None:
    axes.set_xlim(0, 1.01 * max(float(minutes[-1]) for minutes, _ in lines))
    axes.set_ylim(tenth_below(min(float(dice.min()) for _, dice in lines)), 1.0)
    axes.tick_params(axis="x", pad=7)  # clear of the lowest number of the other axis
    axes.set_xlabel("minutes", color=MUTED, fontsize=9, loc="right", labelpad=2)


def ratios_drawing(table: DataOutcome) -> Drawing | None:
    """Mixture ratios over epochs, a panel a row, against the true ones; None where no row has any."""
    rows = [row for row in table.rows if any(record.ratios for record in row.records)]
    if not rows:
        return None
    lines = -(-len(rows) // ACROSS)
    height = 0.45 + 2.5 * lines
    figure = Figure(figsize=(WIDTH, height))
    grid = figure.add_gridspec(
        lines,
        min(ACROSS, len(rows)),
        left=0.05,
        right=0.985,
        bottom=0.45 / height,
        top=1 - 0.75 / height,
        wspace=0.14,
        hspace=0.62,
    )
    highest = 0.0
    panels = [figure.add_subplot(grid[divmod(place, ACROSS)]) for place in range(len(rows))]
    for row, axes in zip(rows, panels, strict=True):
        style_axes(axes, wrapped(row.row.label, 40), legend=False)
        highest = max(highest, _draw_ratios(axes, row, table.structures))
    for axes in panels:  # the same scale, so that rows can be compared
        axes.set_ylim(0, 1.08 * highest or 1.0)
    _ratios_legend(figure, table.structures)
    return Drawing(f"{table.data}-ratios", "Mixture ratios over training", _ratios_caption(rows), figure)


def _draw_ratios(axes: Axes, row: RowOutcome, structures: Sequence[str]) -> float:
    """The ratios of every seed in percent; the largest value that is drawn."""
    colours, highest = structure_colours(structures), 0.0
    records = [record for record in row.records if record.ratios]
    width, alpha = (1.6, 1.0) if len(records) == 1 else (1.0, 0.7)
    for record in records:
        epochs = [point.epoch for point in record.ratios]
        for name, colour in colours.items():
            percent = [100 * point.ratios.get(name, np.nan) for point in record.ratios]
            mark = "o" if len(epochs) == 1 else None
            axes.plot(epochs, percent, color=colour, marker=mark, markersize=4, linewidth=width, alpha=alpha)
            truth = 100 * (_comparable_truth(record) or {}).get(name, np.nan)
            axes.axhline(truth, color=colour, linewidth=1.1, linestyle=(0, (4, 2)))
            highest = float(np.nanmax([highest, truth, *percent]))
        used = [point.epoch for point in record.ratios if point.negative_active]
        if used and used[0] > epochs[0]:
            axes.axvline(used[0], color=MUTED, linewidth=0.9, linestyle=(0, (1, 1.5)))
    axes.xaxis.set_major_locator(MaxNLocator(integer=True, nbins=6, min_n_ticks=1))
    axes.set_xlabel("epoch", color=MUTED, fontsize=9, loc="right", labelpad=2)
    return highest


def _comparable_truth(record: RunRecord) -> dict[str, float] | None:
    """The true ratios, where they are of the pixels that the estimate is of."""
    return record.true_ratios if reach_of_pool(record.settings) is None else None


def _ratios_legend(figure: Figure, structures: Sequence[str]) -> None:
    handles = [
        Line2D([], [], color=colour, linewidth=1.6, label=printable(name))
        for name, colour in structure_colours(structures).items()
    ]
    handles += [
        Line2D([], [], color=INK, linewidth=1.2, label="estimated"),
        Line2D([], [], color=INK, linewidth=1.2, linestyle=(0, (4, 2)), label="true"),
    ]
    legend = figure.legend(
        handles=handles,
        loc="upper left",
        bbox_to_anchor=(0.035, 1.0),
        ncols=len(handles),
        frameon=False,
        fontsize=9,
        handlelength=1.8,
        labelcolor=INK,
        borderaxespad=0.1,
    )
    for text in legend.get_texts():
        text.set_parse_math(False)


def _ratios_caption(rows: Sequence[RowOutcome]) -> str:
    records = [record for row in rows for record in row.records if record.ratios]
    sources = {record.true_ratios_from for record in records if _comparable_truth(record)}
    near = [
        row.row.label
        for row in rows
        if any(reach_of_pool(record.settings) is not None for record in row.records)
    ]
    said = {"train": "training", "val": "validation"}
    masks = " and ".join(said[source] for source in ("train", "val") if source in sources)
    caption = "Share of each structure among the unlabelled pixels, in percent, after each epoch"
    if len(records) > len(rows):
        caption += ", a line a seed"
    caption += "."
    if masks:
        caption += f" Dashed: the true share, counted on the dense masks of the {masks} volumes."
    elif not near:
        caption += " There are no dense masks to count the true shares on."
    if near:
        caption += (
            f" {', '.join(near)}: among the unlabelled pixels within reach of a structure's scribbles, on "
            "which no true share is counted."
        )
    if any(point.negative_active for record in records for point in record.ratios):
        caption += " Dotted upright line: where a method begins to learn from its ratios, if it waits."
    return caption
