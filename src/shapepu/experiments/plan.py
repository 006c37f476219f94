"""What a comparison was asked for, kept beside its results: definition, budget and seeds."""

from __future__ import annotations

from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import yaml

from shapepu.configuration import from_plain, to_plain
from shapepu.errors import InputError
from shapepu.experiments.definition import Experiment, read_yaml
from shapepu.experiments.differences import differing_lines
from shapepu.files import write_text
from shapepu.methods.cost import measured_costs
from shapepu.settings import TrainSettings

FILE = "experiment.yaml"


@dataclass(frozen=True)
class Plan:
    """A comparison, apart from where its data lie.

    Args:
        experiment: the table.
        recipe: the starting point of all rows' settings.
        epochs, minutes, steps: of every run; the recipe's own end when none is given.
        pce_steps: batches that a run of ``pce`` may train; every other method gets as many as take about as
            long, by the cost of its step that was measured on two CPU cores with the network of ``fast``;
            estimates before an epoch are not counted. None gives all methods the same number of batches.
        seeds: a run of every row for each.
        settings: complete settings of each row, as they were when the comparison began.
    """

    experiment: Experiment
    recipe: str = "fast"
    epochs: int | None = None
    minutes: float | None = None
    steps: int | None = None
    seeds: tuple[int, ...] = (0,)
    settings: dict[str, dict[str, Any]] | None = None
    pce_steps: int | None = None

    def __post_init__(self) -> None:
        if self.pce_steps is not None and self.pce_steps < 1:
            raise InputError(f"pce_steps: expected at least 1, got {self.pce_steps}.")
        if self.pce_steps is not None and self.steps is not None:
            raise InputError("steps: give --pce-steps-per-run or --steps-per-run, not both.")
        repeated = sorted({seed for seed in self.seeds if self.seeds.count(seed) > 1})
        if not self.seeds or repeated:
            given = ", ".join(map(str, self.seeds)) or "none"
            raise InputError(f"seeds: different whole numbers expected, got {given}.")
        for seed in self.seeds:
            self.settings_of(self.experiment.rows[0].name, seed)  # refuses what cannot be a seed
        if self.settings is None:
            now = {row.name: self.settings_of(row.name, 0).to_plain() for row in self.experiment.rows}
            object.__setattr__(self, "settings", now)

    def settings_of(self, row: str, seed: int) -> TrainSettings:
        """The complete settings of one run."""
        chosen, steps = self.experiment.row(row), self.steps
        if self.pce_steps is not None:
            steps = max(1, round(self.pce_steps / measured_costs()[chosen.method].time))
        return chosen.resolved(self.recipe, epochs=self.epochs, minutes=self.minutes, steps=steps, seed=seed)

    def extending(self, before: Plan, results: Path) -> Plan:
        """This plan for a folder that holds results of ``before``: more rows and seeds, nothing else.

        Results of different budgets or settings must not meet in one table, so those are refused.
        """
        if self.experiment.name != before.experiment.name:
            raise InputError(
                f"{results}: it holds results of the experiment {before.experiment.name!r}, not "
                f"{self.experiment.name!r}; choose another folder with -o."
            )
        for row, then in (before.settings or {}).items():
            now = (self.settings or {}).get(row)
            if now is None:
                continue
            # Settings that are newer than the results read as what they had been before there was a choice.
            changed = differing_lines(TrainSettings.from_plain(then, f"row {row!r}").to_plain(), now)
            if changed:
                told = "; ".join(f"{name} was {old} and is {new}" for name, old, new in changed)
                raise InputError(
                    f"{results}: row {row!r} was run with other settings ({told}); give the same budget and "
                    "settings to go on, or another folder with -o."
                )
        seeds = dict.fromkeys((*before.seeds, *self.seeds))
        return replace(
            self, seeds=tuple(seeds), settings={**(before.settings or {}), **(self.settings or {})}
        )

    def write(self, results: Path) -> None:
        """``RESULTS/experiment.yaml``."""
        plain = {**to_plain(self), "experiment": self.experiment.to_plain()}
        write_text(results / FILE, yaml.safe_dump(plain, sort_keys=False, allow_unicode=True))


def read_plan(results: str | Path) -> Plan:
    """The plan of a folder of results."""
    path = Path(results) / FILE
    if not path.is_file():
        raise InputError(f"{results}: no results of a comparison (no {FILE} in it).")
    return from_plain(Plan, read_yaml(path), str(path))
