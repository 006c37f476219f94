"""Scribbles from dense masks, drawn about as people draw them.

In every slice each class gets, per region, one *interior curve* along the middle of the region and one
*border arc* inside the region, near its edge; the background gets a curve well away from the structures and
an arc around them. All curves are found the same way: the longest path through a set of pixels, smoothed,
cut to a share of its length, wobbled as by a hand, drawn with a round pen and clipped to the region. The
clipping makes a wrong label impossible.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from scipy import ndimage, sparse
from scipy.sparse import csgraph

from shapepu.errors import InputError
from shapepu.labels import MAX_CLASSES

Mask = NDArray[np.bool_]
Curve = NDArray[np.float64]
"""(n, 2) points, rows and columns in pixels."""

_EIGHT = np.ones((3, 3), bool)
_MOST_NODES = 4000
_SMALLEST_REGION = 0.1


@dataclass(frozen=True)
class ScribbleSettings:
    """How scribbles look.

    Args:
        thickness: diameter of the pen in pixels.
        density: share of each curve's length that is drawn, above 0 and up to 1.
        wobble: how far the hand strays from the curve, as a fraction of the room on either side.
        border: depth of the border arcs below the edge of a structure, in pixels.
        margin: distance of the background's arc from the structures, as a fraction of the shorter image side.
    """

    thickness: int = 1
    density: float = 0.6
    wobble: float = 0.25
    border: float = 2.0
    margin: float = 0.05

    def __post_init__(self) -> None:
        if self.thickness < 1:
            raise InputError(f"scribble thickness is in whole pixels, 1 or more; got {self.thickness}.")
        if not 0 < self.density <= 1:
            raise InputError(f"scribble density is a share of each curve in (0, 1]; got {self.density}.")
        if not 0 <= self.wobble <= 1:
            raise InputError(f"scribble wobble is a fraction from 0 to 1; got {self.wobble}.")
        if not (self.border >= 0 and self.margin >= 0):
            raise InputError(
                f"scribble border and margin cannot be negative; got {self.border}, {self.margin}."
            )


def scribble_volume(
    mask: NDArray,
    classes: int,
    settings: ScribbleSettings | None = None,
    seed: int | Sequence[int] = 0,
    *,
    axis: int = 0,
) -> NDArray[np.uint8]:
    """Scribbles for a dense mask, slice by slice.

    Args:
        mask: (Z, Y, X), classes 0..classes-1; other values (unlabelled, outside) stay unlabelled.
        classes: K, background included; unlabelled pixels of the result have this value.
        settings: how the scribbles look.
        seed: each slice and class draws from its own stream, so changing one leaves the others as they were.
        axis: the axis along which the slices are stacked.
    """
    if mask.ndim != 3:
        raise InputError(f"scribbles are drawn on volumes (Z, Y, X); got an array of shape {mask.shape}.")
    if not 2 <= classes <= MAX_CLASSES:
        raise InputError(f"classes is 2 to {MAX_CLASSES}, background included; got {classes}.")
    settings = settings or ScribbleSettings()
    entropy = list(seed) if isinstance(seed, Sequence) else [seed]
    scribbles = np.full(mask.shape, classes, np.uint8)
    drawn, slices = np.moveaxis(scribbles, axis, 0), np.moveaxis(mask, axis, 0)
    for z, labels in enumerate(slices):
        for label in range(classes):
            members = labels == label
            if members.any():
                rng = np.random.default_rng([*entropy, z, label])
                drawn[z][scribble_class(members, settings, rng, background=label == 0)] = label
    return scribbles


def scribble_class(
    members: Mask, settings: ScribbleSettings, rng: np.random.Generator, *, background: bool = False
) -> Mask:
    """The scribbled pixels of one class in one slice: at least one, and only pixels of ``members``."""
    drawn = np.zeros_like(members)
    box = _bounding_box(members)
    inside = members[box]
    depth = ndimage.distance_transform_edt(np.pad(inside, 1))[1:-1, 1:-1]
    # The image's edge bounds what can be drawn on but is no border of an organ.
    to_border = np.full(inside.shape, np.inf) if inside.all() else ndimage.distance_transform_edt(inside)
    border = settings.border + (settings.thickness - 1) / 2
    if background:
        border = max(border, settings.margin * min(members.shape))
    for region in _regions(inside):
        curves = [_interior_curve(region, depth, settings, rng)]
        curves += _border_arc(region, to_border, border * rng.uniform(0.8, 1.2), settings, rng)
        strokes = _draw(curves, settings.thickness, region.shape) & region
        if not strokes.any():
            strokes[np.unravel_index(np.argmax(np.where(region, depth, 0)), region.shape)] = True
        drawn[box] |= strokes
    return drawn


def _bounding_box(members: Mask) -> tuple[slice, slice]:
    """Around all members with one pixel more on each side, within the image."""
    rows, columns = np.flatnonzero(members.any(axis=1)), np.flatnonzero(members.any(axis=0))
    return (
        slice(max(0, rows[0] - 1), rows[-1] + 2),
        slice(max(0, columns[0] - 1), columns[-1] + 2),
    )


def _regions(inside: Mask) -> Iterator[Mask]:
    """Connected parts of a class, without those that are crumbs beside the largest."""
    numbered, count = ndimage.label(inside, _EIGHT)
    sizes = np.bincount(numbered.ravel(), minlength=count + 1)[1:]
    for number in np.flatnonzero(sizes >= _SMALLEST_REGION * sizes.max()) + 1:
        yield numbered == number


def _interior_curve(
    region: Mask, depth: NDArray[np.float64], settings: ScribbleSettings, rng: np.random.Generator
) -> Curve:
    """Along the middle of the region, across discs and around rings."""
    curve = _longest_curve(np.where(region, depth, 0), rng)
    curve = _part(curve, settings.density, rng)
    room = ndimage.map_coordinates(depth, curve.T, order=1, mode="nearest")
    return _wobbled(curve, settings.wobble * room, rng)


def _border_arc(
    region: Mask,
    to_border: NDArray[np.float64],
    border: float,
    settings: ScribbleSettings,
    rng: np.random.Generator,
) -> list[Curve]:
    """At a small depth below the border; none where the region is too thin to hold a second line."""
    deepest = to_border[region].max()
    if not np.isfinite(deepest) or deepest < border + settings.thickness:
        return []
    band = region & (np.abs(to_border - border) <= 0.75)
    if not band.any():
        return []
    # A ring has two borders and a person draws along one.
    pieces, count = ndimage.label(band, _EIGHT)
    sizes = np.bincount(pieces.ravel(), minlength=count + 1)[1:]
    chosen = pieces == 1 + rng.choice(count, p=sizes / sizes.sum())
    curve = _part(_longest_curve(chosen.astype(float), rng), settings.density, rng)
    return [_wobbled(curve, np.full(len(curve), settings.wobble * border), rng)]


def _longest_curve(depth: NDArray[np.float64], rng: np.random.Generator) -> Curve:
    """The path between the two ends of a region that lie farthest apart, walking where it is deep.

    ``depth`` is 0 outside the region. A ring has no ends, so it is cut open at a random direction first.
    """
    coarse, points, stride = _coarsened(depth)
    nodes = _cut_open(coarse > 0, rng)
    numbers = np.cumsum(nodes).reshape(nodes.shape) - 1
    graph = _walking_graph(nodes, numbers, coarse.max() / np.maximum(coarse, 1e-9))
    start = int(rng.integers(graph.shape[0]))
    one_end = _farthest(csgraph.dijkstra(graph, directed=False, indices=[start])[0])
    far, before = csgraph.dijkstra(graph, directed=False, indices=[one_end], return_predecessors=True)
    path = [_farthest(far[0])]
    while before[0, path[-1]] >= 0:
        path.append(int(before[0, path[-1]]))
    along = coarse[nodes][path]
    # The farthest ends lie in corners; a hand stops short of them, where the region is no longer deep.
    kept = np.flatnonzero(along >= 0.6 * np.median(along))
    return _smoothed(points[nodes][path][kept[0] : kept[-1] + 1], 1.5 * stride)


def _coarsened(depth: NDArray[np.float64]) -> tuple[NDArray[np.float64], Curve, int]:
    """Blocks of pixels, few enough for a quick search, each standing at its deepest pixel."""
    stride = max(1, int(np.ceil(np.sqrt(np.count_nonzero(depth) / _MOST_NODES))))
    rows, columns = (-(-n // stride) for n in depth.shape)
    padded = np.zeros((rows * stride, columns * stride))
    padded[: depth.shape[0], : depth.shape[1]] = depth
    blocks = padded.reshape(rows, stride, columns, stride).swapaxes(1, 2).reshape(rows, columns, -1)
    within = np.stack(np.divmod(blocks.argmax(axis=-1), stride), axis=-1)
    corners = np.moveaxis(np.indices((rows, columns)), 0, -1) * stride
    return blocks.max(axis=-1), (corners + within).astype(float), stride


def _cut_open(nodes: Mask, rng: np.random.Generator) -> Mask:
    """The nodes without a ray from the centre of their largest hole; only the largest part that remains."""
    holes, count = ndimage.label(ndimage.binary_fill_holes(nodes) & ~nodes)
    if not count:
        return nodes
    sizes = np.bincount(holes.ravel())[1:]
    centre = ndimage.center_of_mass(holes == 1 + int(sizes.argmax()))
    turn = rng.uniform(0, 2 * np.pi)
    y, x = np.indices(nodes.shape)
    along = (y - centre[0]) * np.sin(turn) + (x - centre[1]) * np.cos(turn)
    aside = (y - centre[0]) * np.cos(turn) - (x - centre[1]) * np.sin(turn)
    opened = nodes & ~((along > 0) & (np.abs(aside) <= 1))
    pieces, count = ndimage.label(opened, _EIGHT)
    return pieces == 1 + int(np.bincount(pieces.ravel())[1:].argmax()) if count else nodes


def _walking_graph(
    nodes: Mask, numbers: NDArray, price: NDArray[np.float64]
) -> sparse.csr_array[np.float64, tuple[int, int]]:
    """Neighbouring nodes joined at their distance times a price that keeps paths away from the edge."""
    cost = price**2
    starts, ends, lengths = [], [], []
    for dy, dx in ((0, 1), (1, 0), (1, 1), (1, -1)):
        here = (slice(0, nodes.shape[0] - dy), slice(max(0, -dx), nodes.shape[1] - max(0, dx)))
        there = (slice(dy, None), slice(max(0, dx), nodes.shape[1] - max(0, -dx)))
        joined = nodes[here] & nodes[there]
        starts.append(numbers[here][joined])
        ends.append(numbers[there][joined])
        lengths.append(np.hypot(dy, dx) * (cost[here] + cost[there])[joined] / 2)
    count = int(np.count_nonzero(nodes))
    edges = (np.concatenate(starts), np.concatenate(ends))
    return sparse.csr_array((np.concatenate(lengths), edges), shape=(count, count))


def _farthest(distances: NDArray[np.float64]) -> int:
    return int(np.argmax(np.where(np.isfinite(distances), distances, -1)))


def _smoothed(points: Curve, sigma: float) -> Curve:
    """The path without its stairs, in steps of about half a pixel."""
    if len(points) < 3:
        return points
    curve = ndimage.gaussian_filter1d(points, sigma / _mean_step(points), axis=0, mode="nearest")
    # Smoothing pulls the ends in, but a line is drawn to its end.
    curve = np.concatenate([points[:1], curve, points[-1:]])
    walked = np.concatenate([[0.0], np.cumsum(np.hypot(*np.diff(curve, axis=0).T))])
    stops = np.linspace(0, walked[-1], max(3, int(2 * walked[-1])))
    return np.stack([np.interp(stops, walked, coordinate) for coordinate in curve.T], axis=1)


def _mean_step(points: Curve) -> float:
    return max(1e-9, float(np.hypot(*np.diff(points, axis=0).T).mean()))


def _part(curve: Curve, share: float, rng: np.random.Generator) -> Curve:
    """A contiguous share of the curve, beginning anywhere."""
    length = max(1, round(share * len(curve)))
    start = int(rng.integers(len(curve) - length + 1))
    return curve[start : start + length]


def _wobbled(curve: Curve, reach: NDArray[np.float64], rng: np.random.Generator) -> Curve:
    """The curve as a hand draws it, straying smoothly to either side by about ``reach`` pixels."""
    if len(curve) < 3:
        return curve
    # Half-pixel steps: the hand sways over some four pixels, and more slowly where it has more room.
    noise = ndimage.gaussian_filter1d(
        rng.normal(size=len(curve)), 8 + 2 * float(reach.mean()), mode="nearest"
    )
    sway = np.clip(noise / max(float(noise.std()), 1e-9), -1.5, 1.5)
    along = np.gradient(curve, axis=0)
    aside = along[:, ::-1] * [1, -1] / np.maximum(np.hypot(*along.T), 1e-9)[:, None]
    return curve + aside * (reach * sway)[:, None]


def _draw(curves: Sequence[Curve], thickness: int, shape: tuple[int, ...]) -> Mask:
    """The pixels under a round pen moved along the curves."""
    drawn = np.zeros(shape, bool)
    for curve in curves:
        line = _without_gaps(curve)
        rows, columns = np.clip(np.rint(line).astype(int).T, 0, [[shape[0] - 1], [shape[1] - 1]])
        drawn[rows, columns] = True
    if thickness == 1:
        return drawn
    offsets = np.arange(thickness) - (thickness - 1) / 2
    pen = np.hypot(*np.meshgrid(offsets, offsets)) <= thickness / 2
    return ndimage.binary_dilation(drawn, pen)


def _without_gaps(curve: Curve) -> Curve:
    """More points where wobbling has pulled neighbours more than a pixel apart."""
    if len(curve) < 2:
        return curve
    longest = float(np.abs(np.diff(curve, axis=0)).max())
    stops = np.linspace(0, len(curve) - 1, int((len(curve) - 1) * max(1.0, np.ceil(longest / 0.7))) + 1)
    return np.stack([np.interp(stops, np.arange(len(curve)), c) for c in curve.T], axis=1)
