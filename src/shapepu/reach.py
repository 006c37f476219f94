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
    rows = torch.arange(height, device=labels.device, dtype=torch.float32)[:, None].expand(height, width)
    columns = torch.arange(width, device=labels.device, dtype=torch.float32).expand(height, width)
    allowed = torch.ones((count, classes, height, width), dtype=torch.bool, device=labels.device)
    scribbled = (labels < classes).flatten(1).any(dim=1)
    for label in range(1, classes):
        drawn = labels == label
        pixels = drawn.sum(dim=(1, 2))
        centre_row = (rows * drawn).sum(dim=(1, 2)) / pixels.clamp(min=1)
        centre_column = (columns * drawn).sum(dim=(1, 2)) / pixels.clamp(min=1)
        squared = (rows - centre_row[:, None, None]) ** 2 + (columns - centre_column[:, None, None]) ** 2
        radius = squared.where(drawn, 0).flatten(1).amax(dim=1).sqrt().clamp(min=SMALLEST_RADIUS_PIXELS)
        near = squared <= ((1 + reach) * radius[:, None, None] + 0.5) ** 2
        present = (pixels > 0)[:, None, None]
        allowed[:, label] = (near & present) | ~scribbled[:, None, None]
    return allowed
