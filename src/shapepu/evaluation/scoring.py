"""A folder of predictions against a folder of references."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from shapepu.console import progress
from shapepu.data.case import Case
from shapepu.data.volumes import (
    Volume,
    count_values,
    read_header,
    read_volume,
    translate_labels,
    whole_numbers,
)
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
    return _score_pairs(pairing.pairs, labels, notes, quiet)


evaluate = score_folders
"""Its name among the public ones: ``shapepu.evaluate``."""


def score_cases(
    cases: Sequence[Case], predictions: Sequence[Path], labels: LabelSet, *, quiet: bool = True
) -> Evaluation:
    """Score one prediction for each of ``cases``, which have masks, in their order."""
    pairs = []
    for case, prediction in zip(cases, predictions, strict=True):
        assert case.mask is not None, "callers choose cases with masks"
        pairs.append(Pair(case.name, case.group, prediction, case.mask, next(iter(case.images), None)))
    return _score_pairs(pairs, labels, (), quiet)


def _score_pairs(pairs: Sequence[Pair], labels: LabelSet, notes: tuple[str, ...], quiet: bool) -> Evaluation:
    shown = progress(pairs, what="evaluate", total=len(pairs), unit="case", quiet=quiet)
    results = [_score_pair(pair, labels) for pair in shown]
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
    spacing_mm, notes = _spacing(pair, prediction, reference)
    scores = score_volume(
        _predicted_labels(prediction, labels),
        _labels(reference, labels),
        spacing_mm,
        labels.count,
        ignore=labels.unlabelled,
    )
    if not np.allclose(prediction.direction, reference.direction, atol=1e-2):
        notes["orientation differs by the headers; compared voxel by voxel"] = pair.name
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


def _spacing(
    pair: Pair, prediction: Volume, reference: Volume
) -> tuple[tuple[float, float, float], dict[str, str]]:
    """The voxel size to measure with, and a note where headers contradict each other.

    Masks lose their voxel size more often than images do: most of the ACDC masks say 1 x 1 x 1 mm. So the
    image's counts where there is one, and a size of exactly one is believed last.
    """
    sizes = {"reference": reference.spacing_mm, "prediction": prediction.spacing_mm}
    if pair.image is not None and (image := read_header(pair.image)).shape == reference.array.shape:
        sizes = {"image": image.spacing_mm, **sizes}
    source = next((name for name, size in sizes.items() if size != (1, 1, 1)), "reference")
    chosen = sizes[source]
    if chosen == (1, 1, 1) and "image" not in sizes:
        return chosen, {"all headers say 1 x 1 x 1 mm; if that is not so, distances are in voxels": pair.name}
    for name, size in sizes.items():
        if not np.allclose(size, chosen, rtol=1e-3):
            told, used = (" x ".join(f"{length:.4g}" for length in lengths) for lengths in (size, chosen))
            kind = f"the {name}'s header has another voxel size than the {source}'s, which is used"
            return chosen, {kind: f"{pair.name}, {told} mm and {used} mm"}
    return chosen, {}


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
    predicted, wanted = Counter[int](), Counter[int]()
    for pair in progress(pairs, what="look for labels", unit="case", quiet=quiet):
        for path, voxels in ((pair.prediction, predicted), (pair.reference, wanted)):
            found = count_values(whole_numbers(read_volume(path).array, path))
            if min(found) < 0 or len(found) > MAX_CLASSES:
                raise InputError(
                    f"{path}: expected a label map, a few classes from 0 up; got values from {min(found)} "
                    f"to {max(found)}. Is it an image?"
                )
            voxels.update(found)
    commonest = wanted.most_common(1)[0][0]
    if ignore is None and commonest == max(wanted) > 0 and wanted[commonest] > wanted.total() / 2:
        raise InputError(
            f"{pairs[0].reference.parent}: most voxels are {commonest}, as if that meant unlabelled; say so "
            f"with --ignore {commonest}, or name all values with --labels."
        )
    structures = sorted({*predicted, *wanted} - {0, ignore})
    if not structures:
        raise InputError(
            f"{pairs[0].reference.parent}: no structure found, all voxels are 0; give --labels to name them."
        )
    return LabelSet(("background", *map(str, structures)), (0, *structures), -1 if ignore is None else ignore)
