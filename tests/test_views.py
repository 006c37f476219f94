"""A view is drawn once and replayed on images, labels and predictions, each image its own."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor

from shapepu.errors import InputError
from shapepu.labels import OUTSIDE
from shapepu.views import View, ViewSettings, draw_view

UNLABELLED = 4


def a_view(size: tuple[int, int] = (24, 24), count: int = 16, seed: int = 0, **settings: object) -> View:
    return draw_view(count, size, ViewSettings(**settings), torch.Generator().manual_seed(seed))  # type: ignore[arg-type]


def numbered(size: tuple[int, int], count: int = 16) -> Tensor:
    """Images in which every pixel of every image has a value of its own."""
    return torch.arange(count * size[0] * size[1], dtype=torch.float32).reshape(count, 1, *size)


def smooth(size: tuple[int, int], count: int = 16) -> Tensor:
    y, x = torch.meshgrid(torch.linspace(0, 3, size[0]), torch.linspace(0, 2, size[1]), indexing="ij")
    phases = torch.arange(count)[:, None, None, None]
    return torch.sin(x + phases) + torch.cos(2 * y - phases)


def pointwise_network(images: Tensor) -> Tensor:
    """A segmenter that looks at one pixel at a time, so that it commutes with moving pixels."""
    return torch.cat((images, 0.5 * images**2, 1 - images), dim=1).softmax(dim=1)


def test_right_angles_and_flips_move_pixels_as_rot90_and_flip_do() -> None:
    images = numbered((24, 24), count=64)
    view = a_view(count=64, cut=0, rotation="right")
    seen = view.images(images)
    assert view.turns is not None
    assert set(view.turns) == {(k, m) for k in range(4) for m in (False, True)}
    for i, (turns, mirrored) in enumerate(view.turns):
        expected = torch.rot90(images[i], turns, (1, 2))
        assert torch.equal(seen[i], expected.flip(-1) if mirrored else expected)


def test_without_rotation_rows_and_columns_flip_independently() -> None:
    images = numbered((6, 9), count=64)
    seen = a_view((6, 9), count=64, cut=0, rotation="none").images(images)
    kinds = [(), (2,), (1,), (1, 2)]
    found = [[torch.equal(seen[i], images[i].flip(k)) for k in kinds].index(True) for i in range(64)]
    assert set(found) == {0, 1, 2, 3}


def test_no_rotation_and_no_flip_leaves_the_cut_alone() -> None:
    images = numbered((24, 24)) + 1
    view = a_view(cut=5, rotation="none", flip=False)
    assert torch.equal(view.images(images), images * view.uncut[:, None])


def test_the_fill_value_stands_in_the_cut_and_beyond_the_border() -> None:
    images = torch.ones(16, 1, 24, 24)
    for rotation in ("any", "right"):
        view = a_view(cut=8, rotation=rotation)
        seen = view.images(images, fill_value=-2.0)
        _, valid = view.probs(images)
        torch.testing.assert_close(seen[:, 0][valid], torch.ones(int(valid.sum())))
        assert ((seen + 2).abs() < 1e-5).sum() > 16 * 36
        assert seen.min() >= -2 - 1e-5


def test_images_that_are_not_square_get_half_turns_only() -> None:
    view = a_view((10, 14), count=64, rotation="right")
    assert view.turns is not None
    assert {turns for turns, _ in view.turns} == {0, 2}
    assert view.images(numbered((10, 14), 64)).shape == (64, 1, 10, 14)


@pytest.mark.parametrize("rotation", ["right", "none"])
def test_a_pointwise_network_commutes_with_an_exact_view_to_the_bit(rotation: str) -> None:
    images = smooth((24, 24))
    view = a_view(cut=7, rotation=rotation)
    expected, valid = view.probs(pointwise_network(images))
    found = pointwise_network(view.images(images))
    assert (~valid).sum() == 16 * 7 * 7
    assert torch.equal(found.movedim(1, -1)[valid], expected.movedim(1, -1)[valid])


def test_a_pointwise_network_commutes_with_any_angle_up_to_interpolation() -> None:
    images = smooth((48, 40))
    view = a_view((48, 40), cut=9, rotation="any")
    expected, valid = view.probs(pointwise_network(images))
    found = pointwise_network(view.images(images))
    error = (found - expected).abs().amax(dim=1)
    assert valid.float().mean() > 0.5
    assert error[valid].max() < 2e-3
    assert error[~valid].max() > 0.1  # the cut is there, and is what `valid` leaves out


def test_every_image_of_the_batch_has_its_own_view() -> None:
    # Fails where only the first image is transformed, or all in the same way.
    images = numbered((24, 24), count=1).expand(16, 1, 24, 24)
    for rotation in ("any", "right"):
        view = a_view(cut=5, rotation=rotation)
        seen = view.images(images)
        assert len({tuple(image.flatten().tolist()) for image in seen}) == 16
        alone = [View(**_of_one(view, i)).images(images[i : i + 1]) for i in range(16)]
        torch.testing.assert_close(seen, torch.cat(alone))


def _of_one(view: View, i: int) -> dict[str, object]:
    return {
        "size": view.size,
        "cut": view.cut,
        "top": view.top[i : i + 1],
        "left": view.left[i : i + 1],
        "turns": None if view.turns is None else view.turns[i : i + 1],
        "matrix": None if view.matrix is None else view.matrix[i : i + 1],
        "fill": view.fill,
    }


def test_the_cut_is_a_square_inside_the_image_that_reaches_every_corner() -> None:
    view = a_view((8, 10), count=400, cut=3)
    assert (~view.uncut).sum(dim=(1, 2)).tolist() == [9] * 400
    places = set(zip(view.top.tolist(), view.left.tolist(), strict=True))
    assert places == {(row, column) for row in range(6) for column in range(8)}


def test_a_cut_larger_than_the_image_takes_all_of_it() -> None:
    view = a_view((8, 10), count=2, cut=32)
    assert not view.uncut.any()
    _, valid = view.probs(torch.ones(2, 3, 8, 10))
    assert not valid.any()


def test_nothing_is_cut_with_a_side_of_zero() -> None:
    assert a_view(cut=0).uncut.all()
    _, valid = a_view(cut=0, rotation="none").probs(torch.ones(16, 3, 24, 24))
    assert valid.all()


@pytest.mark.parametrize("rotation", ["any", "right"])
def test_labels_follow_the_image(rotation: str) -> None:
    torch.manual_seed(0)
    blobs = torch.zeros(16, 40, 40, dtype=torch.uint8)
    for i in range(16):
        top, left = torch.randint(10, 20, (2,)).tolist()
        blobs[i, top : top + 12, left : left + 9] = 1
    view = a_view((40, 40), cut=0, rotation=rotation)
    bright = view.images(blobs[:, None].float())[:, 0] > 0.5
    labelled = view.labels(blobs, UNLABELLED) == 1
    for i in range(16):
        assert (bright[i] & labelled[i]).sum() / (bright[i] | labelled[i]).sum() > 0.95


def test_the_cut_square_is_unlabelled_and_what_lies_beyond_the_border_is_outside() -> None:
    labels = torch.ones(16, 24, 24, dtype=torch.uint8)
    seen = a_view(cut=6, rotation="any").labels(labels, UNLABELLED)
    assert set(seen.unique().tolist()) == {1, UNLABELLED, OUTSIDE}
    exact = a_view(cut=6, rotation="right").labels(labels, UNLABELLED)
    assert (exact == UNLABELLED).sum() == 16 * 36
    assert set(exact.unique().tolist()) == {1, UNLABELLED}


def test_background_fill_labels_the_cut_and_the_border_as_class_0() -> None:
    labels = torch.ones(16, 24, 24, dtype=torch.uint8)
    seen = a_view(cut=6, rotation="any", fill="background").labels(labels, UNLABELLED)
    assert set(seen.unique().tolist()) == {0, 1}


@pytest.mark.parametrize("fill", ["unlabelled", "background"])
def test_pixels_outside_stay_outside_even_where_they_are_cut(fill: str) -> None:
    labels = torch.full((16, 24, 24), OUTSIDE, dtype=torch.uint8)
    seen = a_view(cut=6, rotation="right", fill=fill).labels(labels, UNLABELLED)
    assert (seen == OUTSIDE).all()


def test_valid_is_where_every_interpolated_pixel_was_kept() -> None:
    # Poison what must not be read: one touch of it shows in the interpolated value.
    view = a_view((30, 26), cut=8, rotation="any")
    poisoned = torch.zeros(16, 1, 30, 26).masked_fill(~view.uncut[:, None], 1e6)
    warped, valid = view.probs(poisoned)
    assert warped[:, 0][valid].abs().max() < 10  # a weight of 1e-5 would be rounding
    reached = view.probs(torch.ones(16, 1, 30, 26))[0][:, 0]
    assert reached[valid].min() > 1 - 1e-4
    untouched = (warped[:, 0] == 0) & (reached > 1 - 1e-6)
    assert (untouched & ~valid).float().mean() < 0.01  # and little more than that is given up


def test_an_exact_view_is_undone_to_the_bit() -> None:
    images = numbered((24, 24), count=64)
    for rotation in ("right", "none"):
        view = a_view(count=64, cut=0, rotation=rotation)
        assert torch.equal(view.undo(view.images(images)), images)


def test_the_same_generator_draws_the_same_view_and_consumes_the_same_numbers() -> None:
    for rotation in ("any", "right", "none"):
        one, other = torch.Generator().manual_seed(3), torch.Generator().manual_seed(3)
        first = draw_view(4, (24, 24), ViewSettings(cut=5, rotation=rotation), one)
        again = draw_view(4, (24, 24), ViewSettings(cut=5, rotation=rotation), other)
        assert torch.equal(first.images(smooth((24, 24), 4)), again.images(smooth((24, 24), 4)))
        assert torch.equal(torch.rand(3, generator=one), torch.rand(3, generator=other))


def test_the_global_generator_is_left_alone() -> None:
    torch.manual_seed(5)
    before = torch.get_rng_state()
    a_view(rotation="any").images(smooth((24, 24)))
    assert torch.equal(torch.get_rng_state(), before)


@pytest.mark.parametrize("rotation", ["any", "right"])
def test_gradients_of_viewed_probabilities_come_from_kept_pixels_only(rotation: str) -> None:
    view = a_view(cut=7, rotation=rotation)
    probs = torch.rand(16, 3, 24, 24, requires_grad=True)
    warped, valid = view.probs(probs)
    (warped * valid[:, None]).sum().backward()
    assert probs.grad is not None
    reached = probs.grad.abs().sum(dim=1) > 1e-3
    assert not reached[~view.uncut].any()
    assert reached[view.uncut].float().mean() > 0.5


@pytest.mark.parametrize("options", [{"cut": -1}, {"rotation": "all"}, {"fill": "outside"}])
def test_settings_that_mean_nothing_are_refused(options: dict[str, object]) -> None:
    with pytest.raises(InputError, match=next(iter(options))):
        ViewSettings(**options)  # type: ignore[arg-type]


def test_a_view_refuses_images_of_another_size() -> None:
    with pytest.raises(AssertionError, match="met"):
        a_view().images(torch.zeros(16, 1, 24, 25))
