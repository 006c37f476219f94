"""Experiments as data: what comes with the package, what a user writes, and what is refused."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
import yaml
from small_comparisons import written

from shapepu.errors import InputError
from shapepu.experiments.definition import (
    SHIPPED,
    Experiment,
    Row,
    find_experiment,
    mean_and_sd,
    shipped_experiments,
)
from shapepu.methods import METHODS, find_method
from shapepu.methods.shapepu import ShapePUConfig
from shapepu.settings import RECIPES

GUIDE = Path(__file__).parents[2] / "docs" / "how-to" / "compare.md"

NAMES = ("budget", "estimators", "modern", "padding", "table1", "table2", "table3")

TEN_LINES = """title: What the negative loss is worth on my data
data: [LIVER]
against: plain
rows:
  - {name: plain, method: pce}
  - name: half
    method: shapepu
    settings: {method_options: {negative_weight: 0.5, view: {cut: 16}}, optimisation: {batch_size: 8}}
    published: {LIVER: {liver: [.81, .02], average: .81}}
  - {name: whole, method: shapepu}
"""


def test_every_shipped_file_is_an_experiment_and_has_a_title() -> None:
    shipped = shipped_experiments()
    assert tuple(shipped) == NAMES == tuple(sorted(path.stem for path in SHIPPED.iterdir()))
    assert all(experiment.title and experiment.name == name for name, experiment in shipped.items())


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("recipe", RECIPES)
def test_every_row_of_a_shipped_experiment_gives_complete_settings(name: str, recipe: str) -> None:
    for row in find_experiment(name).rows:
        settings = row.resolved(recipe, steps=10, seed=3)
        assert settings.method == row.method
        assert type(settings.method_options) is type(find_method(row.method).options())
        assert (settings.recipe, settings.steps, settings.minutes, settings.epochs) == (
            recipe,
            10,
            None,
            None,
        )
        assert settings.seed == 3


def test_rows_of_a_shipped_experiment_differ() -> None:
    for experiment in shipped_experiments().values():
        plain = [yaml.safe_dump(row.resolved(steps=1).to_plain()) for row in experiment.rows]
        assert len(set(plain)) == len(plain), experiment.name


def test_the_tables_of_the_paper_have_its_rows() -> None:
    rows = {
        name: [row.method for row in find_experiment(name).rows] for name in ("table1", "table2", "table3")
    }
    assert rows["table1"] == ["shapepu-1", "shapepu-2", "shapepu-3", "shapepu-4", "shapepu"]
    assert set(rows["table2"]) >= {"pce", "wpce", "crf", "shapepu", "postdae", "accl", "maag", "full"}
    assert set(rows["table3"]) >= {"pce", "tedn", "cvir", "nnpu", "shapepu", "full"}
    assert set(rows["table1"]) | set(rows["table2"]) | set(rows["table3"]) <= set(METHODS)


def test_ten_lines_of_a_user_are_an_experiment(tmp_path: Path) -> None:
    assert TEN_LINES.count("\n") == 10
    experiment = find_experiment(written(tmp_path / "mine.yaml", TEN_LINES))
    assert (experiment.name, [row.name for row in experiment.rows]) == ("mine", ["plain", "half", "whole"])
    plain, half, whole = experiment.rows
    assert (plain.label, whole.method, whole.data) == ("plain", "shapepu", ("LIVER",))
    options = half.resolved(minutes=5).method_options
    assert isinstance(options, ShapePUConfig)
    assert (options.negative_weight, options.view.cut) == (0.5, 16)
    assert half.resolved().optimisation.batch_size == 8
    untouched = whole.resolved().to_plain()
    changed = half.resolved().to_plain()
    assert changed["preprocessing"] == untouched["preprocessing"], "what is not named is the recipe's"
    assert mean_and_sd(half.published["LIVER"]["liver"]) == (0.81, 0.02)
    assert mean_and_sd(half.published["LIVER"]["average"]) == (0.81, None)
    assert [experiment.tested_against(row) for row in experiment.rows] == [None, plain, plain]


def test_the_experiment_that_the_guide_shows_is_one_in_ten_lines(tmp_path: Path) -> None:
    [text] = re.findall(r"```yaml\n(.*?)```", GUIDE.read_text(encoding="utf-8"), flags=re.DOTALL)
    assert text.count("\n") <= 10
    experiment = find_experiment(written(tmp_path / "mine.yaml", text))
    pce, half, whole = experiment.rows
    assert [experiment.tested_against(row) for row in experiment.rows] == [None, pce, pce]
    options = [row.resolved(minutes=15).method_options for row in (half, whole)]
    assert [each.negative_weight for each in options] == [0.5, 1.0]


def test_rows_are_tested_against_the_one_above_unless_they_say_otherwise() -> None:
    rows = (Row("a", method="pce"), Row("b", method="pce"), Row("c", method="pce", against="a"))
    experiment = Experiment((*rows, Row("d", method="pce", against="nothing")))
    above = [experiment.tested_against(row) for row in experiment.rows]
    assert [row and row.name for row in above] == [None, "a", "a", None]


def test_an_experiment_goes_to_yaml_and_back(tmp_path: Path) -> None:
    for experiment in (
        *shipped_experiments().values(),
        find_experiment(written(tmp_path / "a.yaml", TEN_LINES)),
    ):
        text = yaml.safe_dump(experiment.to_plain(), sort_keys=False)
        assert Experiment.from_plain(yaml.safe_load(text), "text") == experiment


def test_another_network_has_options_of_its_own() -> None:
    row = Row("pce", settings={"network": "unet"})
    assert row.resolved().network == "unet"
    assert type(row.resolved().network_options) is type(Row("pce").resolved("paper").network_options)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("rows: [{name: a, method: pec}]", "unknown method 'pec'; did you mean 'pce'"),
        ("rows: [{name: pce, against: full}]", "unknown row 'full'"),
        (
            "rows: [{name: pce}]\ncurves: [{x: data.cases, rows: [pec]}]",
            "unknown row 'pec'; did you mean 'pce'",
        ),
        ("rows: [{name: pce, methd: pce}]", "unknown setting 'methd'. Known: name, label, method"),
        (
            "rows: [{name: pce, settings: {optimisation: {lr: 1}}}]",
            "row 'pce': settings.optimisation: unknown",
        ),
        (
            "rows: [{name: pce, settings: {optimisation: {batch_size: a}}}]",
            "optimisation.batch_size: expected",
        ),
        ("rows: [{name: pce, settings: {minutes: 5}}]", "settings.minutes cannot differ between rows"),
        ("rows: [{name: pce, settings: {seed: 5}}]", "settings.seed cannot differ between rows"),
        ("rows: [{name: a/b, method: pce}]", "row 'a/b': a name of letters, digits"),
        ("rows: [{name: .., method: pce}]", "row '..': a name of letters, digits"),
        ("rows: [{name: pce, data: [my data]}]", "data set 'my data': a name of letters, digits"),
        ("rows: [{name: pce}, {name: pce}]", "'pce' repeats"),
        ("rows: []", "no rows"),
        ("title: nothing", "'rows' is missing"),
        ("- pce", "expected a mapping"),
        ("rows: [", "not readable as YAML"),
    ],
)
def test_what_cannot_be_an_experiment_is_refused_before_any_run(
    text: str, message: str, tmp_path: Path
) -> None:
    with pytest.raises(InputError) as refused:
        find_experiment(written(tmp_path / "mine.yaml", text))
    assert message in str(refused.value)
    assert "\n" not in str(refused.value)


def test_an_unknown_experiment_lists_those_that_are_known(tmp_path: Path) -> None:
    with pytest.raises(InputError) as refused:
        find_experiment("tabel1")
    assert "unknown experiment 'tabel1'; did you mean 'table1'?" in str(refused.value)
    assert all(name in str(refused.value) for name in NAMES)
    with pytest.raises(InputError, match=r"absent\.yaml: no such file"):
        find_experiment(tmp_path / "absent.yaml")
