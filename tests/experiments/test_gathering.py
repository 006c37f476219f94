"""A record tells of a run what can be counted on its files, and what its folder says."""

from __future__ import annotations

import shutil
from collections import Counter
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import pytest
import SimpleITK as sitk
import torch
from small_comparisons import comparison, rows_of, small_experiment, small_row, worked

from shapepu.data.phantom import PhantomSettings, write_phantom_dataset
from shapepu.errors import InputError
from shapepu.experiments.gathering import gather
from shapepu.experiments.records import (
    CaseRecord,
    RunRecord,
    StructureRecord,
    load_records,
    record_path,
    run_folder,
)
from shapepu.networks import NETWORKS, FastUNetConfig
from shapepu.runfolder import RunFolder
from shapepu.settings import TrainSettings
from small_runs import cache_beside, metrics, train, write_hearts

NAMES = ("background", "rv", "myo", "lv")

UNLABELLED = len(NAMES)

AS_THEY_ARE = PhantomSettings(size_px=(32, 32), slices=(4, 5), spacing_mm=(4.0, 4.0))
"""Every training patch is a whole native slice, so that pixels can be counted in the files."""

AT_ONCE = {"view": {"cut": 8}, "readiness": 0.0, "warmup_epochs": 1, "warmup_share": 0.0}

ROWS = small_experiment(
    small_row("pce"), small_row("shapepu", method_options=AT_ONCE), small_row("dmpls"), small_row("full")
)


@pytest.fixture(scope="module")
def hearts(tmp_path_factory: pytest.TempPathFactory) -> Path:
    root = tmp_path_factory.mktemp("gathering") / "hearts"
    counts = {"train": 3, "val": 2, "test": 0}
    write_phantom_dataset(root, **counts, settings=AS_THEY_ARE, masks_for_training=True, quiet=True)
    return root


@pytest.fixture(scope="module")
def results(hearts: Path) -> Path:
    made = worked(comparison(hearts, hearts.parent / "results", ROWS, steps=10, seeds=(3,)))
    return made.results


@pytest.fixture(scope="module")
def records(results: Path) -> dict[str, RunRecord]:
    return {record.row: record for record in load_records(results)}


def run_of(results: Path, row: str) -> Path:
    return run_folder(results, "hearts", row, 3)


def voxels(files: Iterable[Path]) -> list[int]:
    """Of all files, one after the other."""
    arrays = (sitk.GetArrayFromImage(sitk.ReadImage(str(path))) for path in sorted(files))
    return [int(value) for array in arrays for value in array.ravel()]


def shares(labels: Iterable[int]) -> dict[str, Any]:
    counts = Counter(labels)
    return {name: pytest.approx(counts[k] / counts.total(), abs=1e-6) for k, name in enumerate(NAMES)}


def test_every_run_has_a_record_that_says_what_it_is_of(records: dict[str, RunRecord]) -> None:
    assert set(records) == {"pce", "shapepu", "dmpls", "full"}
    for row, record in records.items():
        assert (record.experiment, record.data, record.method, record.seed) == ("small", "hearts", row, 3)
        assert record.supervision == (("masks",) if row == "full" else ("scribbles",))
        assert record.recipe == "fast"
        assert set(record.versions) >= {"shapepu", "torch", "numpy", "python"}


def test_the_settings_are_those_of_the_run_with_nothing_left_to_plan(
    records: dict[str, RunRecord], results: Path
) -> None:
    for row, record in records.items():
        assert record.settings == RunFolder(run_of(results, row)).read_config()["settings"]
        assert TrainSettings.from_plain(record.settings).preprocessing.resolved


def test_minutes_epochs_and_steps_are_those_at_the_end(records: dict[str, RunRecord], results: Path) -> None:
    for row, record in records.items():
        last = metrics(run_of(results, row))[-1]
        assert (record.epochs, record.steps) == (int(last["epoch"]), int(last["step"]))
        assert record.steps == 10
        assert record.minutes == pytest.approx(float(last["minutes"]), abs=1e-6)


def test_speed_is_the_median_over_epochs(records: dict[str, RunRecord], results: Path) -> None:
    for row, record in records.items():
        by_epoch = sorted(float(each["images_per_second"]) for each in metrics(run_of(results, row)))
        assert len(by_epoch) == 3
        assert record.images_per_second == pytest.approx(by_epoch[1], abs=1e-6)


def test_weights_are_those_that_are_trained_and_those_that_predict(
    records: dict[str, RunRecord], results: Path
) -> None:
    network = NETWORKS["fast_unet"].build(1, len(NAMES), FastUNetConfig(widths=(8, 16)))
    size = sum(parameter.numel() for parameter in network.parameters())
    assert {record.parameters.prediction for record in records.values()} == {size}
    assert records["pce"].parameters.method == records["shapepu"].parameters.method == size
    state = torch.load(run_of(results, "dmpls") / "checkpoint" / "last.pt", weights_only=True)["method"]
    second = {name: value for name, value in state.items() if name.startswith("auxiliary.")}
    trained = sum(value.numel() for name, value in second.items() if not is_statistic(name))
    assert trained > 0
    assert records["dmpls"].parameters.method == size + trained


def is_statistic(name: str) -> bool:
    """Of a normalisation: counted while training, and not trained."""
    return name.rpartition(".")[2] in ("running_mean", "running_var", "num_batches_tracked")


def test_what_was_learned_from_is_what_the_scribble_files_hold(
    records: dict[str, RunRecord], hearts: Path
) -> None:
    scribbles = voxels((hearts / "train" / "scribbles").iterdir())
    labelled = sum(value != UNLABELLED for value in scribbles)
    assert 0 < labelled < len(scribbles)
    for row, record in records.items():
        assert record.training_cases == 3
        assert record.training_slices == len(scribbles) / 32**2
        share = 1.0 if row == "full" else labelled / len(scribbles)
        assert record.labelled_share == pytest.approx(share, abs=1e-6)


