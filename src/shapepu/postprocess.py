"""What is done to a predicted label volume before it is written."""

from __future__ import annotations

from typing import Literal

import numpy as np
from numpy.typing import NDArray

ComponentRule = Literal["foreground", "per-class", "off"]
"""Of what only the largest piece is kept: of all structures together (the paper), of each, of nothing."""

# Neighbours by face, edge or corner: slices are thick, so a structure often moves on by more than a pixel's
# width from one slice to the next without being another structure.
_NEIGHBOURS = np.ones((3, 3, 3), dtype=bool)


def keep_largest_component(
    labels: NDArray[np.uint8], rule: ComponentRule = "foreground"
) -> NDArray[np.uint8]:
    """Set to background what is not connected to the largest piece; 3-D, ties go to the piece met first.

    Args:
        labels: classes 0..K-1, shape (Z, Y, X).
        rule: ``foreground`` keeps the largest piece of the union of all structures, so that a structure that
            belongs to it may itself be in pieces; ``per-class`` keeps the largest piece of each structure.
    """
    if rule == "off" or not labels.any():
        return labels
    if rule == "foreground":
        return np.where(_largest_piece(labels > 0), labels, 0).astype(np.uint8, copy=False)
    kept = labels.copy()
    for label in range(1, int(labels.max()) + 1):
        structure = labels == label
        if structure.any():
            kept[structure & ~_largest_piece(structure)] = 0
    return kept


def _largest_piece(inside: NDArray[np.bool_]) -> NDArray[np.bool_]:
    """The largest connected component of a mask that is not empty."""
    from scipy import ndimage

    box = _bounding_box(inside)
    pieces, count = ndimage.label(inside[box], structure=_NEIGHBOURS)
    if count == 1:
        return inside
    sizes = np.bincount(pieces.ravel())
    sizes[0] = 0
    largest = np.zeros_like(inside)
    largest[box] = pieces == sizes.argmax()
    return largest


def _bounding_box(inside: NDArray[np.bool_]) -> tuple[slice, ...]:
    """Labelling costs time for every voxel, and a heart fills few of them."""
    in_plane = np.any(inside, axis=0)
    occupied = (np.any(inside, axis=(1, 2)), np.any(in_plane, axis=1), np.any(in_plane, axis=0))
    ends = (np.flatnonzero(along)[[0, -1]] for along in occupied)
    return tuple(slice(first, last + 1) for first, last in ends)
