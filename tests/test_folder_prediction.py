"""Files to files: the image's own voxels and header, whole or absent, each once."""

from __future__ import annotations

import json
import os
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path

import nibabel as nib
import numpy as np
import pytest
import SimpleITK as sitk

from shapepu import folder_prediction
from shapepu.bundle import Bundle
from shapepu.data.case import Case
from shapepu.data.preprocess import Preprocessing
from shapepu.data.volumes import read_volume, write_labels
from shapepu.errors import InputError
from shapepu.folder_prediction import RECORD, predict_cases, predict_files
from shapepu.labels import LabelSet
from shapepu.predict_options import PredictOptions
from shapepu.sharding import parse_shard
from tiny_models import Bands, bundle_around
from volume_files import random_image, write_dicom, write_itk, write_nifti

LABELS = LabelSet(("background", "dim", "bright"), (0, 200, 500), 7)
VALUES = np.array(LABELS.values)


@pytest.fixture
def bundle() -> Bundle:
    """Answers by brightness, without resampling, so that the label of each voxel is known."""
    return bundle_around(Bands((-0.5, 0.8)), labels=LABELS)


@pytest.fixture
def successor() -> Bundle:
    """Another model, with other answers."""
    return replace(bundle_around(Bands((0.0, 1.2)), labels=LABELS), fingerprint="1" * 64)


RAW = PredictOptions(largest_component="off", precision="fp32")


def expected(image: np.ndarray, thresholds: tuple[float, float] = (-0.5, 0.8)) -> np.ndarray:
    standardised = (image - image.mean()) / image.std()
    return VALUES[np.digitize(standardised, thresholds)]


def images_in(folder: Path, count: int = 3) -> Path:
    for number in range(count):
        write_nifti(folder / f"case{number}.nii.gz", random_image(seed=number))
    return folder


def found(folder: Path) -> list[str]:
    return sorted(str(path.relative_to(folder)) for path in folder.rglob("*") if path.is_file())


def visible(folder: Path) -> list[str]:
    return [name for name in found(folder) if not name.startswith(".")]


OBLIQUE = np.eye(4)
OBLIQUE[:3, :3] = np.array([[0.36, 0.48, -0.8], [-0.8, 0.6, 0], [0.48, 0.64, 0.6]]) @ np.diag([1.5, 1.5, 5])
FLIPPED = np.diag([-1.5, 1.5, -5.0, 1.0])
FLIPPED[:3, 3] = (31, -20.5, 7)
CONTRADICTING = np.eye(4)  # says 1 mm where the pixel sizes do not, as the official ACDC files do


@pytest.mark.parametrize(
    "affine", [OBLIQUE, FLIPPED, CONTRADICTING], ids=["oblique", "flipped", "contradicting"]
)
@pytest.mark.parametrize("ending", [".nii.gz", ".nii"])
def test_a_nifti_prediction_has_the_geometry_of_its_image(tmp_path, bundle, affine, ending):
    image = nib.Nifti1Image(random_image((4, 9, 7)).T, affine)
    image.header["pixdim"][1:4] = (1.5, 1.5, 5)
    image.set_sform(affine, 1)
    (tmp_path / "in").mkdir()
    path = tmp_path / "in" / f"heart_0000{ending}"
    image.to_filename(path)
    predict_files(bundle, path, tmp_path / "out", options=RAW, quiet=True)
    theirs, ours = nib.load(path), nib.load(tmp_path / "out" / f"heart{ending}")
    assert np.array_equal(ours.affine, theirs.affine)
    for name in ("pixdim", "sform_code", "qform_code", "srow_x", "quatern_b", "qoffset_x", "dim"):
        assert np.array_equal(ours.header[name], theirs.header[name]), name
    assert np.array_equal(np.asarray(ours.dataobj).T, expected(random_image((4, 9, 7))))


@pytest.mark.parametrize("ending", [".nrrd", ".mha"])
def test_other_formats_keep_theirs(tmp_path, bundle, ending):
    write_itk(tmp_path / f"a{ending}", random_image())
    predict_files(bundle, tmp_path / f"a{ending}", tmp_path / "out", options=RAW, quiet=True)
    theirs, ours = (sitk.ReadImage(str(folder / f"a{ending}")) for folder in (tmp_path, tmp_path / "out"))
    assert ours.GetSpacing() == theirs.GetSpacing()
    assert ours.GetOrigin() == theirs.GetOrigin()
    assert ours.GetDirection() == theirs.GetDirection()
    assert set(np.unique(sitk.GetArrayFromImage(ours))) <= {0, 200, 500}


