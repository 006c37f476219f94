"""The demo is the first thing a new user runs: it must end well, also the second time and after Ctrl-C."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image

from shapepu import api, demo
from shapepu.cli import main
from shapepu.training import Trainer


@pytest.fixture(autouse=True)
def few_cases(monkeypatch: pytest.MonkeyPatch) -> None:
    for name, count in {"TRAIN_CASES": 2, "VALIDATION_CASES": 1, "TEST_CASES": 2}.items():
        monkeypatch.setattr(demo, name, count)


@pytest.fixture
def interrupted(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Path:
    """A demo that was stopped in the second epoch of its second method."""
    steps = Trainer._steps

    def stopped(trainer: Trainer, watch: Any) -> Any:
        if trainer.settings.method == "shapepu" and trainer.state.epoch == 1:
            raise KeyboardInterrupt
        return steps(trainer, watch)

    with monkeypatch.context() as patched:
        patched.setattr(Trainer, "_steps", stopped)
        assert main(["demo", "-o", str(tmp_path / "demo"), "--epochs", "2", "--quiet"]) == 130
    return tmp_path / "demo"


def test_an_interrupted_demo_goes_on_and_a_finished_one_is_only_shown_again(
    interrupted: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    argv = ["demo", "-o", str(interrupted), "--epochs", "2", "--quiet"]
    assert main(argv) == 0
    table = capsys.readouterr().out
    lines = table.splitlines()
    assert "Unseen synthetic hearts, after 2 epochs on the same scribbles, seed 0:" in lines
    assert [line.split()[0] for line in lines if line.startswith(("pce", "shapepu"))] == ["pce", "shapepu"]
    assert "resuming after epoch 1" in (interrupted / "shapepu/train.log").read_text()

    def not_again(*_: object, **__: object) -> None:
        raise AssertionError("trained again")

    monkeypatch.setattr(api, "train", not_again)
    monkeypatch.setattr(api, "resume", not_again)
    assert main(argv) == 0
    assert capsys.readouterr().out.splitlines()[:-1] == lines[:-1], "but for the time it took"


def test_report_and_picture_are_where_the_demo_says(tmp_path: Path) -> None:
    result = demo.run_demo(tmp_path / "demo", epochs=1, seed=0, quiet=True)
    assert result.report.read_text(encoding="utf-8").startswith("<!DOCTYPE html>")
    assert result.picture.stat().st_size < 200_000
    with Image.open(result.picture) as picture:
        assert np.asarray(picture.convert("L")).std() > 20, "not an empty page"
    assert set(result.dice) == {"pce", "shapepu"}
    assert len(result.scores["shapepu"].cases) == 2


def test_a_folder_with_another_demo_is_refused(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "demo.json").write_text('{"epochs": 30, "seed": 1}\n')
    assert main(["demo", "-o", str(tmp_path), "--quiet"]) == 2
    assert f"{tmp_path}: holds a demo with other --epochs or --seed" in capsys.readouterr().err
    assert [path.name for path in tmp_path.iterdir()] == ["demo.json"]
