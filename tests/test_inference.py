"""Predictions lie where the image says, and come from the pixels that training saw."""

from __future__ import annotations

import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch
from torch import nn

from shapepu.data.intensity import ChannelStatistics
from shapepu.data.preprocess import Preprocessing, prepare_case
from shapepu.data.volumes import Volume
from shapepu.errors import InputError
from shapepu.inference import predict_volume
from shapepu.labels import plain_labels
from shapepu.predict_options import PredictOptions
from tiny_models import Bands, Sloped, bundle_around, random_method, tiny_spec

RAW = PredictOptions(largest_component="off", precision="fp32")


def as_volume(array: np.ndarray, spacing_mm: tuple[float, ...] = (8.0, 1.5, 1.5)) -> Volume:
    z_mm, y_mm, x_mm = spacing_mm
    return Volume(array, (z_mm, y_mm, x_mm), (0.0,) * 3, tuple(np.eye(3).ravel()), Path("toy.nii.gz"))


def hills(shape: tuple[int, int, int] = (5, 60, 52)) -> np.ndarray:
    """A smooth hill a slice, each somewhere else, wider along the rows than along the columns."""
    z, y, x = np.meshgrid(*(np.arange(n, dtype=float) for n in shape), indexing="ij")
    centre_y, centre_x = 22 + 3 * z, 30 - 2 * z
    return 100 * np.exp(-(((y - centre_y) / 14) ** 2) - ((x - centre_x) / 8) ** 2)


def noise(shape: tuple[int, int, int], seed: int = 0) -> np.ndarray:
    return np.random.default_rng(seed).normal(100, 20, shape).astype(np.float32)


def random_bundle(**changes):
    spec = tiny_spec(**changes)
    return bundle_around(random_method(spec).network, spec)


@pytest.mark.parametrize("axis", [0, 1, 2])
@pytest.mark.parametrize("pixel_mm", [(0.8, 1.1), (1.5, 1.5), (2.9, 2.3)])
def test_a_network_that_thresholds_gives_the_thresholded_image(axis, pixel_mm):
    image = np.moveaxis(hills(), 0, axis)
    volume = as_volume(image, tuple(np.insert(pixel_mm, axis, 8.0)))
    resampled = prepare_case([volume], tiny_spec().preprocessing).grid.resample_image(image)
    height = (40 - resampled.mean()) / resampled.std()
    bundle = bundle_around(Bands((height,), sharpness=4), labels=plain_labels(["hill"]))
    predicted = predict_volume(bundle, [volume], RAW).labels
    assert predicted.shape == image.shape
    # The hill rises by up to 8 from a native pixel to the next, so this is an error of a quarter of a pixel.
    undecided = np.abs(image - 40) < 2
    assert np.array_equal(predicted[~undecided], (image > 40)[~undecided])
    for found, wanted in zip(np.nonzero(predicted), np.nonzero(image > 40), strict=True):
        assert found.mean() == pytest.approx(wanted.mean(), abs=0.05)


class Recorder(nn.Module):
    """Keeps what it is shown; says class 0 everywhere."""

    def __init__(self) -> None:
        super().__init__()
        self.seen: list[np.ndarray] = []

    def forward(self, images):
        self.seen.append(images.numpy().copy())
        return torch.zeros(len(images), 4, *images.shape[2:])


@pytest.mark.parametrize("shape", [(3, 20, 90), (4, 64, 48)])
def test_the_network_sees_the_pixels_of_training_on_whole_slices(shape):
    recorder = Recorder()
    bundle = bundle_around(recorder)
    volume = as_volume(noise(shape))
    predict_volume(bundle, [volume], replace(RAW, batch_size=2))
    seen = np.concatenate(recorder.seen)
    case = prepare_case([volume], bundle.spec.preprocessing)
    # A side is at least the patch (32) and a multiple of 16; both images have pixels of the size asked for.
    padded = {(3, 20, 90): (32, 96), (4, 64, 48): (64, 48)}[shape]
    assert np.array_equal(seen, case.images_on(padded))
    assert {len(part) for part in recorder.seen} <= {1, 2}


def views_in_plain_loops(network: nn.Module, image: np.ndarray, eight: bool) -> np.ndarray:
    """Mean probabilities over flips (and transpositions), each undone, for one (h, w) image."""
    answers = []
    for transposed in (False, True) if eight else (False,):
        for rows in (1, -1):
            for columns in (1, -1):
                seen = image[::rows, ::columns]
                seen = seen.T if transposed else seen
                logits = network(torch.from_numpy(np.ascontiguousarray(seen))[None, None])
                probs = logits.softmax(dim=1)[0].numpy()
                probs = probs.swapaxes(1, 2) if transposed else probs
                answers.append(probs[:, ::rows, ::columns])
    return np.mean(answers, axis=0)