def test_dicom_series_become_nifti_at_the_same_place(tmp_path):
    bundle = bundle_around(
        Bands((-0.5, 0.8)), labels=LABELS, preprocessing=Preprocessing((1.25, 1.5), (32, 32))
    )
    write_dicom(tmp_path / "in" / "patient1", random_image())
    write_dicom(tmp_path / "in" / "patient2", random_image(seed=1))
    predict_files(bundle, tmp_path / "in", tmp_path / "out", options=RAW, quiet=True)
    assert found(tmp_path / "out") == ["patient1.nii.gz", "patient2.nii.gz", RECORD]
    series, labels = (
        read_volume(tmp_path / "in" / "patient2"),
        read_volume(tmp_path / "out" / "patient2.nii.gz"),
    )
    np.testing.assert_allclose(labels.origin, series.origin)
    np.testing.assert_allclose(labels.direction, series.direction)
    assert labels.spacing_mm == pytest.approx(series.spacing_mm)
    assert np.array_equal(labels.array, expected(series.array))


def test_channels_of_a_case_are_read_together(tmp_path):
    bundle = bundle_around(Bands((0.0,)), labels=LabelSet(("background", "bright")), channels=("T2", "LGE"))
    for channel in range(2):
        write_nifti(tmp_path / "in" / f"a_{channel:04d}.nii.gz", random_image(seed=channel))
    outcome = predict_files(bundle, tmp_path / "in", tmp_path / "out", options=RAW, quiet=True)
    assert [path.name for path in outcome.predicted] == ["a.nii.gz"]
    first = random_image(seed=0)
    assert np.array_equal(read_volume(outcome.predicted[0]).array, first > first.mean())


def test_probabilities_and_uncertainty_lie_beside_the_labels(tmp_path, bundle):
    images = images_in(tmp_path / "in", 1)
    options = replace(RAW, probabilities=True, uncertainty=True)
    predict_files(bundle, images, tmp_path / "out", options=options, quiet=True)
    assert found(tmp_path / "out") == [
        "case0.nii.gz",
        RECORD,
        "probabilities/case0.npz",
        "uncertainty/case0.nii.gz",
    ]
    with np.load(tmp_path / "out/probabilities/case0.npz") as saved:  # without pickles
        assert list(saved["classes"]) == ["background", "dim", "bright"]
        probabilities = saved["probabilities"]
    labels = read_volume(tmp_path / "out/case0.nii.gz").array
    assert np.array_equal(VALUES[probabilities.argmax(axis=0)], labels)
    uncertainty = nib.load(tmp_path / "out/uncertainty/case0.nii.gz")
    assert uncertainty.get_data_dtype() == np.float32
    assert np.array_equal(uncertainty.affine, nib.load(images / "case0.nii.gz").affine)
    assert 0 <= uncertainty.get_fdata().min() <= uncertainty.get_fdata().max() <= 1


def test_finished_cases_are_skipped_unless_told_otherwise(tmp_path, bundle, capsys):
    images, out = images_in(tmp_path / "in"), tmp_path / "out"
    predict_files(bundle, images / "case1.nii.gz", out, options=RAW, quiet=True)
    (out / "case1.nii.gz").write_bytes(b"marked")
    outcome = predict_files(bundle, images, out, options=RAW)
    assert [path.name for path in outcome.skipped] == ["case1.nii.gz"]
    assert "1 of 3 cases are finished already" in capsys.readouterr().err
    assert (out / "case1.nii.gz").read_bytes() == b"marked"
    assert len(predict_files(bundle, images, out, options=RAW, overwrite=True, quiet=True).predicted) == 3
    assert (out / "case1.nii.gz").read_bytes() != b"marked"


