"""How axes look, stated once for every figure: quiet, in the colours of the palette."""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np
from matplotlib.axes import Axes
from numpy.typing import NDArray

from shapepu.evaluation.report.palette import GRID, INK, MUTED

BOXES_FROM = 5
"""Quartiles of fewer cases say less than the cases themselves: then only points and a median are drawn."""

LEGEND_ABOVE_UP_TO = 5
"""Curves; a longer legend would not fit above the axes and goes where it covers least."""


def style_axes(axes: Axes, title: str, *, legend: bool = True) -> None:
    """Quiet axes: a title at the left, horizontal grid lines, no frame, and room for a legend above them."""
    pad = 22 if legend else 8
    text = axes.set_title(title, loc="left", fontsize=10.5, fontweight="bold", color=INK, pad=pad)
    text.set_parse_math(False)
    axes.set_facecolor("none")
    axes.spines[["top", "right", "left"]].set_visible(False)
    axes.spines["bottom"].set_color(GRID)
    axes.grid(axis="y", color=GRID, linewidth=0.8)
    axes.set_axisbelow(True)
    axes.tick_params(colors=MUTED, labelsize=9, length=0)


def legend_above(axes: Axes, count: int) -> None:
    """The names of ``count`` curves in one line above the axes, or within them when there are many."""
    above = count <= LEGEND_ABOVE_UP_TO
    legend = axes.legend(
        loc="lower left" if above else "best",
        bbox_to_anchor=(-0.01, 1.0) if above else None,
        ncols=count if above else 2,
        frameon=False,
        fontsize=9 if above else 7,
        handlelength=1.1,
        handletextpad=0.45,
        columnspacing=1.1,
        borderaxespad=0.1,
        labelcolor=INK,
    )
    for text in legend.get_texts():
        text.set_parse_math(False)


def draw_box(axes: Axes, position: int, found: Sequence[float], *, lying: bool = False) -> None:
    """Quartiles, median and extremes of ``found``; its median alone when there are few."""
    if len(found) < BOXES_FROM:
        draw_line = axes.vlines if lying else axes.hlines
        draw_line(float(np.median(found)), position - 0.25, position + 0.25, color=INK, linewidth=2.0)
        return
    thin = {"color": INK, "linewidth": 1.0}
    axes.boxplot(
        [found],
        positions=[position],
        widths=0.5,
        orientation="horizontal" if lying else "vertical",
        whis=(0, 100),
        showcaps=False,
        showfliers=False,
        boxprops=thin,
        whiskerprops=thin,
        medianprops={"color": INK, "linewidth": 2.0},
        manage_ticks=False,
    )


def tenth_below(dice: float) -> float:
    """Where a Dice axis that ends at 1 starts, so that ``dice`` is on it."""
    return min(max(0.0, math.floor(10 * dice) / 10), 0.9)


def sideways(count: int) -> NDArray[np.float64]:
    """Sideways shifts that keep neighbouring points apart, the same for the same number of points."""
    golden = (math.sqrt(5) - 1) / 2
    return 0.3 * (np.arange(1, count + 1, dtype=np.float64) * golden % 1 - 0.5)


def printable(name: str) -> str:
    """A name as a legend shows it: Matplotlib hides labels that start with an underscore."""
    return f" {name}" if name.startswith("_") else name
