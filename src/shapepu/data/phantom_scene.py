"""The anatomy of a synthetic chest: what is where, how large and how bright, drawn at random and then fixed.

Lengths are in mm from the middle of the image, y towards the spine, x towards the patient's left. A *level*
is a position along the long axis of the left ventricle: 0 at its base, 1 at its apex. Angles are 0 along x
and grow towards y. Shapes are signed distances, negative inside.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

Field = NDArray[np.float64]
Point = tuple[float, float]
Range = tuple[float, float]
Waves = tuple[tuple[float, float], ...]
"""Strength and phase of the waves of 2, 3, 4, ... periods on an outline."""

LAST_LEVEL = 0.97
"""The ventricles end a little before the apex, where what is left of them is smaller than a pixel."""


@dataclass(frozen=True)
class Build:
    """How a pathology shapes the left ventricle; sizes at the base."""

    cavity_mm: Range
    wall_mm: Range
    scar: bool = False


PATHOLOGIES: Mapping[str, Build] = {
    "normal": Build(cavity_mm=(20, 26), wall_mm=(8.5, 11)),
    "hypertrophic": Build(cavity_mm=(15, 19), wall_mm=(13, 17)),
    "dilated": Build(cavity_mm=(28, 33), wall_mm=(7, 8.5)),
    "infarct": Build(cavity_mm=(22, 28), wall_mm=(8, 10), scar=True),
}


@dataclass(frozen=True)
class Blob:
    """An ellipse with waves on its outline, shrinking towards both ends of the levels it spans."""

    tissue: str
    centre_mm: Point
    radii_mm: Point
    angle: float = 0.0
    waves: Waves = ()
    levels: Range | None = None
    """First and last level at which it exists; None: a column through all of them."""
    drift_mm: Point = (0.0, 0.0)
    """Movement of the centre from base to apex."""
    wall_mm: float = 0.0
    """Thickness of a wall of muscle around it."""

    def size_at(self, level: float) -> float:
        if self.levels is None:
            return 1.0
        first, last = self.levels
        along = (2 * level - first - last) / (last - first)
        return float(np.sqrt(max(0.0, 1 - along**2)))

    def centre_at(self, level: float) -> Point:
        return _moved(self.centre_mm, self.drift_mm, level)

    def reach_at(self, level: float) -> float:
        """No part of the blob and its wall is farther from the centre than this."""
        longest = max(self.radii_mm) * self.size_at(level)
        return longest * (1 + sum(abs(strength) for strength, _ in self.waves)) + self.wall_mm

    def distance(self, y: Field, x: Field, level: float) -> Field:
        size = self.size_at(level)
        radii = (self.radii_mm[0] * size, self.radii_mm[1] * size)
        return outline_distance(y, x, self.centre_at(level), radii, self.angle, self.waves)


@dataclass(frozen=True)
class Heart:
    """The ventricles of one case; angles are seen from the centre of the left one."""

    centre_mm: Point
    drift_mm: Point
    septum: float
    """Direction of the right ventricle."""
    cavity_mm: float
    wall_mm: float
    squeeze: float
    waves: Waves
    rv_depth_mm: float
    rv_span: float
    rv_tilt: float
    rv_end: float
    rv_waves: Waves
    papillaries: tuple[tuple[float, float, float], ...]
    """Angle, distance from the centre as a fraction of the cavity, radius in mm."""
    outflow_end: float
    """Down to this level the ring is open towards the aorta."""
    outflow_width: float
    aortic_root: Blob
    scar: tuple[float, float, float] | None
    """Direction, half-width, extent through the wall from the inside."""

    @property
    def outer_mm(self) -> float:
        return self.cavity_mm + self.wall_mm

    @property
    def outflow(self) -> float:
        """Direction of the aortic root."""
        return self.septum + 0.75

    def centre_at(self, level: float) -> Point:
        return _moved(self.centre_mm, self.drift_mm, level)

    def left(self, y: Field, x: Field, level: float) -> tuple[Field, Field]:
        """Distances to the outer and the inner surface of the left ventricle."""
        outer_mm, inner_mm = self.outer_mm * taper(level), self.cavity_mm * taper(level / 0.92)
        centre = self.centre_at(level)
        outer, inner = (
            outline_distance(y, x, centre, (radius, radius * self.squeeze), self.septum, self.waves)
            for radius in (outer_mm, inner_mm)
        )
        return outer, inner

    def right(self, y: Field, x: Field, level: float) -> Field:
        """Distance to an ellipse that reaches into the left ventricle, which cuts it to a crescent."""
        size, outer_mm = 1 - (max(level, 0.0) / self.rv_end) ** 1.8, self.outer_mm * taper(level)
        if size < 0.12:
            return np.full_like(y, np.inf)
        turn = self.septum + self.rv_tilt
        centre = polar(self.centre_at(level), 0.75 * outer_mm, turn)
        depth = 0.25 * outer_mm + self.rv_depth_mm * size
        span = self.rv_span * (0.35 + 0.65 * size) * (0.5 * outer_mm + 16)
        return outline_distance(y, x, centre, (span, depth), turn, self.rv_waves)

    def muscles(self, y: Field, x: Field, level: float) -> Field:
        """Distance to the papillary muscles, which stand in the cavity between base and apex."""
        distance = np.full_like(y, np.inf)
        if 0.2 < level < 0.75:
            for angle, away, radius in self.papillaries:
                centre = polar(self.centre_at(level), away * self.cavity_mm * taper(level / 0.92), angle)
                distance = np.minimum(distance, outline_distance(y, x, centre, (radius, radius)))
        return distance


@dataclass(frozen=True)
class Scene:
    """Everything about a case but its noise."""

    pathology: str
    heart: Heart
    neighbours: tuple[Blob, ...]
    """Painted in this order, before the heart."""
    atria: tuple[Blob, ...]
    """Painted where the ventricles have not begun: as bright as they are, and no part of the mask."""
    brightness: Mapping[str, float]
    turn: float
    """Rotation of the whole picture, as a tilted stack of slices gives."""


def draw_scene(rng: np.random.Generator, pathology: str) -> Scene:
    heart = draw_heart(rng, PATHOLOGIES[pathology])
    return Scene(
        pathology=pathology,
        heart=heart,
        neighbours=(*_draw_chest(rng), *_draw_abdomen(rng, heart), *_draw_around_heart(rng, heart)),
        atria=_draw_atria(rng, heart),
        brightness=_draw_brightness(rng),
        turn=rng.normal(0, 0.15),
    )


def draw_heart(rng: np.random.Generator, build: Build) -> Heart:
    septum = np.pi + rng.normal(0.25, 0.35)
    centre = (rng.normal(0, 7), rng.normal(6, 7))
    root = Blob(
        "blood",
        polar(centre, rng.uniform(24, 30), septum + 0.75),
        (rng.uniform(9, 12), rng.uniform(9, 12)),
        wall_mm=rng.uniform(1.5, 2.5),
    )
    scar = (rng.uniform(0, 2 * np.pi), rng.uniform(0.4, 0.8), rng.uniform(0.5, 1.0))
    return Heart(
        centre_mm=centre,
        drift_mm=(rng.normal(4, 4), rng.normal(8, 5)),
        septum=septum,
        cavity_mm=rng.uniform(*build.cavity_mm),
        wall_mm=rng.uniform(*build.wall_mm),
        squeeze=rng.uniform(0.9, 1.1),
        waves=_waves(rng, 0.05, 0.03, 0.02),
        rv_depth_mm=rng.uniform(24, 38),
        rv_span=rng.uniform(0.95, 1.2),
        rv_tilt=rng.normal(0, 0.15),
        rv_end=rng.uniform(0.8, 0.95),
        rv_waves=_waves(rng, 0.05, 0.05, 0.03),
        papillaries=tuple(
            (septum + turn + rng.normal(0, 0.2), rng.uniform(0.55, 0.72), rng.uniform(2.8, 4.2))
            for turn in (2.3, 4.0)
        ),
        outflow_end=rng.uniform(0.02, 0.16),
        outflow_width=rng.uniform(0.7, 1.2),
        aortic_root=root,
        scar=scar if build.scar else None,
    )


def _draw_atria(rng: np.random.Generator, heart: Heart) -> tuple[Blob, ...]:
    right = polar(heart.centre_mm, rng.uniform(42, 52), heart.septum + rng.normal(0, 0.2))
    return (
        _organ(rng, "blood", right, (17, 25), (19, 27), wall_mm=rng.uniform(1.5, 2.5)),
        _organ(rng, "blood", heart.centre_mm, (18, 24), (22, 28), wall_mm=rng.uniform(1.5, 3.0)),
        heart.aortic_root,
    )


def _draw_chest(rng: np.random.Generator) -> tuple[Blob, ...]:
    """Skin and fat, muscle, lungs with their vessels."""
    centre = (rng.normal(8, 6), rng.normal(0, 10))
    height, width = rng.uniform(98, 116), rng.uniform(108, 132)
    waves = _waves(rng, 0.05, 0.04, 0.03)
    fat_mm, muscle_mm = rng.uniform(6, 20), rng.uniform(7, 14)

    def shell(tissue: str, inset_mm: float) -> Blob:
        return Blob(tissue, centre, (height - inset_mm, width - inset_mm), waves=waves)

    vessels = _scattered(rng, "blood", 9, (-60, 30), (-85, 95), (1.2, 3.5))
    return shell("fat", 0), shell("muscle", fat_mm), shell("lung", fat_mm + muscle_mm), *vessels


def _draw_abdomen(rng: np.random.Generator, heart: Heart) -> tuple[Blob, ...]:
    """Under the diaphragm: a liver like myocardium touching the heart, a stomach like blood, vessels."""
    cy, cx = heart.centre_mm
    under = cy + heart.outer_mm
    liver = (under + rng.uniform(28, 40), cx - rng.uniform(25, 45))
    stomach = (under + rng.uniform(20, 32), cx + rng.uniform(28, 48))
    aorta = (cy + rng.uniform(32, 50), cx + heart.outer_mm + rng.uniform(14, 28))
    spleen = (stomach[0] + 8, stomach[1] + 34)
    cava = (liver[0] - 6, liver[1] + 18)
    return (
        Blob("viscera", (under + 80, cx), (68, 130), waves=_waves(rng, 0.04, 0.03)),
        Blob("bone", (under + 52, aorta[1] - 30), (16, 19), waves=_waves(rng, 0.08, 0.05)),
        Blob(
            "liver",
            liver,
            (rng.uniform(34, 44), rng.uniform(56, 74)),
            rng.normal(0.15, 0.12),
            _waves(rng, 0.08, 0.05, 0.03),
            levels=(-1.2, 2.2),
            drift_mm=(-10, 6),
        ),
        *_scattered(rng, "blood", 6, _around(liver[0], 24), _around(liver[1], 40), (1.5, 4)),
        _organ(rng, "blood", cava, (8, 11), (8, 11), drift_mm=(8, 0)),
        _organ(rng, "spleen", spleen, (16, 24), (14, 20), levels=(-0.8, 2.0)),
        _organ(rng, "stomach", stomach, (15, 22), (17, 26), levels=(-0.3, 2.4), wall_mm=rng.uniform(3, 5)),
        Blob("blood", aorta, (rng.uniform(9, 12), rng.uniform(9, 12)), wall_mm=rng.uniform(2, 3.5)),
    )


def _draw_around_heart(rng: np.random.Generator, heart: Heart) -> tuple[Blob, ...]:
    """The sac of the heart with its fat, wider above the base where it holds the great vessels."""
    reach = heart.outer_mm + 0.5 * heart.rv_depth_mm
    centre = polar(heart.centre_mm, 0.4 * heart.rv_depth_mm, heart.septum)
    sac = (reach * rng.uniform(0.85, 1.0), reach * rng.uniform(0.95, 1.1))
    fat = polar(heart.centre_mm, heart.outer_mm, heart.septum + rng.uniform(0.6, 1.4))
    tilt = heart.septum + rng.normal(0, 0.2)
    return (
        Blob("sac", centre, sac, tilt, _waves(rng, 0.06, 0.05), (-1.3, 1.05), heart.drift_mm),
        _organ(rng, "fat", fat, (9, 14), (14, 22), levels=(-0.6, 1.08), drift_mm=heart.drift_mm),
    )


def _draw_brightness(rng: np.random.Generator) -> dict[str, float]:
    """Bright blood is about 1; what must be told from the heart by shape alone shares its brightness."""
    blood, muscle = rng.uniform(0.8, 1.0), rng.uniform(0.3, 0.46)
    return {
        "blood": blood,
        "rv": blood * rng.uniform(0.93, 1.03),
        "stomach": blood * rng.uniform(0.85, 1.05),
        "fat": blood * rng.uniform(0.95, 1.2),
        "myo": muscle,
        "muscle": muscle * rng.uniform(0.85, 1.1),
        "liver": muscle * rng.uniform(0.93, 1.1),
        "spleen": muscle * rng.uniform(0.93, 1.2),
        "viscera": rng.uniform(0.9 * muscle, 0.8 * blood),
        "sac": rng.uniform(0.8 * muscle, 0.75 * blood),
        "bone": muscle * rng.uniform(0.9, 1.4),
        "scar": muscle + (blood - muscle) * rng.uniform(0.5, 0.9),
        "valve": 0.5 * (blood + muscle),
        "lung": rng.uniform(0.04, 0.12),
    }


def _waves(rng: np.random.Generator, *strengths: float) -> Waves:
    return tuple((rng.uniform(-s, s), rng.uniform(0, 2 * np.pi)) for s in strengths)


def _organ(
    rng: np.random.Generator,
    tissue: str,
    centre_mm: Point,
    height_mm: Range,
    width_mm: Range,
    *,
    levels: Range | None = None,
    drift_mm: Point = (0.0, 0.0),
    wall_mm: float = 0.0,
) -> Blob:
    """An irregular blob near a place, turned any way."""
    place = (centre_mm[0] + rng.normal(0, 4), centre_mm[1] + rng.normal(0, 4))
    radii = (rng.uniform(*height_mm), rng.uniform(*width_mm))
    waves, angle = _waves(rng, 0.08, 0.06, 0.04), rng.uniform(0, np.pi)
    return Blob(tissue, place, radii, angle, waves, levels, drift_mm, wall_mm)


def _scattered(
    rng: np.random.Generator, tissue: str, count: int, y_mm: Range, x_mm: Range, radius_mm: Range
) -> list[Blob]:
    """Small vessels running askew through the slices."""
    return [
        Blob(
            tissue,
            (rng.uniform(*y_mm), rng.uniform(*x_mm)),
            (rng.uniform(*radius_mm), rng.uniform(*radius_mm)),
            drift_mm=(rng.normal(0, 20), rng.normal(0, 20)),
        )
        for _ in range(count)
    ]


def outline_distance(
    y: Field, x: Field, centre: Point, radii: Point, angle: float = 0.0, waves: Sequence[Point] = ()
) -> Field:
    """Distance to an ellipse with waves, along the ray from its centre; exact for circles.

    ``radii`` are across and along the direction ``angle``, which for angle 0 means along y and x.
    """
    dy, dx = y - centre[0], x - centre[1]
    along, across = np.cos(angle) * dx + np.sin(angle) * dy, np.cos(angle) * dy - np.sin(angle) * dx
    u, v = along / max(radii[1], 1e-6), across / max(radii[0], 1e-6)
    relative = np.maximum(np.hypot(u, v), 1e-9)
    edge: float | Field = 1.0
    # Powers of a unit complex number are the waves of 2, 3, ... periods, far quicker than cosines.
    unit = (u + 1j * v) / relative if waves else 1j
    turned = unit
    for strength, phase in waves:
        turned = turned * unit
        edge = edge + (turned * (strength * np.exp(1j * phase))).real
    # At the very centre, where no ray is defined, the nearer radius counts.
    mm = np.maximum(np.hypot(dy, dx), 1e-9 * min(radii)) / relative
    return (relative - edge) * mm


def sector_distance(y: Field, x: Field, centre: Point, direction: float, half_width: float) -> Field:
    """Distance to a sector seen from ``centre``, measured along the arc."""
    dy, dx = y - centre[0], x - centre[1]
    turn = (np.arctan2(dy, dx) - direction + np.pi) % (2 * np.pi) - np.pi
    return (np.abs(turn) - half_width) * np.hypot(dy, dx)


def taper(level: float) -> float:
    """Radius of a ventricle relative to its base: nearly straight at first, round at the apex."""
    return float(np.sqrt(max(0.0, 1 - max(level, 0.0) ** 2.4)))


def polar(centre: Point, away_mm: float, angle: float) -> Point:
    return centre[0] + away_mm * np.sin(angle), centre[1] + away_mm * np.cos(angle)


def _moved(start: Point, drift: Point, level: float) -> Point:
    return start[0] + level * drift[0], start[1] + level * drift[1]


def _around(middle: float, reach: float) -> Range:
    return middle - reach, middle + reach
