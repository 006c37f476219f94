"""From a finished run to a model that comes with the package: half the bytes, and a card made of facts."""

from __future__ import annotations

import csv
import json
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import yaml

from shapepu import zoo
from shapepu.bundle import Bundle, load_bundle, save_bundle
from shapepu.configuration import from_plain
from shapepu.data.case import Case
from shapepu.errors import InputError
from shapepu.evaluation.scoring import score_cases
from shapepu.files import write_text
from shapepu.folder_prediction import predict_cases
from shapepu.predict_options import PredictOptions
from shapepu.runfolder import RunFolder
from shapepu.settings import TrainSettings


@dataclass(frozen=True)
class About:
    """What a card says that no run knows.

    Args:
        title: of the card.
        segments: what is seen in which images, in a few words.
        scribbles: who drew what the model learned from, in a few words.
        licence: of the weights, in a few words.
        data_name: what the data set is called.
        folder: what the command in the card calls the folder of the data.
        data: where the images are from, and how they are got.
        terms: under which terms the weights may be used, and why.
        references: what to cite.
        limits: what the model was not made for or not tested on.
    """

    title: str
    segments: str
    scribbles: str
    licence: str
    data_name: str
    folder: str
    data: str
    terms: str
    references: tuple[str, ...]
    limits: tuple[str, ...]

    @classmethod
    def read(cls, path: Path) -> About:
        try:
            plain = yaml.safe_load(path.read_text(encoding="utf-8"))
        except (OSError, yaml.YAMLError) as error:
            raise InputError(f"{path}: cannot be read ({' '.join(str(error).split())}).") from error
        return from_plain(cls, plain, str(path))


@dataclass(frozen=True)
class HalfPrecision:
    """What storing half of each weight's bits changes on the validation cases, computed in float32 twice.

    Args:
        largest_difference: of any probability in any voxel.
        full_dice, half_dice: mean over cases and structures.
        cases: how many.
    """

    largest_difference: float
    full_dice: float
    half_dice: float
    cases: int


@dataclass(frozen=True, eq=False)
class FinishedRun:
    """What a run folder says about a run that was scored.

    Args:
        bundle: its model, in full precision.
        settings: with nothing left to plan.
        config: ``config.yaml``.
        training: ``data.json``, a case each.
        scores: ``validation/summary.json``.
        score_rows: ``validation/cases.csv``.
        steps: batches trained on.
        validation: the validation cases, where their files are still at hand; else none.
    """

    bundle: Bundle
    settings: TrainSettings
    config: dict[str, Any]
    training: list[dict[str, Any]]
    scores: dict[str, Any]
    score_rows: list[dict[str, str]]
    steps: int
    validation: tuple[Case, ...]

    @classmethod
    def read(cls, root: str | Path) -> FinishedRun:
        run = RunFolder(root)
        config = run.read_config()
        bundle = load_bundle(run.root)
        if "validation" not in bundle.spec.provenance:
            raise InputError(f"{root}: the run is not finished; shapepu train --resume {root} ends it.")
        if not (run.validation / "summary.json").is_file():
            raise InputError(f"{root}: no validation scores in it; a card needs them, so train with some.")
        rows = _read_csv(run.validation / "cases.csv")
        return cls(
            bundle=bundle,
            settings=TrainSettings.from_plain(config["settings"], f"{run.config}: settings"),
            config=config,
            training=_read_json(run.data)["cases"],
            scores=_read_json(run.validation / "summary.json"),
            score_rows=rows,
            steps=int(_read_csv(run.metrics)[-1]["step"]),
            validation=_cases_at_hand(run.validation / "cases.json", rows),
        )


def export(
    run: str | Path, name: str, about: About, *, into: Path | None = None, hardware: str | None = None
) -> Path:
    """Make the model of a finished run one of those that come with the package.

    Args:
        run: the run folder.
        name: what the model is to be called.
        about: what the run does not know.
        into: the folder of all shipped models.
        hardware: what the run was computed on; what its settings say of it when None.

    Returns:
        the folder ``into/name``; a model of that name is replaced.
    """
    from shapepu.zoo.card import card_text, licence_text

    finished = FinishedRun.read(run)
    method, spec = finished.bundle.method, finished.bundle.spec
    scored = {**(spec.provenance["validation"] or {}), "volumes": finished.scores["volumes"]}
    origin = {
        **spec.provenance,
        "data": about.data_name,
        "segments": about.segments,
        "scribbles": about.scribbles,
        "licence": about.licence,
        "validation": scored,
    }
    folder = (into or zoo.ZOO) / name
    save_bundle(folder, method=method, spec=replace(spec, provenance=origin), half_precision=True)
    halved = compare_precision(finished.bundle, load_bundle(folder), finished.validation)
    write_text(folder / zoo.LICENCE, licence_text(name, about))
    write_text(folder / zoo.CARD, card_text(name, finished, about, halved, hardware))
    return folder


def compare_precision(full: Bundle, half: Bundle, cases: Sequence[Case]) -> HalfPrecision | None:
    """Predict and score ``cases`` with both; None without cases."""
    if not cases:
        return None
    options = PredictOptions(probabilities=True, precision="fp32")
    labels, dice, probabilities = full.spec.labels, [], []
    with tempfile.TemporaryDirectory() as scratch:
        for number, bundle in enumerate((full, half)):
            out = Path(scratch) / str(number)
            paths = predict_cases(bundle, cases, out, options=options, quiet=True)
            dice.append(score_cases(cases, paths, labels).spread("dice").mean)
            probabilities.append(sorted((out / "probabilities").iterdir()))
        differences = [_largest_difference(*pair) for pair in zip(*probabilities, strict=True)]
    return HalfPrecision(max(differences), full_dice=dice[0], half_dice=dice[1], cases=len(cases))


def _largest_difference(full: Path, half: Path) -> float:
    first, second = (np.load(path)["probabilities"].astype(np.float32) for path in (full, half))
    return float(np.abs(first - second).max())


def _cases_at_hand(listing: Path, rows: list[dict[str, str]]) -> tuple[Case, ...]:
    """The validation cases as the run listed them, or none where one of their files is gone."""
    group_of = {row["case"]: row["group"] for row in rows}
    cases = [
        Case(
            each["name"],
            tuple(Path(image) for image in each["images"]),
            mask=Path(each["reference"]),
            split="val",
            group=group_of[each["name"]],
        )
        for each in _read_json(listing)["cases"]
    ]
    there = all(path.exists() for case in cases for path in (*case.images, case.mask) if path)
    return tuple(cases) if there else ()


def _read_json(path: Path) -> dict[str, Any]:
    content: dict[str, Any] = json.loads(path.read_text(encoding="utf-8"))
    return content


def _read_csv(path: Path) -> list[dict[str, str]]:
    with open(path, encoding="utf-8", newline="") as stream:
        return list(csv.DictReader(stream))
