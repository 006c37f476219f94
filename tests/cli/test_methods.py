"""``shapepu methods``: every method with what it learns from."""

from __future__ import annotations

import json

import pytest

from shapepu.cli import main
from shapepu.methods import METHODS


def test_the_table_has_a_line_a_method(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["methods"]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert lines[0].split() == ["method", "what", "needs", "paper"]
    assert [line.split()[0] for line in lines[1:]] == list(METHODS)
    starts = {line.index(METHODS[line.split()[0]].paper) for line in lines[1:]}
    assert starts == {lines[0].index("paper")}, "columns are aligned"


def test_json_holds_the_same(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["methods", "--json"]) == 0
    listed = {row["method"]: row for row in json.loads(capsys.readouterr().out)}
    assert list(listed) == list(METHODS)
    assert listed["full"]["needs"] == "masks"
    assert listed["shapepu"]["needs"] == "scribbles"
