"""Spacing and slices of the real data sets, with an independent reader as the witness."""

from __future__ import annotations

from pathlib import Path

import nibabel
import numpy as np
import pytest

from shapepu.data.case import Case
from shapepu.data.planning import plan_for
from shapepu.data.preprocess import Preprocessing
from shapepu.data.store import SliceStore, open_store
from shapepu.data.volumes import read_header, read_labels
from shapepu.labels import OUTSIDE, plain_labels

pytestmark = pytest.mark.real

LABELS = plain_labels(("right ventricle", "myocardium", "left ventricle"))


def mscmr_cases(real_data: Path) -> list[Case]:
    folder = real_data / "MSCMR_dataset" / "train"
    images = sorted((folder / "images").glob("*.nii.gz"))
    return [
        Case(path.name[:-7], (path,), folder / "labels" / path.name.replace("_DE", "_DE_scribble"))
        for path in images
    ]


@pytest.fixture(scope="module")
def mscmr(real_data: Path, tmp_path_factory: pytest.TempPathFactory) -> SliceStore:
    cache = tmp_path_factory.mktemp("cache")
    cases = mscmr_cases(real_data)
    planned = plan_for(cases, LABELS, Preprocessing(), cache, quiet=True)
    return open_store(cases, LABELS, planned, cache, quiet=True)


def test_acdc_spacing_is_the_pixel_size_although_the_affine_says_one_millimetre(real_data: Path) -> None:
    paths = sorted((real_data / "ACDC" / "training").glob("patient00*/*frame[0-9][0-9].nii.gz"))
    contradicted = 0
    for path in paths:
        image = nibabel.load(path)
        header = read_header(path)
        assert header.spacing_mm[::-1] == pytest.approx(image.header.get_zooms(), rel=1e-6)
        assert header.shape[::-1] == image.shape
        contradicted += np.allclose(nibabel.affines.voxel_sizes(image.affine), 1)
        assert header.spacing_mm[1] > 1.2
    assert contradicted > 10, "otherwise this test proves nothing"


def test_acdc_is_planned_in_millimetres_not_in_affine_units(real_data: Path, tmp_path: Path) -> None:
    paths = sorted((real_data / "ACDC" / "training").glob("*/*frame[0-9][0-9].nii.gz"))
    cases = [Case(path.name, (path,)) for path in paths[::5]]
    planned = plan_for(cases, LABELS, Preprocessing(), tmp_path, quiet=True)
    assert planned.spacing_mm is not None
    assert 1.3 < planned.spacing_mm[0] < 1.6
    assert planned.patch is not None
    assert 192 <= min(planned.patch) <= max(planned.patch) == 224


def test_mscmr_lands_on_the_grid_of_the_paper(mscmr: SliceStore) -> None:
    assert mscmr.preprocessing.spacing_mm == (1.367, 1.367)
    assert mscmr.preprocessing.canvas == (256, 256)


def test_every_mscmr_slice_is_in_the_store(mscmr: SliceStore, real_data: Path) -> None:
    expected = [nibabel.load(case.images[0]).shape[2] for case in mscmr_cases(real_data)]
    assert len(expected) == 25
    assert [len(mscmr.slices_of(index)) for index in range(25)] == expected
    assert len(mscmr) == sum(expected)


def test_mscmr_slices_are_standardised(mscmr: SliceStore) -> None:
    images = np.asarray(mscmr.images[mscmr.slices_of(0)], np.float32)
    assert np.isfinite(images).all()
    assert abs(images.mean()) < 0.2
    assert 0.7 < images.std() < 1.3


def test_scribbles_cover_about_as_much_as_before_resampling(mscmr: SliceStore) -> None:
    """Pixels get 1.9 times wider: areas keep their share, lines gain at most that factor."""
    for index in range(0, 25, 6):
        scribble = mscmr.cases[index].scribble
        assert scribble is not None
        native = np.bincount(read_labels(scribble, LABELS).ravel(), minlength=5)[:4]
        native_share = native / np.prod(mscmr.stored[index].shape)
        share = mscmr.labelled_counts_of(index) / mscmr.pixels_of(index)
        assert ((share > 0.9 * native_share) & (share < 2 * native_share)).all(), (native_share, share)


def test_background_and_each_structure_are_scribbled_and_the_rest_is_not(mscmr: SliceStore) -> None:
    inside = np.count_nonzero(mscmr.labels != OUTSIDE)
    assert mscmr.labelled_counts.min() > 1000
    assert 0.03 < mscmr.labelled_counts.sum() / inside < 0.08
