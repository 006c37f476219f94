"""The same from Python: train, load, predict, evaluate; and names that are imported when they are used."""

from __future__ import annotations

import csv
import json
import re
import subprocess
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import SimpleITK as sitk
import yaml

import shapepu
from shapepu.api import data_and_settings
from shapepu.data.augment import Augmentation
from shapepu.data.readers import read_dataset
from shapepu.errors import InputError
from shapepu.labels import LabelSet
from shapepu.networks import FastUNetConfig
from shapepu.runfolder import RunFolder
from shapepu.settings import RECIPES, Optimisation, TrainSettings, settings_for, views_to_average
from shapepu.training import Trainer
from small_runs import cache_beside, metrics, weights, write_hearts
from volume_files import write_json

SETTINGS = replace(
    settings_for("fast", "pce"),
    network_options=FastUNetConfig(widths=(8, 16)),
    optimisation=Optimisation(batch_size=4, learning_rate=3e-3),
)


@pytest.fixture(scope="module")
def hearts(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_hearts(tmp_path_factory.mktemp("api") / "hearts", val=2)


@pytest.fixture(scope="module")
def run(hearts: Path) -> Path:
    return hearts.parent / "run"


@pytest.fixture(scope="module")
def model(hearts: Path, run: Path) -> shapepu.Model:
    return train(hearts, run)


def train(data: Path | shapepu.Dataset, output: Path, **options: object) -> shapepu.Model:
    chosen = {"settings": SETTINGS, "epochs": 2, "quiet": True, **options}
    cache = cache_beside(data.root if isinstance(data, shapepu.Dataset) else data)
    return shapepu.train(data, output=output, cache=cache, **chosen)  # type: ignore[arg-type]


def test_train_returns_the_model_of_the_run_folder(model: shapepu.Model, run: Path) -> None:
    assert isinstance(model, shapepu.Model)
    assert model.bundle.path == run / "model"
    assert model.labels.names == ("background", "rv", "myo", "lv")
    assert len(metrics(run)) == 2


def test_a_model_predicts_on_the_grid_of_the_image(model: shapepu.Model, hearts: Path) -> None:
    image = hearts / "test/images/test000.nii.gz"
    labels = model.predict(image)
    array = sitk.GetArrayFromImage(sitk.ReadImage(str(image)))
    assert labels.shape == array.shape
    assert labels.dtype == np.uint8
    assert set(np.unique(labels)) <= {0, 1, 2, 3}
    assert np.array_equal(shapepu.load(model.bundle.path.parent).predict(image), labels)


def test_a_run_is_scored_by_the_spacing_of_its_images_and_by_patient(run: Path, hearts: Path) -> None:
    scores = shapepu.evaluate(run / "validation/predictions", hearts, quiet=True)
    with open(run / "validation/cases.csv", newline="") as stream:
        rows = list(csv.DictReader(stream))
    assert [(row["case"], row["structure"]) for row in rows] == [
        (case, structure) for case in ("val000", "val001") for structure in ("rv", "myo", "lv")
    ]
    assert [float(row["dice"]) for row in rows] == pytest.approx(
        [row["dice"] for row in scores.rows], abs=1e-5
    )
    assert [row["hd_mm"] for row in rows] == [
        "" if np.isnan(row["hd_mm"]) else str(round(row["hd_mm"], 6)) for row in scores.rows
    ]
    summary = json.loads((run / "validation/summary.json").read_text())
    assert summary["foreground_mean"]["Dice"] == pytest.approx(scores.summary["foreground_mean"]["Dice"])
    provenance = json.loads((run / "model/model.json").read_text())["provenance"]
    assert provenance["validation"]["dice"] == pytest.approx(summary["foreground_mean"]["Dice"])
    assert provenance["epochs"] == 2


def test_masks_without_a_voxel_size_are_measured_by_that_of_their_image(tmp_path: Path) -> None:
    """As most masks of ACDC come: distances in voxels would pass for millimetres."""
    hd_mm = []
    for name, spacing_mm in (("as is", None), ("one mm", (1.0, 1.0, 1.0))):
        data = write_hearts(tmp_path / name)
        if spacing_mm:
            mask = sitk.ReadImage(str(data / "val/masks/val000.nii.gz"))
            mask.SetSpacing(spacing_mm)
            sitk.WriteImage(mask, str(data / "val/masks/val000.nii.gz"))
        train(data, tmp_path / f"{name} run")
        with open(tmp_path / f"{name} run/validation/cases.csv", newline="") as stream:
            hd_mm.append([row["hd_mm"] for row in csv.DictReader(stream)])
    assert hd_mm[0] == hd_mm[1]


def test_frames_of_one_patient_are_one_group(tmp_path: Path) -> None:
    data = write_hearts(tmp_path / "hearts", val=2)
    dataset = read_dataset(data)
    patients = {"val000": "anna", "val001": "anna"}
    cases = tuple(replace(case, group=patients.get(case.name, case.name)) for case in dataset.cases)
    train(replace(dataset, cases=cases), tmp_path / "run")
    with open(tmp_path / "run/validation/cases.csv", newline="") as stream:
        assert {row["group"] for row in csv.DictReader(stream)} == {"anna"}
    summary = json.loads((tmp_path / "run/validation/summary.json").read_text())
    assert (summary["volumes"], summary["groups"]) == (2, 1)


def test_the_report_finds_images_references_and_predictions(run: Path, hearts: Path) -> None:
    listing = json.loads((run / "validation/cases.json").read_text())
    assert listing["labels"] == {"background": 0, "rv": 1, "myo": 2, "lv": 3, "ignore": 4}
    for case in listing["cases"]:
        assert Path(case["images"][0]) == (hearts / f"val/images/{case['name']}.nii.gz").resolve()
        assert Path(case["reference"]) == (hearts / f"val/masks/{case['name']}.nii.gz").resolve()
        assert (run / "validation" / case["prediction"]).is_file()


def test_a_data_set_object_trains_as_its_folder_does(
    hearts: Path, run: Path, model: object, tmp_path: Path
) -> None:
    train(read_dataset(hearts), tmp_path / "run")
    assert weights(tmp_path / "run") == weights(run)


def test_options_in_words_and_complete_settings_say_the_same(hearts: Path, tmp_path: Path) -> None:
    train(hearts, tmp_path / "words", settings=None, method="pce", recipe="fast", seed=3, epochs=1)
    complete = replace(settings_for("fast", "pce"), seed=3)
    train(hearts, tmp_path / "settings", settings=complete, epochs=1)
    assert weights(tmp_path / "words") == weights(tmp_path / "settings")


def test_resume_extends_a_run(hearts: Path, tmp_path: Path) -> None:
    train(hearts, tmp_path / "run", epochs=1)
    resumed = shapepu.resume(tmp_path / "run", epochs=2, cache=cache_beside(hearts), quiet=True)
    assert resumed.bundle.spec.provenance["epochs"] == 2
    assert [row["epoch"] for row in metrics(tmp_path / "run")] == ["1", "2"]


def test_a_case_that_is_gone_is_missed_when_a_run_is_resumed(tmp_path: Path) -> None:
    data = write_hearts(tmp_path / "hearts")
    train(data, tmp_path / "run", epochs=1)
    (data / "train/images/train001.nii.gz").unlink()
    with pytest.raises(InputError, match="case 'train001' of the run is no longer there; restore it"):
        shapepu.resume(tmp_path / "run", epochs=2, quiet=True)
    data.rename(tmp_path / "moved")
    with pytest.raises(InputError, match=r"hearts: the data of the run are no longer there; .*config\.yaml"):
        shapepu.resume(tmp_path / "run", epochs=2, quiet=True)


def test_a_case_that_was_added_stays_out_of_a_resumed_run(tmp_path: Path) -> None:
    data = write_hearts(tmp_path / "hearts", train=2)
    train(data, tmp_path / "run", epochs=1)
    write_hearts(data, train=3)
    shapepu.resume(tmp_path / "run", epochs=2, cache=cache_beside(data), quiet=True)
    names = [case["name"] for case in json.loads((tmp_path / "run/data.json").read_text())["cases"]]
    assert names == ["train000", "train001"]


def test_a_resumed_run_keeps_the_split_it_was_given_whatever_split_file_the_folder_has(
    tmp_path: Path,
) -> None:
    data = write_hearts(tmp_path / "hearts", masks_for_training=True)
    own = {"train": ["train000"], "unpaired": ["train001"], "val": ["val000"]}
    write_json(data / "splits.json", own)
    given = {"train": ["train001", "train002"], "val": ["val000"], "unpaired": ["train000"]}
    run = tmp_path / "run"
    train(data, run, epochs=1, splits=write_json(tmp_path / "given.json", given))
    shapepu.resume(run, epochs=2, cache=cache_beside(data), quiet=True)
    assert yaml.safe_load((run / "config.yaml").read_text())["data"]["cases"] == given
    described = json.loads((run / "data.json").read_text())["cases"]
    assert [case["name"] for case in described] == ["train001", "train002"]
    dataset, _ = data_and_settings(RunFolder(run))
    scribbled = {case.name for case in dataset.cases if case.scribble}
    assert scribbled == {"train001", "train002"}, "who lends a mask lends no scribble"


def test_an_unpaired_case_whose_mask_is_gone_is_missed_when_a_run_is_resumed(tmp_path: Path) -> None:
    data = write_hearts(tmp_path / "hearts", masks_for_training=True)
    given = {"train": ["train001", "train002"], "val": ["val000"], "unpaired": ["train000"]}
    train(data, tmp_path / "run", epochs=1, splits=write_json(tmp_path / "given.json", given))
    (data / "train/masks/train000.nii.gz").unlink()
    with pytest.raises(InputError, match="case 'train000' of the run is no longer there; restore it"):
        shapepu.resume(tmp_path / "run", epochs=2, quiet=True)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"channels": ("\x1b[2J",)}, "no name for a class or channel"),
        ({"labels": LabelSet(("background", "rv\n", "myo", "lv"))}, "no name for a class or channel"),
        ({"labels": LabelSet(("rv", "background", "myo", "lv"))}, "the background must be the first class"),
    ],
)
def test_what_no_model_can_be_described_with_is_refused_before_training(
    change: dict[str, Any], message: str, hearts: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(_: Trainer) -> None:
        raise AssertionError("trained in vain")

    monkeypatch.setattr(Trainer, "fit", fail)
    with pytest.raises(InputError, match=message):
        train(replace(read_dataset(hearts), **change), tmp_path / "run")
    assert not (tmp_path / "run").exists()


def test_the_folder_is_named_after_data_method_and_time_when_none_is_given(
    hearts: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    model = shapepu.train(hearts, settings=SETTINGS, epochs=1, cache=cache_beside(hearts), quiet=True)
    assert re.fullmatch(r"runs/hearts-pce-\d{8}-\d{6}/model", str(model.bundle.path))


def test_training_without_an_end_takes_that_of_the_recipe() -> None:
    ends = {name: (recipe("pce").minutes, recipe("pce").epochs) for name, recipe in RECIPES.items()}
    assert ends == {"fast": (15.0, None), "thorough": (60.0, None), "paper": (None, 1000)}
    with pytest.raises(InputError, match="a run needs an end"):
        TrainSettings(method="pce")


@pytest.mark.parametrize(
    ("averaging", "augmentation", "expected"),
    [
        ("auto", {}, "flips"),
        ("auto", {"flip": False}, "none"),  # left and right were never told apart by turning alone
        ("auto", {"rotation_degrees": 20.0}, "none"),  # nothing was ever upside down
        ("rotations", {"flip": False}, "rotations"),
        ("none", {}, "none"),
    ],
)
def test_a_model_averages_its_predictions_over_views_that_training_has_shown(
    averaging: str, augmentation: dict[str, Any], expected: str
) -> None:
    settings = TrainSettings(
        method="pce", epochs=1, averaging=averaging, augmentation=Augmentation(**augmentation)
    )
    assert views_to_average(settings) == expected


def test_a_trained_model_says_over_which_views_it_is_averaged(hearts: Path, tmp_path: Path) -> None:
    def said(averaging: str) -> str:
        settings, run = replace(SETTINGS, averaging=averaging), tmp_path / averaging
        shapepu.train(hearts, output=run, settings=settings, epochs=1, cache=cache_beside(hearts), quiet=True)
        return shapepu.load(run).bundle.spec.averaging

    assert (said("auto"), said("none")) == ("flips", "none")


def test_names_are_offered_and_imported_when_they_are_used() -> None:
    assert set(shapepu.__all__) == set(dir(shapepu))
    for name in shapepu.__all__:
        assert getattr(shapepu, name) is not None
    with pytest.raises(AttributeError, match="no attribute 'trian'"):
        shapepu.trian  # noqa: B018


def test_importing_the_package_imports_nothing_heavy() -> None:
    code = "import shapepu, sys; print(*sorted(set(sys.modules) & set(sys.argv[1:])))"
    heavy = (
        "torch",
        "SimpleITK",
        "matplotlib",
        "scipy",
        "numpy",
        "yaml",
        "tyro",
        "lightning_fabric",
        "jinja2",
    )
    found = subprocess.run([sys.executable, "-c", code, *heavy], capture_output=True, text=True, check=True)
    assert found.stdout.split() == []
