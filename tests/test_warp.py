"""Sign, centre and border of the sampling that augmentation and views share."""

from __future__ import annotations

import pytest
import torch

from shapepu.warp import (
    PixelGrid,
    affine_grid_in_pixels,
    centre_window,
    nearest_indices,
    sample_at,
    sample_linear,
    sample_nearest,
    turn_back,
)


def grid_of(matrix: torch.Tensor, size: tuple[int, int], source: tuple[int, int] | None = None) -> PixelGrid:
    return affine_grid_in_pixels(matrix, torch.zeros(len(matrix), 2), size, source or size)


def identity_grid(size: tuple[int, int], source: tuple[int, int]) -> PixelGrid:
    return grid_of(torch.eye(2)[None], size, source)


@pytest.mark.parametrize("turns", [1, 2, 3])
def test_a_positive_angle_turns_the_way_rot90_does(turns: int) -> None:
    labels = torch.arange(49).reshape(1, 7, 7)
    grid = grid_of(turn_back(torch.tensor([90.0 * turns])).float(), (7, 7))
    assert torch.equal(sample_nearest(labels, grid, fill=-1), torch.rot90(labels, turns, (1, 2)))


def test_linear_sampling_agrees_with_a_plain_loop() -> None:
    torch.manual_seed(0)
    images = torch.randn(2, 3, 5, 8)
    x, y = torch.rand(2, 4, 6) * 12 - 2, torch.rand(2, 4, 6) * 9 - 2

    def pixel(n: int, c: int, row: int, column: int) -> float:
        inside = 0 <= row < 5 and 0 <= column < 8
        return float(images[n, c, row, column]) if inside else -3.0

    expected = torch.empty(2, 3, 4, 6)
    for n, c, i, j in torch.cartesian_prod(*map(torch.arange, (2, 3, 4, 6))).tolist():
        column, row = int(x[n, i, j].floor()), int(y[n, i, j].floor())
        u, v = float(x[n, i, j]) - column, float(y[n, i, j]) - row
        upper = (1 - u) * pixel(n, c, row, column) + u * pixel(n, c, row, column + 1)
        lower = (1 - u) * pixel(n, c, row + 1, column) + u * pixel(n, c, row + 1, column + 1)
        expected[n, c, i, j] = (1 - v) * upper + v * lower
    torch.testing.assert_close(sample_linear(images, PixelGrid(x, y), fill=-3.0), expected, atol=1e-4, rtol=0)


def test_nearest_sampling_agrees_with_a_plain_loop() -> None:
    torch.manual_seed(1)
    labels = torch.randint(0, 5, (2, 5, 8), dtype=torch.uint8)
    x, y = torch.rand(2, 40, 40) * 14 - 3, torch.rand(2, 40, 40) * 11 - 3
    found = sample_nearest(labels, PixelGrid(x, y), fill=255)
    for n, i, j in torch.cartesian_prod(*map(torch.arange, (2, 40, 40))).tolist():
        row, column = round(float(y[n, i, j])), round(float(x[n, i, j]))
        inside = 0 <= row < 5 and 0 <= column < 8
        assert found[n, i, j] == (labels[n, row, column] if inside else 255)


def test_linear_sampling_without_a_fill_repeats_the_border() -> None:
    images = torch.arange(12.0).reshape(1, 1, 3, 4)
    grid = PixelGrid(torch.tensor([[[-5.0, 9.0]]]), torch.tensor([[[0.0, 9.0]]]))
    torch.testing.assert_close(sample_linear(images, grid).flatten(), torch.tensor([0.0, 11.0]))


def test_sampling_takes_half_precision_and_returns_float32() -> None:
    images = torch.randn(1, 1, 6, 6)
    grid = identity_grid((6, 6), (6, 6))
    for dtype in (torch.float16, torch.bfloat16):
        found = sample_linear(images.to(dtype), grid)
        assert found.dtype == torch.float32
        torch.testing.assert_close(found, images.to(dtype).float(), atol=1e-4, rtol=0)


def test_far_away_coordinates_read_nothing_outside_the_array() -> None:
    labels = torch.ones(1, 3, 3, dtype=torch.uint8)
    far = torch.tensor([[[-1e9, 1e9, 1e30]]])
    assert (sample_nearest(labels, PixelGrid(far, far), fill=7) == 7).all()


def test_indices_count_in_double_precision_for_huge_sources() -> None:
    height, width = 5000, 5001
    x, y = torch.tensor([[[4998.0, 4999.0]]]), torch.tensor([[[4997.0, 4997.0]]])
    found = nearest_indices(PixelGrid(x, y), (height, width))
    assert found.flatten().tolist() == [4998 * (width + 2) + 4999, 4998 * (width + 2) + 5000]


@pytest.mark.parametrize(
    ("source", "size"),
    [((8, 9), (4, 4)), ((7, 7), (4, 5)), ((4, 4), (7, 9)), ((9, 4), (4, 9)), ((5, 5), (5, 5))],
)
def test_the_identity_grid_is_the_centre_window(source: tuple[int, int], size: tuple[int, int]) -> None:
    labels = torch.arange(source[0] * source[1]).reshape(1, *source)
    window = centre_window(labels, size, fill=-1)
    assert window.shape == (1, *size)
    assert torch.equal(sample_nearest(labels, identity_grid(size, source), fill=-1), window)


def test_the_centre_window_cuts_and_fills_around_the_middle() -> None:
    row = torch.tensor([[1, 2, 3, 4]])
    assert centre_window(row, (1, 2)).tolist() == [[2, 3]]
    assert centre_window(row, (1, 6), fill=0).tolist() == [[0, 1, 2, 3, 4, 0]]
    assert centre_window(row.float()[None, None], (1, 6)).flatten().tolist() == [1, 1, 2, 3, 4, 4]


def test_a_turn_keeps_lengths_on_images_that_are_not_square() -> None:
    # A row of 5 pixels becomes a column of 5 pixels, whatever the shape of the image.
    labels = torch.zeros(1, 9, 15, dtype=torch.uint8)
    labels[0, 4, 5:10] = 1
    turned = sample_nearest(labels, grid_of(turn_back(torch.tensor([90.0])).float(), (9, 15)), fill=0)
    expected = torch.zeros_like(labels)
    expected[0, 2:7, 7] = 1
    assert torch.equal(turned, expected)


def test_every_sample_has_its_own_matrix() -> None:
    labels = torch.arange(9).reshape(1, 3, 3).expand(4, 3, 3)
    grid = grid_of(turn_back(torch.arange(4) * 90.0).float(), (3, 3))
    indices = nearest_indices(grid, (3, 3))
    found = sample_at(labels, indices, fill=-1)
    assert torch.equal(found, torch.stack([torch.rot90(labels[0], turns) for turns in range(4)]))
