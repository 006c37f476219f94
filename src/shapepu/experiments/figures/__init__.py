"""Figures of a comparison: they arrange what :mod:`shapepu.experiments.outcome` found."""

from __future__ import annotations

from shapepu.experiments.figures.drawing import Drawing
from shapepu.experiments.figures.scores import seeds_drawing, volumes_drawing
from shapepu.experiments.figures.settings import setting_drawings
from shapepu.experiments.figures.training import curves_drawing, ratios_drawing
from shapepu.experiments.outcome import DataOutcome, Outcome


def drawings(outcome: Outcome, table: DataOutcome) -> list[Drawing]:
    """All figures of one data set that show numbers, in the order in which they are read."""
    if not table.finished:
        return []
    made = [
        volumes_drawing(table),
        *setting_drawings(outcome, table),
        curves_drawing(table),
        seeds_drawing(table),
        ratios_drawing(table),
    ]
    return [drawing for drawing in made if drawing is not None]
