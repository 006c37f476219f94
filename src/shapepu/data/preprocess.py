"""From volumes in files to the pixels a network sees; training and prediction share every step of it."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from statistics import median
from typing import TYPE_CHECKING, Literal, TypeVar

import numpy as np
from numpy.typing import ArrayLike, NDArray

from shapepu.data.grid import SliceGrid, resampled_size, slice_axis
from shapepu.data.intensity import ChannelStatistics, beyond, standardise
from shapepu.errors import InputError

if TYPE_CHECKING:
    from shapepu.data.case import Case
    from shapepu.data.volumes import Header, Volume

FIELD_PIXELS = 256
"""Planned spacing shows the median field of view in at most this many pixels."""

SMALLEST_PATCH, LARGEST_PATCH = 32, 224
"""Pixels; limits of a planned patch, not of one asked for."""

PATCH_STEP = 16
"""Planned sizes are multiples of this, so that four halvings in a network need no padding."""

Scalar = TypeVar("Scalar", bound=np.generic)


@dataclass(frozen=True)
class Preprocessing:
    """How volumes become slices of one pixel size, and slices arrays of one size.

    Args:
        spacing_mm: in-plane (y, x) pixel size; None plans it from the training images.
        patch: (rows, columns) of a training patch; None plans it from the training images.
        canvas_margin: slices are kept on a canvas this many times the patch, so that rotated and shifted
            patches have real corners; 1 keeps the patch alone.
        intensity: ``volume`` standardises each volume by itself; ``ct`` clips and standardises all by the
            statistics of the training images.
        padding: what a canvas is beyond its image: ``unlabelled``, or ``background`` as in the paper's code.
        statistics: of each channel, for ``ct``; empty plans them from the training images.
    """

    spacing_mm: tuple[float, float] | None = None
    patch: tuple[int, int] | None = None
    canvas_margin: float = 1.15
    intensity: Literal["volume", "ct"] = "volume"
    padding: Literal["unlabelled", "background"] = "unlabelled"
    statistics: tuple[ChannelStatistics, ...] = ()

    def __post_init__(self) -> None:
        if self.spacing_mm is not None:
            object.__setattr__(self, "spacing_mm", tuple(float(step) for step in self.spacing_mm))
        if self.patch is not None:
            object.__setattr__(self, "patch", tuple(int(side) for side in self.patch))
        for name, right, expected in self._expectations():
            if not right:
                raise InputError(
                    f"preprocessing.{name}: expected {expected}, got {getattr(self, name)!r}; choose another."
                )

    def _expectations(self) -> list[tuple[str, bool, str]]:
        spacing_mm, patch = self.spacing_mm or (1.0, 1.0), self.patch or (1, 1)
        positive = all(math.isfinite(step) and step > 0 for step in spacing_mm)
        return [
            ("spacing_mm", len(spacing_mm) == 2 and positive, "two positive numbers (y, x)"),
            ("patch", len(patch) == 2 and min(patch) >= 1, "two positive integers (rows, columns)"),
            ("canvas_margin", 1 <= self.canvas_margin <= 4, "a number from 1 to 4"),
            ("intensity", self.intensity in ("volume", "ct"), "'volume' or 'ct'"),
            ("padding", self.padding in ("unlabelled", "background"), "'unlabelled' or 'background'"),
        ]

    @property
    def resolved(self) -> bool:
        """Whether nothing is left to plan."""
        measured = self.intensity == "volume" or bool(self.statistics)
        return self.spacing_mm is not None and self.patch is not None and measured

    @property
    def canvas(self) -> tuple[int, int]:
        """(rows, columns) of a stored slice: patch times margin, in steps that halve well."""
        assert self.patch is not None, "planned first"
        if self.canvas_margin == 1:
            return self.patch
        rows, columns = (
            max(side, PATCH_STEP * round(side * self.canvas_margin / PATCH_STEP)) for side in self.patch
        )
        return rows, columns


def plan(headers: Sequence[Header], settings: Preprocessing) -> Preprocessing:
    """``settings`` with spacing and patch filled in from the images they will be used on.

    The planned pixel is square, because views are rotated by any angle and an oblong pixel would shear them;
    its area is the median one, or larger where the median field of view would take more than
    :data:`FIELD_PIXELS`. The planned patch is the median slice, within limits.
    """
    if not headers:
        raise InputError(
            "no training images to plan the preprocessing from; check the data set and its splits."
        )
    spacing_mm = settings.spacing_mm or _planned_spacing(headers)
    return replace(
        settings, spacing_mm=spacing_mm, patch=settings.patch or _planned_patch(headers, spacing_mm)
    )


def _planned_spacing(headers: Sequence[Header]) -> tuple[float, float]:
    pixels_mm, fields_mm = [], []
    for header in headers:
        axis = slice_axis(header.shape, header.spacing_mm)
        steps_mm = [step for other, step in enumerate(header.spacing_mm) if other != axis]
        lengths = [length for other, length in enumerate(header.shape) if other != axis]
        pixels_mm.append(math.sqrt(math.prod(steps_mm)))
        fields_mm.append(max(step * length for step, length in zip(steps_mm, lengths, strict=True)))
    side_mm = float(f"{max(median(pixels_mm), median(fields_mm) / FIELD_PIXELS):.4g}")
    return side_mm, side_mm


def _planned_patch(headers: Sequence[Header], spacing_mm: tuple[float, float]) -> tuple[int, int]:
    sizes = np.array([resampled_size(header.shape, header.spacing_mm, spacing_mm) for header in headers])
    rows, columns = np.ceil(np.median(sizes, axis=0) / PATCH_STEP).astype(int) * PATCH_STEP
    return (
        int(np.clip(rows, SMALLEST_PATCH, LARGEST_PATCH)),
        int(np.clip(columns, SMALLEST_PATCH, LARGEST_PATCH)),
    )


@dataclass(frozen=True, eq=False)
class PreparedCase:
    """One case on its resampled grid.

    Args:
        grid: leads back to the native grid.
        images: standardised, (S, C, h, w).
        beyond: for each channel, the value of pixels beyond the image.
        scribbles: (S, h, w), or None.
        mask: (S, h, w), or None.
    """

    grid: SliceGrid
    images: NDArray[np.float32]
    beyond: NDArray[np.float32]
    scribbles: NDArray[np.uint8] | None = None
    mask: NDArray[np.uint8] | None = None

    def images_on(self, size: tuple[int, int]) -> NDArray[np.float32]:
        """The images in the middle of arrays of ``size``; ``fit(result, grid.size, 0)`` takes them back."""
        return fit(self.images, size, self.beyond[:, None, None])


def prepare_case(
    images: Sequence[Volume],
    settings: Preprocessing,
    *,
    scribbles: NDArray[np.uint8] | None = None,
    mask: NDArray[np.uint8] | None = None,
    unlabelled: int | None = None,
) -> PreparedCase:
    """Resample and standardise one case.

    Intensities are standardised after resampling, over whole slices, so that the variance is that of the
    pixels a network sees and does not depend on how fine the original was or on where the patch ends.

    Args:
        images: one volume a channel, all on one grid.
        settings: with nothing left to plan.
        scribbles: (Z, Y, X) labels on the same grid, or None.
        mask: (Z, Y, X) dense labels on the same grid, or None.
        unlabelled: the label of unlabelled voxels; needed with ``scribbles``.
    """
    assert settings.spacing_mm is not None, "planned first"
    assert scribbles is None or unlabelled is not None
    first = images[0]
    for other in images[1:]:
        if other.array.shape != first.array.shape:
            raise different_shapes(other.source, other.array.shape, first.source, first.array.shape)
    grid = SliceGrid.of(first.array.shape, first.spacing_mm, settings.spacing_mm, source=first.source)
    prepared = np.empty((grid.slices, len(images), *grid.size), np.float32)
    for channel, image in enumerate(images):
        statistics = _statistics(settings, channel, len(images))
        prepared[:, channel] = standardise(grid.resample_image(finite_voxels(image)), statistics)
    return PreparedCase(
        grid,
        prepared,
        np.array([beyond(prepared[:, channel]) for channel in range(len(images))], np.float32),
        None if scribbles is None else grid.resample_labels(scribbles, unlabelled=unlabelled),
        None if mask is None else grid.resample_labels(mask),
    )


def fit(array: NDArray[Scalar], size: tuple[int, int], fill: ArrayLike) -> NDArray[Scalar]:
    """The last two axes cropped or padded about their centre to ``size``.

    Odd differences are divided the same way in both directions, so that fitting a result to the original size
    puts every pixel back where it came from; what was cropped away comes back as ``fill``.
    """
    fitted = np.empty((*array.shape[:-2], *size), array.dtype)
    fitted[...] = fill
    row, column = (_shared(old, new) for old, new in zip(array.shape[-2:], size, strict=True))
    fitted[..., row[1], column[1]] = array[..., row[0], column[0]]
    return fitted


def different_shapes(
    path: object, shape: Sequence[int], other_path: object, other_shape: Sequence[int]
) -> InputError:
    """The error for two files of one case that do not lie on the same voxels."""
    return InputError(
        f"{path}: its shape (z, y, x) is {tuple(shape)}, but {other_path} of the same case has "
        f"{tuple(other_shape)}; both must be drawn on the same voxel grid. Resample or remove one."
    )


def reject_unequal_channels(cases: Sequence[Case]) -> None:
    """Every case must have as many images as the first."""
    for case in cases:
        if len(case.images) != len(cases[0].images):
            raise InputError(
                f"case {case.name}: {len(case.images)} images (channels), but {cases[0].name} has "
                f"{len(cases[0].images)}; give every case the same channels."
            )


def _shared(old: int, new: int) -> tuple[slice, slice]:
    """Where the part that both lengths have lies in the old and in the new."""
    shift, length = abs(new - old) // 2, min(old, new)
    inside, whole = slice(shift, shift + length), slice(0, length)
    return (whole, inside) if new >= old else (inside, whole)


def _statistics(settings: Preprocessing, channel: int, channels: int) -> ChannelStatistics | None:
    if settings.intensity == "volume":
        return None
    if len(settings.statistics) != channels:
        raise InputError(
            f"the preprocessing has statistics of {len(settings.statistics)} channels, but the images have "
            f"{channels}; give as many images per case as in training."
        )
    return settings.statistics[channel]


def finite_voxels(image: Volume) -> NDArray:
    """The voxels of ``image``, after proving that they are numbers."""
    if image.array.dtype.kind != "f":
        return image.array
    with np.errstate(over="ignore"):  # counted below
        values = image.array.astype(np.float32, copy=False)
    bad = int(values.size - np.count_nonzero(np.isfinite(values)))
    if bad:
        raise InputError(
            f"{image.source}: {bad} of {values.size} voxels are NaN, infinite or beyond float32; expected "
            "finite intensities. Repair the file or leave the case out."
        )
    return values
