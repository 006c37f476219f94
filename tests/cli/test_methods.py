"""``shapepu methods``: every method with what it learns from and what it costs."""

from __future__ import annotations

import json

import pytest

from shapepu.cli import main
from shapepu.methods import METHODS
from shapepu.methods.cost import Cost, measured_costs


def table(capsys: pytest.CaptureFixture[str]) -> list[str]:
    assert main(["methods"]) == 0
    return capsys.readouterr().out.partition("\n\n")[0].splitlines()


def test_the_table_has_a_line_a_method(capsys: pytest.CaptureFixture[str]) -> None:
    lines = table(capsys)
    assert lines[0].split() == ["method", "what", "needs", "time", "memory", "paper"]
    assert [line.split()[0] for line in lines[1:]] == list(METHODS)
    starts = {line.index(METHODS[line.split()[0]].paper) for line in lines[1:]}
    assert starts == {lines[0].index("paper")}, "columns are aligned"


def test_the_table_shows_the_measured_cost(capsys: pytest.CaptureFixture[str]) -> None:
    lines = table(capsys)
    start, end = lines[0].index("time"), lines[0].index("paper")
    shown = {line.split()[0]: line[start:end].split() for line in lines[1:]}
    assert shown["pce"] == ["1.0x", "1.0x"]
    assert shown == {
        name: [f"{cost.time:.1f}x", f"{cost.memory:.1f}x"] for name, cost in measured_costs().items()
    }


def test_what_the_cost_means_stands_below(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["methods"]) == 0
    below = capsys.readouterr().out.partition("\n\n")[2]
    assert "multiples of pce's: python benchmarks/method_cost.py" in below


def test_json_holds_the_same(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["methods", "--json"]) == 0
    listed = {row["method"]: row for row in json.loads(capsys.readouterr().out)}
    assert list(listed) == list(METHODS)
    assert listed["full"]["needs"] == "masks"
    assert listed["shapepu"]["needs"] == "scribbles"
    assert listed["crf"]["time"] == measured_costs()["crf"].time


def test_one_method_is_told_with_its_options(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["methods", "shapepu"]) == 0
    out = capsys.readouterr().out
    assert out.startswith("shapepu: mixture ratios, negative loss, global consistency\n")
    assert "Zhang & Zhuang, MICCAI 2022" in out
    options = {line.split()[0]: line.split(maxsplit=1)[1] for line in out.splitlines() if "  --" in line}
    assert options["--shapepu.negative-form"] == "per-class"
    assert options["--shapepu.pool"] == "epoch  (recipe paper: batch)"
    assert options["--shapepu.view.rotation"] == "right  (recipe paper: any)"


@pytest.mark.parametrize("name", METHODS)
def test_every_method_can_be_told(name: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["methods", name]) == 0
    out = capsys.readouterr().out
    assert METHODS[name].paper in out
    assert str(measured_costs()[name]) in out
    assert all(len(line) <= 110 for line in out.splitlines())


def test_a_method_that_is_not_known_lists_those_that_are(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["methods", "pcee"]) == 2
    assert "did you mean 'pce'? Known:" in capsys.readouterr().err


def test_every_method_was_measured_and_every_measured_one_exists() -> None:
    assert list(measured_costs()) == list(METHODS)


def test_costs_are_relative_to_pce() -> None:
    assert measured_costs()["pce"] == Cost(1.0, 1.0, 0.0)
    assert all(cost.time > 0 and cost.memory > 0 for cost in measured_costs().values())


@pytest.mark.parametrize(
    ("cost", "words"),
    [
        (Cost(1.94, 1.26, 0.0), "1.9 times PCE's step, 1.3 times its memory"),
        (
            Cost(2.0, 1.0, 4.6),
            "2.0 times PCE's step, 1.0 times its memory; before each epoch as long as 5 steps of PCE",
        ),
    ],
)
def test_a_cost_in_words_leaves_out_what_takes_no_time(cost: Cost, words: str) -> None:
    assert str(cost) == words
