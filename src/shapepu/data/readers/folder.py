"""A plain folder: ``images/``, ``scribbles/`` and optional ``masks/``, paired by name.

``images/NAME.nii.gz`` pairs with ``scribbles/NAME.nii.gz`` or ``NAME_scribble.nii.gz``, and with
``masks/NAME`` or ``NAME_mask``, ``_gt``, ``_manual``. Several channels are ``NAME_0000``, ``NAME_0001``,
...; a DICOM series is a folder ``images/NAME/``. ``train/``, ``val/``, ``test/`` and ``unpaired/`` may hold
those three folders each; at the top they are training cases. ``labels.json`` names the values,
``splits.json`` the splits.
"""

from __future__ import annotations

import json
import re
from collections import Counter
from collections.abc import Collection, Sequence
from pathlib import Path
from typing import get_args

from shapepu.data.case import Case, Dataset, Split
from shapepu.data.readers.listing import label_set, read_json, some, volumes_in
from shapepu.data.readers.splits import apply_splits
from shapepu.data.volumes import count_values, read_volume, whole_numbers
from shapepu.errors import InputError
from shapepu.labels import LabelSet

LOOKS_LIKE = "images/NAME.nii.gz, scribbles/NAME.nii.gz and optional masks/NAME.nii.gz, labels.json"

_SCRIBBLE_ENDINGS = ("", "_scribble", "_scribbles")
_MASK_ENDINGS = ("", "_mask", "_gt", "_manual")
_SPLITS: tuple[Split, ...] = get_args(Split)


def recognises(root: Path) -> bool:
    return any((folder / "images").is_dir() for folder in (root, *(root / split for split in _SPLITS)))


def read(root: Path, labels: LabelSet | None = None) -> Dataset:
    notes: list[str] = []
    if (root / "images").is_dir() and (root / "train").is_dir():
        raise InputError(
            f"{root}: images/ and train/ are both there; move the training cases into one of them."
        )
    cases = _cases(root, "train", notes)
    for split in _SPLITS:
        cases += _cases(root / split, split, notes)
    if labels is None:
        labels, note = _labels(root, cases)
        notes += note
    channels = max((len(case.images) for case in cases), default=1)
    for case in cases:
        if len(case.images) not in (channels, 0):
            raise InputError(
                f"{root}: {case.name} has {len(case.images)} channels, others {channels}; complete it."
            )
    names = ("image",) if channels == 1 else tuple(f"channel {index}" for index in range(channels))
    return Dataset(root, "folder", labels, tuple(cases), names, tuple(notes))


def divide(dataset: Dataset, fold: int = 0) -> Dataset:
    files = (dataset.root / name for name in ("splits.json", "splits_final.json"))
    own = next((file for file in files if file.is_file()), None)
    return apply_splits(dataset, own, fold) if own else dataset


def find_images(folder: Path, names: Collection[str] = ()) -> dict[str, tuple[Path, ...]]:
    """The images in ``folder`` by case name, each with its channels.

    ``_0000`` ends a channel's file, unless ``names``, the names that label files bear, show that such endings
    number the cases themselves.
    """
    files = volumes_in(folder, series=True)
    numbered = {name: re.fullmatch(r"(.+)_(\d{4})", name) for name in files}
    if any(match and name in names for name, match in numbered.items()):
        return {name: (path,) for name, path in files.items()}
    found: dict[str, dict[int, Path]] = {}
    for name, path in files.items():
        match = numbered[name]
        is_channel = match and (f"{match[1]}_0000" in files or match[1] in names)
        base, channel = (match[1], int(match[2])) if match and is_channel else (name, 0)
        if channel in found.setdefault(base, {}):
            raise InputError(
                f"{folder}: {found[base][channel].name} and {path.name} are one case; keep one of them."
            )
        found[base][channel] = path
    for base, channels in found.items():
        if sorted(channels) != list(range(len(channels))):
            missing = min(set(range(len(channels))) - set(channels))
            raise InputError(
                f"{folder}: {base}_{missing:04d} is missing, though {base} has further channels."
            )
    return {base: tuple(path for _, path in sorted(channels.items())) for base, channels in found.items()}


