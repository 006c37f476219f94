"""How far a structure can reach from its scribbles: what every scribble protocol says without a word.

Who scribbles a slice draws on each structure in it, along its length. So a class without a scribble in a
slice that has others is not there at all, and a structure does not go on far beyond where its scribbles end.
"""

from __future__ import annotations

import torch
from torch import Tensor

SMALLEST_RADIUS_PIXELS = 8.0
"""A dot says where a structure is, not how small."""


def within_reach(labels: Tensor, classes: int, *, reach: float) -> Tensor:
    r"""Where each class may be: within ``1 + reach`` times the radius of its scribbles around their centre.

    With c the mean position of the scribble pixels of class j in a slice and r the largest distance of one
    from it, j may be at x if

    .. math:: \|x - c\| \le (1 + \text{reach}) \max(r, r_{min}) + 1/2.

    A class that is not scribbled in a slice is within reach nowhere; in a slice that nobody scribbled, which
    says nothing, every class is everywhere. So is background in all slices.

    Args:
        labels: 0..K-1 where labelled, anything else is not, shape (N, H, W).
        classes: K.
        reach: how far beyond its scribbles a structure may go, as a share of their radius.

    Returns:
        Bool, shape (N, K, H, W).
    """
    count, height, width = labels.shape
    rows = torch.arange(height, device=labels.device, dtype=torch.float32)
    columns = torch.arange(width, device=labels.device, dtype=torch.float32)
    allowed = torch.ones((count, classes, height, width), dtype=torch.bool, device=labels.device)
    silent = labels.flatten(1).amin(dim=1) >= classes
    for label in range(1, classes):
        drawn = labels == label
        # Whatever is separable is computed once a row and once a column, not for every pixel.
        in_rows, in_columns = drawn.sum(dim=2), drawn.sum(dim=1)
        pixels = in_rows.sum(dim=1)
        centre_row = (in_rows * rows).sum(dim=1, keepdim=True) / pixels.clamp(min=1)[:, None]
        centre_column = (in_columns * columns).sum(dim=1, keepdim=True) / pixels.clamp(min=1)[:, None]
        down, along = (rows - centre_row) ** 2, (columns - centre_column) ** 2
        furthest_in_row = torch.where(drawn, along[:, None, :], -torch.inf).amax(dim=2)
        radius = (furthest_in_row + down).amax(dim=1).clamp(min=SMALLEST_RADIUS_PIXELS**2).sqrt()
        bound = ((1 + reach) * radius + 0.5) ** 2
        bound = torch.where(pixels > 0, bound, -1.0).masked_fill(silent, torch.inf)
        torch.le(along[:, None, :], (bound[:, None] - down)[:, :, None], out=allowed[:, label])
    return allowed
