"""What there is to segment: image files and DICOM folders, grouped into cases and named as their predictions.

Names follow nnU-Net: ``CASE_0000.nii.gz``, ``CASE_0001.nii.gz``, ... are the channels of ``CASE``, and its
prediction is ``CASE.nii.gz``. A DICOM series is a folder; its prediction is ``FOLDER.nii.gz``.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from shapepu.console import say
from shapepu.data.volumes import SUFFIXES, image_suffix, strip_suffix
from shapepu.errors import InputError

_CHANNEL = re.compile(r"(?P<case>.+)_(?P<number>\d{4})")
_DATASET_IMAGES = ("imagesTs", "images", "imagesTr")


@dataclass(frozen=True)
class Source:
    """The images of one case.

    Args:
        name: of the case and so of its prediction.
        images: one file or DICOM series folder a channel.
        problem: why the case cannot be predicted, or empty.
    """

    name: str
    images: tuple[Path, ...]
    problem: str = ""

    @property
    def ending(self) -> str:
        """Of the prediction's file name: the input's own, unless that format is no single file."""
        suffix = "" if self.images[0].is_dir() else image_suffix(self.images[0])
        return {"": ".nii.gz", ".mhd": ".mha"}.get(suffix, suffix)


def find_sources(images: Path, channels: Sequence[str]) -> tuple[Source, ...]:
    """The cases in ``images`` in the order of their names.

    Args:
        images: a folder of image files or of DICOM series folders, one file, or one DICOM series folder.
        channels: the model's. A single case without them is refused here, one among many when its turn comes.
    """
    with _readable(images):
        if not images.exists():
            raise InputError(f"{images}: no such file or folder; give the images to segment.")
        if images.is_dir() and not _is_dicom_series(images):
            groups = _grouped(_images_in(images))
        else:
            groups = _single(images, channels)
    sources = [
        Source(name, files, _channel_problem(name, files, channels)) for name, files in sorted(groups.items())
    ]
    if all(source.problem for source in sources):
        raise InputError(sources[0].problem)
    return tuple(sources)


def _channel_problem(name: str, images: Sequence[Path], channels: Sequence[str]) -> str:
    """What is wrong when a case has not the images the model was trained on."""
    numbered = [f"{name}_{i:04d}" for i in range(len(channels))]
    if len(channels) == len(images) == 1 or [_stem(image) for image in images] == numbered:
        return ""
    found = ", ".join(image.name for image in images)
    if len(channels) == 1:
        expected = f"1 channel ({channels[0]}), named {name}_0000 or {name}"
    else:
        names = ", ".join(f"{stem} ({channel})" for stem, channel in zip(numbered, channels, strict=True))
        expected = f"{len(channels)} channels, named {names}"
    return f"{images[0].parent}: the model expects {expected}; found {found}."


def _images_in(folder: Path) -> list[Path]:
    """Image files and DICOM series folders; hidden names are files in the making."""
    visible = sorted(path for path in folder.iterdir() if not path.name.startswith("."))
    images = [path for path in visible if _is_image(path)]
    if images:
        return images
    nested = [name for name in _DATASET_IMAGES if (folder / name).is_dir()]
    advice = f"did you mean {folder / nested[0]}?" if nested else "give the folder that holds them directly."
    raise InputError(
        f"{folder}: no image in it (files ending in {', '.join(SUFFIXES)}, or DICOM series folders); {advice}"
    )


def _grouped(images: Sequence[Path]) -> dict[str, tuple[Path, ...]]:
    """Cases from files; a four-digit ending is a channel only where there is a channel 0000."""
    first_channels = {_stem(image)[:-5] for image in images if _stem(image).endswith("_0000")}
    cases: dict[str, list[Path]] = {}
    for image in images:
        match = _CHANNEL.fullmatch(_stem(image))
        case = match["case"] if match and match["case"] in first_channels else _stem(image)
        cases.setdefault(case, []).append(image)
    for name, files in cases.items():
        stems = [_stem(file) for file in files]
        if len(set(stems)) < len(stems) or (name in stems and len(stems) > 1):
            names = " and ".join(file.name for file in files[:2])
            raise InputError(f"{files[0].parent}: {names} would both be predicted as {name}; keep one.")
    return {name: tuple(files) for name, files in cases.items()}


def _single(image: Path, channels: Sequence[str]) -> dict[str, tuple[Path, ...]]:
    """One file with the other channels beside it, or one DICOM series."""
    if image.is_dir():
        image = image.resolve()  # "." has a name too
    name = _stem(image).removesuffix("_0000")
    if len(channels) == 1 or name == _stem(image):
        return {name: (image,)}
    suffix = "" if image.is_dir() else image_suffix(image)
    beside = [image.with_name(f"{name}_{i:04d}{suffix}") for i in range(len(channels))]
    return {name: tuple(path for path in beside if path.exists())}


def _stem(path: Path) -> str:
    return path.name if path.is_dir() else strip_suffix(path)


def _is_image(path: Path) -> bool:
    """Whether ``path`` is an image file or a DICOM series; a folder that nobody may read is told and is none.

    The root of every disk has one (lost+found).
    """
    if path.is_file():
        return bool(image_suffix(path))
    try:
        with _readable(path):
            return _is_dicom_series(path)
    except InputError as error:
        say(f"passed over: {error}")
        return False


@contextmanager
def _readable(path: Path) -> Iterator[None]:
    """Turn the operating system's refusal to read ``path`` into a line that says what to do."""
    try:
        yield
    except OSError as error:
        raise InputError(
            f"{path}: it cannot be read ({error.strerror or error}); allow that if it holds images."
        ) from error


def _is_dicom_series(folder: Path) -> bool:
    """Whether the first file of a folder that could be a DICOM slice is one."""
    for path in sorted(folder.iterdir()) if folder.is_dir() else ():
        if path.is_file() and not path.name.startswith(".") and not image_suffix(path):
            if path.suffix.lower() in (".dcm", ".ima"):
                return True
            with open(path, "rb") as stream:
                if stream.read(132)[128:] == b"DICM":
                    return True
    return False
