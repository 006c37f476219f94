"""Batched resampling in pixel units: one grid serves the images, the labels and the predictions.

Augmentation and consistency views differ in what they draw; both sample here, so that an angle, a centre and
a border mean the same thing everywhere. Coordinates are counted from the centre of the first pixel, x to the
right and y down. A positive angle turns the content counter-clockwise as displayed, like :func:`torch.rot90`.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
import torch.nn.functional as F
from torch import Tensor


@dataclass(frozen=True)
class PixelGrid:
    """Where each output pixel comes from: column ``x`` and row ``y`` in the source, each (N, H, W)."""

    x: Tensor
    y: Tensor


def turn_back(angle_degrees: Tensor) -> Tensor:
    """The matrices (N, 2, 2) that take a turned (x, y) offset back to where it came from."""
    # Products of two such matrices feed the augmentation, and a quarter turn should land on pixel centres:
    # double precision keeps cos(90 degrees) at 6e-17.
    angle = torch.deg2rad(angle_degrees.double())
    cosine, sine = angle.cos(), angle.sin()
    rows = torch.stack((cosine, -sine), dim=-1), torch.stack((sine, cosine), dim=-1)
    return torch.stack(rows, dim=-2)


def affine_grid_in_pixels(
    matrix: Tensor, shift: Tensor, size: tuple[int, int], source_size: tuple[int, int]
) -> PixelGrid:
    """The grid on which an offset d from the output's centre comes from ``matrix @ d + shift`` in the source.

    Args:
        matrix: (N, 2, 2) on (x, y) offsets in pixels; equal steps in x and y stay equal for any image shape.
        shift: (N, 2), the (x, y) shift in source pixels.
        size: height and width of the output.
        source_size: height and width of the source. Its centre is that of the window which
            :func:`centre_window` cuts, so that the identity never falls between pixels.
    """
    height, width = size
    x = torch.arange(width, dtype=matrix.dtype, device=matrix.device) - (width - 1) / 2
    y = torch.arange(height, dtype=matrix.dtype, device=matrix.device) - (height - 1) / 2
    centre_x = (source_size[1] - width) // 2 + (width - 1) / 2
    centre_y = (source_size[0] - height) // 2 + (height - 1) / 2
    along_row = matrix[:, :, 0, None] * x
    along_column = matrix[:, :, 1, None] * y + shift[:, :, None]
    return PixelGrid(
        x=along_row[:, 0, None, :].float() + (along_column[:, 0, :, None] + centre_x).float(),
        y=along_row[:, 1, None, :].float() + (along_column[:, 1, :, None] + centre_y).float(),
    )


def centre_window(images: Tensor, size: tuple[int, int], fill: float | None = None) -> Tensor:
    """The central window of images (..., H, W); beyond them ``fill`` or, for None, their border repeated."""
    height, width = images.shape[-2:]
    top, left = (height - size[0]) // 2, (width - size[1]) // 2
    # Negative padding crops; what is missing on one side only falls out of the same two numbers.
    padding = (-left, size[1] - width + left, -top, size[0] - height + top)
    if not any(padding):
        return images
    if fill is None and any(side > 0 for side in padding):
        return F.pad(images, padding, mode="replicate")
    return F.pad(images, padding, value=0.0 if fill is None else fill)


def sample_linear(images: Tensor, grid: PixelGrid, fill: float | None = None) -> Tensor:
    """Images (N, C, H, W) at the grid, bilinear, float32; beyond them ``fill`` or, for None, their border."""
    height, width = images.shape[-2:]
    # Written where it is wanted: arrays of this size that come and go cost a CPU more than the arithmetic.
    normalised = torch.empty((*grid.x.shape, 2), dtype=grid.x.dtype, device=grid.x.device)
    torch.mul(grid.x, 2 / width, out=normalised[..., 0]).add_(1 / width - 1)
    torch.mul(grid.y, 2 / height, out=normalised[..., 1]).add_(1 / height - 1)
    source = images.float()
    if fill:
        source = source - fill
    padding = "border" if fill is None else "zeros"
    sampled = F.grid_sample(source, normalised, mode="bilinear", padding_mode=padding, align_corners=False)
    return sampled + fill if fill else sampled


def sample_nearest(labels: Tensor, grid: PixelGrid, fill: int) -> Tensor:
    """Labels (N, H, W) of any integer type at the grid, nearest; ``fill`` beyond the border."""
    return sample_at(labels, nearest_indices(grid, (labels.shape[-2], labels.shape[-1])), fill)


def nearest_indices(grid: PixelGrid, source_size: tuple[int, int]) -> Tensor:
    """Flat indices (N, H, W) of the nearest source pixels, for :func:`sample_at`.

    They count in a source with a rim of one pixel, which stands for everything beyond the border.
    """
    height, width = source_size
    column = grid.x.round().clamp_(-1, width)
    row = grid.y.round().clamp_(-1, height)
    # float32 counts exactly to 2^24, a source of 4096 x 4096.
    if (height + 2) * (width + 2) > 2**24:
        column, row = column.double(), row.double()
    # The rim shifts both by one.
    return column.add_(row, alpha=width + 2).add_(width + 3).long()


def sample_at(labels: Tensor, indices: Tensor, fill: int) -> Tensor:
    """Labels (N, H, W) at indices made by :func:`nearest_indices`; ``fill`` beyond the border."""
    rimmed = F.pad(labels, (1, 1, 1, 1), value=fill)
    return rimmed.flatten(1).gather(1, indices.flatten(1)).view(indices.shape)