def test_a_case_is_not_finished_while_something_asked_for_is_missing(tmp_path, bundle):
    images, out = images_in(tmp_path / "in"), tmp_path / "out"
    predict_files(bundle, images, out, options=RAW, quiet=True)
    outcome = predict_files(bundle, images, out, options=replace(RAW, uncertainty=True), quiet=True)
    assert len(outcome.predicted) == 3
    assert not outcome.skipped


@pytest.mark.parametrize("change", ["model", "options", "drawn by hand"])
def test_predictions_of_different_origin_are_not_mixed(tmp_path, bundle, change):
    images, out = images_in(tmp_path / "in"), tmp_path / "out"
    predict_files(bundle, images / "case0.nii.gz", out, options=RAW, quiet=True)
    if change == "drawn by hand":
        (out / RECORD).unlink()
    other = replace(bundle, fingerprint="1" * 64) if change == "model" else bundle
    options = replace(RAW, averaging="flips") if change == "options" else RAW
    before = found(out)
    with pytest.raises(InputError, match="another folder, or --overwrite"):
        predict_files(other, images, out, options=options, quiet=True)
    assert found(out) == before
    predict_files(other, images, out, options=options, overwrite=True, quiet=True)
    assert json.loads((out / RECORD).read_text())["labels"] == LABELS.as_dict()


def test_other_images_by_another_model_do_not_join_a_folder_either(tmp_path, bundle):
    images, more, out = images_in(tmp_path / "in"), images_in(tmp_path / "more", 4), tmp_path / "out"
    predict_files(bundle, images, out, options=RAW, quiet=True)
    predict_files(bundle, more / "case3.nii.gz", out, options=RAW, quiet=True)
    (more / "case3.nii.gz").rename(more / "case4.nii.gz")
    before = found(out), (out / RECORD).read_bytes()
    with pytest.raises(InputError, match="another folder, or --overwrite"):
        predict_files(
            replace(bundle, fingerprint="1" * 64), more / "case4.nii.gz", out, options=RAW, quiet=True
        )
    assert (found(out), (out / RECORD).read_bytes()) == before


def is_by_the_successor(out: Path, number: int) -> bool:
    labels = read_volume(out / f"case{number}.nii.gz").array
    return np.array_equal(labels, expected(random_image(seed=number), (0.0, 1.2)))


def test_an_interrupted_change_of_the_model_leaves_no_case_of_the_old_one_as_finished(
    tmp_path, bundle, successor, monkeypatch
):
    images, out = images_in(tmp_path / "in"), tmp_path / "out"
    predict_files(bundle, images, out, options=RAW, quiet=True)

    def interrupted_in_the_second_case(path, *rest):
        if "case1" in path.name:
            raise KeyboardInterrupt
        write_labels(path, *rest)

    monkeypatch.setattr(folder_prediction, "write_labels", interrupted_in_the_second_case)
    with pytest.raises(KeyboardInterrupt):
        predict_files(successor, images, out, options=RAW, overwrite=True, quiet=True)
    monkeypatch.undo()
    outcome = predict_files(successor, images, out, options=RAW, quiet=True)
    assert [path.name for path in outcome.predicted] == ["case1.nii.gz", "case2.nii.gz"]
    assert all(is_by_the_successor(out, number) for number in range(3))


@pytest.mark.parametrize("same_model", [True, False])
def test_overwriting_leaves_no_probabilities_of_earlier_labels(tmp_path, bundle, successor, same_model):
    images, out = images_in(tmp_path / "in", 1), tmp_path / "out"
    with_both = replace(RAW, probabilities=True, uncertainty=True)
    predict_files(bundle, images, out, options=with_both, quiet=True)
    predict_files(bundle if same_model else successor, images, out, options=RAW, overwrite=True, quiet=True)
    assert visible(out) == ["case0.nii.gz", RECORD]


def test_of_shards_that_change_the_model_at_once_none_removes_what_another_has_finished(
    tmp_path, bundle, successor, monkeypatch
):
    images, out = images_in(tmp_path / "in"), tmp_path / "out"
    predict_files(bundle, images, out, options=RAW, quiet=True)

    def shard(text: str) -> list[str]:
        options = {"options": RAW, "shard": parse_shard(text), "overwrite": True, "quiet": True}
        return [path.name for path in predict_files(successor, images, out, **options).predicted]

    @contextmanager
    def the_other_is_first(file: Path) -> Iterator[None]:
        """It has seen the same old record, and is done before this one gets the lock."""
        monkeypatch.undo()
        assert shard("2/2") == ["case1.nii.gz"]
        yield

    monkeypatch.setattr(folder_prediction, "waiting_claim", the_other_is_first)
    assert shard("1/2") == ["case0.nii.gz", "case2.nii.gz"]
    assert all(is_by_the_successor(out, number) for number in range(3))


