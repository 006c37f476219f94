"""Synthetic short-axis cardiac MR: hearts with known masks, among organs that share the heart's intensities.

The pictures are schematic on purpose, but the difficulties are those of real data: a liver as bright as the
myocardium and touching it, a stomach, an aorta and atria as bright as the ventricles, papillary muscles,
levels without any ventricle, partial volume, a coil's bias field and Rician noise. A threshold finds blood
and muscle everywhere; only shape tells where the heart is.

A case's anatomy is drawn first (:mod:`shapepu.data.phantom_scene`); rendering it draws nothing but noise.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray
from scipy import ndimage

from shapepu.console import progress
from shapepu.data.nifti import plain_header, write_nifti
from shapepu.data.phantom_scene import (
    LAST_LEVEL,
    PATHOLOGIES,
    Blob,
    Field,
    Heart,
    Point,
    Range,
    Scene,
    draw_scene,
    sector_distance,
)
from shapepu.data.scribbles import ScribbleSettings, scribble_volume
from shapepu.errors import InputError, unknown_name
from shapepu.files import writable_folder, write_text
from shapepu.labels import LabelSet

LABELS = LabelSet(("background", "rv", "myo", "lv"))
BACKGROUND, RV, MYO, LV = range(4)


@dataclass(frozen=True)
class PhantomSettings:
    """What synthetic cases look like; each pair is the range a case draws from.

    Args:
        size_px: rows and columns, drawn apart.
        slices: number of slices, from above the base to below the apex.
        spacing_mm: in-plane pixel size.
        slice_distance_mm: distance between slices.
        pathologies: names from ``PATHOLOGIES``, equally likely; repeat a name to make it likelier.
        intensity: what bright blood measures; scanners disagree about it.
        noise: standard deviation of the Rician noise, as a fraction of bright blood.
        bias: how far the coil's sensitivity strays from 1, as a natural logarithm.
        texture: relative strength of the smooth variation within tissues.
        neighbours: whether anything but the heart is in the picture.
    """

    size_px: tuple[int, int] = (96, 128)
    slices: tuple[int, int] = (6, 9)
    spacing_mm: Range = (1.8, 2.2)
    slice_distance_mm: Range = (8.0, 10.0)
    pathologies: tuple[str, ...] = tuple(PATHOLOGIES)
    intensity: Range = (150.0, 1500.0)
    noise: Range = (0.015, 0.045)
    bias: Range = (0.1, 0.4)
    texture: Range = (0.03, 0.07)
    neighbours: bool = True

    def __post_init__(self) -> None:
        above_zero = ("size_px", "slices", "spacing_mm", "slice_distance_mm", "intensity")
        for name in (*above_zero, "noise", "bias", "texture"):
            low, high = getattr(self, name)
            if not 0 <= low <= high or (low == 0 and name in above_zero):
                bound = "above 0" if name in above_zero else "from 0"
                raise InputError(f"phantom {name} is a range (low, high) {bound}; got ({low}, {high}).")
        if not self.pathologies:
            raise InputError(f"phantom pathologies is empty; name at least one of {', '.join(PATHOLOGIES)}.")
        for name in self.pathologies:
            if name not in PATHOLOGIES:
                raise unknown_name("pathology", name, tuple(PATHOLOGIES))


@dataclass(frozen=True, eq=False)
class PhantomCase:
    """A synthetic volume and the truth about it."""

    image: NDArray[np.float32]
    """(Z, Y, X), whole numbers as from a scanner."""
    mask: NDArray[np.uint8]
    """(Z, Y, X), classes of :data:`LABELS`."""
    spacing_mm: tuple[float, float, float]
    """(z, y, x)"""
    pathology: str


def make_case(seed: int | Sequence[int], settings: PhantomSettings | None = None) -> PhantomCase:
    """One synthetic volume; the same seed gives the same bytes whatever was made before."""
    settings = settings or PhantomSettings()
    rng = np.random.default_rng(np.random.SeedSequence(seed))
    rows, columns = (int(n) for n in rng.integers(*settings.size_px, size=2, endpoint=True))
    slices = int(rng.integers(*settings.slices, endpoint=True))
    pixel_mm, between_mm = rng.uniform(*settings.spacing_mm), rng.uniform(*settings.slice_distance_mm)
    levels = np.linspace(rng.uniform(-0.2, 0.06), rng.uniform(0.9, 1.14), slices)
    scene = draw_scene(rng, str(rng.choice(settings.pathologies)))
    breath_mm = rng.normal(0, 0.8, size=(slices, 2))
    image, mask = np.empty((slices, rows, columns)), np.empty((slices, rows, columns), np.uint8)
    for z, level in enumerate(levels):
        plane = Plane.of(rows, columns, pixel_mm, scene.turn, breath_mm[z])
        image[z], mask[z] = _render_thick(scene, plane, level, 1 / max(slices, 2), settings.neighbours)
    spacing_mm = (round(between_mm, 3), round(pixel_mm, 4), round(pixel_mm, 4))
    return PhantomCase(_as_scanned(image, settings, rng), mask, spacing_mm, scene.pathology)


@dataclass(frozen=True, eq=False)
class Plane:
    """Where the pixels of one slice lie in the scene, in mm."""

    y: Field
    x: Field
    pixel_mm: float
    turn: float
    shift_mm: Point

    @classmethod
    def of(cls, rows: int, columns: int, pixel_mm: float, turn: float, shift_mm: NDArray) -> Plane:
        down = (np.arange(rows) - (rows - 1) / 2)[:, None] * pixel_mm
        right = (np.arange(columns) - (columns - 1) / 2)[None, :] * pixel_mm
        y = np.cos(turn) * down + np.sin(turn) * right + shift_mm[0]
        x = np.cos(turn) * right - np.sin(turn) * down + shift_mm[1]
        return cls(y, x, pixel_mm, turn, (float(shift_mm[0]), float(shift_mm[1])))

    def window(self, centre: Point, reach_mm: float) -> tuple[slice, slice]:
        """The rows and columns that hold everything within ``reach_mm`` of a place."""
        dy, dx = centre[0] - self.shift_mm[0], centre[1] - self.shift_mm[1]
        down = np.cos(self.turn) * dy - np.sin(self.turn) * dx
        right = np.sin(self.turn) * dy + np.cos(self.turn) * dx
        reach = reach_mm / self.pixel_mm + 2
        middles = (
            along / self.pixel_mm + (n - 1) / 2 for along, n in zip((down, right), self.y.shape, strict=True)
        )
        rows, columns = (slice(max(0, int(m - reach)), max(0, int(m + reach) + 1)) for m in middles)
        return rows, columns


class Canvas:
    """Shapes are painted one over the other; a pixel cut by an edge gets its share of both sides."""

    def __init__(self, plane: Plane, brightness: Mapping[str, float]) -> None:
        self.image = np.full(plane.y.shape, 0.01)
        self.mask = np.zeros(plane.y.shape, np.uint8)
        self.plane = plane
        self._brightness = brightness

    def paint(self, distance: Field, tissue: str, window: tuple[slice, ...] = ()) -> None:
        share = np.clip(0.5 - distance / (1.3 * self.plane.pixel_mm), 0, 1)
        self.image[window] += share * (self._brightness[tissue] - self.image[window])

    def paint_blob(self, blob: Blob, level: float) -> None:
        if blob.size_at(level) * min(blob.radii_mm) < 1:
            return
        window = self.plane.window(blob.centre_at(level), blob.reach_at(level))
        distance = blob.distance(self.plane.y[window], self.plane.x[window], level)
        if blob.wall_mm:
            self.paint(distance - blob.wall_mm, "myo", window)
        self.paint(distance, blob.tissue, window)

    def paint_heart(self, heart: Heart, level: float) -> None:
        y, x, centre = self.plane.y, self.plane.x, heart.centre_at(level)
        (outer, inner), right = heart.left(y, x, level), heart.right(y, x, level)
        # The thin wall of the right ventricle is visible but, as in the public data, no part of "myo".
        self.paint(np.maximum(right - 2.5, -outer), "myo")
        self.paint(np.maximum(right, -outer), "rv")
        self.paint(outer, "myo")
        if heart.scar is not None:
            direction, half_width, extent = heart.scar
            sector = sector_distance(y, x, centre, direction, half_width)
            self.paint(np.maximum.reduce([sector, outer + 1, inner - extent * heart.wall_mm]), "scar")
        self.paint(inner, "blood")
        self.paint(np.maximum(heart.muscles(y, x, level), inner + 1), "myo")
        self.mask[(right < 0) & (outer >= 0)] = RV
        self.mask[outer < 0] = MYO
        self.mask[inner < 0] = LV
        if level < heart.outflow_end:
            sector = sector_distance(y, x, centre, heart.outflow, heart.outflow_width / 2)
            self._open_outflow(heart, level, np.maximum.reduce([sector, outer - 1, -inner]))

    def _open_outflow(self, heart: Heart, level: float, gap: Field) -> None:
        """Near the base the ring is a horseshoe; the aorta's root covers what lies in its place."""
        self.paint(gap, "valve")
        self.paint_blob(heart.aortic_root, level)
        root = heart.aortic_root.distance(self.plane.y, self.plane.x, level) - heart.aortic_root.wall_mm
        self.mask[(gap < 0) | (root < 0)] = BACKGROUND


