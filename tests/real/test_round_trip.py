"""Predictions on scanner images lie where the images lie, says a reader that is not ours."""

from __future__ import annotations

from pathlib import Path

import nibabel as nib
import numpy as np
import pytest

from shapepu.cli import main
from shapepu.data.preprocess import prepare_case
from shapepu.data.volumes import read_volume
from shapepu.folder_prediction import predict_files
from shapepu.inference import predict_volume
from shapepu.labels import plain_labels
from shapepu.predict_options import PredictOptions
from tiny_models import Bands, bundle_around, random_method, tiny_spec

pytestmark = pytest.mark.real

IMAGES = {
    "MSCMR": "MSCMR_dataset/val/images/subject8_DE.nii.gz",
    "ACDC": "ACDC/training/patient001/patient001_frame01.nii.gz",
}


@pytest.fixture(params=IMAGES)
def image(request, real_data) -> Path:
    return real_data / IMAGES[request.param]


def test_header_and_orientation_survive(image, tmp_path):
    bundle = bundle_around(random_method(tiny_spec()).network)
    predict_files(bundle, image, tmp_path, options=PredictOptions(uncertainty=True), quiet=True)
    theirs = nib.load(image)
    for ours in (nib.load(tmp_path / image.name), nib.load(tmp_path / "uncertainty" / image.name)):
        assert ours.shape == theirs.shape
        assert np.array_equal(ours.affine, theirs.affine)
        assert nib.aff2axcodes(ours.affine) == nib.aff2axcodes(theirs.affine)
        for name in ("dim", "pixdim", "xyzt_units", "sform_code", "qform_code", "srow_x", "srow_y", "srow_z"):
            assert np.array_equal(ours.header[name], theirs.header[name]), name
    assert set(np.unique(nib.load(tmp_path / image.name).dataobj)) <= {0, 1, 2, 3}


def test_the_acdc_image_has_an_affine_that_contradicts_its_pixel_sizes(real_data):
    theirs = nib.load(real_data / IMAGES["ACDC"])
    assert np.allclose(np.abs(theirs.affine[:3, :3]).sum(axis=0), 1)
    assert theirs.header.get_zooms()[0] == pytest.approx(1.5625)


def test_bright_pixels_are_found_where_they_are(image):
    volume = read_volume(image)
    spec = tiny_spec(plain_labels(["bright"]), spacing_mm=(1.37, 1.37), patch=(208, 208))
    case = prepare_case([volume], spec.preprocessing)
    resampled = case.grid.resample_image(volume.array)
    threshold = resampled.mean() + resampled.std()
    bundle = bundle_around(Bands((1.0,), sharpness=4), spec)
    predicted = predict_volume(bundle, [volume], PredictOptions(largest_component="off", precision="fp32"))
    bright = volume.array > threshold

    def dice_when_moved(steps: int, axis: int) -> float:
        moved = np.roll(predicted.labels.astype(bool), steps, axis)
        return 2 * (moved & bright).sum() / (moved.sum() + bright.sum())

    # Detail finer than a resampled pixel is lost on the way. A shift would make one side better than the
    # other.
    assert dice_when_moved(0, 0) > 0.93
    for axis in (1, 2):
        before, after = dice_when_moved(-1, axis), dice_when_moved(1, axis)
        assert max(before, after) < dice_when_moved(0, axis) - 0.03
        assert before == pytest.approx(after, abs=0.002)


def test_a_folder_of_scanner_images_by_the_command_line(real_data, tmp_path):
    from shapepu.bundle import save_bundle

    spec = tiny_spec()
    save_bundle(tmp_path / "model", method=random_method(spec), spec=spec)
    images = real_data / "MSCMR_dataset" / "val" / "images"
    assert main(["predict", str(tmp_path / "model"), str(images), str(tmp_path / "out"), "--quiet"]) == 0
    assert sorted(p.name for p in images.iterdir()) == sorted(
        p.name for p in (tmp_path / "out").glob("*.nii.gz")
    )
