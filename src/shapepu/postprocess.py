"""What is done to a predicted label volume before it is written."""

from __future__ import annotations

from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

ComponentRule = Literal["balanced", "foreground", "per-class", "off"]
"""Which piece is kept: the one with most of all structures, the largest (the paper), of each one, or all."""

# Neighbours by face, edge or corner: slices are thick, so a structure often moves on by more than a pixel's
# width from one slice to the next without being another structure.
_NEIGHBOURS = np.ones((3, 3, 3), dtype=bool)


def sureness(probs: NDArray[np.float32]) -> NDArray[np.uint8]:
    """What a voxel counts when pieces are compared, 1 to 255: the eighth power of its class's probability.

    A leak into what nobody scribbled may be larger than an organ, but a network is not sure of it: a voxel at
    .8 counts a quarter of one at .95. Every voxel counts something, so that a network that is sure of none
    still keeps a piece.
    """
    return np.rint(255 * np.square(np.square(np.square(probs)))).clip(1, 255).astype(np.uint8)


def keep_largest_component(
    labels: NDArray[np.uint8], rule: ComponentRule = "balanced", sure: NDArray[np.uint8] | None = None
) -> NDArray[np.uint8]:
    """Set to background what is not connected to one piece; 3-D, ties go to the piece met first.

    Args:
        labels: classes 0..K-1, shape (Z, Y, X).
        rule: ``balanced`` and ``foreground`` keep one piece of the union of all structures, so that a
            structure that belongs to it may itself be in pieces: ``foreground`` the one with most voxels,
            ``balanced`` the one with most of the structures: the share it has of each, weighed by the
            logarithm of that structure's voxels. Where one structure leaks into the air around a body, the
            leak has most voxels, but the organ has the other structures; a stray dot of a rare structure
            still weighs less than an organ. ``per-class`` keeps the largest piece of each structure.
        sure: what each voxel counts for ``balanced``, from :func:`sureness`; None counts all alike.
    """
    if rule == "off" or not labels.any():
        return labels
    if rule != "per-class":
        piece = _kept_piece(labels, rule, sure if rule == "balanced" else None)
        return np.where(piece, labels, 0).astype(np.uint8, copy=False)
    kept = labels.copy()
    for label in range(1, int(labels.max()) + 1):
        structure = labels == label
        if structure.any():
            kept[structure & ~_kept_piece(structure, "foreground")] = 0
    return kept


def _kept_piece(
    labels: NDArray[Any], rule: ComponentRule, sure: NDArray[np.uint8] | None = None
) -> NDArray[np.bool_]:
    """The connected component of the foreground, which is not empty, that a rule prefers."""
    from scipy import ndimage

    inside = labels > 0
    box = _bounding_box(inside)
    pieces, count = ndimage.label(inside[box], structure=_NEIGHBOURS)
    if count == 1:
        return inside
    classes = int(labels.max()) + 1
    places = pieces[inside[box]].astype(np.int64) * classes + labels[inside]
    weights = None if sure is None else sure[inside] / 255
    voxels = np.bincount(places, weights, minlength=(count + 1) * classes).reshape(count + 1, classes)
    sizes = voxels.sum(axis=1)
    if rule == "balanced":
        totals = voxels.sum(axis=0)
        sizes = voxels @ np.divide(np.log1p(totals), totals, where=totals > 0, out=np.zeros(classes))
    kept = np.zeros_like(inside)
    kept[box] = pieces == sizes.argmax()
    return kept


def _bounding_box(inside: NDArray[np.bool_]) -> tuple[slice, ...]:
    """Labelling costs time for every voxel, and a heart fills few of them."""
    in_plane = np.any(inside, axis=0)
    occupied = (np.any(inside, axis=(1, 2)), np.any(in_plane, axis=1), np.any(in_plane, axis=0))
    ends = (np.flatnonzero(along)[[0, -1]] for along in occupied)
    return tuple(slice(first, last + 1) for first, last in ends)