def test_scores_are_those_of_the_run_volume_by_volume(records: dict[str, RunRecord], results: Path) -> None:
    for row, record in records.items():
        scored = rows_of(run_of(results, row) / "validation" / "cases.csv")
        found = [
            (case.case, case.group, name, score)
            for case in record.cases
            for name, score in case.structures.items()
        ]
        assert len(found) == len(scored) == 2 * len(record.structures)
        by_name = {(line["case"], line["group"], line["structure"]): line for line in scored}
        for case, group, name, score in found:
            line = by_name[case, group, name]
            for metric in ("dice", "hd_mm", "hd95_mm", "assd_mm", "volume_error_ml"):
                value = getattr(score, metric)
                assert ("" if value is None else str(value)) == line[metric]


@pytest.mark.parametrize(
    ("predicted", "wanted", "both_empty", "one_empty"),
    [(7, 9, False, False), (0, 9, False, True), (7, 0, False, True), (0, 0, True, False)],
)
def test_a_structure_that_is_nowhere_is_marked(
    predicted: int,
    wanted: int,
    both_empty: bool,
    one_empty: bool,
    hearts: Path,
    results: Path,
    tmp_path: Path,
) -> None:
    run = shutil.copytree(run_of(results, "pce"), tmp_path / "run")
    (run / "validation" / "cases.csv").write_text(
        "case,group,structure,dice,hd_mm,hd95_mm,assd_mm,volume_error_ml,n_pred,n_ref\n"
        f"val000,val000,lv,0.5,,,,0.25,{predicted},{wanted}\n"
    )
    expected = StructureRecord(0.5, volume_error_ml=0.25, both_empty=both_empty, one_empty=one_empty)
    assert gathered(run, hearts, row="pce").cases == (CaseRecord("val000", "val000", {"lv": expected}),)


def test_the_curve_is_the_validation_dice_of_every_epoch_that_has_one(
    records: dict[str, RunRecord], results: Path
) -> None:
    for row, record in records.items():
        scored = [each for each in metrics(run_of(results, row)) if each["validation.dice"]]
        assert [(point.epoch, point.step) for point in record.curve] == [
            (int(each["epoch"]), int(each["step"])) for each in scored
        ]
        dice = [float(each["validation.dice"]) for each in scored]
        assert [point.dice for point in record.curve] == pytest.approx(dice, abs=1e-6)
        assert record.curve[-1].step == 10, "the last epoch is always scored"


def test_ratios_are_those_that_the_method_held_after_each_epoch(
    records: dict[str, RunRecord], results: Path
) -> None:
    held = [each for each in metrics(run_of(results, "shapepu")) if each["ratio.lv"]]
    points = records["shapepu"].ratios
    assert [point.epoch for point in points] == [int(each["epoch"]) for each in held]
    for point, each in zip(points, held, strict=True):
        assert point.ratios == {name: pytest.approx(float(each[f"ratio.{name}"]), abs=1e-6) for name in NAMES}
        assert point.negative_active == float(each["negative_active"])
    assert records["pce"].ratios == records["dmpls"].ratios == ()


def test_true_ratios_are_counted_on_the_masks_of_the_training_cases(
    records: dict[str, RunRecord], hearts: Path
) -> None:
    scribbles, masks = (voxels((hearts / "train" / kind).iterdir()) for kind in ("scribbles", "masks"))
    unlabelled = [mask for scribble, mask in zip(scribbles, masks, strict=True) if scribble == UNLABELLED]
    assert records["shapepu"].true_ratios == shares(unlabelled)
    assert records["shapepu"].true_ratios_from == "train"
    assert records["pce"].true_ratios is records["pce"].true_ratios_from is None, "nobody asks"


def test_without_training_masks_they_are_counted_on_those_of_the_validation_cases(tmp_path: Path) -> None:
    hearts = tmp_path / "hearts"
    write_phantom_dataset(hearts, train=2, val=1, test=0, settings=AS_THEY_ARE, quiet=True)
    rows = small_experiment(small_row("shapepu", method_options=AT_ONCE))
    worked(comparison(hearts, tmp_path / "results", rows))
    [record] = load_records(tmp_path / "results")
    assert record.true_ratios_from == "val"
    assert record.true_ratios == shares(voxels((hearts / "val" / "masks").iterdir()))


def test_a_run_gathered_again_gives_the_same_bytes(hearts: Path, results: Path, tmp_path: Path) -> None:
    record = gathered(run_of(results, "shapepu"), hearts, row="shapepu")
    stored = record_path(results, "hearts", "shapepu", 3)
    assert record.write(tmp_path).read_bytes() == stored.read_bytes()


def test_the_record_says_how_many_runs_shared_the_machine(hearts: Path, results: Path) -> None:
    record = gathered(run_of(results, "pce"), hearts, row="pce", workers=3)
    assert record.hardware.workers == 3
    assert record.hardware.threads == torch.get_num_threads()


def test_a_run_that_was_not_scored_has_no_record(tmp_path: Path) -> None:
    data = write_hearts(tmp_path / "hearts", val=0)
    run = train(data, tmp_path / "run", "--quiet", epochs=1)
    with pytest.raises(InputError, match="no validation case with a dense mask, so nothing could be scored"):
        gathered(run, data, row="pce")


def gathered(run: Path, data: Path, *, row: str, workers: int = 1) -> RunRecord:
    folder = RunFolder(run, quiet=True)
    return gather(
        folder, experiment="small", data="hearts", row=row, workers=workers, cache=cache_beside(data)
    )
