"""Pictures of cases: a few slices each, with the contours of prediction and reference."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from io import BytesIO
from pathlib import Path
from typing import Any

import numpy as np
from matplotlib.artist import Artist
from matplotlib.axes import Axes
from matplotlib.colors import to_rgb
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from matplotlib.patches import Patch
from numpy.typing import NDArray
from PIL import Image

from shapepu.data.grid import slice_axis
from shapepu.data.volumes import read_labels, read_volume
from shapepu.errors import InputError
from shapepu.evaluation.report.axes import printable
from shapepu.evaluation.report.contents import ValidationCase
from shapepu.evaluation.report.palette import INK, MUTED, PAPER, class_colours, structure_colours
from shapepu.files import atomic_path
from shapepu.labels import LabelSet

SLICES = 5
"""Slices shown of a case, spread from end to end; the one with the largest error is always among them."""

MARGIN = 0.2
"""Of the region of interest, added on each side of it."""

LEAST_MARGIN_MM = 8.0

COMPARED_MARGIN = 0.5
"""As :data:`MARGIN`, where predictions are compared on a slice that is cut around the reference."""

LARGEST_SIDE = 240
"""Pixels of a slice as it is embedded; a larger one is thinned out, so that a report stays small."""

ACROSS = 5
"""Panels side by side, where there are many."""

LEGEND_INCHES = 0.3

RAGGED = 1000
"""Pixel edges of an outline above which a prediction is filled instead; a heart has a few hundred."""

CONTOUR_WIDTH = 1.3

PICTURE_DPI, PICTURE_COLOURS = 110, 256
"""Of the picture for a README: as wide as a page of text, in less than 200 kB."""

DASHED = (0, (2.5, 1.5))


@dataclass(frozen=True, eq=False)
class CaseSlices:
    """One case, slices first.

    Args:
        image: (S, rows, columns).
        prediction: labels 0..K-1, same shape.
        reference: labels 0..K-1, or K where unlabelled, same shape.
        pixel_mm: height and width of a pixel.
    """

    image: NDArray[Any]
    prediction: NDArray[np.uint8]
    reference: NDArray[np.uint8]
    pixel_mm: tuple[float, float]


def extremes(case_means: Mapping[str, float]) -> dict[str, str]:
    """The cases to look at, by what they stand for: best, median and worst, as far as there are so many.

    Equal means are told apart by name, so that the same scores always give the same cases. Of an even number
    the lower of the two middle cases is the median.
    """
    ranked = sorted(case_means, key=lambda case: (case_means[case], case))
    if len(ranked) < 2:
        return dict(zip(["only"], ranked, strict=False))
    chosen = {"best": ranked[-1], "median": ranked[(len(ranked) - 1) // 2], "worst": ranked[0]}
    if len(ranked) == 2:
        del chosen["median"]
    return chosen


def read_case(case: ValidationCase, labels: LabelSet) -> CaseSlices:
    """Read the first channel, the prediction and the reference of a case."""
    volume = read_volume(case.image)
    prediction, reference = read_labels(case.prediction, labels), read_labels(case.reference, labels)
    for array, path in ((prediction, case.prediction), (reference, case.reference)):
        if array.shape != volume.array.shape:
            raise InputError(f"{path}: has shape {array.shape}, but the image {volume.array.shape}.")
    axis = slice_axis(volume.array.shape, volume.spacing_mm)
    height_mm, width_mm = (step for other, step in enumerate(volume.spacing_mm) if other != axis)
    image, prediction, reference = (np.moveaxis(a, axis, 0) for a in (volume.array, prediction, reference))
    return CaseSlices(image, prediction, reference, (height_mm, width_mm))


def slices_to_show(foreground: NDArray[np.bool_], errors: NDArray[np.int64]) -> tuple[list[int], int | None]:
    """Which slices are worth showing, and which of them has the largest error.

    Args:
        foreground: whether a slice holds any structure, in the prediction or the reference.
        errors: wrong pixels of each slice.

    Returns:
        Indices in rising order: up to :data:`SLICES`, spread evenly over the slices with foreground, the one
        with most wrong pixels among them; and that one, None when no pixel is wrong. When no slice has
        foreground, the middle one.
    """
    occupied = np.flatnonzero(foreground)
    if not len(occupied):
        return [len(foreground) // 2], None
    worst = int(errors.argmax()) if errors.any() else None
    count = min(SLICES, len(occupied))
    middles_of_stretches = ((np.arange(count) + 0.5) * len(occupied) / count).astype(int)
    shown = occupied[middles_of_stretches]
    if worst is not None and worst not in shown:
        shown[np.abs(shown - worst).argmin()] = worst
    return sorted(map(int, shown)), worst


def case_figure(case: CaseSlices, labels: LabelSet) -> Figure:
    """A row of slices around the structures: the prediction's contours solid, the reference's dashed."""
    known = case.reference < labels.count
    foreground = (case.prediction > 0) | ((case.reference > 0) & known)
    wrong = ((case.prediction != case.reference) & known).sum(axis=(1, 2))
    shown, worst = slices_to_show(np.any(foreground, axis=(1, 2)), wrong)
    rows, columns = region_of_interest(foreground, case.pixel_mm)
    part = _cropped(case, shown, rows, columns)
    low, high = _grey_levels(part.image)
    _, height, width = part.image.shape
    figure, panels = _panel_row(SLICES, height * part.pixel_mm[0] / (width * part.pixel_mm[1]))
    for position, (index, axes) in enumerate(zip(shown, panels, strict=False)):
        _draw_image(axes, part.image[position], part.pixel_mm, low, high)
        _draw_contours(axes, part.reference[position], labels, part.pixel_mm, dashed=True)
        _draw_contours(axes, part.prediction[position], labels, part.pixel_mm, dashed=False)
        note = " · most wrong pixels" if index == worst else ""
        title = f"slice {index + 1} of {len(case.image)}{note}"
        axes.set_title(title, fontsize=8, color=INK if note else MUTED, loc="left", pad=3)
    for axes in panels[len(shown) :]:
        axes.set_visible(False)
    return figure


def shared_slice(cases: Sequence[CaseSlices], labels: LabelSet) -> int:
    """The slice on which several predictions of one case are compared; none of them chooses it alone.

    Of the slices where the reference has a structure, the one with most wrong pixels in all predictions
    together; of several such, the one with most of the structures.
    """
    reference = cases[0].reference
    known = reference < labels.count
    drawn = ((reference > 0) & known).sum(axis=(1, 2))
    wrong = np.sum([((case.prediction != reference) & known).sum(axis=(1, 2)) for case in cases], axis=0)
    return max(range(len(drawn)), key=lambda index: (drawn[index] > 0, wrong[index], drawn[index]))


def compared_figure(cases: Sequence[CaseSlices], titles: Sequence[str], labels: LabelSet) -> Figure:
    """The same slice of one case for several predictions; the reference alone comes first.

    It is cut around the reference, so that one prediction that strays does not make all others small.
    """
    index, first = shared_slice(cases, labels), cases[0]
    drawn = (first.reference > 0) & (first.reference < labels.count)
    region = region_of_interest(drawn, first.pixel_mm, COMPARED_MARGIN)
    parts = [_cropped(case, [index], *region) for case in cases]
    part = parts[0]
    _, height, width = part.image.shape
    aspect = height * part.pixel_mm[0] / (width * part.pixel_mm[1])
    titles = [f"Reference\nslice {index + 1} of {len(first.image)}", *titles]
    figure, panels = _panel_grid(titles, aspect)
    low, high = _grey_levels(part.image)
    for axes, title, shown in zip(panels, titles, [None, *parts], strict=True):
        _draw_image(axes, part.image[0], part.pixel_mm, low, high)
        _draw_contours(axes, part.reference[0], labels, part.pixel_mm, dashed=True)
        if shown is not None:
            _draw_contours(axes, shown.prediction[0], labels, part.pixel_mm, dashed=False)
        text = axes.set_title(title, fontsize=8, color=INK, loc="left", pad=3)
        text.set_parse_math(False)
    _contour_legend(figure, labels)
    return figure


def _contour_legend(figure: Figure, labels: LabelSet) -> None:
    """The colours of structures and the dashes of the reference, below all panels."""
    handles: list[Artist] = [
        Patch(facecolor=colour, label=printable(name))
        for name, colour in structure_colours(labels.foreground).items()
    ]
    handles += [
        Line2D([], [], color=INK, linewidth=CONTOUR_WIDTH, label="prediction"),
        Line2D([], [], color=INK, linewidth=CONTOUR_WIDTH, linestyle=DASHED, label="reference"),
    ]
    legend = figure.legend(
        handles=handles,
        loc="lower left",
        ncols=len(handles),
        frameon=False,
        fontsize=9,
        labelcolor=INK,
        handlelength=1.5,
        handleheight=0.7,
        columnspacing=1.4,
        borderpad=0,
        borderaxespad=0.2,
    )
    for text in legend.get_texts():
        text.set_parse_math(False)


def _cropped(case: CaseSlices, shown: list[int], rows: slice, columns: slice) -> CaseSlices:
    """Some slices inside a region, thinned out to :data:`LARGEST_SIDE` where it is larger."""
    image, prediction, reference = (
        array[shown][:, rows, columns] for array in (case.image, case.prediction, case.reference)
    )
    _, height, width = image.shape
    step = -(-max(height, width) // LARGEST_SIDE)
    if step > 1 and min(height, width) >= step:
        height, width = height // step, width // step
        blocks = image[:, : height * step, : width * step].reshape(-1, height, step, width, step)
        image = blocks.mean(axis=(2, 4), dtype=np.float32)
        middle = (slice(None), slice(step // 2, None, step), slice(step // 2, None, step))
        prediction, reference = (a[middle][:, :height, :width] for a in (prediction, reference))
        return CaseSlices(image, prediction, reference, (step * case.pixel_mm[0], step * case.pixel_mm[1]))
    return CaseSlices(image, prediction, reference, case.pixel_mm)


def region_of_interest(
    foreground: NDArray[np.bool_], pixel_mm: Sequence[float], share: float = MARGIN
) -> tuple[slice, slice]:
    """Rows and columns around the foreground of all slices with a margin; all of them when there is none."""
    sides = []
    for axis in (1, 2):
        occupied = np.flatnonzero(foreground.any(axis=tuple({0, 1, 2} - {axis})))
        length = foreground.shape[axis]
        if not len(occupied):
            sides.append(slice(0, length))
            continue
        first, last = int(occupied[0]), int(occupied[-1])
        margin = round(max(share * (last + 1 - first), LEAST_MARGIN_MM / pixel_mm[axis - 1]))
        sides.append(slice(max(0, first - margin), min(length, last + 1 + margin)))
    return sides[0], sides[1]


def picture_scribble_to_prediction(
    image: NDArray,
    scribble: NDArray,
    prediction: NDArray,
    reference: NDArray,
    target_png: Path,
    *,
    names: Sequence[str] = ("background", "rv", "myo", "lv"),
    pixel_mm: tuple[float, float] = (1.0, 1.0),
) -> None:
    """One slice three times, side by side: the scribbles, the prediction, the reference.

    Args:
        image: (rows, columns).
        scribble: labels 0..K-1, anything else is unlabelled; shape of the image.
        prediction: labels 0..K-1, shape of the image.
        reference: labels 0..K-1, shape of the image.
        target_png: written whole or not at all.
        names: of the K classes, background first.
        pixel_mm: height and width of a pixel.
    """
    labels = LabelSet(tuple(names))
    marked = (scribble < labels.count) | (prediction > 0) | (reference > 0)
    crop = region_of_interest(marked[None], pixel_mm)
    image, scribble, prediction, reference = (a[crop] for a in (image, scribble, prediction, reference))
    height_mm, width_mm = (length * step for length, step in zip(image.shape, pixel_mm, strict=True))
    figure, panels = _panel_row(3, height_mm / width_mm, below_inches=0.42, title_inches=0.34)
    figure.set_facecolor(PAPER)
    low, high = _grey_levels(image)
    titles = ("Scribbles", "Prediction", "Reference")
    for axes, title, drawn in zip(panels, titles, (scribble, prediction, reference), strict=True):
        _draw_image(axes, image, pixel_mm, low, high, smooth=True)
        axes.set_title(title, fontsize=11, fontweight="bold", color=INK, loc="left", pad=6)
        if drawn is scribble:
            _paint(axes, drawn, class_colours(names), pixel_mm, opacity=1.0)
        else:
            _paint(axes, drawn, structure_colours(names[1:]), pixel_mm, opacity=0.35, first=1)
            _draw_contours(axes, drawn, labels, pixel_mm, dashed=False)
    handles = [Patch(facecolor=colour, label=name) for name, colour in class_colours(names).items()]
    figure.legend(
        handles=handles,
        loc="lower left",
        ncols=len(handles),
        frameon=False,
        fontsize=10,
        labelcolor=INK,
        handlelength=1.1,
        handleheight=0.8,
        handletextpad=0.5,
        columnspacing=1.4,
        borderpad=0,
        borderaxespad=0.5,
    )
    png = BytesIO()
    figure.savefig(png, format="png", dpi=PICTURE_DPI)
    # A noisy image in full colour takes three times the bytes, and the picture is kept beside the text.
    few_colours = Image.open(png).convert("RGB").quantize(PICTURE_COLOURS, dither=Image.Dither.NONE)
    with atomic_path(target_png) as temporary:
        few_colours.save(temporary, format="PNG", optimize=True)


def _panel_row(
    count: int, aspect: float, *, title_inches: float = 0.22, below_inches: float = 0.0
) -> tuple[Figure, list[Axes]]:
    """A figure ten inches wide with ``count`` equal panels, as high as ``aspect`` asks, within reason."""
    width, gap = 10.0, 0.08
    panel_width = (width - gap * (count - 1)) / count
    panel_height = panel_width * min(max(aspect, 0.3), 1.5)
    height = panel_height + title_inches + below_inches
    figure = Figure(figsize=(width, height))
    left = [index * (panel_width + gap) / width for index in range(count)]
    size = (panel_width / width, panel_height / height)
    panels = [figure.add_axes((x, below_inches / height, *size)) for x in left]
    for axes in panels:
        axes.set_axis_off()
    return figure, panels


def _panel_grid(titles: Sequence[str], aspect: float) -> tuple[Figure, list[Axes]]:
    """Equal panels above a legend, their rows as even as can be, each as high as its longest title asks."""
    rows = -(-len(titles) // ACROSS)
    across, gap = -(-len(titles) // rows), 0.08
    side = min((10.0 - gap * (across - 1)) / across, 10.0 / 4)
    panel_height = side * min(max(aspect, 0.3), 1.5)
    lines = [1 + max(title.count("\n") for title in titles[row * across :][:across]) for row in range(rows)]
    below = np.cumsum([0.07 + 0.15 * count + panel_height for count in lines])
    width, height = across * side + (across - 1) * gap, float(below[-1]) + LEGEND_INCHES
    figure = Figure(figsize=(width, height))
    panels = []
    for place in range(len(titles)):
        row, column = divmod(place, across)
        left, bottom = column * (side + gap) / width, 1 - float(below[row]) / height
        axes = figure.add_axes((left, bottom, side / width, panel_height / height))
        axes.set_axis_off()
        panels.append(axes)
    return figure, panels


def _draw_image(
    axes: Axes, image: NDArray, pixel_mm: Sequence[float], low: float, high: float, *, smooth: bool = False
) -> None:
    """A grey image in millimetres, so that pixels that are not square look as they are."""
    axes.imshow(
        image.astype(np.float32),
        cmap="gray",
        vmin=low,
        vmax=high,
        extent=_extent(image, pixel_mm),
        interpolation="bicubic" if smooth else "none",
    )
    axes.set_xlim(0, image.shape[1] * pixel_mm[1])
    axes.set_ylim(image.shape[0] * pixel_mm[0], 0)


def _draw_contours(
    axes: Axes, drawn: NDArray, labels: LabelSet, pixel_mm: Sequence[float], *, dashed: bool
) -> None:
    """The outline of each structure, closed along the border of the picture where it reaches beyond.

    A ragged prediction is filled instead: a tangle of contours could not be read, and makes a large file.
    """
    padded = np.pad(drawn, 1)
    rows_mm, columns_mm = (
        (np.arange(-1, length + 1) + 0.5) * step for length, step in zip(drawn.shape, pixel_mm, strict=True)
    )
    colours = structure_colours(labels.foreground)
    for label, name in enumerate(labels.foreground, start=1):
        inside = padded == label
        if not dashed and _outline_length(inside) > RAGGED:
            _paint(axes, drawn == label, {name: colours[name]}, pixel_mm, opacity=0.4, first=1)
        elif inside.any():
            axes.contour(
                columns_mm,
                rows_mm,
                inside.astype(np.float32),
                levels=[0.5],
                colors=[colours[name]],
                linewidths=CONTOUR_WIDTH,
                linestyles=[DASHED] if dashed else ["solid"],
            )


def _paint(
    axes: Axes,
    drawn: NDArray,
    colours: Mapping[str, str],
    pixel_mm: Sequence[float],
    *,
    opacity: float,
    first: int = 0,
) -> None:
    """Labels ``first``, ``first + 1``, ... in their colours over the image; all others stay transparent."""
    overlay = np.zeros((*drawn.shape, 4))
    for label, colour in enumerate(colours.values(), start=first):
        overlay[drawn == label] = (*to_rgb(colour), opacity)
    axes.imshow(overlay, extent=_extent(drawn, pixel_mm), interpolation="none")


def _extent(drawn: NDArray, pixel_mm: Sequence[float]) -> tuple[float, float, float, float]:
    """Left, right, bottom and top in millimetres: pixels that are not square look as they are."""
    return 0.0, drawn.shape[1] * pixel_mm[1], drawn.shape[0] * pixel_mm[0], 0.0


def _outline_length(inside: NDArray[np.bool_]) -> int:
    """Edges between a pixel inside and one outside."""
    return int(np.diff(inside, axis=0).sum()) + int(np.diff(inside, axis=1).sum())


def _grey_levels(image: NDArray) -> tuple[float, float]:
    """Black and white of the display: a few bright voxels must not leave the rest in the dark."""
    finite = image[np.isfinite(image)]
    if not finite.size:
        return 0.0, 1.0
    low, high = (float(level) for level in np.percentile(finite, (1.0, 99.5)))
    return low, high if high > low else low + 1.0
