"""Curves and box plots, for the picture that a training run redraws and for the report.

Figures are made directly, not through ``pyplot``: no window, no global state, safe in any thread, and quicker
to import.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import NamedTuple

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.gridspec import GridSpec
from matplotlib.ticker import FuncFormatter, LogLocator, MaxNLocator, NullLocator
from numpy.typing import NDArray

from shapepu.evaluation.report.axes import (
    draw_box,
    legend_above,
    printable,
    sideways,
    style_axes,
    tenth_below,
)
from shapepu.evaluation.report.contents import Metrics, Scores, read_metrics
from shapepu.evaluation.report.palette import INK, MUTED, PAPER, TERMS, structure_colours
from shapepu.files import atomic_path

LOG_SCALE_FROM = 8.0
"""A loss is drawn on a logarithmic axis when its largest value is this many times its smallest."""

OUTLIER_FROM = 10.0
"""Distances get a logarithmic axis when the largest is this many times their median."""

PROGRESS_INCHES, PROGRESS_DPI = (12.0, 8.0), 100


class Curve(NamedTuple):
    """One value an epoch, nan where there is none."""

    name: str
    values: NDArray[np.float64]
    colour: str
    width: float = 1.4


class Panel(NamedTuple):
    """A drawing on one pair of axes, and whether a run has what it shows."""

    draw: Callable[[Axes, Metrics], None]
    present: Callable[[Metrics], bool]


def plot_progress(metrics_csv: Path, target_png: Path) -> None:
    """Draw ``progress.png`` from ``metrics.csv``; the old picture stays until the new one is whole."""
    figure = progress_figure(read_metrics(metrics_csv))
    with atomic_path(target_png) as temporary:
        figure.savefig(temporary, format="png", dpi=PROGRESS_DPI, metadata={"Software": None})


def progress_figure(metrics: Metrics) -> Figure:
    """Losses and validation Dice above; mixture ratios, learning rate and speed below, where they exist."""
    figure = Figure(figsize=PROGRESS_INCHES, facecolor=PAPER)
    if not len(metrics):
        figure.text(0.5, 0.5, "No epoch has ended yet.", color=MUTED, ha="center", fontsize=14)
        return figure
    figure.text(0.05, 0.962, _headline(metrics), color=INK, fontsize=14, fontweight="bold", va="center")
    _fill_row(figure, (LOSSES, DICE), metrics, bottom=0.52, top=0.855)
    _fill_row(figure, (RATIOS, LEARNING_RATE, SPEED), metrics, bottom=0.06, top=0.375)
    return figure


def curves_figure(metrics: Metrics) -> Figure:
    """Losses and validation Dice side by side, for the report."""
    figure = Figure(figsize=(10, 3.4))
    _fill_row(figure, (LOSSES, DICE), metrics, bottom=0.13, top=0.80)
    return figure


def ratios_figure(metrics: Metrics) -> Figure:
    """The mixture ratios over the epochs, for the report; only for methods that estimate them."""
    figure = Figure(figsize=(10, 2.9))
    _fill_row(figure, (RATIOS,), metrics, bottom=0.15, top=0.77)
    return figure


def pace_figure(metrics: Metrics) -> Figure:
    """Learning rate and images per second, for the report."""
    figure = Figure(figsize=(10, 2.4))
    _fill_row(figure, (LEARNING_RATE, SPEED), metrics, bottom=0.22, top=0.78)
    return figure


def boxes_figure(scores: Scores) -> Figure:
    """Dice and HD95 of every case, per structure; boxes are quartiles, whiskers reach the extremes."""
    stretched = _has_outlier([row["hd95_mm"] for row in scores.rows])
    titles = {"dice": "Dice", "hd95_mm": f"HD95 (mm{', logarithmic above 1' if stretched else ''})"}
    shown = [(name, title) for name, title in titles.items() if any(_per_structure(scores, name))]
    figure = Figure(figsize=(10, 3.3))
    grid = _row(figure, max(1, len(shown)), bottom=0.11, top=0.88)
    for index, (name, title) in enumerate(shown):
        axes = figure.add_subplot(grid[index])
        style_axes(axes, title, legend=False)
        _draw_boxes(axes, scores, name)
    return figure


def _headline(metrics: Metrics) -> str:
    parts = [f"Epoch {metrics.columns['epoch'][-1]:.0f}"]
    if (minutes := metrics.last("minutes")) is not None:
        parts.append(f"{minutes:.1f} min")
    if (dice := metrics.last("validation.dice")) is not None:
        parts.append(f"validation Dice {dice:.3f}")
    return "  ·  ".join(parts)


def _row(figure: Figure, count: int, *, bottom: float, top: float) -> GridSpec:
    between = 0.14 if count < 3 else 0.19
    return figure.add_gridspec(1, count, left=0.05, right=0.985, bottom=bottom, top=top, wspace=between)


def _fill_row(
    figure: Figure, panels: Sequence[Panel], metrics: Metrics, *, bottom: float, top: float
) -> None:
    present = [panel for panel in panels if panel.present(metrics)]
    grid = _row(figure, max(1, len(present)), bottom=bottom, top=top)
    for index, panel in enumerate(present):
        panel.draw(figure.add_subplot(grid[index]), metrics)


def _draw_losses(axes: Axes, metrics: Metrics) -> None:
    terms = metrics.group("loss")
    total = metrics.get("loss")
    curves = [Curve(name, terms[name], TERMS[i % len(TERMS)]) for i, name in enumerate(terms)]
    if total is not None and len(terms) != 1:
        curves.append(Curve("total", total, INK, 2.0))
    style_axes(axes, "Loss")
    if _spans_magnitudes([curve.values for curve in curves]):
        # A term that is not switched on yet is 0, which has no place on this axis: leave a gap.
        curves = [curve._replace(values=np.where(curve.values > 0, curve.values, np.nan)) for curve in curves]
        _logarithmic(axes)
    _draw_curves(axes, metrics, curves)


def _draw_dice(axes: Axes, metrics: Metrics) -> None:
    per_structure = metrics.group("validation.dice")
    colours = structure_colours(metrics.structures)
    curves = [Curve(name, values, colours[name]) for name, values in per_structure.items()]
    mean = metrics.get("validation.dice")
    if mean is not None and len(curves) != 1:
        curves.append(Curve("mean", mean, INK, 2.0))
    style_axes(axes, "Validation Dice")
    _draw_curves(axes, metrics, curves, last="{:.3f}")
    lowest = min(float(np.nanmin(curve.values)) for curve in curves)
    axes.set_ylim(tenth_below(lowest), 1.0)


def _draw_ratios(axes: Axes, metrics: Metrics) -> None:
    ratios = _foreground_ratios(metrics)
    colours = structure_colours(metrics.structures)
    curves = [Curve(name, 100 * values, colours[name]) for name, values in ratios.items()]
    style_axes(axes, "Mixture ratios, %")
    _draw_curves(axes, metrics, curves, last="{:.2f} %")
    axes.set_ylim(bottom=0)


def _draw_learning_rate(axes: Axes, metrics: Metrics) -> None:
    rates = metrics.columns["learning_rate"]
    highest = float(np.nanmax(rates))
    # A little more than the highest, so that a rate of 9.99e-4 is written on the scale of 1e-3.
    exponent = math.floor(math.log10(1.05 * highest)) if highest > 0 else 0
    power = str(exponent).translate(str.maketrans("-0123456789", "⁻⁰¹²³⁴⁵⁶⁷⁸⁹"))
    style_axes(axes, f"Learning rate × 10{power}" if exponent else "Learning rate")
    _draw_curves(axes, metrics, [Curve("", rates / 10.0**exponent, MUTED)])
    axes.set_ylim(0, None if highest > 0 else 1)


def _draw_speed(axes: Axes, metrics: Metrics) -> None:
    style_axes(axes, "Images per second")
    _draw_curves(axes, metrics, [Curve("", metrics.columns["images_per_second"], MUTED)])
    axes.set_ylim(bottom=0)


def _foreground_ratios(metrics: Metrics) -> dict[str, NDArray[np.float64]]:
    """All ratios but that of the background, which would flatten the others against the axis."""
    return {name: values for name, values in metrics.group("ratio").items() if name in metrics.structures}


LOSSES = Panel(_draw_losses, lambda metrics: metrics.get("loss") is not None or bool(metrics.group("loss")))
DICE = Panel(_draw_dice, lambda metrics: metrics.get("validation.dice") is not None)
RATIOS = Panel(_draw_ratios, lambda metrics: bool(_foreground_ratios(metrics)))
LEARNING_RATE = Panel(_draw_learning_rate, lambda metrics: metrics.get("learning_rate") is not None)
SPEED = Panel(_draw_speed, lambda metrics: metrics.get("images_per_second") is not None)


def _draw_curves(axes: Axes, metrics: Metrics, curves: Sequence[Curve], last: str = "") -> None:
    """Each curve through the epochs that have a value; with ``last``, the legend ends in the last of them."""
    epochs = metrics.columns["epoch"]
    for curve in curves:
        known = np.isfinite(curve.values)
        sparse = 0 < known.sum() < len(epochs) or len(epochs) == 1
        label = printable(curve.name)
        if not known.any():
            label = f"{label} (0)"
        elif last:
            label = f"{label} {last.format(curve.values[known][-1])}"
        axes.plot(
            epochs[known],
            curve.values[known],
            color=curve.colour,
            linewidth=curve.width if len(epochs) < 200 else 0.7 * curve.width,
            label=label,
            marker="o" if sparse and known.sum() <= 40 else None,
            markersize=2.6 if known.sum() > 1 else 5,
        )
    margin = 0.5 if len(epochs) < 3 else 0.0
    axes.set_xlim(epochs[0] - margin, epochs[-1] + margin)
    axes.xaxis.set_major_locator(MaxNLocator(integer=True, nbins=7, min_n_ticks=1))
    axes.set_xlabel("epoch", color=MUTED, fontsize=9, loc="right", labelpad=2)
    if any(curve.name for curve in curves):
        legend_above(axes, len(curves))


def _draw_boxes(axes: Axes, scores: Scores, name: str) -> None:
    values = _per_structure(scores, name)
    colours = structure_colours(scores.structures)
    for position, (structure, found) in enumerate(zip(scores.structures, values, strict=True)):
        if not found:
            continue
        colour = colours[structure]
        draw_box(axes, position, found)
        beside = position + sideways(len(found))
        axes.scatter(beside, sorted(found), s=16, color=colour, alpha=0.85, linewidths=0, clip_on=False)
    axes.set_xlim(-0.6, len(values) - 0.4)
    labels = [printable(structure) for structure in scores.structures]
    axes.set_xticks(range(len(values)), labels, parse_math=False, color=INK, fontsize=10)
    if len(values) > 8:
        axes.tick_params(axis="x", labelrotation=45, labelsize=7)
    if name == "dice":
        lowest = min((min(found) for found in values if found), default=0.0)
        axes.set_ylim(tenth_below(lowest), 1.0)
    else:
        _scale_distances(axes, [value for found in values for value in found])


def _scale_distances(axes: Axes, distances_mm: Sequence[float]) -> None:
    """From zero; logarithmic above 1 mm when one case that went wrong would flatten all others."""
    largest = max(distances_mm, default=0.0)
    if _has_outlier(distances_mm):
        axes.set_yscale("symlog", linthresh=1.0, linscale=0.5)
        ticks = [tick for tick in (0, 1, 2, 5, 10, 20, 50, 100, 200, 500, 1000) if tick <= 1.5 * largest]
        axes.set_yticks(ticks, [str(tick) for tick in ticks])
        axes.yaxis.set_minor_locator(NullLocator())
    axes.set_ylim(0, 1.15 * largest or 1.0)


def _has_outlier(distances_mm: Sequence[float]) -> bool:
    finite = [distance for distance in distances_mm if math.isfinite(distance)]
    return bool(finite) and max(finite) > OUTLIER_FROM * float(np.median(finite))


def _per_structure(scores: Scores, name: str) -> list[list[float]]:
    return [scores.of_structure(structure, name) for structure in scores.structures]


def _spans_magnitudes(values: Sequence[NDArray[np.float64]]) -> bool:
    """Whether a logarithmic axis shows more than a linear one, and can be had at all."""
    pooled = np.concatenate(values) if values else np.zeros(0)
    pooled = pooled[np.isfinite(pooled)]
    positive = pooled[pooled > 0]
    return bool(len(positive)) and pooled.min() >= 0 and positive.max() >= LOG_SCALE_FROM * positive.min()


def _logarithmic(axes: Axes) -> None:
    axes.set_yscale("log")
    axes.yaxis.set_major_locator(LogLocator(base=10, subs=(1.0, 2.0, 5.0), numticks=8))
    axes.yaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:g}"))
    axes.yaxis.set_minor_locator(NullLocator())
