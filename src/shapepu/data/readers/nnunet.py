"""nnU-Net's raw layout: ``dataset.json``, ``imagesTr/CASE_0000.nii.gz``, ``labelsTr/CASE.nii.gz``.

A data set whose ``dataset.json`` declares an "ignore" label is one of scribbles: ``labelsTr`` holds them.
Without "ignore" the labels are dense masks. ``imagesTs`` and ``labelsTs``, where present, are the test cases.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

from shapepu.data.case import Case, Dataset, Split
from shapepu.data.readers.listing import label_set, read_json, some, volumes_in
from shapepu.data.readers.splits import apply_splits
from shapepu.data.volumes import SUFFIXES
from shapepu.errors import InputError
from shapepu.labels import LabelSet

LOOKS_LIKE = "dataset.json with imagesTr/CASE_0000.nii.gz and labelsTr/CASE.nii.gz"


def recognises(root: Path) -> bool:
    return (root / "dataset.json").is_file() or (root / "imagesTr").is_dir()


def read(root: Path, labels: LabelSet | None = None) -> Dataset:
    description = _description(root / "dataset.json")
    labels = labels or _label_set(description, root / "dataset.json")
    channels = _channels(description, root / "dataset.json")
    sparse = "ignore" in description["labels"]
    notes: list[str] = []
    cases = _cases(root, "train", len(channels), sparse, notes)
    promised = description.get("numTraining")
    if promised is not None and promised != len(cases):
        notes.append(f"dataset.json says numTraining {promised}, but {len(cases)} labelled cases are there.")
    if not sparse:
        notes.append(
            'dataset.json declares no "ignore" label, so labelsTr is read as dense masks: train fully '
            "supervised, "
            "or make scribbles from them with `shapepu scribble`."
        )
    cases += _cases(root, "test", len(channels), False, notes)
    return Dataset(root, "nnunet", labels, tuple(cases), channels, tuple(notes))


def divide(dataset: Dataset, fold: int = 0) -> Dataset:
    own = dataset.root / "splits_final.json"
    return apply_splits(dataset, own, fold) if own.is_file() else dataset


def _description(path: Path) -> dict[str, Any]:
    if not path.is_file():
        raise InputError(
            f"{path} is missing: nnU-Net's layout needs it, with labels, channel_names and file_ending."
        )
    content = read_json(path)
    if not isinstance(content, dict) or not isinstance(content.get("labels"), dict):
        raise InputError(
            f'{path}: the key "labels" is missing or not an object; expected for example '
            f'"labels": {{"background": 0, "heart": 1, "ignore": 2}}.'
        )
    ending = content.get("file_ending", ".nii.gz")
    if ending not in SUFFIXES:
        raise InputError(
            f"{path}: file_ending {ending!r} cannot be read; expected one of {', '.join(SUFFIXES)}."
        )
    if all(key.isdigit() and isinstance(name, str) for key, name in content["labels"].items()):
        # Version 1 wrote {"0": "background"} where version 2 writes {"background": 0}.
        content["labels"] = {name: int(key) for key, name in content["labels"].items()}
    return content


def _label_set(description: dict[str, Any], path: Path) -> LabelSet:
    values = description["labels"]
    wrong = [f"{name}: {value!r}" for name, value in values.items() if not isinstance(value, int)]
    if wrong:
        raise InputError(
            f"{path}: each label needs one integer (regions are not supported); got {some(wrong)}; list the "
            f"labels that make up the regions."
        )
    classes = sorted(value for name, value in values.items() if name != "ignore")
    if values.get("background") != 0:
        raise InputError(f'{path}: the label "background" must be 0; got {values.get("background")!r}.')
    if classes != list(range(len(classes))):
        raise InputError(f"{path}: labels must be consecutive (0, 1, 2, ...); got {classes}.")
    if values.get("ignore", len(classes)) != len(classes):
        raise InputError(
            f'{path}: "ignore" must be the highest label, here {len(classes)}; got {values["ignore"]}; '
            "renumber the "
            f"labels in the files too."
        )
    in_order = {name: value for value, name in sorted((v, k) for k, v in values.items())}
    return label_set(in_order, path)


def _channels(description: dict[str, Any], path: Path) -> tuple[str, ...]:
    names = description.get("channel_names", description.get("modality"))
    if not isinstance(names, dict) or sorted(names) != sorted(str(i) for i in range(len(names))) or not names:
        raise InputError(
            f'{path}: "channel_names" must number the channels from 0, for example {{"0": "MRI"}}; got '
            f"{names!r}."
        )
    # nnU-Net takes any name, also none; a model keeps a name for each.
    return tuple(str(names[str(index)]) or f"channel {index}" for index in range(len(names)))


def _cases(root: Path, split: Split, channels: int, sparse: bool, notes: list[str]) -> list[Case]:
    """The cases of ``imagesTr`` or ``imagesTs``; what does not pair is noted, or refused for its channels."""
    ending = "Tr" if split == "train" else "Ts"
    images, labels = volumes_in(root / f"images{ending}", series=False), volumes_in(root / f"labels{ending}")
    if split == "train" and not images:
        raise InputError(
            f"{root / 'imagesTr'}: no images there; expected CASE_0000 with one of {', '.join(SUFFIXES)}."
        )
    names = sorted({name[:-5] for name in images if name[-5:] == "_0000"})
    cases = []
    for name in names:
        label = labels.get(name)
        if label is None and split == "train":
            continue
        scribble, mask = (label, None) if sparse else (None, label)
        cases.append(Case(name, _channel_files(root, ending, name, channels, images), scribble, mask, split))
    _note_unpaired(names, labels, ending, notes)
    unnumbered = sorted(name for name in images if name[:-5] not in names)
    if unnumbered:
        notes.append(f"images{ending} holds images that are not CASE_0000, left out: {some(unnumbered)}.")
    return cases


def _channel_files(
    root: Path, ending: str, name: str, channels: int, images: dict[str, Path]
) -> tuple[Path, ...]:
    expected = [f"{name}_{index:04d}" for index in range(channels)]
    missing = [channel for channel in expected if channel not in images]
    if missing or f"{name}_{channels:04d}" in images:
        raise InputError(
            f"{root / f'images{ending}'}: {name} needs {channels} channels, as dataset.json says; "
            f"{f'{missing[0]} is missing' if missing else 'it has more'}."
        )
    return tuple(images[channel] for channel in expected)


def _note_unpaired(names: list[str], labels: dict[str, Path], ending: str, notes: list[str]) -> None:
    without_label = [name for name in names if name not in labels]
    without_image = [name for name in labels if name not in names]
    if without_label and ending == "Tr":
        notes.append(f"images without a file in labelsTr, left out: {some(without_label)}.")
    if without_image:
        notes.append(f"files in labels{ending} without an image, left out: {some(without_image)}.")