@pytest.mark.parametrize(("averaging", "eight"), [("flips", False), ("rotations", True)])
def test_averaging_is_the_mean_over_undone_views(averaging, eight):
    volume = as_volume(noise((1, 48, 64)))
    options = replace(RAW, averaging=averaging, probabilities=True)
    bundle = bundle_around(Sloped())
    predicted = predict_volume(bundle, [volume], options).probabilities
    seen = prepare_case([volume], bundle.spec.preprocessing).images[0, 0]
    expected = views_in_plain_loops(Sloped(), seen, eight)
    np.testing.assert_allclose(predicted[:, 0], expected, atol=1e-3)
    single = predict_volume(bundle, [volume], replace(RAW, probabilities=True)).probabilities
    assert np.abs(single[:, 0] - expected).max() > 0.1, "the views of this network do not differ"


def test_without_a_word_the_views_are_those_that_the_model_was_made_for():
    volume = as_volume(noise((1, 48, 64)))
    options = replace(RAW, probabilities=True)
    bundle = bundle_around(Sloped())
    made_for_flips = replace(bundle, spec=replace(bundle.spec, averaging="flips"))

    def predicted(by, averaging):
        return predict_volume(by, [volume], replace(options, averaging=averaging)).probabilities

    for other in ("none", "flips", "rotations"):
        np.testing.assert_array_equal(predicted(made_for_flips, other), predicted(bundle, other))
    np.testing.assert_array_equal(predicted(made_for_flips, "auto"), predicted(bundle, "flips"))
    np.testing.assert_array_equal(predicted(bundle, "auto"), predicted(bundle, "none"))
    assert not np.array_equal(predicted(bundle, "none"), predicted(bundle, "flips"))


def test_the_piece_that_is_kept_is_the_one_that_the_model_is_sure_of():
    image = np.zeros((1, 60, 60))
    image[:, 5:35, 5:35], image[:, 45:55, 45:55] = 1.0, 3.0
    volume = as_volume(image)
    seen = prepare_case([volume], tiny_spec().preprocessing).images[0, 0]
    low, high = np.quantile(seen, 0.2), seen.max()
    edge = low + (high - low) * 0.3  # a third of the way up lies the large square
    bundle = bundle_around(Bands((edge,), sharpness=4 / (high - low)), labels=plain_labels(["hill"]))
    everything = predict_volume(bundle, [volume], RAW).labels
    kept = predict_volume(bundle, [volume], replace(RAW, largest_component="balanced")).labels
    largest = predict_volume(bundle, [volume], replace(RAW, largest_component="foreground")).labels
    assert everything[0, 20, 20] == everything[0, 50, 50] == 1
    assert (kept[0, 20, 20], kept[0, 50, 50]) == (0, 1)
    assert (largest[0, 20, 20], largest[0, 50, 50]) == (1, 0)


def test_probabilities_sum_to_one_and_the_largest_is_the_label():
    volume = as_volume(noise((5, 41, 37)), (8.0, 0.9, 1.3))
    prediction = predict_volume(random_bundle(), [volume], replace(RAW, probabilities=True))
    assert prediction.probabilities.shape == (4, 5, 41, 37)
    assert prediction.probabilities.dtype == np.float16
    np.testing.assert_allclose(prediction.probabilities.astype(float).sum(axis=0), 1, atol=2e-3)
    chosen = np.take_along_axis(prediction.probabilities, prediction.labels[None].astype(int), axis=0)[0]
    assert (chosen >= prediction.probabilities.max(axis=0) - 1e-3).all()
    assert len(np.unique(prediction.labels)) > 1


@pytest.mark.parametrize(
    ("logits", "expected"),
    [
        ((0.0, 0.0, 0.0, 0.0), 1.0),
        ((50.0, 0.0, 0.0, 0.0), 0.0),
        ((30.0, 30.0, 0.0, 0.0), 0.5),  # one of two: ln 2 / ln 4
    ],
)
def test_uncertainty_is_entropy_as_a_share_of_the_largest(logits, expected):
    class Constant(nn.Module):
        def forward(self, images):
            return torch.tensor(logits)[None, :, None, None].expand(len(images), 4, *images.shape[2:])

    options = PredictOptions(uncertainty=True)
    uncertainty = predict_volume(
        bundle_around(Constant()), [as_volume(noise((2, 9, 7)))], options
    ).uncertainty
    np.testing.assert_allclose(uncertainty, np.full((2, 9, 7), expected), atol=1e-5)


def test_only_what_was_asked_for_is_returned():
    prediction = predict_volume(random_bundle(), [as_volume(noise((2, 20, 20)))])
    assert prediction.probabilities is None
    assert prediction.uncertainty is None
    assert prediction.labels.dtype == np.uint8
    assert set(prediction.seconds) == {"prepare", "network", "restore", "component"}


