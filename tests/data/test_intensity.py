"""Standardised intensities: what scanners differ in is gone, and nothing overflows."""

from __future__ import annotations

import numpy as np
import pytest

from shapepu.data.intensity import LARGEST, ChannelStatistics, beyond, standardise


@pytest.mark.parametrize("kind", [np.int16, np.uint16, np.int32, np.float32, np.float64])
def test_a_volume_has_mean_zero_and_variance_one(kind: type) -> None:
    volume = np.random.default_rng(0).gamma(2.0, 200.0, (5, 30, 30)).astype(kind)
    result = standardise(volume)
    assert result.dtype == np.float32
    assert result.mean(dtype=np.float64) == pytest.approx(0, abs=1e-5)
    assert result.std(dtype=np.float64) == pytest.approx(1, abs=1e-5)


def test_standardising_by_hand() -> None:
    assert standardise(np.array([1, 1, 5, 5])).tolist() == [-1, -1, 1, 1]


@pytest.mark.parametrize("scale", [1e-30, 1e-3, 7.0, 1e30])
@pytest.mark.parametrize("offset", [0.0, -3.0])
def test_the_unit_and_the_zero_of_a_scanner_do_not_matter(scale: float, offset: float) -> None:
    volume = np.random.default_rng(1).normal(size=(3, 8, 8)).astype(np.float32)
    moved = (scale * (volume.astype(np.float64) + offset)).astype(np.float32)
    np.testing.assert_allclose(standardise(moved), standardise(volume), atol=2e-5)


@pytest.mark.parametrize("value", [0, -7, 0.1, 1e6])
def test_a_constant_volume_becomes_zeros(value: float) -> None:
    assert not standardise(np.full((2, 5, 5), value)).any()


def test_rounding_errors_of_a_constant_volume_are_not_an_image() -> None:
    nearly = np.full((2, 5, 5), 1000.0, np.float32)
    nearly[0, 0, 0] = np.nextafter(np.float32(1000), np.float32(2000))
    assert not standardise(nearly).any()


def test_no_value_becomes_infinite_as_float16() -> None:
    spread = ChannelStatistics(low=-1e9, high=1e9, mean=0, deviation=1)
    result = standardise(np.array([-1e9, 3.0, 1e9]), spread)
    assert result.tolist() == [-LARGEST, 3.0, LARGEST]
    assert np.isfinite(result.astype(np.float16)).all()


def test_ct_is_clipped_and_scaled_by_its_data_set_alone() -> None:
    statistics = ChannelStatistics(low=-100, high=300, mean=50, deviation=50)
    volume = np.array([-1024, -100, 50, 100, 300, 3000], np.int16)
    assert standardise(volume, statistics).tolist() == [-3, -3, 0, 1, 5, 5]
    assert standardise(volume[2:4], statistics).tolist() == [0, 1]


def test_ct_without_any_contrast_is_centred_only() -> None:
    statistics = ChannelStatistics.of([np.full(10, 7.0)])
    assert statistics == ChannelStatistics(7, 7, 7, 0)
    assert standardise(np.array([3, 7, 9]), statistics).tolist() == [0, 0, 0]


def test_statistics_pool_all_samples_and_cut_half_a_percent_on_either_side() -> None:
    statistics = ChannelStatistics.of([np.arange(0, 501), np.arange(501, 1001)])
    assert (statistics.low, statistics.high, statistics.mean) == (5, 995, 500)
    assert statistics.deviation == pytest.approx(np.arange(1001).std(), rel=1e-6)


def test_beyond_an_image_it_is_dark_but_not_as_dark_as_one_bad_voxel() -> None:
    image = np.concatenate([np.full(30, -1.0), np.full(70, 2.0), [-300.0]]).astype(np.float32)
    assert beyond(image) == pytest.approx(-1.0)
