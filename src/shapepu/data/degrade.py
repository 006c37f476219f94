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
        sound_share: the chance of a mask to be left as it is: what needs no mending must survive, too.
        radius: the largest reach, in pixels, of the morphological operations.
        shapes: the largest number of discs and rectangles that add a structure or cut a hole.
        shape_share: the largest reach of these from their middle, as a share of the longer side of the mask.
        swap_share: the largest share of pixels that take the label of another one nearby; only close to a
            boundary does it differ.
        swap_reach: how far away that one may be, in pixels along each axis.
    """

    sound_share: float = 0.25
    radius: int = 3
    shapes: int = 2
    shape_share: float = 0.06
    swap_share: float = 0.5
    swap_reach: int = 4

    def __post_init__(self) -> None:
        for name in ("radius", "shapes", "swap_reach"):
            if (count := getattr(self, name)) < 0:
                raise InputError(f"degradation.{name}: expected 0 or more, got {count}; choose another.")
        for name in ("sound_share", "shape_share", "swap_share"):
            if not 0 <= (share := getattr(self, name)) <= 1:
                raise InputError(f"degradation.{name}: expected a share from 0 to 1, got {share}.")


@dataclass(frozen=True)
class Shapes:
    """Discs and rectangles, up to S for each of N masks.

    Args:
        drawn: whether there is such a shape, (S, N).
        label: the class that its pixels become, 0 where it is a hole, (S, N).
        place: from 0 to 1, how far down the list of pixels that it may lie on its middle is: for a hole those
            of structures, else all; (S, N).
        reach: from its middle along rows and columns, as a share of the longer side of the mask, (S, N, 2).
        disc: whether it is a disc, as long as it is wide or not, and not a rectangle, (S, N).
    """

    drawn: Tensor
    label: Tensor
    place: Tensor
    reach: Tensor
    disc: Tensor


@dataclass(frozen=True)
class DegradeParameters:
    """What was drawn for N masks; nothing random is left.

    Args:
        sound: whether a mask stays as it is, (N,).
        structure: the class that is changed, (N,).
        turns: two operations after one another, each of SHRINK, KEEP, GROW, (2, N); so erosion, dilation,
            opening and closing all occur.
        radius: of the operations.
        shapes: what is added and cut out.
        swap_share: of each mask, (N,).
        swap_reach: see :class:`Degradation`.
        seed: of what is drawn for each pixel, which is made where it is used.
    """

    sound: Tensor
    structure: Tensor
    turns: Tensor
    radius: int
    shapes: Shapes
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
        sound=(torch.rand(count, generator=generator) < settings.sound_share).to(device),
        structure=torch.randint(1, classes, (count,), generator=generator).to(device),
        turns=torch.randint(SHRINK, GROW + 1, (2, count), generator=generator).to(device),
        radius=int(torch.randint(min(1, settings.radius), settings.radius + 1, (), generator=generator)),
        shapes=_draw_shapes(settings, count, classes, generator, device),
        swap_share=(torch.rand(count, generator=generator) * settings.swap_share).to(device),
        swap_reach=settings.swap_reach,
        seed=int(torch.randint(2**62, (), generator=generator)),
    )


def _draw_shapes(
    settings: Degradation,
    count: int,
    classes: int,
    generator: torch.Generator,
    device: torch.device | str,
) -> Shapes:
    """Any number of shapes up to the largest is as likely for each mask, and a hole as a structure."""
    size = (settings.shapes, count)
    number = torch.randint(settings.shapes + 1, (count,), generator=generator)
    hole, disc = torch.randint(2, (2, *size), generator=generator).bool()
    label = torch.randint(1, classes, size, generator=generator)
    return Shapes(
        drawn=(torch.arange(settings.shapes)[:, None] < number).to(device),
        label=label.where(~hole, 0).to(device),
        place=torch.rand(size, generator=generator).to(device),
        reach=(torch.rand((*size, 2), generator=generator) * settings.shape_share).to(device),
        disc=disc.to(device),
    )


def degrade(masks: Tensor, classes: int, parameters: DegradeParameters) -> Tensor:
    """Masks (N, H, W) of 0..K-1 with the damage that was drawn."""
    damaged = masks
    for turn in parameters.turns:
        damaged = change_structure(damaged, classes, parameters.structure, turn, parameters.radius)
    damaged = swap_near_boundaries(add_shapes(damaged, parameters.shapes), parameters)
    return torch.where(parameters.sound[:, None, None], masks, damaged)


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


def add_shapes(masks: Tensor, shapes: Shapes) -> Tensor:
    """Masks (N, H, W) with the shapes that were drawn for each, one after another."""
    longer = max(masks.shape[-2:])
    for i in range(len(shapes.drawn)):
        label = shapes.label[i][:, None, None]
        middles = _middles(masks, (label > 0) | (masks > 0), shapes.place[i])
        inside = _inside(masks, middles, longer * shapes.reach[i], shapes.disc[i])
        masks = torch.where(inside & shapes.drawn[i][:, None, None], label.to(masks.dtype), masks)
    return masks


def _middles(masks: Tensor, allowed: Tensor, place: Tensor) -> tuple[Tensor, Tensor]:
    """Row and column, each (N,), of the allowed pixel that is so far down the list of them."""
    listed = allowed.flatten(1).cumsum(1, dtype=torch.int32)
    wanted = (place * listed[:, -1]).to(torch.int32) + 1
    # Where none is allowed there is no structure, and a hole changes nothing wherever it is.
    pixel = torch.searchsorted(listed, wanted[:, None])[:, 0].clamp(max=listed.shape[1] - 1)
    return pixel // masks.shape[-1], pixel % masks.shape[-1]


def _inside(masks: Tensor, middles: tuple[Tensor, Tensor], reach: Tensor, disc: Tensor) -> Tensor:
    """Pixels of a disc or rectangle for each mask, bool, (N, H, W); its middle is always one of them."""
    # How far off the middle, in reaches; a shape is never narrower than its middle, and nothing divides by 0.
    down, across = (
        ((torch.arange(side, device=masks.device) - middle[:, None]) / each[:, None].clamp(min=0.5)).square()
        for side, middle, each in zip(masks.shape[-2:], middles, reach.unbind(1), strict=True)
    )
    down, across = down[:, :, None], across[:, None, :]
    return torch.where(disc[:, None, None], down + across <= 1, (down <= 1) & (across <= 1))


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