def _render_thick(
    scene: Scene, plane: Plane, level: float, step: float, neighbours: bool
) -> tuple[Field, NDArray[np.uint8]]:
    """A slice has a thickness: its image averages three levels, its mask is that of the middle one."""
    layers = [_render(scene, plane, level + shift * step, neighbours) for shift in (-0.25, 0.0, 0.25)]
    return np.mean([layer.image for layer in layers], axis=0), layers[1].mask


def _render(scene: Scene, plane: Plane, level: float, neighbours: bool) -> Canvas:
    canvas = Canvas(plane, scene.brightness)
    for blob in scene.neighbours if neighbours else ():
        canvas.paint_blob(blob, level)
    if level < 0:
        for blob in scene.atria if neighbours else ():
            canvas.paint_blob(blob, level)
    elif level < LAST_LEVEL:
        canvas.paint_heart(scene.heart, level)
    return canvas


def _as_scanned(image: Field, settings: PhantomSettings, rng: np.random.Generator) -> NDArray[np.float32]:
    """Tissue texture, the coil's sensitivity, noise, and the scanner's own contrast and scale."""
    image = image * (1 + rng.uniform(*settings.texture) * _smooth_noise(image.shape, 1.2, rng))
    image *= 1 + rng.uniform(*settings.texture) * _smooth_noise(image.shape, 5, rng)
    image = np.maximum(image, 0) ** rng.uniform(0.85, 1.2)
    image *= np.exp(rng.uniform(*settings.bias) * _coil(image.shape, rng))
    sigma = rng.uniform(*settings.noise)
    # A magnitude image: noise in both channels, so that dark regions are lifted as in Rice's distribution.
    image = np.hypot(image + rng.normal(0, sigma, image.shape), rng.normal(0, sigma, image.shape))
    low, high = np.log(settings.intensity)
    return np.round(image * np.exp(rng.uniform(low, high))).astype(np.float32)