def test_labels_of_other_images_by_an_earlier_model_are_not_passed_on_to_the_next(
    tmp_path, bundle, successor
):
    images, out = images_in(tmp_path / "in"), tmp_path / "out"
    predict_files(bundle, images, out, options=RAW, quiet=True)
    (images / "case2.nii.gz").unlink()
    before = found(out), (out / RECORD).read_bytes()
    with pytest.raises(InputError, match=r"of other images too.*\(case2\.nii\.gz\).*move them away"):
        predict_files(successor, images, out, options=RAW, overwrite=True, quiet=True)
    assert (visible(out), (out / RECORD).read_bytes()) == before
    (out / "case2.nii.gz").unlink()
    predict_files(successor, images, out, options=RAW, overwrite=True, quiet=True)
    assert all(is_by_the_successor(out, number) for number in range(2))


def test_labels_drawn_by_hand_are_not_written_over_for_the_sake_of_their_probabilities(tmp_path, bundle):
    images, out = images_in(tmp_path / "in", 1), tmp_path / "out"
    out.mkdir()
    (out / "case0.nii.gz").write_bytes(b"drawn by hand")
    with pytest.raises(InputError, match="drawn by hand"):
        predict_files(bundle, images, out, options=replace(RAW, probabilities=True), quiet=True)
    assert (out / "case0.nii.gz").read_bytes() == b"drawn by hand"


