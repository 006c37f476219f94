"""What is planned from the training cases, and that it is measured only once."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from small_cases import LABELS, UNLABELLED, make_case, write

from shapepu.data import cache, planning
from shapepu.data.case import Case
from shapepu.data.intensity import ChannelStatistics
from shapepu.data.planning import measure_statistics, plan_for
from shapepu.data.preprocess import Preprocessing, plan
from shapepu.data.volumes import read_header
from shapepu.errors import InputError


@pytest.fixture
def case(tmp_path: Path) -> Case:
    """A structure scribbled where the values are 10 and 20, background where they are -1000."""
    values = np.full((1, 8, 8), -1000, np.int16)
    values[0, 4, :4], values[0, 4, 4:] = 10, 20
    scribble = np.full(values.shape, UNLABELLED, np.uint8)
    scribble[0, 0], scribble[0, 4, :4], scribble[0, 4, 4:] = 0, 1, 2
    return Case(
        "scan", (write(tmp_path / "scan.nii.gz", values),), write(tmp_path / "scribble.nii.gz", scribble)
    )


def test_the_plan_is_that_of_the_headers(tmp_path: Path) -> None:
    cases = [make_case(tmp_path / "data", name, size=size) for name, size in (("a", 40), ("b", 50))]
    planned = plan_for(cases, LABELS, Preprocessing(), tmp_path / "cache", quiet=True)
    assert planned == plan([read_header(case.images[0]) for case in cases], Preprocessing())
    assert planned.resolved


def test_ct_statistics_are_those_of_the_scribbled_structures(case: Case) -> None:
    [statistics] = measure_statistics([case], LABELS, quiet=True)
    assert statistics == ChannelStatistics(low=10, high=20, mean=15, deviation=5)


def test_without_scribbled_structures_all_voxels_count(case: Case) -> None:
    [statistics] = measure_statistics([replace(case, scribble=None)], LABELS, quiet=True)
    assert statistics.mean == pytest.approx((-1000 * 56 + 10 * 4 + 20 * 4) / 64)
    assert statistics.low == -1000


def test_large_cases_are_sampled_evenly(tmp_path: Path, case: Case, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(planning, "VOXELS_PER_CASE", 4)
    [statistics] = measure_statistics([case], LABELS, quiet=True)
    assert (statistics.mean, statistics.deviation) == (15, 5)


def test_a_second_plan_reads_nothing(case: Case, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    ct = Preprocessing(intensity="ct")
    first = plan_for([case], LABELS, ct, tmp_path / "cache", quiet=True)
    assert first.resolved
    for module, name in ((cache, "read_header"), (cache, "_digest_of_file"), (planning, "read_volume")):
        monkeypatch.setattr(module, name, None)
    assert plan_for([case], LABELS, ct, tmp_path / "cache", quiet=True) == first


def test_other_scribbles_are_measured_again(case: Case, tmp_path: Path) -> None:
    ct = Preprocessing(intensity="ct")
    first = plan_for([case], LABELS, ct, tmp_path / "cache", quiet=True)
    only_tens = np.full((1, 8, 8), UNLABELLED, np.uint8)
    only_tens[0, 4, :4] = 1
    other = replace(case, scribble=write(tmp_path / "other.nii.gz", only_tens))
    second = plan_for([other], LABELS, ct, tmp_path / "cache", quiet=True)
    assert first.statistics[0].mean == 15
    assert second.statistics[0] == ChannelStatistics(10, 10, 10, 0)


def test_a_scribble_that_does_not_fit_its_image_is_refused(case: Case, tmp_path: Path) -> None:
    wrong = write(tmp_path / "wrong.nii.gz", np.zeros((1, 8, 9), np.uint8))
    with pytest.raises(InputError, match=r"wrong\.nii\.gz.*\(1, 8, 9\)"):
        measure_statistics([replace(case, scribble=wrong)], LABELS, quiet=True)
