"""``shapepu scribble``: from dense masks to scribbles, so that anyone with masks can try the method."""

from __future__ import annotations

import json
import zlib
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any

import tyro
from numpy.typing import NDArray

from shapepu.cli.arguments import parse
from shapepu.console import progress, say
from shapepu.data.grid import slice_axis
from shapepu.data.readers.listing import read_json, some, volumes_in
from shapepu.data.scribbles import ScribbleSettings, scribble_volume
from shapepu.data.volumes import (
    SUFFIXES,
    count_values,
    image_suffix,
    read_volume,
    strip_suffix,
    translate_labels,
    whole_numbers,
    write_labels,
)
from shapepu.errors import InputError
from shapepu.files import writable_folder, write_text
from shapepu.labels import MAX_CLASSES, LabelSet

_SPLITS = ("train", "val", "test")


@dataclass(frozen=True)
class ScribbleArguments:
    """Make scribbles from dense masks: per slice a curve inside every class and an arc along its border.

    The scribbles take the names of the masks and keep their geometry. Pixels without a scribble get the
    highest value, one above the highest class of all the masks.
    """

    masks: Annotated[tyro.conf.Positional[Path], tyro.conf.arg(metavar="MASKS")]
    """Folder of masks, or one mask."""
    out: Annotated[tyro.conf.Positional[Path], tyro.conf.arg(metavar="OUT")]
    """Folder for the scribbles; for one mask a file name will do."""
    thickness: int = ScribbleSettings.thickness
    """Diameter of the pen in pixels."""
    density: float = ScribbleSettings.density
    """Share of each curve that is drawn, above 0 and up to 1."""
    seed: int = 0
    """Another seed draws other scribbles."""
    labels: tuple[str, ...] = ()
    """Class names for the values 0, 1, 2, ..., or NAME=VALUE each; the background is the one called so, or 0
    (default: labels.json or dataset.json beside the masks, else the values found in them)."""
    overwrite: bool = False
    """Replace scribbles that are already there; they may be drawn by hand."""
    quiet: bool = False
    """Say nothing but errors."""


def run(argv: list[str]) -> int:
    arguments = parse(ScribbleArguments, argv, "scribble")
    settings = ScribbleSettings(thickness=arguments.thickness, density=arguments.density)
    if arguments.seed < 0:
        raise InputError(f"--seed is a whole number, 0 or more; got {arguments.seed}.")
    targets = _targets(arguments)
    home = _home_of_labels(arguments.out)
    say(f"looking at {len(targets)} masks in {arguments.masks}", quiet=arguments.quiet)
    labels = _label_set(arguments, tuple(targets), home)
    _reject_other_labels(home, labels)
    voxels: Counter[int] = Counter()
    files = progress(
        targets.items(), what="scribbles", total=len(targets), unit="mask", quiet=arguments.quiet
    )
    for source, target in files:
        volume = read_volume(source)
        mask = translate_labels(whole_numbers(volume.array, source), labels, source)
        # By name, so that a mask gets the same scribbles whichever others lie beside it.
        seed = (arguments.seed, zlib.crc32(strip_suffix(source).encode()))
        axis = slice_axis(mask.shape, volume.spacing_mm)
        scribbles = scribble_volume(mask, labels.count, settings, seed, axis=axis)
        write_labels(target, labels.to_file(scribbles), volume)
        voxels.update(count_values(scribbles))
    write_text(home / "labels.json", json.dumps(labels.as_dict(), indent=2) + "\n")
    _report(arguments, labels, voxels, len(targets), home)
    return 0


def _targets(arguments: ScribbleArguments) -> dict[Path, Path]:
    """Each mask and the file its scribbles go to, once it is certain that nothing of value is overwritten."""
    masks, out = arguments.masks, arguments.out
    if masks.is_file() and image_suffix(out) and not out.is_dir():
        targets = {masks: out}
    else:
        targets = {source: out / _target_name(source) for source in _masks_in(masks, arguments.quiet)}
    writable_folder(next(iter(targets.values())).parent)
    for source, target in targets.items():
        if target.exists() and target.resolve() == source.resolve():
            raise InputError(f"{target} would replace its own mask; choose another output than {out}.")
    present = [target.name for target in targets.values() if target.exists()]
    if present and not arguments.overwrite:
        raise InputError(f"{out} already holds {some(present, 3)}; choose another folder or add --overwrite.")
    return targets


def _masks_in(masks: Path, quiet: bool) -> list[Path]:
    if not masks.exists():
        raise InputError(f"{masks}: no such file or folder; give a folder of masks or one mask.")
    if masks.is_file():
        return [masks]
    found = list(volumes_in(masks).values())
    if not found:
        raise InputError(f"{masks}: no mask in it; expected files that end in {', '.join(SUFFIXES)}.")
    others = sorted(path.name for path in masks.iterdir() if path not in found and path.suffix != ".json")
    if others:
        say(f"left out, not volumes: {some(others)}", quiet=quiet)
    return found


def _target_name(source: Path) -> str:
    """The mask's own name; MetaImage's two files become one, which is written whole or not at all."""
    return f"{strip_suffix(source)}.mha" if image_suffix(source) == ".mhd" else source.name


