"""Augmentation: known motions reach known places, and labels follow images."""

from __future__ import annotations

from dataclasses import replace

import pytest
import torch
from torch import Tensor

from shapepu.data.augment import (
    IDENTITY,
    Augmentation,
    AugmentParameters,
    IntensityParameters,
    SpatialParameters,
    apply_intensity,
    apply_spatial,
    cut_out,
    draw,
)
from shapepu.errors import InputError
from shapepu.labels import OUTSIDE

STILL = Augmentation(
    rotation_degrees=0,
    scale=(1, 1),
    stretch=1,
    shift=0,
    flip=False,
    contrast=(1, 1),
    gamma=(1, 1),
    brightness=0,
    noise=0,
)
"""Draws, and changes nothing; each test lets loose what it is about."""


def drawn(count: int = 4, seed: int = 0, **changes: object) -> AugmentParameters:
    settings = replace(STILL, **changes)  # type: ignore[arg-type]
    return draw(settings, count, torch.Generator().manual_seed(seed))


def moved(matrix: list[list[float]], shift: tuple[float, float] = (0.0, 0.0)) -> AugmentParameters:
    return AugmentParameters(SpatialParameters(torch.tensor([matrix]), torch.tensor([shift])))


def spots(size: tuple[int, int], *places: tuple[int, int]) -> Tensor:
    labels = torch.zeros(1, *size, dtype=torch.uint8)
    for label, (row, column) in enumerate(places, start=1):
        labels[0, row, column] = label
    return labels


def patch_of(labels: Tensor, parameters: AugmentParameters, patch: tuple[int, int]) -> Tensor:
    return apply_spatial(labels[:, None].float(), [labels], parameters, patch)[1][0]


