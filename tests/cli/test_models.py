"""``shapepu models``: a line a shipped model, and the card of one."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from shapepu import zoo
from shapepu.cli import main
from zoos import ORIGIN, add_model


@pytest.fixture
def shipped(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setattr(zoo, "ZOO", tmp_path / "zoo")
    add_model(tmp_path / "zoo", "heart-b", licence="research only", validation=None)
    add_model(tmp_path / "zoo", "heart-a")
    return tmp_path / "zoo"


@pytest.mark.usefixtures("shipped")
def test_the_table_says_what_a_model_is_for_and_how_good_it_is(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["models"]) == 0
    heading, first, second = capsys.readouterr().out.splitlines()
    columns = ["model", "segments", "scribbles", "classes", "pixel mm", "Dice", "licence"]
    starts = [heading.index(name) for name in columns]
    assert heading.split() == " ".join(columns).split()
    ends = [*starts[1:], None]
    cells = [[line[a:b].strip() for a, b in zip(starts, ends, strict=True)] for line in (first, second)]
    assert cells[0] == [
        "heart-a",
        "LGE MR of the heart",
        "Someone 2022",
        "rv, myo, lv",
        "1.5x1.5",
        "0.876 (5 volumes)",
        "CC BY-NC-SA 4.0",
    ]
    assert cells[1][0] == "heart-b"
    assert cells[1][5:] == ["-", "research only"], "a model that was not scored claims nothing"


@pytest.mark.usefixtures("shipped")
def test_json_holds_the_same_in_full(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["models", "--json"]) == 0
    rows = json.loads(capsys.readouterr().out)
    assert [row["model"] for row in rows] == ["heart-a", "heart-b"]
    assert rows[0] == {
        "model": "heart-a",
        "segments": ORIGIN["segments"],
        "scribbles": "Someone 2022",
        "classes": ["rv", "myo", "lv"],
        "pixel_mm": [1.5, 1.5],
        "dice": 0.8765,
        "volumes": 5,
        "licence": "CC BY-NC-SA 4.0",
    }
    assert (rows[1]["dice"], rows[1]["volumes"]) == (None, 0)


def test_a_name_shows_the_card(shipped: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["models", "heart-a"]) == 0
    assert capsys.readouterr().out == (shipped / "heart-a" / zoo.CARD).read_text()


@pytest.mark.usefixtures("shipped")
@pytest.mark.parametrize(
    ("argv", "message"),
    [
        (["hearta"], "unknown model 'hearta'; did you mean 'heart-a'? Known: heart-a, heart-b."),
        (["heart-a", "--json"], "--json lists the models; leave it out to read the card of one."),
    ],
)
def test_what_cannot_be_shown_is_said_in_one_line(
    argv: list[str], message: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["models", *argv]) == 2
    assert capsys.readouterr().err == f"shapepu models: {message}\n"


def test_a_version_without_models_says_so(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(zoo, "ZOO", tmp_path)
    assert main(["models"]) == 0
    assert capsys.readouterr().out == (
        "no model comes with this version; train one: shapepu train DATA -o RUN\n"
    )
    assert main(["models", "--json"]) == 0
    assert json.loads(capsys.readouterr().out) == []
    assert main(["models", "heart-a"]) == 2
    assert "no model comes with this version" in capsys.readouterr().err
