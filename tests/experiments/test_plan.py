"""A folder of results holds one budget and one set of settings, and may grow by rows and seeds."""

from __future__ import annotations

from copy import deepcopy
from dataclasses import replace
from pathlib import Path

import pytest
from small_comparisons import small_experiment, small_row

from shapepu.errors import InputError
from shapepu.experiments.definition import find_experiment
from shapepu.experiments.plan import FILE, Plan, read_plan
from shapepu.methods import METHODS
from shapepu.methods.cost import Cost, measured_costs

SMALL_PLAN = Plan(small_experiment(), steps=4, seeds=(0, 1))


@pytest.mark.parametrize("name", ["table1", "table3", "budget"])
def test_a_plan_is_read_as_it_was_written(name: str, tmp_path: Path) -> None:
    plan = Plan(find_experiment(name), recipe="paper", minutes=2.5, seeds=(3, 1))
    plan.write(tmp_path)
    assert read_plan(tmp_path) == plan


def test_the_complete_settings_of_every_row_are_kept(tmp_path: Path) -> None:
    SMALL_PLAN.write(tmp_path)
    kept = read_plan(tmp_path).settings
    assert kept == {name: SMALL_PLAN.settings_of(name, 0).to_plain() for name in ("pce", "entropy")}


def test_a_run_has_the_seed_and_the_budget_of_the_plan() -> None:
    settings = SMALL_PLAN.settings_of("pce", 1)
    assert (settings.seed, settings.steps, settings.minutes) == (1, 4, None)


def test_as_many_steps_as_take_equally_long_by_the_measured_cost(monkeypatch: pytest.MonkeyPatch) -> None:
    costs = {"pce": Cost(1.0, 1.0, 0.0), "entropy": Cost(1.6, 1.0, 0.0)}
    monkeypatch.setattr("shapepu.experiments.plan.measured_costs", lambda: costs)
    plan = Plan(small_experiment(), pce_steps=800)
    assert [plan.settings_of(row, 0).steps for row in ("pce", "entropy")] == [800, 500]
    assert plan.settings_of("entropy", 0).minutes is None
    assert Plan(small_experiment(), pce_steps=1).settings_of("entropy", 0).steps == 1


@pytest.mark.parametrize(
    ("budget", "message"),
    [
        ({"pce_steps": 0}, r"pce_steps: expected at least 1, got 0\."),
        ({"pce_steps": 5, "steps": 5}, "give --pce-steps-per-run or --steps-per-run, not both"),
    ],
)
def test_steps_of_pce_are_the_only_number_of_steps(budget: dict[str, int], message: str) -> None:
    with pytest.raises(InputError, match=message):
        Plan(small_experiment(), **budget)


def test_every_method_has_a_cost_to_be_equal_by() -> None:
    assert set(measured_costs()) == set(METHODS)


def test_more_seeds_and_more_rows_join_what_is_there(tmp_path: Path) -> None:
    wider = small_experiment(small_row("pce"), small_row("entropy"), small_row("tv"))
    grown = Plan(wider, steps=4, seeds=(2, 0)).extending(SMALL_PLAN, tmp_path)
    assert grown.seeds == (0, 1, 2)
    assert list(grown.settings or {}) == ["pce", "entropy", "tv"]
    assert [row.name for row in grown.experiment.rows] == ["pce", "entropy", "tv"]


def test_a_command_with_fewer_seeds_forgets_none(tmp_path: Path) -> None:
    assert replace(SMALL_PLAN, seeds=(1,)).extending(SMALL_PLAN, tmp_path).seeds == (0, 1)


def test_another_budget_is_refused_with_both(tmp_path: Path) -> None:
    longer = Plan(small_experiment(), steps=5)
    with pytest.raises(InputError) as refused:
        longer.extending(SMALL_PLAN, tmp_path)
    assert f"{tmp_path}: row 'pce' was run with other settings (steps was 4 and is 5)" in str(refused.value)
    assert "give the same budget and settings to go on, or another folder with -o" in str(refused.value)


def test_steps_that_are_many_are_still_told_apart(tmp_path: Path) -> None:
    one, other = (Plan(small_experiment(), steps=steps) for steps in (12_345_678, 12_345_679))
    with pytest.raises(InputError, match="steps was 12345678 and is 12345679"):
        other.extending(one, tmp_path)


def test_other_settings_of_a_row_are_refused_by_name(tmp_path: Path) -> None:
    changed = small_experiment(small_row("pce"), small_row("entropy", precision="fp32"))
    with pytest.raises(InputError, match=r"row 'entropy' was run with other settings \(precision was auto"):
        Plan(changed, steps=4).extending(SMALL_PLAN, tmp_path)


def test_results_from_before_a_setting_existed_are_read_as_what_was_done_then(tmp_path: Path) -> None:
    """ShapePU looked at its pool before every epoch until there was a choice; the recipe chose another."""
    plan = Plan(small_experiment(small_row("shapepu")), steps=4)
    stored = deepcopy(plan.settings)
    assert stored is not None
    del stored["shapepu"]["method_options"]["pool_every"]
    with pytest.raises(InputError, match=r"method_options\.pool_every was 1 and is 2"):
        plan.extending(replace(plan, settings=stored), tmp_path)


def test_results_from_before_predictions_were_averaged_are_not_mixed_with_others(tmp_path: Path) -> None:
    stored = deepcopy(SMALL_PLAN.settings)
    assert stored is not None
    del stored["pce"]["averaging"]
    with pytest.raises(InputError, match=r"averaging was none and is auto"):
        SMALL_PLAN.extending(replace(SMALL_PLAN, settings=stored), tmp_path)


def test_another_experiment_is_refused(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="results of the experiment 'small', not 'table1'; choose another"):
        Plan(find_experiment("table1"), steps=4).extending(SMALL_PLAN, tmp_path)


@pytest.mark.parametrize(
    ("seeds", "message"),
    [
        ((1, 2, 1), "different whole numbers expected, got 1, 2, 1"),
        ((), "got none"),
        ((0, -1), "whole number from 0"),
    ],
)
def test_seeds_that_cannot_be_are_refused(seeds: tuple[int, ...], message: str) -> None:
    with pytest.raises(InputError, match=message):
        Plan(small_experiment(), steps=4, seeds=seeds)


def test_a_folder_without_results_is_named(tmp_path: Path) -> None:
    with pytest.raises(InputError, match=f"{tmp_path}: no results of a comparison .no {FILE} in it"):
        read_plan(tmp_path)
