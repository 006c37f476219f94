"""What a run folder holds, read piece by piece: a piece that is absent or damaged is named and left out."""

from __future__ import annotations

import csv
import json
import math
import re
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from statistics import fmean
from typing import Any, TypeVar

import numpy as np
from numpy.typing import NDArray

from shapepu.errors import InputError
from shapepu.labels import LabelSet
from shapepu.runfolder import RunFolder

Piece = TypeVar("Piece")

LOG_LINES = 25
LOG_BYTES = 64 * 1024

_ESCAPES = re.compile(r"\x1b\[[0-9;?]*[A-Za-z]|[\x00-\x08\x0b-\x1f\x7f]")


@dataclass(frozen=True, eq=False)
class Metrics:
    """``metrics.csv``: one value an epoch for each name, nan where a cell is empty."""

    columns: Mapping[str, NDArray[np.float64]]

    def __len__(self) -> int:
        return len(self.columns["epoch"])

    def get(self, name: str) -> NDArray[np.float64] | None:
        """A column, or None where it is absent or empty."""
        values = self.columns.get(name)
        return values if values is not None and np.isfinite(values).any() else None

    @property
    def structures(self) -> tuple[str, ...]:
        """Every structure that any column is about, whether it holds anything or not: colours go by it."""
        names = [name.removeprefix("validation.dice.") for name in self.columns if "validation.dice." in name]
        ratios = [name.removeprefix("ratio.") for name in self.columns if name.startswith("ratio.")]
        return tuple(dict.fromkeys([*names, *ratios[1:]]))

    def last(self, name: str) -> float | None:
        """The last value of a column that is not missing."""
        values = self.get(name)
        return None if values is None else float(values[np.isfinite(values)][-1])

    def group(self, prefix: str) -> dict[str, NDArray[np.float64]]:
        """The columns ``prefix.NAME`` that hold anything, by NAME."""
        names = (name.removeprefix(f"{prefix}.") for name in self.columns if name.startswith(f"{prefix}."))
        return {name: values for name in names if (values := self.get(f"{prefix}.{name}")) is not None}


def read_metrics(path: Path) -> Metrics:
    """Read ``metrics.csv``; rows without an epoch (a line cut short) are skipped."""
    with open(path, encoding="utf-8", newline="") as stream:
        reader = csv.DictReader(stream)
        names = [name for name in reader.fieldnames or () if name]
        if "epoch" not in names:
            raise InputError(f"{path}: no column 'epoch'; found {', '.join(names) or 'nothing'}.")
        rows = [[_number(row.get(name)) for name in names] for row in reader]
    rows = [row for row in rows if math.isfinite(row[names.index("epoch")])]
    table = np.array(rows, dtype=np.float64).reshape(len(rows), len(names))
    return Metrics({name: table[:, index] for index, name in enumerate(names)})


@dataclass(frozen=True)
class Score:
    """One structure of one case: a line of ``cases.csv``."""

    case: str
    structure: str
    values: Mapping[str, float]
    note: str = ""
    """Why a distance is missing or is the image diagonal; empty for an ordinary one."""

    @property
    def missed(self) -> bool:
        """Whether the structure is in the reference and not in the prediction."""
        return self["n_pred"] == 0 and self["n_ref"] > 0

    def __getitem__(self, name: str) -> float:
        return self.values.get(name, math.nan)


