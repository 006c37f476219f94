"""A folder of predictions against a folder of references."""

from __future__ import annotations

from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from shapepu.console import progress
from shapepu.data.volumes import Volume, read_volume, translate_labels, whole_numbers
from shapepu.errors import InputError
from shapepu.evaluation.metrics import score_volume
from shapepu.evaluation.pairing import GROUP_PATTERN, Pair, find_pairs
from shapepu.evaluation.results import CaseScores, Evaluation
from shapepu.labels import MAX_CLASSES, LabelSet


def score_folders(
    predictions: str | Path,
    references: str | Path,
    *,
    labels: LabelSet | None = None,
    ignore: int | None = None,
    split: str = "val",
    layout: str = "auto",
    splits: str | Path | None = None,
    allow_missing: bool = False,
    group_pattern: str = GROUP_PATTERN,
    quiet: bool = True,
) -> Evaluation:
    """Score label maps against references of the same name.

    Args:
        predictions: a folder of label maps, or one label map.
        references: a folder of masks (``CASE_mask``, ``CASE_gt`` and the like belong to ``CASE``), one mask,
            or a data set folder, of which the cases of ``split`` are scored.
        labels: names and values of the classes. By default those of the data set, of a ``labels.json``,
            ``dataset.json`` or ``model.json`` beside the files, or the numbers found in the files.
        ignore: the value of unlabelled voxels in the references where no description of the labels says so.
        layout, splits: how to read a data set folder, as for training.
        allow_missing: score what is there when a reference has no prediction, instead of refusing.
        group_pattern: regular expression that finds the patient in the name of a mask.
    """
    pairing = find_pairs(
        Path(predictions),
        Path(references),
        labels=labels,
        split=split,
        layout=layout,
        splits=Path(splits) if splits else None,
        allow_missing=allow_missing,
        group_pattern=group_pattern,
    )
    labels, notes = pairing.labels, pairing.notes
    if labels is None:
        notes += ("No class names found: the numbers in the files name the structures.",)
        labels = _labels_in_files(pairing.pairs, ignore, quiet)
    elif ignore is not None:
        labels = LabelSet(labels.names, labels.values, ignore)
    pairs = progress(pairing.pairs, what="evaluate", total=len(pairing.pairs), unit="case", quiet=quiet)
    results = [_score_pair(pair, labels) for pair in pairs]
    notes += _summed_up([noticed for _, noticed in results])
    return Evaluation(labels, tuple(case for case, _ in results), notes)


def _score_pair(pair: Pair, labels: LabelSet) -> tuple[CaseScores, dict[str, str]]:
    """The scores of one case, and what was noticed: the kind of thing and an example of it."""
    prediction, reference = read_volume(pair.prediction), read_volume(pair.reference)
    if prediction.array.shape != reference.array.shape:
        raise InputError(
            f"{pair.prediction} has shape {prediction.array.shape}, its reference {pair.reference} "
            f"{reference.array.shape} (z, y, x): predict on the grid of the reference, or resample to it."
        )
    scores = score_volume(
        _predicted_labels(prediction, labels),
        _labels(reference, labels),
        reference.spacing_mm,
        labels.count,
        ignore=labels.unlabelled,
    )
    notes = _geometry_notes(pair.name, prediction, reference)
    if any(score.partly_labelled for score in scores.values()):
        notes["the reference is partly unlabelled: annotated voxels only, no distances or volumes"] = (
            pair.name
        )
    files = str(pair.prediction), str(pair.reference)
    return CaseScores(pair.name, pair.group, scores, *files), notes


def _labels(volume: Volume, labels: LabelSet) -> NDArray[np.uint8]:
    return translate_labels(whole_numbers(volume.array, volume.source), labels, volume.source)


def _predicted_labels(volume: Volume, labels: LabelSet) -> NDArray[np.uint8]:
    predicted = _labels(volume, labels)
    undecided = int(np.count_nonzero(predicted == labels.unlabelled))
    if undecided:
        raise InputError(
            f"{volume.source}: {undecided} voxels have the unlabelled value {labels.unlabelled_value}, but a "
            "prediction gives each voxel a class; were predictions and references exchanged?"
        )
    return predicted


def _geometry_notes(name: str, prediction: Volume, reference: Volume) -> dict[str, str]:
    """Headers that contradict each other are no reason to refuse: the voxel grids match."""
    if not np.allclose(prediction.spacing_mm, reference.spacing_mm, rtol=1e-3):
        spacings = " against ".join(
            "x".join(f"{size:.4g}" for size in volume.spacing_mm) for volume in (prediction, reference)
        )
        return {"spacing differs; the reference's is used": f"{name}: {spacings} mm"}
    if not np.allclose(prediction.direction, reference.direction, atol=1e-2):
        return {"orientation differs by the headers; compared voxel by voxel": name}
    return {}


def _summed_up(noticed: list[dict[str, str]]) -> tuple[str, ...]:
    """One line for each kind of thing that was noticed, not one for each case."""
    examples: dict[str, list[str]] = {}
    for notes in noticed:
        for kind, example in notes.items():
            examples.setdefault(kind, []).append(example)
    return tuple(
        f"{len(found)} of {len(noticed)} cases: {kind} (for example {found[0]})."
        for kind, found in examples.items()
    )


def _labels_in_files(pairs: tuple[Pair, ...], ignore: int | None, quiet: bool) -> LabelSet:
    """Structures named by the numbers that the files hold."""
    values: set[int] = set()
    for pair in progress(pairs, what="look for labels", unit="case", quiet=quiet):
        for path in (pair.prediction, pair.reference):
            found = np.unique(whole_numbers(read_volume(path).array, path)).tolist()
            if min(found) < 0 or len(values.union(found)) > MAX_CLASSES:
                raise InputError(
                    f"{path}: expected a label map, a few classes from 0 up; got values from {min(found)} "
                    f"to {max(found)}. Is it an image?"
                )
            values.update(found)
    structures = sorted(values - {0, ignore})
    if not structures:
        raise InputError(
            f"{pairs[0].reference.parent}: no structure found, all voxels are 0; give --labels to name them."
        )
    return LabelSet(("background", *map(str, structures)), (0, *structures), -1 if ignore is None else ignore)
