"""What all figures of a comparison have in common: how a row looks, and how a figure becomes a file."""

from __future__ import annotations

import io
import textwrap
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

import matplotlib
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from shapepu.evaluation.report.axes import printable, style_axes
from shapepu.evaluation.report.palette import GRID, INK, PAPER, TERMS
from shapepu.experiments.outcome import RowOutcome

WIDTH = 10.0
"""Inches of every figure."""

LABEL_LETTERS = 30
"""Letters of a row's label in one line; a longer one is broken."""

DASHES = ("-", (0, (5, 1.6)), (0, (1.2, 1.4)), (0, (5, 1.4, 1.2, 1.4)))
"""Rows beyond the number of colours take the colours again with the next dashes."""


@dataclass(frozen=True, eq=False)
class Drawing:
    """A figure and what is said of it.

    Args:
        name: of its file; no two of a comparison have the same.
        title: above it.
        caption: what is drawn, and over what.
    """

    name: str
    title: str
    caption: str
    figure: Figure


def svg_file(figure: Figure) -> str:
    """A stand-alone SVG file: the same figure gives the same bytes."""
    stream = io.StringIO()
    # Identifiers are random unless salted, and the metadata would name a day and a web address.
    with matplotlib.rc_context({"svg.hashsalt": "shapepu"}):
        figure.savefig(stream, format="svg", facecolor=PAPER, metadata={"Date": None, "Creator": None})
    return stream.getvalue()


def row_style(place: int) -> dict[str, Any]:
    """Colour and dashes of the row at a place of the table: the same in every figure."""
    return {"color": TERMS[place % len(TERMS)], "linestyle": DASHES[place // len(TERMS) % len(DASHES)]}


def wrapped(label: str, letters: int = LABEL_LETTERS) -> str:
    """A label in short lines, printed as it is."""
    return printable("\n".join(textwrap.wrap(label, letters)) or label)


def label_inches(rows: Iterable[RowOutcome]) -> float:
    """The width that the rows' labels need beside axes."""
    lines = (line for row in rows for line in wrapped(row.row.label).splitlines())
    return 0.25 + 0.068 * max((len(line) for line in lines), default=0)


def style_lying(axes: Axes, title: str) -> None:
    """As all axes, but values go from left to right and the grid stands."""
    style_axes(axes, title, legend=False)
    axes.grid(False, axis="y")
    axes.grid(axis="x", color=GRID, linewidth=0.8)
    axes.spines["bottom"].set_visible(False)


def name_rows(axes: Axes, rows: Iterable[RowOutcome], *, shown: bool = True) -> None:
    """Rows from the top down, as in the table."""
    labels = [wrapped(row.row.label) for row in rows]
    axes.set_ylim(len(labels) - 0.5, -0.5)
    axes.set_yticks(
        range(len(labels)), labels if shown else [""] * len(labels), parse_math=False, color=INK, fontsize=9
    )


def legend_right(axes: Axes) -> None:
    """A legend beside the axes, where it covers nothing."""
    legend = axes.legend(
        loc="upper left",
        bbox_to_anchor=(1.015, 1.03),
        frameon=False,
        fontsize=9,
        handlelength=1.8,
        labelcolor=INK,
    )
    for text in legend.get_texts():
        text.set_parse_math(False)
