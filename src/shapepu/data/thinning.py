"""Shorter scribbles from longer ones, to ask what more scribbling would buy."""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Iterator

import numpy as np
from numpy.typing import NDArray
from scipy import ndimage

Pixel = tuple[int, int]

NEIGHBOURS = tuple((row, column) for row in (-1, 0, 1) for column in (-1, 0, 1) if row or column)


def thin_scribbles(
    labels: NDArray[np.uint8], share: float, *, unlabelled: int, seed: int
) -> NDArray[np.uint8]:
    """``labels`` with every line shortened to ``share`` of its pixels; the rest becomes unlabelled.

    A line is a connected piece of one class in one slice. It is followed from one of its ends, drawn by
    ``seed``, and kept until the share is reached, so what is kept is connected and a smaller share keeps some
    of what a larger one does. At least a pixel of each line stays.

    Args:
        labels: (N, H, W); 0 to ``unlabelled`` - 1 are classes, and other values stay as they are.
        share: above 0, at most 1.
        unlabelled: the value of pixels without a label.
        seed: of the ends.
    """
    thinned = labels.copy()
    rng = np.random.default_rng(seed)
    for index, piece in _pieces(labels, unlabelled):
        line = _followed(piece, from_far_end=bool(rng.integers(2)))
        for row, column in line[max(1, math.ceil(share * len(line) - 1e-9)) :]:
            thinned[index, row, column] = unlabelled
    return thinned


def _pieces(labels: NDArray[np.uint8], classes: int) -> Iterator[tuple[int, list[Pixel]]]:
    """Index of the slice and pixels of each connected piece, corners counting as connected."""
    for index, slice_labels in enumerate(labels):
        for label in range(classes):
            numbered, count = ndimage.label(slice_labels == label, structure=np.ones((3, 3)))
            for place, number in zip(ndimage.find_objects(numbered), range(1, count + 1), strict=True):
                rows, columns = np.nonzero(numbered[place] == number)
                first_row, first_column = place[0].start, place[1].start
                yield (
                    index,
                    list(zip((rows + first_row).tolist(), (columns + first_column).tolist(), strict=True)),
                )


def _followed(piece: list[Pixel], *, from_far_end: bool) -> list[Pixel]:
    """The pixels of a piece by their distance, within it, from one of its two ends.

    The pixel furthest from any other is an end, and the one furthest from that is the other end.
    """
    pixels = set(piece)
    line = _by_distance(pixels, _by_distance(pixels, piece[0])[-1])
    return _by_distance(pixels, line[-1]) if from_far_end else line


def _by_distance(pixels: set[Pixel], start: Pixel) -> list[Pixel]:
    """Breadth first, so that each pixel follows one of its neighbours and any beginning is connected."""
    seen, waiting, order = {start}, deque([start]), []
    while waiting:
        row, column = waiting.popleft()
        order.append((row, column))
        for down, right in NEIGHBOURS:
            pixel = (row + down, column + right)
            if pixel in pixels and pixel not in seen:
                seen.add(pixel)
                waiting.append(pixel)
    return order