@dataclass(frozen=True)
class Scores:
    """``cases.csv``: what is averaged over what is decided here and nowhere else in the report."""

    rows: tuple[Score, ...]

    @property
    def structures(self) -> tuple[str, ...]:
        return tuple(dict.fromkeys(row.structure for row in self.rows))

    @property
    def cases(self) -> tuple[str, ...]:
        return tuple(dict.fromkeys(row.case for row in self.rows))

    def of_structure(self, structure: str, name: str) -> list[float]:
        """The finite values of one score over cases."""
        return _finite(row[name] for row in self.rows if row.structure == structure)

    def of_case(self, case: str) -> dict[str, Score]:
        return {row.structure: row for row in self.rows if row.case == case}

    def case_means(self, name: str) -> dict[str, float]:
        """For each case the mean of a score over its structures; cases without a value are left out."""
        values = {case: _finite(row[name] for row in self.rows if row.case == case) for case in self.cases}
        return {case: fmean(found) for case, found in values.items() if found}

    def average(self, name: str) -> float | None:
        """The mean over cases of :meth:`case_means`."""
        means = self.case_means(name)
        return fmean(means.values()) if means else None


def read_scores(path: Path) -> Scores:
    """Read ``cases.csv`` as written by ``shapepu evaluate`` and at the end of training."""
    with open(path, encoding="utf-8", newline="") as stream:
        reader = csv.DictReader(stream)
        missing = {"case", "structure", "dice"} - set(reader.fieldnames or ())
        if missing:
            raise InputError(f"{path}: no column {sorted(missing)[0]!r}; is this a table of scores?")
        rows = tuple(_score(row) for row in reader if row["case"] and row["structure"])
    if not rows:
        raise InputError(f"{path}: no case in it.")
    return Scores(rows)


def _score(row: Mapping[str, str]) -> Score:
    texts = ("case", "structure", "group", "note")
    values = {name: _number(cell) for name, cell in row.items() if name and name not in texts}
    return Score(row["case"], row["structure"], values, row.get("note") or "")


def read_score_notes(path: Path) -> tuple[str, ...]:
    """What a reader of the scores should know, from ``summary.json``."""
    return tuple(str(note) for note in json.loads(path.read_text(encoding="utf-8")).get("notes", ()))


@dataclass(frozen=True)
class ValidationCase:
    """Where the files of one scored case are."""

    name: str
    image: Path
    reference: Path
    prediction: Path


@dataclass(frozen=True)
class Validation:
    """``validation/cases.json``: the files behind the scores."""

    labels: LabelSet
    cases: tuple[ValidationCase, ...]


def read_validation(path: Path) -> Validation:
    """Read ``cases.json``; a run folder may have moved since, so its own predictions are looked for in it."""
    plain = json.loads(path.read_text(encoding="utf-8"))
    cases = tuple(
        ValidationCase(
            name=str(case["name"]),
            image=path.parent / str(case["images"][0]),
            reference=path.parent / str(case["reference"]),
            prediction=_at_home(path.parent, str(case["prediction"])),
        )
        for case in plain["cases"]
    )
    return Validation(LabelSet.from_dict(plain["labels"]), cases)


def _at_home(folder: Path, prediction: str) -> Path:
    written = folder / prediction
    moved = folder / "predictions" / written.name
    return moved if moved.exists() and not written.exists() else written


@dataclass(frozen=True)
class ScribbledCase:
    """How much of one case is scribbled: a line of ``data.json``."""

    name: str
    split: str
    slices: int
    pixels: int
    labelled: Mapping[str, int]

    @property
    def total(self) -> int:
        return sum(self.labelled.values())

    def share(self, structure: str | None = None) -> float:
        """Labelled pixels of a class, or of all, as a share of the pixels of the case."""
        count = self.total if structure is None else self.labelled.get(structure, 0)
        return count / self.pixels if self.pixels else 0.0


def read_scribbled_cases(path: Path) -> tuple[ScribbledCase, ...]:
    """Read ``data.json``."""
    plain = json.loads(path.read_text(encoding="utf-8"))
    return tuple(
        ScribbledCase(
            name=str(case["name"]),
            split=str(case.get("split", "")),
            slices=int(case["slices"]),
            pixels=int(case["pixels"]),
            labelled={str(name): int(count) for name, count in case["labelled"].items()},
        )
        for case in plain["cases"]
    )


