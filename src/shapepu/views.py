"""The second view of a batch, for global consistency: a square cut out, then a rotation, then a flip.

:func:`draw_view` draws every random number; a :class:`View` only uses them, so what was done to the images is
done again, to the pixel, to their labels and to the predictions. Each image of the batch has its own view.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache
from typing import Literal

import torch
from torch import Tensor

from shapepu.errors import InputError
from shapepu.labels import OUTSIDE
from shapepu.warp import PixelGrid, affine_grid_in_pixels, sample_linear, sample_nearest, turn_back


@dataclass(frozen=True)
class ViewSettings:
    """What a view may do.

    Args:
        cut: side in pixels of the square cut out; 0 for none.
        rotation: "any" angle, interpolated; "right" angles, exact, of which images that are not square get
            the half turn only; "none".
        flip: mirror at random. With "none" rows and columns each have their own chance; otherwise one flip
            and the rotation already give every orientation.
        fill: label of the cut square and of what a rotation brings in from beyond the border. "unlabelled"
            leaves them out of every supervised loss; "background" calls them class 0, as the authors' code.
    """

    cut: int = 32
    rotation: Literal["any", "right", "none"] = "any"
    flip: bool = True
    fill: Literal["unlabelled", "background"] = "unlabelled"

    def __post_init__(self) -> None:
        if self.cut < 0:
            raise InputError(f"view 'cut' is a side in pixels, 0 for none; got {self.cut}.")
        for name, known in (("rotation", ("any", "right", "none")), ("fill", ("unlabelled", "background"))):
            if getattr(self, name) not in known:
                raise InputError(f"view {name!r} is one of {', '.join(known)}; got {getattr(self, name)!r}.")


@dataclass(frozen=True)
class View:
    """What was drawn for a batch of N images of one size; nothing random is left.

    Args:
        size: height and width of the images.
        cut: height and width of the rectangle cut out, which the image's border may have shortened.
        top, left: (N,), the first row and column of the cut.
        turns: (quarter turns counter-clockwise, whether columns are mirrored after it) of each image of an
            exact view; None for a view at any angle.
        matrix: (N, 2, 2), takes an (x, y) offset from the centre back to the image; None for an exact view.
        fill: see :class:`ViewSettings`.
    """

    size: tuple[int, int]
    cut: tuple[int, int]
    top: Tensor
    left: Tensor
    turns: tuple[tuple[int, bool], ...] | None
    matrix: Tensor | None
    fill: Literal["unlabelled", "background"] = "unlabelled"

    @property
    def uncut(self) -> Tensor:
        """z of the paper, bool (N, H, W): False in the cut square."""
        rows = torch.arange(self.size[0], device=self.top.device)
        columns = torch.arange(self.size[1], device=self.top.device)
        in_rows = (rows >= self.top[:, None]) & (rows < self.top[:, None] + self.cut[0])
        in_columns = (columns >= self.left[:, None]) & (columns < self.left[:, None] + self.cut[1])
        return ~(in_rows[:, :, None] & in_columns[:, None, :])

    def images(self, images: Tensor, fill_value: float = 0.0) -> Tensor:
        """X' = T(z * X) of images (N, C, H, W); ``fill_value`` in the cut square and beyond the border."""
        self._assert_fits(images)
        cut = images.masked_fill(~self.uncut[:, None], fill_value)
        if self.turns is not None:
            return _turn(cut, self.turns)
        return sample_linear(cut, self._grid(), fill=fill_value)

    def labels(self, labels: Tensor, unlabelled: int, outside: int = OUTSIDE) -> Tensor:
        """The labels (N, H, W) of the viewed images, nearest; pixels that were ``outside`` stay so.

        The cut square becomes ``unlabelled`` and what lies beyond the border ``outside``; both become 0 where
        the settings fill with "background".
        """
        self._assert_fits(labels)
        in_cut, beyond = (0, 0) if self.fill == "background" else (unlabelled, outside)
        cut = labels.masked_fill(~self.uncut & (labels != outside), in_cut)
        if self.turns is not None:
            return _turn(cut, self.turns)
        return sample_nearest(cut, self._grid(), fill=beyond)

    def probs(self, probs: Tensor) -> tuple[Tensor, Tensor]:
        """Maps (N, K, H, W) of the images as the viewed images have to show them, and where they do.

        Returns:
            The maps turned and mirrored, and a bool (N, H, W): True where all the pixels a value was
            interpolated from are in the image and not cut out. Elsewhere the values mean nothing.
        """
        self._assert_fits(probs)
        if self.turns is not None:
            return _turn(probs, self.turns), _turn(self.uncut, self.turns)
        grid = self._grid()
        return sample_linear(probs, grid, fill=0.0), self._interpolates_kept_pixels(grid)

    def undo(self, maps: Tensor) -> Tensor:
        """Maps (N, ..., H, W) of the viewed images turned back onto the images; for exact views only."""
        assert self.turns is not None, "a view at any angle cannot be undone without loss"
        # A turn with a mirror is its own inverse; without one it turns back by as much.
        inverse = tuple((k, True) if mirrored else (-k % 4, False) for k, mirrored in self.turns)
        return _turn(maps, inverse)

    def _grid(self) -> PixelGrid:
        assert self.matrix is not None
        return affine_grid_in_pixels(self.matrix, torch.zeros_like(self.matrix[:, 0]), self.size, self.size)

    def _interpolates_kept_pixels(self, grid: PixelGrid) -> Tensor:
        height, width = self.size
        top, left = self.top[:, None, None], self.left[:, None, None]
        inside = (grid.x >= 0) & (grid.x <= width - 1) & (grid.y >= 0) & (grid.y <= height - 1)
        # Interpolation reaches the next pixel on either side, so the cut reaches one pixel further out.
        touches_columns = (grid.x > left - 1) & (grid.x < left + self.cut[1])
        touches_rows = (grid.y > top - 1) & (grid.y < top + self.cut[0])
        return inside & ~(touches_columns & touches_rows) if min(self.cut) else inside

    def _assert_fits(self, maps: Tensor) -> None:
        assert maps.shape[0] == len(self.top), f"a view of {len(self.top)} images met {maps.shape[0]}"
        assert tuple(maps.shape[-2:]) == self.size, f"a view of {self.size} met {tuple(maps.shape[-2:])}"


