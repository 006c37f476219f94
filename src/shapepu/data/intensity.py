"""Voxel values of any scanner to values a network can learn from."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

LARGEST = 1e4
"""Standardised values are clipped here: stored as float16, a hot voxel must not become infinite."""

AS_GOOD_AS_CONSTANT = 1e-5
"""Deviations below this share of the mean are rounding errors of float32, not an image."""


@dataclass(frozen=True)
class ChannelStatistics:
    """What one channel of a whole data set looks like: for CT, whose numbers mean the same everywhere.

    Args:
        low: the 0.5 percentile; lower values are clipped to it.
        high: the 99.5 percentile; higher values are clipped to it.
        mean: becomes 0.
        deviation: becomes 1.
    """

    low: float
    high: float
    mean: float
    deviation: float

    @classmethod
    def of(cls, samples: Iterable[NDArray]) -> ChannelStatistics:
        """Over all samples together, as nnU-Net does for CT, and rounded so that a config is readable."""
        values = np.concatenate([np.asarray(sample, np.float64).ravel() for sample in samples])
        low, high = np.percentile(values, [0.5, 99.5])
        numbers = (low, high, values.mean(), values.std())
        return cls(*(float(f"{number:.7g}") for number in numbers))


def standardise(array: NDArray, statistics: ChannelStatistics | None = None) -> NDArray[np.float32]:
    """``array`` with mean 0 and variance 1, clipped to what float16 holds; zeros where it is constant.

    Args:
        array: finite intensities of one channel of one volume.
        statistics: None standardises the volume by itself, since the numbers of an MR image have no unit;
            given, by those of its data set.
    """
    if statistics is None:
        mean = float(np.mean(array, dtype=np.float64))
        centred = np.asarray(array, np.float32) - np.float32(mean)
        peak = float(np.abs(centred).max())
        if peak <= AS_GOOD_AS_CONSTANT * abs(mean):
            return np.zeros(array.shape, np.float32)
        centred /= np.float32(peak)  # before squaring, so that no value is too large or small for float32
        deviation = float(np.sqrt(np.mean(np.square(centred), dtype=np.float64)))
    else:
        centred = np.clip(array, statistics.low, statistics.high).astype(np.float32)
        centred -= np.float32(statistics.mean)
        deviation = statistics.deviation or 1.0
    centred /= np.float32(deviation)
    return np.clip(centred, -LARGEST, LARGEST, out=centred)


def beyond(standardised: NDArray[np.float32]) -> float:
    """The value of pixels beyond the image: its first percentile, which is air or the darkest tissue.

    An image then goes on as it ends. Zero, its mean, would frame it in bright grey; the minimum may be a
    single bad voxel.
    """
    return float(np.percentile(standardised, 1))
