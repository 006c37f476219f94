"""Scores of a set of predictions: the rows, their summary, and the files both are kept in."""

from __future__ import annotations

import csv
import io
import json
import math
import platform
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import scipy
from numpy.typing import NDArray

from shapepu._version import __version__
from shapepu.evaluation.metrics import DEFINITIONS, StructureScores
from shapepu.evaluation.statistics import Spread, mean_sd
from shapepu.files import write_text
from shapepu.labels import LabelSet

METRICS = {
    "dice": "Dice",
    "iou": "IoU",
    "hd_mm": "HD",
    "hd95_mm": "HD95",
    "assd_mm": "ASSD",
    "volume_ml": "volume_ml",
    "reference_ml": "reference_ml",
    "volume_error_ml": "volume_error_ml",
    "volume_error_percent": "volume_error_percent",
    "tp": "TP",
    "fp": "FP",
    "fn": "FN",
    "tn": "TN",
    "n_pred": "n_pred",
    "n_ref": "n_ref",
}
"""Attributes of :class:`StructureScores` and their keys in ``summary.json``; nnU-Net's keep their names."""


@dataclass(frozen=True)
class CaseScores:
    """The scores of one volume, by label.

    Args:
        group: the patient, for statistics over what is independent.
        structures: one entry for each label 1..K-1.
    """

    name: str
    group: str
    structures: dict[int, StructureScores]
    prediction_file: str = ""
    reference_file: str = ""


@dataclass(frozen=True)
class Evaluation:
    """All scores of a set of predictions.

    Args:
        notes: what a reader of the numbers should know: cases left aside, spacing that differed.
    """

    labels: LabelSet
    cases: tuple[CaseScores, ...]
    notes: tuple[str, ...] = ()

    @property
    def structures(self) -> tuple[str, ...]:
        return self.labels.foreground

    def values(self, metric: str, structure: str | None = None) -> NDArray[np.float64]:
        """One value a case. Without a structure, each case's mean over the structures that have a value."""
        if structure is not None:
            label = self.labels.names.index(structure)
            scores = [getattr(case.structures[label], metric) for case in self.cases]
            return np.array(scores, dtype=np.float64)
        table = np.array([self.values(metric, name) for name in self.structures])
        present = ~np.isnan(table)
        with np.errstate(invalid="ignore"):
            return np.where(present, table, 0).sum(axis=0) / present.sum(axis=0)

    def spread(self, metric: str, structure: str | None = None) -> Spread:
        """Mean and sd over cases of one structure, or of the cases' average."""
        return mean_sd(self.values(metric, structure))

    def count(self, claim: str, structure: str | None = None) -> int:
        """How often ``both_empty``, ``one_empty`` or ``partly_labelled`` holds, in one structure or all."""
        names = self.structures if structure is None else (structure,)
        return int(sum(self.values(claim, name).sum() for name in names))

    @property
    def rows(self) -> list[dict[str, Any]]:
        """One row for each case and structure, as in ``cases.csv``; nan where there is no value."""
        return [
            {
                "case": case.name,
                "group": case.group,
                "structure": self.labels.names[label],
                "label": self.labels.values[label],
                **{metric: getattr(scores, metric) for metric in METRICS},
                "note": scores.reason,
            }
            for case in self.cases
            for label, scores in case.structures.items()
        ]

    @property
    def summary(self) -> dict[str, Any]:
        """What ``summary.json`` holds: nnU-Net's keys, then what they leave open. None is no value."""
        claims = ("both_empty", "one_empty", "partly_labelled")
        return without_nan(
            {
                "mean": self._by_value(lambda name: self._summarised("mean", name)),
                "foreground_mean": self._summarised("mean"),
                "metric_per_case": [self._metrics_of(case) for case in self.cases],
                "sd": self._by_value(lambda name: self._summarised("sd", name)),
                "foreground_sd": self._summarised("sd"),
                "labels": self._by_value(lambda name: name),
                "volumes": len(self.cases),
                "groups": len({case.group for case in self.cases}),
                **{claim: self._by_value(partial(self.count, claim)) for claim in claims},
                "definitions": DEFINITIONS,
                "notes": self.notes,
                "versions": {
                    "shapepu": __version__,
                    "numpy": np.__version__,
                    "scipy": scipy.__version__,
                    "python": platform.python_version(),
                },
            }
        )

    def table(self, *, footnotes: bool = True) -> str:
        """Mean ± sd of each structure and on average, for a terminal; definitions and notes below it."""
        from shapepu.evaluation.tables import scores_table

        return scores_table(self, footnotes=footnotes)

    def write(self, folder: str | Path) -> None:
        """Write ``cases.csv`` and ``summary.json`` into ``folder``."""
        rows = [{key: _rounded(value) for key, value in row.items()} for row in self.rows]
        text = io.StringIO()
        writer = csv.DictWriter(text, fieldnames=list(rows[0]), lineterminator="\n")
        writer.writeheader()
        writer.writerows(rows)
        write_text(Path(folder) / "cases.csv", text.getvalue())
        write_json(Path(folder) / "summary.json", self.summary)

    def _by_value(self, entry: Callable[[str], Any]) -> dict[str, Any]:
        """An entry for each structure under its value in the files, as nnU-Net does."""
        named = zip(self.labels.values[1:], self.structures, strict=True)
        return {str(value): entry(name) for value, name in named}

    def _metrics_of(self, case: CaseScores) -> dict[str, Any]:
        def metrics(structure: str) -> dict[str, float]:
            scores = case.structures[self.labels.names.index(structure)]
            return {key: getattr(scores, metric) for metric, key in METRICS.items()}

        return {
            "reference_file": case.reference_file,
            "prediction_file": case.prediction_file,
            "metrics": self._by_value(metrics),
        }

    def _summarised(self, what: str, structure: str | None = None) -> dict[str, float]:
        return {key: getattr(self.spread(metric, structure), what) for metric, key in METRICS.items()}


def write_json(path: Path, content: Any) -> None:
    """Write JSON that every reader accepts: a missing number is null, never NaN."""
    write_text(path, json.dumps(without_nan(content), indent=2, ensure_ascii=False, allow_nan=False) + "\n")


def without_nan(content: Any) -> Any:
    """``content`` with None in place of nan, at any depth."""
    if isinstance(content, dict):
        return {key: without_nan(value) for key, value in content.items()}
    if isinstance(content, list | tuple):
        return [without_nan(value) for value in content]
    return None if isinstance(content, float) and math.isnan(content) else content


def _rounded(value: Any) -> Any:
    """For a table that people read: a millionth of a unit is enough, and an empty cell is no value."""
    if not isinstance(value, float):
        return value
    return "" if math.isnan(value) else round(value, 6)