def draw_view(
    count: int,
    size: tuple[int, int],
    settings: ViewSettings,
    generator: torch.Generator,
    device: torch.device | str = "cpu",
) -> View:
    """Draw a view for each of ``count`` images.

    Args:
        count: N.
        size: height and width of the images; a cut larger than they are takes what there is.
        settings: what a view may do.
        generator: the only source of randomness; a CPU generator gives the same numbers whatever the device.
        device: where the images are.
    """
    unit = torch.rand((3, count), generator=generator)
    coins = torch.rand((2, count), generator=generator) < 0.5
    cut = min(settings.cut, size[0]), min(settings.cut, size[1])
    quarters, mirrored = _draw_orientation(unit[2], coins, size, settings)
    turns, matrix = None, None
    if settings.rotation == "any":
        # Where the flip comes last, the way back starts with it: the first column of the matrix changes sign.
        sign = torch.stack((1 - 2 * mirrored.double(), torch.ones(count, dtype=torch.float64)), dim=-1)
        matrix = (turn_back(quarters * 90) * sign[:, None, :]).float().to(device, non_blocking=True)
    else:
        turns = tuple(zip(quarters.int().tolist(), mirrored.tolist(), strict=True))
    return View(
        size=size,
        cut=cut,
        top=(unit[0] * (size[0] - cut[0] + 1)).long().to(device, non_blocking=True),
        left=(unit[1] * (size[1] - cut[1] + 1)).long().to(device, non_blocking=True),
        turns=turns,
        matrix=matrix,
        fill=settings.fill,
    )


def _draw_orientation(
    unit: Tensor, coins: Tensor, size: tuple[int, int], settings: ViewSettings
) -> tuple[Tensor, Tensor]:
    """Quarter turns and whether columns are mirrored, from a uniform number and two coins an image."""
    flips = coins & settings.flip
    if settings.rotation == "any":
        return unit * 4, flips[0]
    if settings.rotation == "right":
        return (unit * 4).floor() if size[0] == size[1] else (unit * 2).floor() * 2, flips[0]
    # Mirroring rows is a half turn and mirroring columns.
    return flips[1] * 2.0, flips[0] ^ flips[1]


def _turn(maps: Tensor, turns: tuple[tuple[int, bool], ...]) -> Tensor:
    """Each of the maps (N, ..., H, W) turned and mirrored its own way; pixels move, none is interpolated."""
    return _turn_in_groups(maps, turns) if maps.device.type == "cpu" else _turn_by_index(maps, turns)


def _turn_in_groups(maps: Tensor, turns: tuple[tuple[int, bool], ...]) -> Tensor:
    """For a CPU, which copies whole images faster than it looks up where each pixel comes from."""
    members: dict[tuple[int, bool], list[int]] = {}
    for i, turn in enumerate(turns):
        members.setdefault(turn, []).append(i)
    parts = []
    for turn, chosen in members.items():
        # index_select, because the gradient of indexing by a list is several times slower.
        members_of = torch.tensor(chosen, device=maps.device)
        parts.append(_turn_alike(maps.index_select(0, members_of), *turn))
    order = [i for chosen in members.values() for i in chosen]
    back = torch.empty(len(order), dtype=torch.long)
    back[order] = torch.arange(len(order))
    return torch.cat(parts).index_select(0, back.to(maps.device))


def _turn_by_index(maps: Tensor, turns: tuple[tuple[int, bool], ...]) -> Tensor:
    """For a GPU, where an image more costs nothing and a call more does."""
    sources = _sources(turns, (maps.shape[-2], maps.shape[-1]), maps.device)
    sources = sources.view(len(turns), *[1] * (maps.ndim - 3), -1)
    pixels = maps.flatten(-2)
    return pixels.gather(-1, sources.expand(pixels.shape)).view(maps.shape)


@lru_cache(maxsize=4)
def _sources(turns: tuple[tuple[int, bool], ...], size: tuple[int, int], device: torch.device) -> Tensor:
    """Which pixel of its image each pixel of a turned image is, (N, H W); a view asks several times."""
    kinds = torch.tensor([4 * mirrored + quarters for quarters, mirrored in turns])
    return _orientations(size, device).index_select(0, kinds.to(device, non_blocking=True))


@lru_cache(maxsize=4)
def _orientations(size: tuple[int, int], device: torch.device) -> Tensor:
    """Row ``4 mirrored + quarters`` holds the indices of the pixels of an image turned that way, (8, H W)."""
    pixels = torch.arange(size[0] * size[1]).view(size)
    turned = [_turn_alike(pixels, quarters, mirrored) for mirrored in (False, True) for quarters in range(4)]
    return torch.stack([each.flatten() for each in turned]).to(device)


def _turn_alike(maps: Tensor, quarters: int, mirrored: bool) -> Tensor:
    part = torch.rot90(maps, quarters, dims=(-2, -1))
    return part.flip(-1) if mirrored else part