@pytest.mark.parametrize("batch_size", [1, 2, 7])
def test_how_many_slices_are_worked_on_at_once_changes_nothing(batch_size, monkeypatch):
    volume, bundle = as_volume(noise((7, 40, 36)), (8.0, 1.1, 1.3)), random_bundle()
    options = replace(RAW, uncertainty=True, probabilities=True)
    whole = predict_volume(bundle, [volume], options)
    monkeypatch.setattr("shapepu.inference.CHUNK_BYTES", 4 * 4 * 40 * 36 * 3)  # restores three slices at once
    parts = predict_volume(bundle, [volume], replace(options, batch_size=batch_size))
    np.testing.assert_allclose(parts.probabilities, whole.probabilities, atol=1e-3)
    np.testing.assert_allclose(parts.uncertainty, whole.uncertainty, atol=1e-3)
    assert (parts.labels != whole.labels).mean() < 1e-3


@pytest.mark.parametrize(
    "shape", [(1, 40, 40), (3, 1, 1), (1, 1, 1), (3, 1, 50), (2, 5, 7), (2, 150, 90), (40, 3, 3)]
)
@pytest.mark.parametrize("averaging", ["none", "rotations"])
def test_any_shape_is_answered_in_that_shape(shape, averaging):
    options = PredictOptions(averaging=averaging, probabilities=True, uncertainty=True)
    prediction = predict_volume(random_bundle(), [as_volume(noise(shape))], options)
    assert prediction.labels.shape == prediction.uncertainty.shape == shape
    assert prediction.probabilities.shape == (4, *shape)
    assert np.isfinite(prediction.uncertainty).all()


def test_an_image_without_contrast_and_a_case_without_a_heart_come_back_empty():
    bundle = bundle_around(Bands((1e3,)), labels=plain_labels(["hill"]))
    for image in (np.zeros((3, 20, 20), np.int16), noise((3, 20, 20))):
        assert not predict_volume(bundle, [as_volume(image)]).labels.any()


def test_only_the_largest_piece_in_three_dimensions_is_kept():
    image = np.zeros((4, 40, 40), np.float32)
    image[1:3, 5:15, 5:15] = 1  # 200 voxels in two slices
    image[0, 25:38, 25:37] = 1  # 156, more than any slice of the other
    bundle = bundle_around(Bands((1.0,)), labels=plain_labels(["hill"]))
    everything = predict_volume(bundle, [as_volume(image)], RAW).labels
    assert everything[0, 30, 30] == 1
    kept = predict_volume(bundle, [as_volume(image)], PredictOptions(precision="fp32")).labels
    assert kept[1, 10, 10] == 1
    assert not kept[0].any()


def test_bfloat16_agrees_with_float32():
    bundle = random_bundle()
    volume = as_volume(noise((4, 64, 64)))
    exact, rounded = (
        predict_volume(bundle, [volume], replace(RAW, probabilities=True, precision=precision))
        for precision in ("fp32", "bf16")
    )
    difference = np.abs(exact.probabilities.astype(float) - rounded.probabilities)
    assert 0 < difference.max() < 0.05
    assert (exact.labels == rounded.labels).mean() > 0.98


def test_channels_reach_the_network_in_their_order_and_must_be_complete():
    spec = tiny_spec(channels=("T2", "LGE"))
    recorder = Recorder()
    bundle = bundle_around(recorder, spec)
    first, second = as_volume(noise((2, 32, 32), 1)), as_volume(noise((2, 32, 32), 2))
    predict_volume(bundle, [first, second], RAW)
    case = prepare_case([first, second], spec.preprocessing)
    assert np.array_equal(recorder.seen[0], case.images)
    with pytest.raises(InputError, match=r"toy.nii.gz: the model expects 2 channels \(T2, LGE\), got 1"):
        predict_volume(bundle, [first])


def test_ct_statistics_of_training_are_used_instead_of_the_volumes_own():
    statistics = (ChannelStatistics(low=0, high=200, mean=100, deviation=50),)
    preprocessing = Preprocessing((1.5, 1.5), (32, 32), intensity="ct", statistics=statistics)
    bundle = bundle_around(Bands((1.5,)), labels=plain_labels(["bright"]), preprocessing=preprocessing)
    # (180 - 100) / 50 = 1.6 is above the threshold in an image of nothing else.
    assert predict_volume(bundle, [as_volume(np.full((1, 32, 32), 180))]).labels.all()
    assert not predict_volume(bundle, [as_volume(np.full((1, 32, 32), 170))]).labels.any()


MEMORY = """
import resource, sys
sys.path.insert(0, sys.argv[1])
import numpy as np
from shapepu.inference import predict_volume
from shapepu.labels import plain_labels
from tiny_models import bundle_around, random_method, tiny_spec
from test_inference import as_volume
spec = tiny_spec(plain_labels([f"c{i}" for i in range(14)]))
bundle = bundle_around(random_method(spec).network, spec)
def peak(slices):
    predict_volume(bundle, [as_volume(np.zeros((slices, 256, 256), np.int16))])
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
print(-peak(20) + peak(120))
"""


def test_memory_grows_with_the_image_and_not_with_its_probabilities():
    command = [sys.executable, "-c", MEMORY, str(Path(__file__).parent)]
    grown = float(subprocess.run(command, check=True, capture_output=True, text=True).stdout)
    # The probabilities of 100 more slices would take 375 MiB; image, resampled image and labels take 50.
    assert grown < 200
