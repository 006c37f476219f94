"""Overlap, surface distances and volumes of one volume, per structure: one definition, used everywhere.

Overlap is counted in voxels, distances are in millimetres between the centres of surface voxels, volumes in
millilitres. :data:`DEFINITIONS` says the same to the reader of a table.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy.spatial import cKDTree

from shapepu.errors import InputError

DEFINITIONS = (
    "Scores are per volume and structure on the reference's voxel grid; mean ± sample sd over volumes. "
    "Surface voxels: those with a face neighbour outside the structure or the image. HD, HD95, ASSD: "
    "maximum, 95th percentile and mean of the distances (mm) from each surface voxel to the other "
    "surface, both directions pooled. Absent from both: Dice 1, no distance (left out of its mean, "
    "counted). Absent from one only: Dice 0, distance = diagonal of the image. Volume error: prediction "
    "minus reference. Average: each volume's mean over its structures, then over volumes. Voxels that the "
    "reference leaves unlabelled are not counted, and a volume that has any gets no distances and no "
    "volumes."
)


@dataclass(frozen=True)
class SurfaceDistances:
    """Three summaries of the same set of distances between two surfaces."""

    hd_mm: float
    hd95_mm: float
    assd_mm: float


@dataclass(frozen=True)
class StructureScores:
    """How well one structure of one volume was found.

    Args:
        tp, fp, fn, tn: voxels, counted where the reference is labelled.
        hd_mm, hd95_mm, assd_mm: surface distances; nan where :attr:`reason` says why.
        voxel_ml: the volume of one voxel.
        partly_labelled: the reference has unlabelled voxels, so neither its surface nor its volume is known.
    """

    tp: int
    fp: int
    fn: int
    tn: int
    hd_mm: float
    hd95_mm: float
    assd_mm: float
    voxel_ml: float
    partly_labelled: bool = False

    @property
    def n_pred(self) -> int:
        return self.tp + self.fp

    @property
    def n_ref(self) -> int:
        return self.tp + self.fn

    @property
    def both_empty(self) -> bool:
        return self.n_pred == 0 and self.n_ref == 0

    @property
    def one_empty(self) -> bool:
        return (self.n_pred == 0) != (self.n_ref == 0)

    @property
    def dice(self) -> float:
        return 1.0 if self.both_empty else 2 * self.tp / (self.n_pred + self.n_ref)

    @property
    def iou(self) -> float:
        return 1.0 if self.both_empty else self.tp / (self.tp + self.fp + self.fn)

    @property
    def volume_ml(self) -> float:
        return math.nan if self.partly_labelled else self.n_pred * self.voxel_ml

    @property
    def reference_ml(self) -> float:
        return math.nan if self.partly_labelled else self.n_ref * self.voxel_ml

    @property
    def volume_error_ml(self) -> float:
        """Positive where too much was predicted."""
        return self.volume_ml - self.reference_ml

    @property
    def volume_error_percent(self) -> float:
        """Of the reference volume; nan where that is zero."""
        return 100 * self.volume_error_ml / self.reference_ml if self.n_ref else math.nan

    @property
    def reason(self) -> str:
        """Why a distance is missing or is the image diagonal; empty for an ordinary one."""
        if self.partly_labelled:
            return "reference partly unlabelled"
        if self.both_empty:
            return "both empty"
        if self.one_empty:
            return "reference empty" if self.n_ref == 0 else "prediction empty"
        return ""


def surface_distances(
    prediction: NDArray[np.bool_], reference: NDArray[np.bool_], spacing_mm: Sequence[float]
) -> SurfaceDistances:
    """HD, HD95 and ASSD between two masks of equal shape, neither of them empty, in any number of dimensions.

    Equal to MedPy's ``hd``, ``hd95`` and ``assd`` with ``connectivity=1``. The time a KD-tree takes goes with
    the surfaces; that of a distance transform goes with the box around them, which one stray voxel can blow
    up to the whole image.
    """
    if not (prediction.any() and reference.any()):
        raise InputError("distances between surfaces need two masks with a voxel each; one is empty.")
    box = _joint_box(prediction, reference)
    prediction_surface, reference_surface = surface(prediction[box]), surface(reference[box])
    distances_mm = np.concatenate(
        [
            _directed_distances(prediction_surface, reference_surface, spacing_mm),
            _directed_distances(reference_surface, prediction_surface, spacing_mm),
        ]
    )
    return SurfaceDistances(
        hd_mm=float(distances_mm.max()),
        hd95_mm=float(np.percentile(distances_mm, 95)),
        assd_mm=float(distances_mm.mean()),
    )


def surface(mask: NDArray[np.bool_]) -> NDArray[np.bool_]:
    """Voxels of ``mask`` with a face neighbour that is not in it; what lies beyond the array is not in it."""
    padded = np.pad(mask, 1)
    interior = mask.copy()
    centre = (slice(1, -1),) * mask.ndim
    for axis in range(mask.ndim):
        for shifted in (slice(None, -2), slice(2, None)):
            interior &= padded[(*centre[:axis], shifted, *centre[axis + 1 :])]
    return mask & ~interior


def score_volume(
    prediction: ArrayLike,
    reference: ArrayLike,
    spacing_mm: Sequence[float],
    classes: int,
    ignore: int | None = None,
) -> dict[int, StructureScores]:
    """Scores of the structures 1..K-1 of one volume.

    Args:
        prediction: labels 0..K-1, any shape.
        reference: labels of the same shape.
        spacing_mm: the size of a voxel along each axis, in the order of the axes.
        classes: K, background included.
        ignore: the label of unlabelled voxels in the reference (K inside this package). They count neither
            as right nor as wrong; where there are any, distances and volumes are nan, because neither a
            surface nor a volume can be read off annotated voxels alone.
    """
    assert ignore is None or ignore >= classes, "the ignored label must not be one of the classes"
    prediction, reference = np.asarray(prediction), np.asarray(reference)
    if prediction.shape != reference.shape:
        raise InputError(
            f"prediction and reference need the same shape; got {prediction.shape} and {reference.shape}."
        )
    voxels, diagonal_mm = reference.size, math.hypot(*np.multiply(reference.shape, spacing_mm))
    box = _joint_box(prediction, reference)
    prediction, reference = prediction[box], reference[box]
    unlabelled = int(np.count_nonzero(reference == ignore)) if ignore is not None else 0
    if unlabelled:
        prediction = np.where(reference == ignore, 0, prediction)
    return {
        label: _score_structure(
            prediction == label,
            reference == label,
            spacing_mm,
            voxels - unlabelled,
            diagonal_mm,
            unlabelled > 0,
        )
        for label in range(1, classes)
    }


def _score_structure(
    found: NDArray[np.bool_],
    wanted: NDArray[np.bool_],
    spacing_mm: Sequence[float],
    labelled_voxels: int,
    diagonal_mm: float,
    partly_labelled: bool,
) -> StructureScores:
    tp = int(np.count_nonzero(found & wanted))
    fp, fn = int(np.count_nonzero(found)) - tp, int(np.count_nonzero(wanted)) - tp
    if partly_labelled or tp + fp + fn == 0:
        distances = SurfaceDistances(math.nan, math.nan, math.nan)
    elif tp + fp == 0 or tp + fn == 0:
        distances = SurfaceDistances(diagonal_mm, diagonal_mm, diagonal_mm)
    else:
        distances = surface_distances(found, wanted, spacing_mm)
    return StructureScores(
        tp=tp,
        fp=fp,
        fn=fn,
        tn=labelled_voxels - tp - fp - fn,
        hd_mm=distances.hd_mm,
        hd95_mm=distances.hd95_mm,
        assd_mm=distances.assd_mm,
        voxel_ml=math.prod(spacing_mm) / 1000,
        partly_labelled=partly_labelled,
    )


def _directed_distances(
    start: NDArray[np.bool_], end: NDArray[np.bool_], spacing_mm: Sequence[float]
) -> NDArray[np.float64]:
    """The distance of each voxel of ``start`` to the nearest one of ``end``; in no particular order."""
    # Voxels on both surfaces are at distance 0; a good prediction shares a third of its surface or more.
    apart = np.argwhere(start & ~end)
    distances_mm = np.zeros(np.count_nonzero(start))
    if len(apart):
        # A tree split by position instead of by count is built faster, and is no worse on a regular grid.
        tree = cKDTree(np.argwhere(end) * np.asarray(spacing_mm), balanced_tree=False)
        distances_mm[: len(apart)] = tree.query(apart * np.asarray(spacing_mm))[0]
    return distances_mm


def _joint_box(first: NDArray, second: NDArray) -> tuple[slice, ...]:
    """The smallest box around all that is not 0 in either array; an empty one where there is nothing."""
    occupied = (first != 0) | (second != 0)
    box = []
    for axis in range(occupied.ndim):
        others = tuple(other for other in range(occupied.ndim) if other != axis)
        filled = np.flatnonzero(occupied.any(axis=others))
        box.append(slice(int(filled[0]), int(filled[-1]) + 1) if len(filled) else slice(0, 0))
    return tuple(box)
