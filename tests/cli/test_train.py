"""``shapepu train`` as a user meets it: what is said, what is left on disk, what can be set."""

from __future__ import annotations

import json
import re
import time
from pathlib import Path

import numpy as np
import pytest
import SimpleITK as sitk
import yaml

from shapepu.cli import main
from shapepu.settings import TrainSettings
from shapepu.training import Trainer
from small_runs import (
    SHAPEPU_AT_ONCE,
    arguments,
    metrics,
    refused,
    resume_arguments,
    start,
    train,
    visible_files,
    write_hearts,
)


@pytest.fixture(scope="module")
def hearts(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_hearts(tmp_path_factory.mktemp("train") / "hearts")


@pytest.fixture(scope="module")
def finished(hearts: Path) -> tuple[Path, str]:
    """A run of the full method in a process of its own, and what it printed to stderr."""
    run = hearts.parent / "finished"
    began = time.monotonic()
    process = start(arguments(hearts, run, *SHAPEPU_AT_ONCE, "--shapepu.negative-weight", "0.5", epochs=3))
    assert process.stderr is not None
    first_line = process.stderr.readline()
    seconds_to_first_line = time.monotonic() - began
    rest, err = process.communicate(timeout=300)
    assert process.returncode == 0, err
    assert first_line == "shapepu train: loading\n"
    assert seconds_to_first_line < 5
    assert rest == "", "results of training go to files; stdout stays free"
    return run, first_line + err


def test_a_run_folder_has_all_that_a_run_is_known_by(finished: tuple[Path, str]) -> None:
    run, _ = finished
    assert visible_files(run) == {
        "config.yaml",
        "data.json",
        "metrics.csv",
        "progress.png",
        "train.log",
        "checkpoint/last.pt",
        "model/model.json",
        "model/weights.safetensors",
        "validation/cases.csv",
        "validation/cases.json",
        "validation/summary.json",
        "validation/predictions/val000.nii.gz",
    }
    assert not list(run.rglob(".*")), "nothing is left of files in the making"


def test_metrics_have_a_row_an_epoch_with_losses_ratios_and_scores(finished: tuple[Path, str]) -> None:
    rows = metrics(finished[0])
    assert [row["epoch"] for row in rows] == ["1", "2", "3"]
    assert list(rows[0]) == [
        *("epoch", "step", "minutes", "learning_rate", "images_per_second"),
        *("loss", "loss.consistency", "loss.positive", "loss.negative"),
        *("ratio.background", "ratio.rv", "ratio.myo", "ratio.lv", "negative_active"),
        *("validation.dice", "validation.dice.rv", "validation.dice.myo", "validation.dice.lv"),
    ]
    last = {name: float(cell) for name, cell in rows[-1].items()}
    assert last["loss"] == pytest.approx(
        last["loss.consistency"] + last["loss.positive"] + last["loss.negative"], rel=1e-4
    )
    assert sum(last[f"ratio.{name}"] for name in ("background", "rv", "myo", "lv")) == pytest.approx(1)
    assert last["validation.dice"] == pytest.approx(
        sum(last[f"validation.dice.{name}"] for name in ("rv", "myo", "lv")) / 3, abs=1e-5
    )


def test_the_config_is_complete_and_says_what_was_asked_for(finished: tuple[Path, str]) -> None:
    config = yaml.safe_load((finished[0] / "config.yaml").read_text())
    settings = TrainSettings.from_plain(config["settings"])
    assert settings.to_plain() == config["settings"], "nothing is left to a default"
    assert settings.preprocessing.resolved
    assert settings.method_options.negative_weight == 0.5
    assert settings.network_options.widths == (8, 16)
    assert settings.optimisation.batch_size == 4
    assert (settings.epochs, settings.minutes) == (3, None)
    assert config["data"]["cases"] == {
        "train": ["train000", "train001", "train002"],
        "val": ["val000"],
        "unpaired": [],
    }
    assert set(config["versions"]) >= {"shapepu", "torch", "numpy", "python"}


def test_scribble_coverage_is_written_for_the_report(finished: tuple[Path, str]) -> None:
    cases = json.loads((finished[0] / "data.json").read_text())["cases"]
    assert [case["name"] for case in cases] == ["train000", "train001", "train002"]
    for case in cases:
        assert set(case["labelled"]) == {"background", "rv", "myo", "lv"}
        assert 0 < sum(case["labelled"].values()) < case["pixels"]


def test_the_log_tells_of_every_epoch_with_the_time_that_is_left(finished: tuple[Path, str]) -> None:
    run, err = finished
    log = (run / "train.log").read_text()
    line = r"epoch {}: loss \d+\.\d{{3}}, validation Dice \d\.\d{{3}}, \d+ images/s, {}"
    for epoch, outlook in ((1, r"33 %, \d\d:\d\d left"), (2, r"67 %, \d\d:\d\d left"), (3, "done")):
        assert re.search(line.format(epoch, outlook), log)
    assert re.search(line.format(1, r"33 %, \d\d:\d\d left"), err), "a person hears of the first at once"
    assert re.search(line.format(3, "done"), err)
    assert f"done: model in {run / 'model'}; next: shapepu predict {run} IMAGES OUT" in err
    assert "Warning" not in err


def test_the_report_command_finds_what_it_needs(finished: tuple[Path, str], tmp_path: Path) -> None:
    assert main(["report", str(finished[0]), "-o", str(tmp_path / "report.html")]) == 0
    assert (tmp_path / "report.html").stat().st_size > 10_000


def test_a_model_predicts_by_the_run_folder(finished: tuple[Path, str], hearts: Path, tmp_path: Path) -> None:
    argv = ["predict", str(finished[0]), str(hearts / "test/images"), str(tmp_path / "out"), "--quiet"]
    assert main(argv) == 0
    assert (tmp_path / "out/test000.nii.gz").is_file()


@pytest.mark.parametrize("precision", ["bf16", "fp32"])
@pytest.mark.parametrize("schedule", ["cosine", "constant"])
def test_quiet_runs_say_nothing_whatever_they_compute_in(
    precision: str, schedule: str, hearts: Path, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    options = ("--precision", precision, "--optimisation.schedule", schedule, "--quiet")
    run = train(hearts, tmp_path / "run", *options, epochs=6)
    assert capfd.readouterr() == ("", "")
    rates = [float(row["learning_rate"]) for row in metrics(run)]
    assert rates[-1] == pytest.approx(3e-3) if schedule == "constant" else rates[-1] < 0.1 * rates[1]


def test_minutes_end_a_run_in_time_and_the_learning_rate_falls_to_zero(hearts: Path, tmp_path: Path) -> None:
    run = train(hearts, tmp_path / "run", "--minutes", "0.1", "--quiet", epochs=None)
    rows = metrics(run)
    minutes, rates = ([float(row[name]) for row in rows] for name in ("minutes", "learning_rate"))
    longest_epoch = max(late - early for early, late in zip([0.0, *minutes], minutes, strict=False))
    assert 0.1 <= minutes[-1] <= 0.1 + longest_epoch + 0.02
    assert rates[-1] < 0.25 * max(rates), "less still on a machine that has nothing else to do"
    config = yaml.safe_load((run / "config.yaml").read_text())
    assert (config["settings"]["epochs"], config["settings"]["minutes"]) == (None, 0.1)


def test_masks_that_are_there_change_nothing_for_a_method_that_learns_from_scribbles(tmp_path: Path) -> None:
    without = write_hearts(tmp_path / "without")
    beside = write_hearts(tmp_path / "beside", masks_for_training=True)
    rows = [metrics(train(data, tmp_path / f"run-{data.name}", "--quiet")) for data in (without, beside)]
    assert [row["loss"] for row in rows[0]] == [row["loss"] for row in rows[1]]


def test_a_fold_of_the_training_patients_can_be_held_out(
    hearts: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    own = refused([*arguments(hearts, tmp_path / "own"), "--fold", "0"], capsys)
    assert "it has 1 validation cases of its own; leave --fold out" in own
    data = write_hearts(tmp_path / "data", val=0, masks_for_training=True)
    run = train(data, tmp_path / "run", "--fold", "1", "--folds", "3", "--quiet")
    cases = yaml.safe_load((run / "config.yaml").read_text())["data"]["cases"]
    assert len(cases["train"]) == 2
    assert len(cases["val"]) == 1
    assert (run / "validation" / "predictions" / f"{cases['val'][0]}.nii.gz").is_file()


def test_without_validation_masks_a_run_is_not_scored_and_says_so(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    data = write_hearts(tmp_path / "data", val=0)
    run = train(data, tmp_path / "run")
    assert "no validation case with a dense mask: the run is not scored" in capsys.readouterr().err
    assert not (run / "validation").exists()
    assert "validation.dice" not in metrics(run)[0]
    assert json.loads((run / "model/model.json").read_text())["provenance"]["validation"] is None


def with_unlabelled(data: Path, value: int) -> Path:
    """The data as a tool writes them that has its own value for what is not drawn."""
    for path in sorted((data / "train/scribbles").iterdir()):
        image = sitk.ReadImage(str(path), sitk.sitkInt32)
        sitk.WriteImage(sitk.ChangeLabel(image, {4: value}), str(path))
    names = {"background": 0, "right\xa0ventricle": 1, "myo": 2, "lv": 3, "unlabelled": value}
    (data / "labels.json").write_text(json.dumps(names))
    return data


def test_scribbles_that_call_unlabelled_65535_end_in_a_model(tmp_path: Path) -> None:
    data = with_unlabelled(write_hearts(tmp_path / "data", val=0), 65_535)
    run = train(data, tmp_path / "run", "--quiet", epochs=1)
    out = tmp_path / "out"
    assert main(["predict", str(run), str(data / "test/images"), str(out), "--quiet"]) == 0
    predicted = sitk.GetArrayFromImage(sitk.ReadImage(str(out / "test000.nii.gz")))
    assert set(np.unique(predicted)) <= {0, 1, 2, 3}


def test_values_that_no_model_can_carry_are_refused_before_training(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(Trainer, "fit", None)
    data = with_unlabelled(write_hearts(tmp_path / "data", val=0), 70_000)
    message = refused(arguments(data, tmp_path / "run"), capsys)
    assert "labels: whole numbers of 16 bits expected, got {'background': 0," in message
    assert not (tmp_path / "run").exists()


def test_help_shows_the_options_of_the_method_with_their_values(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as stopped:
        main(["train", "--method", "shapepu", "--recipe", "paper", "--help"])
    assert stopped.value.code == 0
    out, err = capsys.readouterr()
    assert err == ""
    text = re.sub(r"[\s│]+", " ", out)
    assert "--shapepu.negative-weight FLOAT lambda_1. (default: 1.0)" in text
    assert "--network STR Network; its options follow under net. (default: unet)" in text
    assert "``" not in out
    assert ":class:" not in out


@pytest.mark.parametrize("option", ["--seed=1", "--method=full", "--optimisation.learning-rate=1", "DATA"])
def test_a_resumed_run_refuses_other_settings(
    option: str, finished: tuple[Path, str], hearts: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    before = (finished[0] / "config.yaml").read_text()
    message = refused(resume_arguments(hearts, finished[0], option), capsys)
    assert f"{option} cannot be given with --resume: a run keeps its data and settings" in message
    assert (finished[0] / "config.yaml").read_text() == before


@pytest.mark.parametrize("option", ["--method", "--recipe", "--network", "--resume"])
def test_an_option_without_its_value_is_refused(option: str, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as stopped:
        main(["train", "DATA", option])
    assert stopped.value.code == 2
    assert f"Missing value for argument '{option}'" in capsys.readouterr().err


def test_no_data_is_refused(capsys: pytest.CaptureFixture[str]) -> None:
    assert "no data given; name a folder with images and scribbles" in refused(["train"], capsys)
