"""Between a volume and its resampled slices, in both directions.

Networks here are two-dimensional. A volume is cut along its slice axis and each slice is resampled in its
plane; predictions go back the same way. Pixels are areas: the outer edges of the first and last pixel stay
where they are, so that nothing shifts by half a pixel on the way.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from shapepu.errors import InputError

if TYPE_CHECKING:  # a help text reads the settings beside this module and must not wait for torch
    from pathlib import Path

    from torch import Tensor

CLEARLY_COARSER = 1.5
"""Slices lie along the axis whose spacing is this many times that of the other two, if there is one."""

LARGEST_SIDE = 8192
"""Pixels; a longer resampled side means that the spacing in a header or in the settings is wrong."""

CHUNK_BYTES = 64 * 2**20
"""Volumes are worked on a few slices at a time, so that no temporary array is larger than about this."""


def slice_axis(shape: Sequence[int], spacing_mm: Sequence[float]) -> int:
    """The axis of (Z, Y, X) along which the slices of a volume are stacked.

    The only axis of length 1 if there is one; else the axis with clearly coarser spacing; else the first.
    """
    single = [axis for axis in range(3) if shape[axis] == 1]
    if len(single) == 1:
        return single[0]
    coarsest = int(np.argmax(spacing_mm))
    others = [spacing_mm[axis] for axis in range(3) if axis != coarsest]
    return coarsest if spacing_mm[coarsest] >= CLEARLY_COARSER * max(others) else 0


def resampled_size(
    shape: Sequence[int], spacing_mm: Sequence[float], target_spacing_mm: Sequence[float]
) -> tuple[int, int]:
    """(h, w) of a slice that shows the same field in pixels of the target spacing, to the nearest pixel."""
    axis = slice_axis(shape, spacing_mm)
    in_plane = [other for other in range(3) if other != axis]
    height, width = (
        max(1, round(shape[other] * spacing_mm[other] / target_mm))
        for other, target_mm in zip(in_plane, target_spacing_mm, strict=True)
    )
    return height, width


@dataclass(frozen=True)
class SliceGrid:
    """Where the slices of one volume are, natively and resampled.

    Args:
        shape: native (Z, Y, X).
        spacing_mm: native (z, y, x).
        axis: the axis along which slices are stacked.
        size: (h, w) of a resampled slice.
    """

    shape: tuple[int, int, int]
    spacing_mm: tuple[float, float, float]
    axis: int
    size: tuple[int, int]

    @classmethod
    def of(
        cls,
        shape: Sequence[int],
        spacing_mm: Sequence[float],
        target_spacing_mm: Sequence[float],
        *,
        source: Path | None = None,
    ) -> SliceGrid:
        """The grid whose in-plane spacing is as near to the target as whole pixels over the field allow.

        Args:
            shape, spacing_mm: native (Z, Y, X) and (z, y, x).
            target_spacing_mm: in-plane (y, x).
            source: the file they are of, for messages.
        """
        height, width = resampled_size(shape, spacing_mm, target_spacing_mm)
        if max(height, width) > LARGEST_SIDE:
            where = "" if source is None else f"{source}: "
            raise InputError(
                f"{where}slices of {tuple(shape)} voxels at {tuple(spacing_mm)} mm would become "
                f"{height}x{width} pixels at {tuple(target_spacing_mm)} mm; the pixel size in the header or "
                "the spacing asked for is wrong."
            )
        z, y, x = (int(length) for length in shape)
        z_mm, y_mm, x_mm = (float(step) for step in spacing_mm)
        return cls((z, y, x), (z_mm, y_mm, x_mm), slice_axis(shape, spacing_mm), (height, width))

    @property
    def slices(self) -> int:
        return self.shape[self.axis]

    @property
    def native_size(self) -> tuple[int, int]:
        """Rows and columns of a native slice."""
        rows, columns = (self.shape[other] for other in range(3) if other != self.axis)
        return rows, columns

    @property
    def native_pixel_mm(self) -> tuple[float, float]:
        """In-plane spacing of a native slice."""
        row_mm, column_mm = (self.spacing_mm[other] for other in range(3) if other != self.axis)
        return row_mm, column_mm

    @property
    def pixel_mm(self) -> tuple[float, float]:
        """In-plane spacing of a resampled slice; within half a pixel over the whole field of the target."""
        row_mm, column_mm = (
            step * native / resampled
            for step, native, resampled in zip(self.native_pixel_mm, self.native_size, self.size, strict=True)
        )
        return row_mm, column_mm

    def resample_image(self, array: NDArray) -> NDArray[np.float32]:
        """(Z, Y, X) intensities to (S, h, w): linear, and smoothed first where pixels would be skipped.

        Up to a factor of 2 linear interpolation reads every native pixel. Smoothing there only costs detail:
        on the MSCMRseg images (factor 1.88) the error of a round trip is .08 without and .10 with it.
        """
        native = self._stacked(array)
        resampled = np.empty((self.slices, *self.size), np.float32)
        for part in self._chunks():
            resampled[part] = _resize(native[part], self.size)
        return resampled

    def resample_labels(self, labels: NDArray, *, unlabelled: int | None = None) -> NDArray[np.uint8]:
        """(Z, Y, X) labels to (S, h, w).

        Args:
            labels: one integer a voxel, 0 to 255.
            unlabelled: None for a dense mask, whose resampled pixel takes the class with the largest share of
                it. For scribbles, the label of unlabelled voxels: a pixel takes the most frequent class among
                the scribbled native pixels with their centre in it, and is unlabelled only if there is none.
                So a line one pixel wide stays a line, where nearest or linear interpolation would break or
                erase it, and no pixel gets a class that was not drawn inside it. Between classes with equally
                many the one with fewer voxels in the volume wins, because it has more to lose. Where pixels
                get smaller, each takes the native pixel around its centre.
        """
        native = self._stacked(labels).astype(np.uint8, copy=False)
        if self.size == self.native_size:
            return native.copy()
        if unlabelled is not None:
            return _resample_scribbles(native, unlabelled, self.size)
        resampled = np.empty((self.slices, *self.size), np.uint8)
        for part in self._chunks():
            resampled[part] = _largest_share(native[part], self.size)
        return resampled

    def restore(self, probs: NDArray | Tensor) -> NDArray[np.float32]:
        """(K, S, h, w) values, linearly interpolated to the native (K, Z, Y, X)."""
        return np.ascontiguousarray(np.moveaxis(self.restore_slices(probs), 1, self.axis + 1))

    def restore_slices(self, probs: NDArray | Tensor) -> NDArray[np.float32]:
        """(K, s, h, w) values of some slices, interpolated to native slices (K, s, rows, columns)."""
        assert tuple(probs.shape[2:]) == self.size, (probs.shape, self.size)
        return _resize(probs, self.native_size)

    def restore_labels(self, probs: NDArray | Tensor) -> NDArray[np.uint8]:
        """(K, S, h, w) probabilities to the most probable class of each native voxel, (Z, Y, X).

        Works in chunks of slices: the probabilities of a whole volume on its native grid are never held.
        """
        classes = len(probs)
        labels = np.empty((self.slices, *self.native_size), np.uint8)
        for part in self._chunks(classes):
            labels[part] = _most_probable(self.restore_slices(probs[:, part]))
        return np.ascontiguousarray(np.moveaxis(labels, 0, self.axis))

    def _stacked(self, array: NDArray) -> NDArray:
        """The array with the slice axis first."""
        assert array.shape == self.shape, (array.shape, self.shape)
        return np.moveaxis(array, self.axis, 0)

    def _chunks(self, channels: int = 1) -> Iterator[slice]:
        rows, columns = (max(pair) for pair in zip(self.native_size, self.size, strict=True))
        step = max(1, CHUNK_BYTES // (4 * channels * rows * columns))
        for first in range(0, self.slices, step):
            yield slice(first, min(first + step, self.slices))


def _resize(values: NDArray | Tensor, size: tuple[int, int]) -> NDArray[np.float32]:
    """The last two axes of (..., h, w) resampled linearly to ``size``, edges on edges; always a new array."""
    import torch
    from torch.nn import functional

    if isinstance(values, np.ndarray):
        tensor = torch.from_numpy(np.array(values, np.float32, order="C"))
    else:
        tensor = values.detach().to("cpu", torch.float32, copy=True)
    if tuple(tensor.shape[-2:]) == size:
        return tensor.numpy()
    skips_pixels = any(old > 2 * new for old, new in zip(tensor.shape[-2:], size, strict=True))
    stacked = tensor.reshape(1, -1, *tensor.shape[-2:])
    resized = functional.interpolate(stacked, size=size, mode="bilinear", antialias=skips_pixels)
    return resized.reshape(*tensor.shape[:-2], *size).numpy()


def _largest_share(masks: NDArray[np.uint8], size: tuple[int, int]) -> NDArray[np.uint8]:
    """Dense labels (S, h, w) resampled: each class as an image of its own, the largest value wins."""
    present = np.flatnonzero(np.bincount(masks.ravel(), minlength=256))
    winner = np.full((len(masks), *size), present[0], np.uint8)
    largest = np.zeros((len(masks), *size), np.float32)
    for label in present if len(present) > 1 else ():
        share = _resize((masks == label).astype(np.float32), size)
        winner[share > largest] = label
        np.maximum(largest, share, out=largest)
    return winner


def _resample_scribbles(
    scribbles: NDArray[np.uint8], unlabelled: int, size: tuple[int, int]
) -> NDArray[np.uint8]:
    """See :meth:`SliceGrid.resample_labels`; works on the scribbled pixels only, since they are few."""
    for axis, new in enumerate(size, start=1):
        if new > scribbles.shape[axis]:
            scribbles = scribbles.take(_pixel_around_centre(new, scribbles.shape[axis]), axis=axis)
    where = np.nonzero(scribbles != unlabelled)
    labels = scribbles[where]
    rows, columns = (
        _pixel_around_centre(old, new)[index]
        for old, new, index in zip(scribbles.shape[1:], size, where[1:], strict=True)
    )
    pixels = (where[0] * size[0] + rows) * size[1] + columns
    resampled = np.full(len(scribbles) * size[0] * size[1], unlabelled, np.uint8)
    # A pixel and a class in one integer, so that one sort counts the votes of all pixels.
    ballots, votes = np.unique(pixels * 256 + labels, return_counts=True)
    pixel_of_ballot, label_of_ballot = np.divmod(ballots, 256)
    voxels_of_class = np.bincount(labels, minlength=256)
    # Assignment keeps the last of repeated indices: most votes, then the rarest class, then the highest.
    order = np.lexsort((-voxels_of_class[label_of_ballot], votes))
    resampled[pixel_of_ballot[order]] = label_of_ballot[order]
    return resampled.reshape(len(scribbles), *size)


def _pixel_around_centre(count: int, other: int) -> NDArray[np.int64]:
    """For each of ``count`` pixels of a line, which of ``other`` pixels of the same line holds its centre."""
    return (2 * np.arange(count) + 1) * other // (2 * count)


def _most_probable(probs: NDArray[np.float32]) -> NDArray[np.uint8]:
    """Index of the largest value over the first axis; the first of equals."""
    winner = np.zeros(probs.shape[1:], np.uint8)
    largest = probs[0].copy()
    for label in range(1, len(probs)):
        winner[probs[label] > largest] = label
        np.maximum(largest, probs[label], out=largest)
    return winner
