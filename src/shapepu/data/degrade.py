"""Damage to masks as segmentation networks do it: for denoisers that learn to mend it."""

from __future__ import annotations

from dataclasses import dataclass

import torch
import torch.nn.functional as F
from torch import Tensor

from shapepu.errors import InputError
from shapepu.networks.blocks import one_hot

SHRINK, KEEP, GROW = -1, 0, 1


@dataclass(frozen=True)
class Degradation:
    """How far masks are damaged.

    Args:
        radius: the largest reach, in pixels, of the morphological operations.
        swap_share: the largest share of pixels that take the label of another one nearby; only close to a
            boundary does it differ.
        swap_reach: how far away that one may be, in pixels along each axis.
    """

    radius: int = 3
    swap_share: float = 0.5
    swap_reach: int = 4

    def __post_init__(self) -> None:
        if self.radius < 0 or self.swap_reach < 0 or not 0 <= self.swap_share <= 1:
            raise InputError(
                "degradation: expected a radius and a swap reach of 0 or more and a swap share from 0 to 1; "
                f"got {self.radius}, {self.swap_reach}, {self.swap_share}."
            )


@dataclass(frozen=True)
class DegradeParameters:
    """What was drawn for N masks; nothing random is left.

    Args:
        structure: the class that is changed, (N,).
        turns: two operations after one another, each of SHRINK, KEEP, GROW, (2, N); so erosion, dilation,
            opening and closing all occur.
        radius: of the operations.
        swap_share: of each mask, (N,).
        swap_reach: see :class:`Degradation`.
        seed: of what is drawn for each pixel, which is made where it is used.
    """

    structure: Tensor
    turns: Tensor
    radius: int
    swap_share: Tensor
    swap_reach: int
    seed: int


def draw_degradation(
    settings: Degradation,
    count: int,
    classes: int,
    generator: torch.Generator,
    device: torch.device | str = "cpu",
) -> DegradeParameters:
    """Draw the damage of ``count`` masks of ``classes`` classes from ``generator`` alone."""
    return DegradeParameters(
        structure=torch.randint(1, classes, (count,), generator=generator).to(device),
        turns=torch.randint(SHRINK, GROW + 1, (2, count), generator=generator).to(device),
        radius=int(torch.randint(min(1, settings.radius), settings.radius + 1, (), generator=generator)),
        swap_share=(torch.rand(count, generator=generator) * settings.swap_share).to(device),
        swap_reach=settings.swap_reach,
        seed=int(torch.randint(2**62, (), generator=generator)),
    )


def degrade(masks: Tensor, classes: int, parameters: DegradeParameters) -> Tensor:
    """Masks (N, H, W) of 0..K-1 with the damage that was drawn."""
    for turn in parameters.turns:
        masks = change_structure(masks, classes, parameters.structure, turn, parameters.radius)
    return swap_near_boundaries(masks, parameters)


def change_structure(masks: Tensor, classes: int, structure: Tensor, turn: Tensor, radius: int) -> Tensor:
    """One class of each mask shrunk or grown by a square of ``radius`` pixels to each side.

    Pixels that a shrinking structure gives up take the most frequent other class around them.

    Args:
        masks: (N, H, W), 0..K-1.
        classes: K.
        structure: the class, (N,).
        turn: SHRINK, KEEP or GROW, (N,).
        radius: in pixels.
    """
    shares = _box_mean(one_hot(masks, classes), radius)
    chosen = structure[:, None, None, None].expand(-1, 1, *masks.shape[1:])
    own = shares.gather(1, chosen)[:, 0]
    label, turn = structure.to(masks.dtype)[:, None, None], turn[:, None, None]
    grown = torch.where(own > 0, label, masks)
    others = shares.scatter(1, chosen, -1.0).argmax(dim=1).to(masks.dtype)
    shrunk = torch.where((masks == label) & (own < 1), others, masks)
    return torch.where(turn == GROW, grown, torch.where(turn == SHRINK, shrunk, masks))


def swap_near_boundaries(masks: Tensor, parameters: DegradeParameters) -> Tensor:
    """Some pixels with the label of another one that is at most ``swap_reach`` away."""
    count, height, width = masks.shape
    generator = torch.Generator(masks.device).manual_seed(parameters.seed)
    drawn = torch.rand((3, count, height, width), generator=generator, device=masks.device)
    swapped = drawn[0] < parameters.swap_share[:, None, None]
    steps = (drawn[1:] * (2 * parameters.swap_reach + 1)).long() - parameters.swap_reach
    rows = (torch.arange(height, device=masks.device)[:, None] + steps[0]).clamp(0, height - 1)
    columns = (torch.arange(width, device=masks.device) + steps[1]).clamp(0, width - 1)
    neighbours = masks.flatten(1).gather(1, (rows * width + columns).flatten(1)).view_as(masks)
    return torch.where(swapped, neighbours, masks)


def _box_mean(planes: Tensor, radius: int) -> Tensor:
    """The mean over a square around each pixel, as far as it lies in the image."""
    side = 2 * radius + 1
    rows = F.avg_pool2d(planes, (side, 1), 1, (radius, 0), count_include_pad=False)
    return F.avg_pool2d(rows, (1, side), 1, (0, radius), count_include_pad=False)