def _cases(folder: Path, split: Split, notes: list[str]) -> list[Case]:
    scribbles = _by_case(folder / "scribbles", _SCRIBBLE_ENDINGS)
    masks = _by_case(folder / "masks", _MASK_ENDINGS)
    images = find_images(folder / "images", {*scribbles, *masks})
    where = "" if split == "train" and folder.name != "train" else f"{folder.name}/"
    if split == "unpaired":
        return [Case(name, images.get(name, ()), None, mask, split) for name, mask in masks.items()]
    labelled = {*scribbles, *masks} & {*images}
    if images and (scribbles or masks) and not labelled:
        raise InputError(
            f"{folder}: no image pairs with a scribble or mask by name; got images {some([*images], 2)} and "
            f"labels {some([*scribbles, *masks], 2)}; name them alike."
        )
    if strangers := [name for name in {**scribbles, **masks} if name not in images]:
        notes.append(f"{where}scribbles or masks without an image, left out: {some(strangers)}.")
    if unlabelled := [name for name in images if name not in labelled and split != "test"]:
        notes.append(f"{where}images with neither scribble nor mask, left out: {some(unlabelled)}.")
    return [
        Case(name, paths, scribbles.get(name), masks.get(name), split)
        for name, paths in images.items()
        if name in labelled or split == "test"
    ]


def _by_case(folder: Path, endings: Sequence[str]) -> dict[str, Path]:
    """Label files by case name, with any of ``endings`` taken off."""
    pattern = re.compile(f"(.+?)({'|'.join(endings)})")
    found: dict[str, Path] = {}
    for name, path in volumes_in(folder).items():
        match = pattern.fullmatch(name)
        case = match[1] if match else name
        if case in found:
            raise InputError(
                f"{folder}: {found[case].name} and {path.name} are for one case; keep one of them."
            )
        found[case] = path
    return found


def _labels(root: Path, cases: Sequence[Case]) -> tuple[LabelSet, list[str]]:
    path = root / "labels.json"
    if path.is_file():
        content = read_json(path)
        if not isinstance(content, dict) or not all(isinstance(value, int) for value in content.values()):
            raise InputError(f'{path}: expected {{"background": 0, "heart": 1, "ignore": 2}} or the like.')
        return label_set(content, path), []
    return _inferred_labels(root, cases)


def _inferred_labels(root: Path, cases: Sequence[Case]) -> tuple[LabelSet, list[str]]:
    """Classes from the values in the label files: the one thing a reader reads voxels for.

    A file that cannot be read is passed over, so that `shapepu check` comes to all the others; who trains on
    it is told then.
    """
    scribbles = [case.scribble for case in cases if case.scribble]
    files = scribbles or [case.mask for case in cases if case.mask]
    found, problems = _counted(files)
    if problems and not found:
        raise next(iter(problems.values()))
    voxels = sum(found, Counter[int]())
    if not voxels or min(voxels) < 0:
        raise InputError(f"{root}: labels.json is missing, and no label file tells the classes; write it.")
    unlabelled = max(voxels) if scribbles else max(voxels) + 1
    if scribbles and voxels.most_common(1)[0][0] != unlabelled:
        raise _ambiguous(root, voxels)
    classes = sorted({0, *voxels} - {unlabelled})
    names = ("background", *(f"class{value}" for value in classes[1:]))
    if len(names) < 2:
        raise InputError(f"{root}: labels.json is missing, and {some(files, 1)} shows no structure to learn.")
    labels = LabelSet(names, tuple(classes), unlabelled)
    without = f" ({some([path.name for path in problems])} cannot be used)" if problems else ""
    note = f"labels.json is missing; assumed from the values in {len(found)} label files{without}: "
    return labels, [note + json.dumps(labels.as_dict()) + "."]


def _counted(files: Sequence[Path]) -> tuple[list[Counter[int]], dict[Path, InputError]]:
    """Voxels of each value in each file that can be read, and what is wrong with the others."""
    found, problems = [], {}
    for path in files:
        try:
            found.append(Counter(count_values(whole_numbers(read_volume(path).array, path))))
        except InputError as error:
            problems[path] = error
    return found, problems


def _ambiguous(root: Path, voxels: Counter[int]) -> InputError:
    commonest = voxels.most_common(1)[0][0]
    others = [value for value in sorted(voxels) if value != commonest]
    names = ["background", *(f"class{value}" for value in others[1:])]
    example = json.dumps({**dict(zip(names, others, strict=False)), "ignore": commonest})
    return InputError(
        f"{root}: labels.json is missing, and the scribbles do not tell which value is unlabelled: the "
        f"highest, {max(voxels)}, would be, but {commonest} is the most frequent; write labels.json, for "
        f"example {example}."
    )
