"""The tree in which the MSCMRseg scribbles are published: ``{train,val,test}/{images,labels}``.

``images/subjectN_DE.nii.gz`` pairs with ``labels/subjectN_DE_scribble.nii.gz`` or ``..._manual.nii.gz``.
"""

from __future__ import annotations

import re
from pathlib import Path

from shapepu.data.case import Case, Dataset, Split
from shapepu.data.readers.listing import some, volumes_in
from shapepu.labels import LabelSet, plain_labels

LOOKS_LIKE = "train/images/subjectN_DE.nii.gz and train/labels/subjectN_DE_scribble.nii.gz (or _manual)"

LABELS = plain_labels(("rv", "myo", "lv"))
_FOLDERS: dict[str, Split] = {"train": "train", "val": "val", "test": "test", "TestSet": "test"}


def recognises(root: Path) -> bool:
    return any(any((root / folder / "images").glob("subject*")) for folder in _FOLDERS)


def read(root: Path, labels: LabelSet | None = None) -> Dataset:
    notes: list[str] = []
    cases = [case for folder, split in _FOLDERS.items() for case in _cases(root / folder, split, notes)]
    return Dataset(root, "mscmr", labels or LABELS, tuple(cases), ("LGE",), tuple(notes))


def _cases(folder: Path, split: Split, notes: list[str]) -> list[Case]:
    images, labels = volumes_in(folder / "images"), volumes_in(folder / "labels")
    cases, unlabelled = [], []
    for name, image in images.items():
        scribble, mask = labels.get(f"{name}_scribble"), labels.get(f"{name}_manual")
        if scribble or mask or split == "test":
            subject = re.match(r"subject\d+", name)
            cases.append(Case(name, (image,), scribble, mask, split, group=subject[0] if subject else name))
        else:
            unlabelled.append(name)
    if unlabelled:
        notes.append(
            f"{folder.name}: images with neither _scribble nor _manual, left out: {some(unlabelled)}."
        )
    strangers = [name for name in labels if re.sub("_(scribble|manual)$", "", name) not in images]
    if strangers:
        notes.append(f"{folder.name}: labels without an image, left out: {some(strangers)}.")
    return cases