def blobs(count: int, size: tuple[int, int]) -> Tensor:
    torch.manual_seed(0)
    labels = torch.zeros(count, *size, dtype=torch.uint8)
    for i in range(count):
        top, left = (int(torch.randint(side // 2 - 12, side // 2 - 4, ())) for side in size)
        labels[i, top : top + 14, left : left + 11] = 1
    return labels


@pytest.mark.parametrize(("canvas", "patch"), [((20, 24), (12, 13)), ((9, 8), (9, 8)), ((8, 21), (15, 12))])
def test_identity_is_the_centre_crop_to_the_bit(canvas: tuple[int, int], patch: tuple[int, int]) -> None:
    images, labels = torch.randn(3, 2, *canvas).half(), torch.randint(0, 5, (3, *canvas), dtype=torch.uint8)
    found, (found_labels,) = apply_spatial(images, [labels], IDENTITY, patch)
    assert found.shape == (3, 2, *patch)
    assert found.dtype == torch.float32
    top, left = (canvas[0] - patch[0]) // 2, (canvas[1] - patch[1]) // 2
    for i in range(patch[0]):
        for j in range(patch[1]):
            row, column = i + top, j + left
            inside = 0 <= row < canvas[0] and 0 <= column < canvas[1]
            near = images[:, :, min(max(row, 0), canvas[0] - 1), min(max(column, 0), canvas[1] - 1)]
            assert torch.equal(found[:, :, i, j], near.float())
            expected = labels[:, row, column] if inside else torch.full((3,), OUTSIDE, dtype=torch.uint8)
            assert torch.equal(found_labels[:, i, j], expected)
    assert apply_intensity(found, IDENTITY) is found


def test_settings_that_allow_nothing_change_nothing() -> None:
    images, labels = torch.randn(4, 1, 20, 24), torch.randint(0, 5, (4, 20, 24), dtype=torch.uint8)
    parameters = drawn()
    found, (found_labels,) = apply_spatial(images, [labels], parameters, (12, 13))
    expected, (expected_labels,) = apply_spatial(images, [labels], IDENTITY, (12, 13))
    torch.testing.assert_close(apply_intensity(found, parameters), expected, atol=1e-4, rtol=0)
    assert torch.equal(found_labels, expected_labels)


def test_a_shift_moves_the_content_right_and_down_by_a_fraction_of_the_patch() -> None:
    labels = spots((40, 60), (20, 30))
    found = patch_of(labels, moved([[1.0, 0.0], [0.0, 1.0]], (0.1, 0.25)), (20, 30))
    assert found.nonzero().tolist() == [[0, 10 + 5, 15 + 3]]


def test_a_rotation_of_90_degrees_is_the_rotation_of_rot90() -> None:
    labels = spots((21, 21), (3, 10), (10, 15))
    found = patch_of(labels, moved([[0.0, -1.0], [1.0, 0.0]]), (21, 21))
    assert torch.equal(found, torch.rot90(labels, 1, (1, 2)))


def test_the_drawn_angle_is_counter_clockwise_within_its_range() -> None:
    parameters = drawn(count=200, rotation_degrees=30)
    assert parameters.spatial is not None
    radians = torch.atan2(parameters.spatial.matrix[:, 1, 0], parameters.spatial.matrix[:, 0, 0])
    assert -30 <= torch.rad2deg(radians).min() < -25
    assert 25 < torch.rad2deg(radians).max() <= 30
    labels = spots((151, 151), (75, 105)).expand(200, -1, -1)
    sample, row, column = patch_of(labels, parameters, (101, 101)).nonzero().T
    assert len(sample.unique()) > 150  # nearest sampling may step over a single pixel
    assert (50 - row - 30 * radians[sample].sin()).abs().max() < 1
    assert (column - 50 - 30 * radians[sample].cos()).abs().max() < 1


def test_the_scale_magnifies_by_its_factor_in_both_directions() -> None:
    labels = torch.zeros(1, 60, 80, dtype=torch.uint8)
    labels[0, 25:35, 30:50] = 1
    found = patch_of(labels, drawn(count=1, scale=(2, 2)), (60, 80))
    assert (found == 1).sum() == 20 * 40
    assert found[0, 20:40, 20:60].all()


def test_a_stretch_keeps_areas_and_changes_proportions_by_its_ratio_at_most() -> None:
    parameters = drawn(count=100, stretch=1.5)
    assert parameters.spatial is not None
    matrix = parameters.spatial.matrix.double()
    torch.testing.assert_close(torch.linalg.det(matrix), torch.ones(100).double(), atol=1e-5, rtol=0)
    singular = torch.linalg.svdvals(matrix)
    ratio = singular[:, 0] / singular[:, 1]
    assert 1.4 < ratio.max() <= 1.5 + 1e-5


def test_about_half_of_the_images_are_mirrored() -> None:
    parameters = drawn(count=400, flip=True)
    assert parameters.spatial is not None
    mirrored = torch.linalg.det(parameters.spatial.matrix) < 0
    assert 0.4 < mirrored.float().mean() < 0.6
    labels = spots((21, 21), (4, 17)).expand(400, -1, -1)
    found = patch_of(labels, parameters, (21, 21))
    assert torch.equal(found[mirrored][0], labels[0].flip(-1))
    assert torch.equal(found[~mirrored][0], labels[0])


@pytest.mark.parametrize("elastic", [0.0, 2.0])
def test_labels_follow_images_to_the_pixel(elastic: float) -> None:
    labels = blobs(32, (72, 80))
    settings = Augmentation(elastic_pixels=elastic)
    parameters = draw(settings, 32, torch.Generator().manual_seed(0))
    images, (found,) = apply_spatial(labels[:, None].float(), [labels], parameters, (56, 60))
    bright, labelled = images[:, 0] > 0.5, found == 1
    assert labelled.flatten(1).any(dim=1).all()
    overlap = (bright & labelled).flatten(1).sum(1) / (bright | labelled).flatten(1).sum(1)
    assert overlap.min() > 0.9
    assert overlap.mean() > 0.95


def test_all_label_maps_move_together() -> None:
    labels = torch.randint(0, 5, (6, 40, 40), dtype=torch.uint8)
    parameters = draw(Augmentation(elastic_pixels=2), 6, torch.Generator().manual_seed(0))
    _, (one, other) = apply_spatial(torch.zeros(6, 1, 40, 40), [labels, labels + 10], parameters, (32, 32))
    kept = one != OUTSIDE
    assert torch.equal(one[kept] + 10, other[kept])
    assert torch.equal(kept, other != OUTSIDE)


def test_no_label_appears_that_was_not_there_and_none_is_a_mixture() -> None:
    labels = torch.zeros(8, 40, 40, dtype=torch.uint8)
    labels[:, :, 20:] = 4  # bilinear sampling would write 1, 2 and 3 between them
    parameters = draw(Augmentation(elastic_pixels=1), 8, torch.Generator().manual_seed(0))
    _, (found,) = apply_spatial(torch.zeros(8, 1, 40, 40), [labels], parameters, (40, 40))
    assert set(found.unique().tolist()) == {0, 4, OUTSIDE}


def test_beyond_the_canvas_labels_are_outside_and_images_repeat_the_border() -> None:
    parameters = drawn(count=1, scale=(0.5, 0.5))
    images, labels = torch.full((1, 1, 20, 20), 3.0), torch.ones(1, 20, 20, dtype=torch.uint8)
    found, (found_labels,) = apply_spatial(images, [labels], parameters, (20, 20))
    assert (found_labels == 1).sum() == 100
    assert (found_labels[0, 5:15, 5:15] == 1).all()
    assert (found_labels == OUTSIDE).sum() == 300
    torch.testing.assert_close(found, torch.full_like(found, 3.0))


def test_a_larger_canvas_fills_the_corners_a_rotation_opens() -> None:
    labels = torch.ones(8, 60, 60, dtype=torch.uint8)
    parameters = drawn(count=8, rotation_degrees=180)
    assert (patch_of(labels, parameters, (42, 42)) == 1).all()
    assert (patch_of(labels[:, 9:51, 9:51], parameters, (42, 42)) == OUTSIDE).any()


def test_every_sample_has_its_own_parameters() -> None:
    images = torch.randn(1, 1, 40, 40).expand(12, 1, 40, 40)
    parameters = draw(replace(Augmentation(), noise=0), 12, torch.Generator().manual_seed(0))
    found, _ = apply_spatial(images, [], parameters, (32, 32))
    found = apply_intensity(found, parameters)
    distance = (found[:, None] - found[None]).abs().flatten(2).mean(2)
    assert (distance + torch.eye(12) > 0.05).all()
    still = torch.zeros(12, 1, 8, 8)
    still[:, :, 0, 0] = 1
    for name in ("contrast", "brightness", "gamma", "blur_pixels"):
        changes = {"contrast": (0.5, 2), "brightness": 0.5, "gamma": (0.5, 2), "blur_pixels": 2.0}
        seen = apply_intensity(still + torch.arange(8) / 8, drawn(count=12, **{name: changes[name]}))
        assert len({tuple(image.flatten().tolist()) for image in seen}) == 12, name


def test_the_same_seed_draws_the_same_augmentation_down_to_the_noise() -> None:
    images, labels = torch.randn(4, 1, 40, 40), torch.randint(0, 5, (4, 40, 40), dtype=torch.uint8)
    settings = Augmentation(elastic_pixels=2, blur_pixels=1)

    def run(seed: int) -> tuple[Tensor, Tensor]:
        parameters = draw(settings, 4, torch.Generator().manual_seed(seed))
        torch.rand(seed + 1)  # the global generator must not matter
        found, (found_labels,) = apply_spatial(images, [labels], parameters, (32, 32))
        return apply_intensity(found, parameters), found_labels

    first, again, other = run(3), run(3), run(4)
    assert torch.equal(first[0], again[0])
    assert torch.equal(first[1], again[1])
    assert not torch.equal(first[0], other[0])


def test_parameters_can_be_applied_twice_with_the_same_result() -> None:
    parameters = draw(Augmentation(), 4, torch.Generator().manual_seed(0))
    images = torch.randn(4, 1, 32, 32)
    kept = images.clone()
    assert torch.equal(apply_intensity(images, parameters), apply_intensity(images, parameters))
    assert torch.equal(images, kept)


def intensity(**given: float) -> AugmentParameters:
    tensors = {"contrast": torch.ones(1), "brightness": torch.zeros(1)}
    tensors |= {name: torch.tensor([value]) for name, value in given.items()}
    return AugmentParameters(None, IntensityParameters(**tensors, blur_radius=6))  # type: ignore[arg-type]


def test_contrast_and_brightness_scale_and_move_the_distribution() -> None:
    image = torch.tensor([0.0, 2.0, 4.0, 6.0]).reshape(1, 1, 2, 2)  # mean 3, standard deviation sqrt(5)
    found = apply_intensity(image, intensity(contrast=2.0, brightness=1.0)).flatten()
    torch.testing.assert_close(found, torch.tensor([-3.0, 1.0, 5.0, 9.0]) + 5**0.5)


def test_gamma_bends_between_the_extremes_and_keeps_mean_and_deviation() -> None:
    image = torch.randn(1, 1, 64, 64)
    found = apply_intensity(image, intensity(gamma=1.5))
    torch.testing.assert_close(found.mean(), image.mean(), atol=1e-4, rtol=0)
    torch.testing.assert_close(found.std(), image.std(), atol=1e-4, rtol=0)
    unit = ((image - image.min()) / (image.max() - image.min())) ** 1.5
    again = (found - found.min()) / (found.max() - found.min())
    torch.testing.assert_close(again, unit, atol=1e-4, rtol=0)
    assert (found.flatten()[image.flatten().argsort()].diff() >= 0).all()


def test_a_constant_image_stays_finite_and_constant() -> None:
    image = torch.full((4, 1, 8, 8), 5.0)
    parameters = draw(Augmentation(blur_pixels=1), 4, torch.Generator().manual_seed(0))
    torch.testing.assert_close(apply_intensity(image, parameters), image, atol=1e-2, rtol=0)


def test_noise_has_its_standard_deviation_relative_to_the_image() -> None:
    image = 10 * torch.randn(1, 1, 200, 200)
    noise = apply_intensity(image, intensity(noise=0.2)) - image
    assert noise.std() == pytest.approx(2.0, rel=0.05)
    assert abs(noise.mean()) < 0.1


def test_blur_spreads_a_point_by_its_standard_deviation() -> None:
    image = torch.zeros(1, 2, 41, 41)
    image[..., 20, 20] = 1
    found = apply_intensity(image, intensity(blur_pixels=2.0))
    y, x = torch.meshgrid(torch.arange(41) - 20.0, torch.arange(41) - 20.0, indexing="ij")
    for channel in found[0]:
        assert channel.sum() == pytest.approx(1, abs=1e-4)
        assert ((channel * x**2).sum() ** 0.5).item() == pytest.approx(2.0, rel=0.03)
        assert ((channel * y**2).sum() ** 0.5).item() == pytest.approx(2.0, rel=0.03)


def test_a_square_is_cut_out_of_the_image_and_of_the_scribbles_and_of_nothing_beyond_the_image() -> None:
    settings = Augmentation(cutout_pixels=5)
    images = torch.rand(40, 2, 12, 16) + 1
    labels = torch.randint(0, 3, (40, 12, 16), dtype=torch.uint8)
    labels[:, 0] = OUTSIDE
    cut, left = cut_out(images, labels, draw(settings, 40, torch.Generator().manual_seed(0)), 3)
    gone = (cut == 0).all(dim=1)
    assert torch.equal(gone.flatten(1).sum(dim=1), torch.full((40,), 25))
    assert torch.equal(gone.any(dim=2).sum(dim=1), torch.full((40,), 5)), "five rows, so a square"
    assert torch.equal(left == 3, gone & (labels != OUTSIDE))
    assert torch.equal(left[~gone], labels[~gone])
    assert torch.equal(cut.movedim(1, -1)[~gone], images.movedim(1, -1)[~gone])
    places = gone.float().mean(dim=0)
    assert places[:, [0, -1]].any(), "squares reach both sides"
    assert places[[0, -1]].any()


def test_without_a_cut_nothing_is_drawn_for_it() -> None:
    one, other = (torch.Generator().manual_seed(0) for _ in range(2))
    draw(Augmentation(), 4, one)
    with_cut = draw(Augmentation(cutout_pixels=3), 4, other)
    assert with_cut.cut is not None
    assert torch.equal(torch.rand(8, generator=one).view(4, 2), with_cut.cut.place)


def test_a_patch_smaller_than_the_cut_is_cut_out_altogether() -> None:
    images, labels = torch.ones(2, 1, 4, 4), torch.zeros(2, 4, 4, dtype=torch.uint8)
    drawn = draw(Augmentation(cutout_pixels=99), 2, torch.Generator())
    cut, left = cut_out(images, labels, drawn, 3)
    assert not cut.any()
    assert (left == 3).all()


def test_channels_share_their_place_and_keep_their_own_statistics() -> None:
    images = torch.randn(4, 1, 40, 40)
    images = torch.cat((images, 100 + 50 * images), dim=1)
    parameters = draw(replace(Augmentation(), noise=0), 4, torch.Generator().manual_seed(0))
    found = apply_intensity(apply_spatial(images, [], parameters, (32, 32))[0], parameters)
    standard = (found - found.mean((2, 3), keepdim=True)) / found.std((2, 3), keepdim=True)
    torch.testing.assert_close(standard[:, 0], standard[:, 1], atol=2e-3, rtol=0)


@pytest.mark.parametrize(
    "changes", [{"scale": (1.2, 0.8)}, {"gamma": (0.0, 1.0)}, {"stretch": 0.9}, {"cutout_pixels": -1}]
)
def test_ranges_that_mean_nothing_are_refused(changes: dict[str, object]) -> None:
    with pytest.raises(InputError, match=next(iter(changes))):
        Augmentation(**changes)  # type: ignore[arg-type]