def test_a_bad_case_does_not_stop_the_others(tmp_path, bundle, capsys):
    images = images_in(tmp_path / "in")
    whole = (images / "case1.nii.gz").read_bytes()
    (images / "case1.nii.gz").write_bytes(whole[: len(whole) // 2])
    (images / "case0_0000.nii.gz").write_bytes(b"")
    (images / "case0.nii.gz").unlink()
    outcome = predict_files(bundle, images, tmp_path / "out", options=RAW)
    assert [path.name for path in outcome.predicted] == ["case2.nii.gz"]
    assert set(outcome.failures) == {"case0", "case1"}
    assert "case1.nii.gz" in outcome.failures["case1"]
    assert found(tmp_path / "out") == ["case2.nii.gz", RECORD]
    assert "case1 failed" in capsys.readouterr().err


def test_a_log_hears_now_and_then_how_long_it_will_take(tmp_path, bundle, capsys, monkeypatch):
    monkeypatch.setattr("shapepu.folder_prediction.SECONDS_BETWEEN_LINES", -1)
    predict_files(bundle, images_in(tmp_path / "in"), tmp_path / "out", options=RAW)
    lines = capsys.readouterr().err.splitlines()
    assert [line.split(",")[0] for line in lines] == ["1 of 3 cases", "2 of 3 cases"]
    assert all(line.endswith("s left") for line in lines)


def test_a_single_bad_case_is_an_error(tmp_path, bundle):
    (tmp_path / "a.nii.gz").write_bytes(b"no image")
    with pytest.raises(InputError, match=r"a\.nii\.gz"):
        predict_files(bundle, tmp_path / "a.nii.gz", tmp_path / "out", options=RAW, quiet=True)
    assert not (tmp_path / "out").exists()


def test_images_are_never_written_over(tmp_path, bundle):
    images = images_in(tmp_path / "in", 1)
    before = (images / "case0.nii.gz").read_bytes()
    for source, out in [
        (images, images),
        (images / "case0.nii.gz", images),
        (images / "case0.nii.gz", images / "case0.nii.gz"),
    ]:
        with pytest.raises(InputError, match="holds the images"):
            predict_files(bundle, source, out, options=RAW, overwrite=True, quiet=True)
    assert (images / "case0.nii.gz").read_bytes() == before


def test_one_case_can_be_given_the_name_of_its_result(tmp_path, bundle):
    images = images_in(tmp_path / "in", 2)
    predict_files(bundle, images / "case0.nii.gz", tmp_path / "mine.nrrd", options=RAW, quiet=True)
    assert np.array_equal(read_volume(tmp_path / "mine.nrrd").array, expected(random_image(seed=0)))
    assert found(tmp_path) == ["in/case0.nii.gz", "in/case1.nii.gz", "mine.nrrd"]
    with pytest.raises(InputError, match=r"end its name in \.mha"):
        predict_files(bundle, images / "case0.nii.gz", tmp_path / "a.mhd", options=RAW, quiet=True)
    with pytest.raises(InputError, match="a folder expected for the predictions of 2 cases"):
        predict_files(bundle, images, tmp_path / "all.nrrd", options=RAW, quiet=True)


def test_shards_write_each_case_once(tmp_path, bundle):
    images = images_in(tmp_path / "in", 5)
    written = []
    for shard in ("2/2", "1/2"):
        outcome = predict_files(
            bundle, images, tmp_path / "out", options=RAW, shard=parse_shard(shard), quiet=True
        )
        assert not outcome.skipped
        written += [path.name for path in outcome.predicted]
    assert sorted(written) == [f"case{number}.nii.gz" for number in range(5)]


def test_what_another_process_finished_meanwhile_is_left_alone(tmp_path, bundle, monkeypatch):
    images, out = images_in(tmp_path / "in", 2), tmp_path / "out"

    def read_while_the_other_writes(path):
        (out / "case1.nii.gz").write_bytes(b"by the other process")
        return read_volume(path)

    monkeypatch.setattr("shapepu.folder_prediction.read_volume", read_while_the_other_writes)
    outcome = predict_files(bundle, images, out, options=RAW, quiet=True)
    assert [path.name for path in outcome.predicted] == ["case0.nii.gz"]
    assert [path.name for path in outcome.skipped] == ["case1.nii.gz"]
    assert (out / "case1.nii.gz").read_bytes() == b"by the other process"


def test_an_interrupted_write_leaves_nothing_and_the_next_run_completes(tmp_path, bundle, monkeypatch):
    images, out = images_in(tmp_path / "in"), tmp_path / "out"
    rename = os.replace

    def interrupted(source, target):
        if "case1" in str(target):
            raise KeyboardInterrupt
        rename(source, target)

    monkeypatch.setattr(os, "replace", interrupted)
    with pytest.raises(KeyboardInterrupt):
        predict_files(bundle, images, out, options=RAW, quiet=True)
    assert found(out) == ["case0.nii.gz", RECORD]
    monkeypatch.undo()
    # What a killed process leaves: a hidden, unfinished file, which is neither an image nor a result.
    (out / ".99-case1.nii.gz").write_bytes(b"half")
    outcome = predict_files(bundle, images, out, options=RAW, quiet=True)
    assert [path.name for path in outcome.predicted] == ["case1.nii.gz", "case2.nii.gz"]


def test_a_full_disk_stops_the_run_at_once(tmp_path, bundle, monkeypatch):
    images, tries = images_in(tmp_path / "in"), []

    def full(path, *_):
        tries.append(path)
        raise InputError(f"cannot write {path}: no space left there; free some or choose another folder.")

    monkeypatch.setattr("shapepu.folder_prediction.write_labels", full)
    with pytest.raises(InputError, match="no space left"):
        predict_files(bundle, images, tmp_path / "out", options=RAW, quiet=True)
    assert len(tries) == 1


def test_cases_of_a_data_set_are_predicted_in_their_order(tmp_path, bundle):
    images = images_in(tmp_path / "in", 2)
    cases = [Case(name, (images / f"case{number}.nii.gz",)) for name, number in (("b", 1), ("a", 0))]
    paths = predict_cases(bundle, cases, tmp_path / "out", options=RAW, quiet=True)
    assert [path.name for path in paths] == ["b.nii.gz", "a.nii.gz"]
    assert np.array_equal(read_volume(paths[0]).array, expected(random_image(seed=1)))
    (images / "case0.nii.gz").write_bytes(b"")
    with pytest.raises(InputError, match=r"case0\.nii\.gz"):
        predict_cases(bundle, cases, tmp_path / "out", options=RAW, overwrite=True, quiet=True)
