"""Which prediction belongs to which reference, and what the numbers in the files mean."""

from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import Path

from shapepu.data.case import GROUP_PATTERN, Case, Dataset, patient_in
from shapepu.data.readers import read_dataset
from shapepu.data.readers.listing import read_json, some, volumes_in
from shapepu.data.volumes import SUFFIXES, strip_suffix
from shapepu.errors import InputError
from shapepu.labels import LabelSet

_ROLE = re.compile(r"_(?:mask|gt|manual|labels?|scribble)$")
_LABEL_FILES = ("labels.json", "dataset.json", "prediction.json", "model.json")


@dataclass(frozen=True)
class Pair:
    """The two label maps of one case, the patient it belongs to, and its image where a data set names it."""

    name: str
    group: str
    prediction: Path
    reference: Path
    image: Path | None = None


@dataclass(frozen=True)
class Pairing:
    """What there is to score.

    Args:
        labels: as given, or from a description that lies with the files, or None.
        notes: what was left aside while pairing.
    """

    pairs: tuple[Pair, ...]
    labels: LabelSet | None
    notes: tuple[str, ...] = ()


def find_pairs(
    predictions: Path,
    references: Path,
    *,
    labels: LabelSet | None = None,
    split: str = "val",
    layout: str = "auto",
    splits: Path | None = None,
    allow_missing: bool = False,
    group_pattern: str = GROUP_PATTERN,
) -> Pairing:
    """Pair the label maps of ``predictions`` with ``references`` by name.

    ``references`` is a folder of masks, one mask, or a data set folder, of which the cases of ``split`` are
    used. ``group_pattern`` finds the patient in the names of masks; a data set knows its patients.
    """
    for role, path in (("predictions", predictions), ("references", references)):
        if not path.exists():
            raise InputError(f"{role}: {path} does not exist; give a folder of label maps or one label map.")
    notes: tuple[str, ...] = ()
    if references.is_dir() and not volumes_in(references):
        dataset = read_dataset(references, layout, labels, splits)
        cases, notes = _scorable(dataset, split)
        wanted = {case.name: case for case in cases}
        labels = dataset.labels
    else:
        wanted = {
            name: Case(name=name, images=(), mask=path, group=_group(name, group_pattern))
            for name, path in _by_name(references).items()
        }
    found = _by_name(predictions)
    if predictions.is_file() and len(wanted) == 1:
        found = dict(zip(wanted, found.values(), strict=True))
    notes += _check_names(predictions, references, list(found), list(wanted), allow_missing)
    pairs = tuple(
        Pair(name, case.group, found[name], reference, next(iter(case.images), None))
        for name, case in wanted.items()
        if name in found and (reference := case.mask or case.scribble)
    )
    return Pairing(pairs, labels or _described_labels(references, predictions), notes)


def read_labels(path: Path) -> LabelSet:
    """Class names and values from ``labels.json``, nnU-Net's ``dataset.json`` or what this package writes."""
    content = read_json(path)
    try:
        names = content.get("labels", content)
        return LabelSet.from_dict({str(name): int(value) for name, value in names.items()})
    except InputError as error:
        raise InputError(f"{path}: {error}") from error
    except (ValueError, TypeError, AttributeError) as error:
        raise InputError(
            f'{path}: expected class names with their values, such as {{"background": 0, "heart": 1}}; '
            f"got {str(content)[:60]}. Correct it, or name another file with --labels."
        ) from error


def _scorable(dataset: Dataset, split: str) -> tuple[list[Case], tuple[str, ...]]:
    """The cases of a split that have a mask; where none has, those with a scribble."""
    cases = [case for case in dataset.cases if case.split == split]
    masked = [case for case in cases if case.mask is not None]
    if masked:
        note = f"{len(cases) - len(masked)} cases of split {split!r} have no mask and are not scored."
        return masked, (note,) if len(masked) < len(cases) else ()
    scribbled = [case for case in cases if case.scribble is not None]
    if scribbled:
        return scribbled, (
            f"split {split!r} has no masks: scored against scribbles. Such a Dice says little about borders "
            "and is usually far above that of whole structures.",
        )
    sizes = {name: len(dataset.split(name)) for name in dict.fromkeys(case.split for case in dataset.cases)}
    raise InputError(
        f"{dataset.root}: split {split!r} has no case with a mask or scribble; it has {sizes}. "
        "Choose another with --split."
    )


def _check_names(
    predictions: Path, references: Path, found: list[str], wanted: list[str], allow_missing: bool
) -> tuple[str, ...]:
    missing = [name for name in wanted if name not in found]
    surplus = [name for name in found if name not in wanted]
    if len(missing) == len(wanted):
        raise InputError(
            f"no prediction in {predictions} has the name of a reference in {references}: predictions are "
            f"{some(found)}, references {some(wanted)}. Name each prediction as its reference."
        )
    if missing and not allow_missing:
        raise InputError(
            f"{predictions}: {len(missing)} of {len(wanted)} references have no prediction: "
            f"{some(missing)}. Predict them, or use --allow-missing to score the others."
        )
    notes = []
    if missing:
        notes.append(f"{len(missing)} of {len(wanted)} references have no prediction: {some(missing)}.")
    if surplus:
        notes.append(f"{len(surplus)} predictions have no reference and are not scored: {some(surplus)}.")
    return tuple(notes)


def _described_labels(references: Path, predictions: Path) -> LabelSet | None:
    """Class names from a description that lies with the files, as nnU-Net and this package put it there."""
    folders = [path if path.is_dir() else path.parent for path in (references, predictions)]
    for folder in (folders[0], *folders[0].resolve().parents[:2], folders[1]):
        for name in _LABEL_FILES:
            if (folder / name).is_file():
                return read_labels(folder / name)
    return None


def _by_name(path: Path) -> dict[str, Path]:
    """Label maps by case name: the file name without suffix and without ``_mask``, ``_gt`` and the like."""
    files = volumes_in(path) if path.is_dir() else {strip_suffix(path): path}
    if not files:
        raise InputError(f"{path}: no label map found; expected files ending in {', '.join(SUFFIXES)}.")
    named: dict[str, Path] = {}
    for stem, file in files.items():
        name = _ROLE.sub("", stem)
        if name in named:
            raise InputError(
                f"{path}: {named[name].name} and {file.name} are both label maps of case {name!r}; keep one."
            )
        named[name] = file
    return named


def _group(name: str, pattern: str) -> str:
    try:
        return patient_in(name, pattern)
    except re.error as error:
        raise InputError(
            f"{pattern!r} is not a regular expression: {error}; correct --group-regex."
        ) from error
