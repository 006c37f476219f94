"""How much faster are HD, HD95 and ASSD here than MedPy's, and are they the same?

Run from the repository root with the development extra installed:

    python benchmarks/surface_distances.py

Three nested, wobbling ellipsoids on 16 slices of 512 x 512 with thick slices, as in a short-axis heart, each
against a shifted and wider copy. Both sides score the same three structures in turn; the ratio is that of the
best of a few runs of each, taken alternately so that a busy machine disturbs both.
"""

from __future__ import annotations

import argparse
import os
import time
from collections.abc import Callable

import numpy as np
from medpy.metric import binary
from numpy.typing import NDArray

from shapepu.evaluation.metrics import score_volume

SPACING_MM = (8.0, 0.7, 0.7)
STRUCTURES = {1: 55.0, 2: 42.0, 3: 30.0}
"""In-plane radius in mm of each structure; the smaller ones lie inside the larger ones."""

Distances = list[tuple[float, float, float]]


def heart(shape: tuple[int, int, int], centre: tuple[float, float, float], phase: float) -> NDArray[np.uint8]:
    """Labels 0..3: nested ellipsoids around ``centre`` (voxels), their outline wobbling with ``phase``."""
    z, y, x = (
        (np.arange(length) - middle) * size
        for length, middle, size in zip(shape, centre, SPACING_MM, strict=True)
    )
    z, y, x = z[:, None, None], y[None, :, None], x[None, None, :]
    angle = np.arctan2(y, x)
    wobble = 1 + 0.08 * np.sin(5 * angle + phase) + 0.05 * np.cos(3 * angle + z / 20)
    labels = np.zeros(shape, np.uint8)
    for label, radius_mm in STRUCTURES.items():
        labels[np.sqrt((z / 60) ** 2 + (y / radius_mm) ** 2 + (x / (0.8 * radius_mm)) ** 2) < wobble] = label
    return labels


def by_medpy(prediction: NDArray[np.uint8], reference: NDArray[np.uint8]) -> Distances:
    return [
        tuple(
            float(measure(prediction == label, reference == label, SPACING_MM))
            for measure in (binary.hd, binary.hd95, binary.assd)
        )
        for label in STRUCTURES
    ]


def by_shapepu(prediction: NDArray[np.uint8], reference: NDArray[np.uint8]) -> Distances:
    scores = score_volume(prediction, reference, SPACING_MM, classes=len(STRUCTURES) + 1)
    return [(scores[label].hd_mm, scores[label].hd95_mm, scores[label].assd_mm) for label in STRUCTURES]


def timed(function: Callable[..., Distances], *volumes: NDArray[np.uint8]) -> tuple[float, Distances]:
    start = time.perf_counter()
    distances = function(*volumes)
    return time.perf_counter() - start, distances


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--size", type=int, default=512, help="in-plane size in voxels")
    parser.add_argument("--slices", type=int, default=16)
    parser.add_argument("--repeats", type=int, default=3)
    arguments = parser.parse_args()
    shape = (arguments.slices, arguments.size, arguments.size)
    middle = arguments.size / 2
    reference = heart(shape, (arguments.slices / 2, middle, middle), phase=0.0)
    prediction = heart(shape, (arguments.slices / 2, middle + 3, middle - 4), phase=0.7)

    medpy_s, shapepu_s = [], []
    for _ in range(arguments.repeats):
        seconds, expected = timed(by_medpy, prediction, reference)
        medpy_s.append(seconds)
        seconds, distances = timed(by_shapepu, prediction, reference)
        shapepu_s.append(seconds)
    difference = np.abs(np.subtract(distances, expected)).max(axis=0)

    print(f"{shape[2]}x{shape[1]}x{shape[0]}, {len(STRUCTURES)} structures, {os.cpu_count()} cores")
    print(f"MedPy hd + hd95 + assd:             {min(medpy_s):8.3f} s")
    print(f"shapepu all three, Dice and volume: {min(shapepu_s):8.3f} s")
    print(f"ratio: {min(medpy_s) / min(shapepu_s):.1f}x")
    print("largest difference in mm: HD {:.1e}, HD95 {:.1e}, ASSD {:.1e}".format(*difference))
    assert difference.max() < 1e-6, "the distances are not the same"


if __name__ == "__main__":
    main()