def _label_set(arguments: ScribbleArguments, masks: Sequence[Path], home: Path) -> LabelSet:
    """As told, as declared beside the masks or the scribbles, or as found in all the masks together.

    Every mask is read either way, so that one that cannot be used is known before the first file is written.
    """
    given = _named(arguments.labels) if arguments.labels else _declared(arguments.masks, home)
    labels = LabelSet.from_dict(given) if given is not None else None
    found: Counter[int] = Counter()
    for path in progress(masks, what="values", unit="mask", quiet=arguments.quiet):
        values = whole_numbers(read_volume(path).array, path)
        if labels is not None:
            _reject_unknown(
                values, labels, path, may_ignore=not {"ignore", "unlabelled"}.isdisjoint(given or ())
            )
        found.update(count_values(values))
    return labels if labels is not None else _inferred(arguments.masks, found, arguments.quiet)


def _reject_unknown(values: NDArray[Any], labels: LabelSet, path: Path, *, may_ignore: bool) -> None:
    translate_labels(values, labels, path)
    if not may_ignore and (values == labels.unlabelled_value).any():
        raise InputError(
            f"{path}: it holds {labels.unlabelled_value}, which is none of the classes "
            f"{', '.join(labels.names)}; name all classes, or declare the value as ignore."
        )


def _named(names: Sequence[str]) -> dict[str, int]:
    pairs = [name.rpartition("=") if "=" in name else (name, "=", str(n)) for n, name in enumerate(names)]
    try:
        labels = {name: int(value) for name, _, value in pairs}
    except ValueError as error:
        raise InputError(
            f"--labels are NAME or NAME=VALUE, a whole number; got {' '.join(names)}."
        ) from error
    if len(labels) < len(names):
        raise InputError(f"--labels must differ from each other; got {' '.join(names)}.")
    return labels


def _declared(masks: Path, home: Path) -> dict[str, int] | None:
    """From labels.json with the masks or up to two folders above them, or from nnU-Net's dataset.json."""
    folder = (masks if masks.is_dir() else masks.parent).resolve()
    above = (folder, *folder.parents[:2])
    for path in (*(place / "labels.json" for place in (*above, home)), folder.parent / "dataset.json"):
        if not path.is_file():
            continue
        content = read_json(path)
        if path.name == "dataset.json" and isinstance(content, dict):
            content = content.get("labels")
        if not isinstance(content, dict) or not all(isinstance(value, int) for value in content.values()):
            raise InputError(f"{path}: expected one whole number a class name; correct it or give --labels.")
        return content
    return None


def _inferred(masks: Path, found: Counter[int], quiet: bool) -> LabelSet:
    values = sorted(found)
    if len(values) > MAX_CLASSES or values[0] < 0:
        raise InputError(
            f"{masks}: {len(values)} values from {values[0]} to {values[-1]} are not classes 0, 1, 2, ...; "
            f"give masks, not images."
        )
    if values[0] != 0:
        raise InputError(
            f"{masks}: no mask has background (0), only {some(values)}; name the classes with --labels."
        )
    if len(values) == 1:
        raise InputError(f"{masks}: the masks are empty (0 everywhere), so there is nothing to scribble.")
    if found.most_common(1)[0][0] == values[-1]:
        say(
            f"warning: the highest value, {values[-1]}, is the most frequent; are these scribbles already?",
            quiet=quiet,
        )
    return LabelSet(("background", *(f"class{value}" for value in values[1:])), tuple(values))


def _home_of_labels(out: Path) -> Path:
    """Where the reader of plain folders looks for labels.json, when ``out`` is part of such a data set."""
    folder = (out.parent if image_suffix(out) and not out.is_dir() else out).absolute()
    if folder.name != "scribbles":
        return folder
    return folder.parent.parent if folder.parent.name in _SPLITS else folder.parent


def _reject_other_labels(home: Path, labels: LabelSet) -> None:
    path = home / "labels.json"
    present: Any = read_json(path) if path.is_file() else labels.as_dict()
    if not isinstance(present, dict) or LabelSet.from_dict(present) != labels:
        raise InputError(
            f"{path} says {json.dumps(present)}, but the scribbles would mean "
            f"{json.dumps(labels.as_dict())}; choose another output folder or correct that file."
        )


def _report(
    arguments: ScribbleArguments, labels: LabelSet, voxels: Counter[int], count: int, home: Path
) -> None:
    if arguments.quiet:
        return
    total = sum(voxels.values())
    drawn = total - voxels[labels.unlabelled]
    shares = ", ".join(
        f"{name} {voxels[label] / max(drawn, 1):.0%}" for label, name in enumerate(labels.names)
    )
    print(f"{count} scribbled in {arguments.out}: {drawn / max(total, 1):.1%} of all pixels ({shares}).")
    print(f"The value {labels.unlabelled_value} means unlabelled, see {home / 'labels.json'}.")
    if (arguments.masks.absolute().parent / "dataset.json").is_file():
        print(f'Next: use them as labelsTr and add "ignore": {labels.unlabelled_value} to dataset.json.')
    elif (home / "images").is_dir() or any((home / split / "images").is_dir() for split in _SPLITS):
        print(f"Next: shapepu check {home}")
    else:
        print("Next: lay these files into DATA/scribbles/, the images of the same names into DATA/images/,")
        print("      labels.json into DATA/, then: shapepu check DATA")
