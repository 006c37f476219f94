"""What is kept of a finished run: one small JSON file, enough for every table and figure.

``RESULTS/records/DATA/ROW/seedN.json``; a row that could not run leaves ``RESULTS/missing/DATA/ROW.json``
with the reason, and a run that failed ``RESULTS/failed/DATA/ROW/seedN.json`` until it succeeds. Nothing in
them depends on where the data lie, and the same run gives the same bytes. The run itself is an ordinary run
folder, ``RESULTS/runs/DATA/ROW/seedN`` unless another place was chosen; figures can do without it, but for
contours.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal, TypeVar

from shapepu.configuration import from_plain, to_plain
from shapepu.errors import InputError
from shapepu.files import write_text

DIGITS = 6
"""Decimals that are kept: fewer would make ties of scores that differ."""

MOST_POINTS = 60
"""Points of a curve that are kept; more cannot be told apart in a figure."""


@dataclass(frozen=True)
class StructureRecord:
    """Scores of one structure in one volume; None where there is no value."""

    dice: float
    hd_mm: float | None = None
    hd95_mm: float | None = None
    assd_mm: float | None = None
    volume_error_ml: float | None = None
    both_empty: bool = False
    one_empty: bool = False


@dataclass(frozen=True)
class CaseRecord:
    """Scores of one validation volume; ``group`` is the patient."""

    case: str
    group: str
    structures: dict[str, StructureRecord]


@dataclass(frozen=True)
class CurvePoint:
    """Mean Dice on the validation volumes while training, as predicted, on the training grid."""

    minutes: float
    epoch: int
    step: int
    dice: float


@dataclass(frozen=True)
class RatioPoint:
    """Mixture ratios that a method held after an epoch, by class.

    Args:
        negative_active: 1 once the method trusts them enough to learn from them, 0 before; None for methods
            that never wait.
    """

    minutes: float
    epoch: int
    ratios: dict[str, float]
    negative_active: float | None = None


@dataclass(frozen=True)
class Parameters:
    """Trained weights: of the modules that predict, and of all."""

    prediction: int
    method: int


@dataclass(frozen=True)
class Hardware:
    """What a run had to itself, or shared with ``workers`` - 1 others.

    Args:
        cpu, gpu: in words.
        threads: of the process.
        device: ``cpu`` or ``cuda``.
        workers: runs at a time on this machine, this one included, as far as the command knew.
    """

    cpu: str
    gpu: str | None
    threads: int
    device: str
    workers: int = 1


@dataclass(frozen=True)
class RunRecord:
    """A finished run.

    Args:
        experiment, data, row: what it belongs to, by name.
        seed: of every random draw.
        method: a name in the registry of methods.
        supervision: what the method learns from, sorted.
        recipe: the starting point of its settings.
        minutes, epochs, steps: that it trained.
        images_per_second: of a training step, the median over epochs.
        parameters: how large the networks are.
        training_cases, training_slices: that it learned from.
        labelled_share: of the pixels of those slices.
        hardware: that it ran on.
        versions: of the package, torch, numpy, Python.
        settings: the complete resolved settings.
        cases: scores on the validation volumes, on the native grid after post-processing.
        curve: Dice while training.
        ratios: mixture ratios while training; empty for methods without.
        true_ratios: share of each class among the unlabelled pixels of the training patches, where dense
            masks tell.
        true_ratios_from: whose masks told: those of the training cases, or of the validation cases where no
            training case has one.
    """

    experiment: str
    data: str
    row: str
    seed: int
    method: str
    supervision: tuple[str, ...]
    recipe: str
    minutes: float
    epochs: int
    steps: int
    images_per_second: float
    parameters: Parameters
    training_cases: int
    training_slices: int
    labelled_share: float
    hardware: Hardware
    versions: dict[str, str]
    settings: dict[str, Any]
    cases: tuple[CaseRecord, ...]
    curve: tuple[CurvePoint, ...] = ()
    ratios: tuple[RatioPoint, ...] = ()
    true_ratios: dict[str, float] | None = field(default=None)
    true_ratios_from: Literal["train", "val"] | None = None

    def write(self, results: Path) -> Path:
        """Into the folder of results; the same record gives the same bytes."""
        path = record_path(results, self.data, self.row, self.seed)
        plain = to_plain(self)
        # Settings stay as they are: a weight of 1e-7 is not 0.
        write_text(path, _as_text({**rounded(plain), "settings": plain["settings"]}))
        return path

    @property
    def structures(self) -> tuple[str, ...]:
        """Names, in alphabetical order, as they are stored."""
        return tuple(self.cases[0].structures) if self.cases else ()


@dataclass(frozen=True)
class MissingRow:
    """A row that could not run on a data set, and why."""

    experiment: str
    data: str
    row: str
    reason: str

    def write(self, results: Path) -> Path:
        path = missing_path(results, self.data, self.row)
        write_text(path, _as_text(to_plain(self)))
        return path


@dataclass(frozen=True)
class FailedRun:
    """A run that stopped by itself, and why; it is tried again by the next command.

    Args:
        experiment, data, row, seed: what it belongs to.
        error: in one line.
        session: of the command that it failed in, so that no process of the same command tries again.
    """

    experiment: str
    data: str
    row: str
    seed: int
    error: str
    session: str = ""

    def write(self, results: Path) -> Path:
        path = failed_path(results, self.data, self.row, self.seed)
        write_text(path, _as_text(to_plain(self)))
        return path


def record_path(results: Path, data: str, row: str, seed: int) -> Path:
    return Path(results) / "records" / data / row / f"seed{seed}.json"


def missing_path(results: Path, data: str, row: str) -> Path:
    return Path(results) / "missing" / data / f"{row}.json"


def failed_path(results: Path, data: str, row: str, seed: int) -> Path:
    return Path(results) / "failed" / data / row / f"seed{seed}.json"


def run_folder(results: Path, data: str, row: str, seed: int) -> Path:
    """Where the run itself is, if it was kept and came along."""
    return runs_folder(results) / data / row / f"seed{seed}"


def runs_folder(results: Path) -> Path:
    """``RESULTS/runs``, or the place that was chosen for them."""
    results, elsewhere = Path(results), Path(results) / ELSEWHERE
    if not elsewhere.is_file():
        return results / "runs"
    return Path(_read(elsewhere, RunsElsewhere).runs)


@dataclass(frozen=True)
class RunsElsewhere:
    """Where runs are that are not kept below their results."""

    runs: str

    def write(self, results: Path) -> None:
        write_text(Path(results) / ELSEWHERE, _as_text(to_plain(self)))


ELSEWHERE = "runs.json"


def load_records(results: str | Path) -> list[RunRecord]:
    """All finished runs, in the order of data set, row and seed by name; the table's order is the plan's."""
    paths = Path(results).glob("records/*/*/seed*.json")
    records = [read_record(path) for path in paths]
    return sorted(records, key=lambda record: (record.data, record.row, record.seed))


def load_missing(results: str | Path) -> list[MissingRow]:
    """All rows that could not run, in the order of data set and row by name."""
    paths = sorted(Path(results).glob("missing/*/*.json"))
    return [_read(path, MissingRow) for path in paths]


def load_failed(results: str | Path) -> list[FailedRun]:
    """All runs whose last attempt failed, in the order of data set, row and seed by name."""
    found = [read_failed(path) for path in Path(results).glob("failed/*/*/seed*.json")]
    return sorted(found, key=lambda failed: (failed.data, failed.row, failed.seed))


def read_failed(path: Path) -> FailedRun:
    """One of them."""
    return _read(path, FailedRun)


def read_record(path: Path) -> RunRecord:
    """One record, after proving that it is one and lies where it belongs."""
    record = _read(path, RunRecord)
    belongs = record_path(path.parents[3], record.data, record.row, record.seed)
    if path != belongs:
        raise InputError(f"{path}: it is the record of {belongs}; put it back there.")
    names = {tuple(case.structures) for case in record.cases}
    if len(names) > 1:
        raise InputError(f"{path}: its cases have different structures: {sorted(names)}; run it again.")
    return record


Stored = TypeVar("Stored", RunRecord, MissingRow, FailedRun, RunsElsewhere)


def _read(path: Path, kind: type[Stored]) -> Stored:
    try:
        plain = json.loads(path.read_text(encoding="utf-8"))
        return from_plain(kind, plain, str(path))
    except (OSError, UnicodeDecodeError, json.JSONDecodeError) as error:
        said = " ".join(str(error).split())
        raise InputError(f"{path}: not readable as JSON ({said}); delete it and run again.") from error


def thinned(points: Sequence[Any], most: int = MOST_POINTS) -> list[Any]:
    """At most ``most`` of ``points``, evenly spread, the first and the last among them."""
    if len(points) <= most:
        return list(points)
    return [points[round(index * (len(points) - 1) / (most - 1))] for index in range(most)]


def rounded(plain: Any) -> Any:
    """Floats to :data:`DIGITS` decimals at any depth, so that a record is small."""
    if isinstance(plain, dict):
        return {name: rounded(value) for name, value in plain.items()}
    if isinstance(plain, list):
        return [rounded(value) for value in plain]
    return round(plain, DIGITS) if isinstance(plain, float) else plain


def _as_text(plain: dict[str, Any]) -> str:
    """JSON with a line for each case and each point: small, and still to be read and compared."""
    lines = [f"{_compact(name)}: {_listed(plain[name])}" for name in sorted(plain)]
    return "{\n " + ",\n ".join(lines) + "\n}\n"


def _listed(value: Any) -> str:
    if isinstance(value, list) and value and isinstance(value[0], dict):
        return "[\n  " + ",\n  ".join(map(_compact, value)) + "\n ]"
    return _compact(value)


def _compact(value: Any) -> str:
    return json.dumps(value, sort_keys=True, ensure_ascii=False, allow_nan=False)