@dataclass(frozen=True)
class RunContents:
    """All that a report is made from; None stands for a piece that is not there, and ``absent`` says why."""

    name: str
    config: dict[str, Any] | None = None
    metrics: Metrics | None = None
    scores: Scores | None = None
    score_notes: tuple[str, ...] | None = None
    validation: Validation | None = None
    scribbles: tuple[ScribbledCase, ...] | None = None
    log: tuple[str, ...] | None = None
    absent: tuple[str, ...] = ()

    @property
    def settings(self) -> dict[str, Any]:
        """What the run was told: the section ``settings`` of ``config.yaml``."""
        return self.section("settings")

    def section(self, name: str) -> dict[str, Any]:
        """A part of ``config.yaml``, empty where there is none."""
        part = (self.config or {}).get(name)
        return part if isinstance(part, dict) else {}


def read_run(root: Path) -> RunContents:
    """Read a run folder, finished or not; only a folder that is not a run at all is refused."""
    run = RunFolder(root, quiet=True)
    if not run.config.is_file() and not run.metrics.is_file():
        raise InputError(
            f"{root}: not a run folder; expected config.yaml or metrics.csv in it, as 'shapepu train' writes "
            "them. Give the folder that was its --output."
        )
    absent: list[str] = []
    piece = partial(_piece, root, absent)
    scores = piece("the scores", run.validation / "cases.csv", read_scores)
    return RunContents(
        name=root.resolve().name,
        config=piece("the settings", run.config, lambda _: run.read_config()),
        metrics=piece("the training curves", run.metrics, _metrics_with_rows),
        scores=scores,
        score_notes=piece("notes on the scores", run.validation / "summary.json", read_score_notes)
        if scores
        else None,
        validation=piece("pictures of cases", run.validation / "cases.json", read_validation)
        if scores
        else None,
        scribbles=piece("the scribble coverage", run.data, read_scribbled_cases),
        log=piece("the log", run.log, read_end_of_log),
        absent=tuple(absent),
    )


def read_end_of_log(path: Path) -> tuple[str, ...]:
    """The last lines of a log, as they would look on a terminal."""
    with open(path, "rb") as stream:
        stream.seek(max(0, path.stat().st_size - LOG_BYTES))
        text = stream.read().decode("utf-8", errors="replace")
    # A progress bar overwrites its line: only what comes after the last carriage return was left standing.
    lines = [_ESCAPES.sub("", line.rstrip("\r").rsplit("\r", 1)[-1]) for line in text.split("\n")]
    return tuple(line for line in lines if line.strip())[-LOG_LINES:]


def reach_of_pool(settings: Mapping[str, Any]) -> float | None:
    """How far from a structure's scribbles the pixels may lie that a run's EM saw; None where it saw all."""
    options = settings.get("method_options")
    reach = options.get("reach") if isinstance(options, dict) else None
    return reach if isinstance(reach, int | float) and reach >= 0 else None


def _metrics_with_rows(path: Path) -> Metrics:
    metrics = read_metrics(path)
    if not len(metrics):
        raise InputError(f"{path.name}: no epoch has ended yet.")
    return metrics


def _piece(
    root: Path, absent: list[str], what: str, path: Path, read: Callable[[Path], Piece]
) -> Piece | None:
    """What ``read`` makes of the file, or None and a line in ``absent`` on why there is nothing."""
    where = path.relative_to(root)
    if not path.is_file():
        absent.append(f"{what}: {where} is not there.")
        return None
    try:
        return read(path)
    except InputError as error:
        absent.append(f"{what}: {error}")
    except (OSError, ValueError, KeyError, TypeError, AttributeError, IndexError, csv.Error) as error:
        absent.append(f"{what}: {where} is damaged ({type(error).__name__}: {error}).")
    return None


def _number(cell: Any) -> float:
    try:
        return float(cell)
    except (TypeError, ValueError):
        return math.nan


def _finite(values: Iterable[float]) -> list[float]:
    return [value for value in values if math.isfinite(value)]
