"""The same scores again, slowly, from their definitions: plain loops, nothing shared with the package."""

from __future__ import annotations

import itertools
import math


def surface_points(mask, spacing_mm):
    """Coordinates in mm of voxels with a face neighbour outside the mask or the array."""
    points = []
    for index in itertools.product(*(range(length) for length in mask.shape)):
        if not mask[index]:
            continue
        for axis, step in itertools.product(range(mask.ndim), (-1, 1)):
            neighbour = list(index)
            neighbour[axis] += step
            inside = 0 <= neighbour[axis] < mask.shape[axis]
            if not inside or not mask[tuple(neighbour)]:
                points.append([position * size for position, size in zip(index, spacing_mm, strict=True)])
                break
    return points


def surface_distances(first, second, spacing_mm):
    """HD, HD95 and ASSD: every surface point against every other."""
    one, other = surface_points(first, spacing_mm), surface_points(second, spacing_mm)
    distances = [min(math.dist(a, b) for b in other) for a in one]
    distances += [min(math.dist(b, a) for a in one) for b in other]
    return max(distances), percentile(distances, 95), sum(distances) / len(distances)


def percentile(values, percent):
    """Linear interpolation between the two nearest order statistics."""
    values = sorted(values)
    position = (len(values) - 1) * percent / 100
    low = math.floor(position)
    high = min(low + 1, len(values) - 1)
    return values[low] + (position - low) * (values[high] - values[low])


def overlap(prediction, reference, label, ignore=None):
    """tp, fp, fn, tn by going through the voxels."""
    counts = {"tp": 0, "fp": 0, "fn": 0, "tn": 0}
    for found, wanted in zip(prediction.ravel(), reference.ravel(), strict=True):
        if wanted == ignore:
            continue
        kind = ("t" if (found == label) == (wanted == label) else "f") + ("p" if found == label else "n")
        counts[kind] += 1
    return counts["tp"], counts["fp"], counts["fn"], counts["tn"]


def signed_rank_p_value(differences):
    """The exact two-sided p-value of Wilcoxon's test: all 2^n ways to give the ranks a sign."""
    sizes = sorted(abs(d) for d in differences)
    ranks = [
        (2 * sizes.index(abs(d)) + sizes.count(abs(d)) + 1) / 2 for d in differences
    ]  # the mean of the places that equal sizes share
    observed = sum(rank for rank, d in zip(ranks, differences, strict=True) if d > 0)
    centre = sum(ranks) / 2
    sums = [
        sum(rank for rank, positive in zip(ranks, signs, strict=True) if positive)
        for signs in itertools.product((False, True), repeat=len(ranks))
    ]
    return sum(abs(total - centre) >= abs(observed - centre) - 1e-12 for total in sums) / len(sums)
