"""``Model.predict`` takes what people have: a path, an array, a volume, one channel or several."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
import torch

import shapepu
from shapepu.data.volumes import read_volume
from shapepu.errors import InputError
from shapepu.inference import predict_volume
from shapepu.labels import plain_labels
from shapepu.model import Model
from shapepu.predict_options import PredictOptions
from tiny_models import Bands, bundle_around, random_method, tiny_spec
from volume_files import random_image, write_nifti


@pytest.fixture
def model() -> Model:
    return Model(bundle_around(Bands((0.0,)), labels=plain_labels(["bright"])))


RAW = {"largest_component": "off", "precision": "fp32"}


def test_a_path_and_the_volume_behind_it_are_answered_alike(tmp_path, model):
    path = write_nifti(tmp_path / "a.nii.gz", random_image())
    expected = random_image() > random_image().mean()
    for image in (path, str(path), read_volume(path)):
        assert np.array_equal(model.predict(image, **RAW), expected)


def test_an_array_is_answered_in_its_shape(model):
    image = random_image()
    assert np.array_equal(model.predict(image, **RAW), image > image.mean())
    assert np.array_equal(model.predict(image[0], **RAW), image[0] > image[0].mean())


def test_the_pixel_size_of_an_array_decides_what_the_network_sees(model):
    image = random_image((2, 40, 30))
    model.predict(image, spacing_mm=(5, 3.0, 3.0))
    model.predict(image[0], spacing_mm=(3.0, 3.0))
    model.predict(image)
    model.predict(image, spacing_mm=np.array([5, 3.0, 3.0]))
    # Twice the model's 1.5 mm gives twice the pixels, on a side of at least 32 in steps of 16.
    shapes = [shape[-2:] for shape in model.bundle.method.network.shapes]
    assert shapes == [(80, 64), (80, 64), (48, 32), (80, 64)]


def test_slices_of_oblong_pixels_are_still_slices():
    model = Model(bundle_around(Bands((0.0,)), tiny_spec(plain_labels(["bright"]), spacing_mm=(3.0, 1.0))))
    image = random_image((5, 33, 40))
    assert np.array_equal(model.predict(image, **RAW), image > image.mean())


def test_several_channels_come_as_a_list_an_array_or_the_first_file(tmp_path):
    model = Model(bundle_around(Bands((0.0,)), tiny_spec(plain_labels(["bright"]), ("T2", "LGE"))))
    channels = [random_image(seed=1), random_image(seed=2)]
    paths = [write_nifti(tmp_path / f"a_{i:04d}.nii.gz", array) for i, array in enumerate(channels)]
    expected = channels[0] > channels[0].mean()
    for image in (channels, np.stack(channels), paths, paths[0]):
        assert np.array_equal(model.predict(image, **RAW), expected)
    flat = model.predict([channel[0] for channel in channels], **RAW)
    assert flat.shape == channels[0][0].shape
    with pytest.raises(InputError, match="expects 2 channels"):
        model.predict(channels[:1])


@pytest.mark.parametrize(
    ("image", "spacing_mm", "message"),
    [
        (np.zeros((2, 2, 2, 2)), None, "expected numbers"),
        (np.zeros(5), None, "expected numbers"),
        (np.array([["a"]]), None, "expected numbers"),
        (np.zeros((0, 4, 4)), None, "expected numbers"),
        (np.zeros((4, 4)), (1.0,), "spacing_mm"),
        (np.zeros((4, 4)), (1.0, -1.0), "spacing_mm"),
        (np.full((4, 4), np.nan), None, "NaN"),
        ("nowhere.nii.gz", None, "no such file"),
    ],
)
def test_what_is_no_image_is_refused(model, image, spacing_mm, message):
    with pytest.raises(InputError, match=message):
        model.predict(image, spacing_mm=spacing_mm)


def test_a_folder_of_several_cases_belongs_to_predict_folder(tmp_path, model):
    for name in "ab":
        write_nifti(tmp_path / "in" / f"{name}.nii.gz", random_image())
    with pytest.raises(InputError, match="predict_folder"):
        model.predict(tmp_path / "in")
    outcome = model.predict_folder(tmp_path / "in", tmp_path / "out", shard="2/2", quiet=True, **RAW)
    assert [path.name for path in outcome.predicted] == ["b.nii.gz"]


def test_details_are_those_of_the_options(model):
    details = model.predict_with_details(random_image(), probabilities=True)
    assert details.probabilities.shape == (2, 3, 8, 6)
    volume = replace(read_volume_like(), array=random_image())
    expected = predict_volume(model.bundle, [volume], PredictOptions(probabilities=True))
    assert np.array_equal(details.probabilities, expected.probabilities)


def read_volume_like():
    from shapepu.data.volumes import Volume

    return Volume(random_image(), (3.0, 1.5, 1.5), (0.0,) * 3, tuple(np.eye(3).ravel()), None)


def test_a_saved_model_is_loaded_as_it_was(tmp_path):
    spec = tiny_spec()
    model = Model(bundle_around(random_method(spec).network, spec))
    loaded = shapepu.load(model.save(tmp_path / "heart"))
    assert loaded.labels == model.labels
    assert loaded.channels == ("image",)
    assert "rv, myo, lv" in repr(loaded)
    images = torch.randn(1, 1, 32, 32)
    assert torch.equal(loaded.bundle.method.predict(images), model.bundle.method.predict(images))