def _smooth_noise(shape: tuple[int, ...], sigma_px: float, rng: np.random.Generator) -> Field:
    """Noise of unit variance, smooth within slices and mildly related across them."""
    noise = ndimage.gaussian_filter(rng.normal(size=shape), (0.5, sigma_px, sigma_px), mode="wrap")
    return noise / max(float(noise.std()), 1e-9)


def _coil(shape: tuple[int, ...], rng: np.random.Generator) -> Field:
    """A smooth field within about -1..1, brighter towards the chest as under a surface coil."""
    z, y, x = np.meshgrid(*(np.linspace(-1, 1, n) for n in shape), indexing="ij")
    a, b, c, d = rng.uniform(-0.5, 0.5, 4)
    return -0.5 * y + a * x + b * x * y + c * (x**2 - y**2) + 0.3 * d * z


def write_phantom_dataset(
    root: str | Path,
    *,
    train: int,
    val: int,
    test: int,
    seed: int = 0,
    settings: PhantomSettings | None = None,
    scribbles: ScribbleSettings | None = None,
    masks_for_training: bool = False,
    quiet: bool = False,
) -> None:
    """A data set in the plain folder layout: ``train/``, ``val/`` and ``test/`` with what each may show.

    Training cases have images and scribbles, with ``masks_for_training`` masks too; the others have images
    and masks. A case depends on the seed, its split and its number only, so a large set holds the small one.
    """
    root, counts = Path(root), {"train": train, "val": val, "test": test}
    if min(*counts.values(), seed) < 0:
        raise InputError(
            f"numbers of synthetic cases and their seed are 0 or more; got {counts}, seed {seed}."
        )
    writable_folder(root)
    jobs = [(split, part, number) for part, split in enumerate(counts) for number in range(counts[split])]
    for split, part, number in progress(jobs, what="synthetic hearts", unit="case", quiet=quiet):
        case = make_case((seed, part, number), settings)
        stored = np.int16 if case.image.max() < 2**15 else np.int32
        volumes: dict[str, NDArray] = {"images": case.image.astype(stored)}
        if split == "train":
            volumes["scribbles"] = scribble_volume(case.mask, LABELS.count, scribbles, seed=(seed, number))
        if split != "train" or masks_for_training:
            volumes["masks"] = case.mask
        for kind, array in volumes.items():
            path = root / split / kind / f"{split}{number:03d}.nii.gz"
            write_nifti(path, array, plain_header(case.spacing_mm))
    write_text(root / "labels.json", json.dumps(LABELS.as_dict(), indent=2) + "\n")
