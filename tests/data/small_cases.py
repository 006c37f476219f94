"""A few small cases on disk, with image, scribble and mask, for tests of what reads them."""

from __future__ import annotations

import os
import time
from dataclasses import replace
from pathlib import Path

import numpy as np
import SimpleITK as sitk
from numpy.typing import NDArray

from shapepu.data.case import Case
from shapepu.data.preprocess import Preprocessing
from shapepu.labels import plain_labels

LABELS = plain_labels(("ring", "core"))
UNLABELLED = LABELS.unlabelled

SAME_GRID = Preprocessing(spacing_mm=(1.0, 1.0), patch=(16, 16), canvas_margin=1.0)
"""Neither resamples nor crops the cases below, so that stored arrays can be compared with the files."""


def write(
    path: Path, array: NDArray, spacing_mm: tuple[float, float, float] = (8.0, 1.0, 1.0), *, old: bool = True
) -> Path:
    """Write an image (Z, Y, X); ``old`` as if long before the test, so that its digest may be remembered."""
    image = sitk.GetImageFromArray(array)
    image.SetSpacing(spacing_mm[::-1])
    path.parent.mkdir(parents=True, exist_ok=True)
    sitk.WriteImage(image, str(path))
    if old:
        an_hour_ago = time.time() - 3600
        os.utime(path, (an_hour_ago, an_hour_ago))
    return path


def make_case(
    root: Path, name: str, *, seed: int = 0, slices: int = 2, size: int = 12, channels: int = 1
) -> Case:
    """Noise with a bright square, a line drawn in each of three classes, and a dense mask."""
    rng = np.random.default_rng(seed)
    mask = np.zeros((slices, size, size), np.uint8)
    mask[:, 2:-2, 2:-2] = 1
    mask[:, 4:-4, 4:-4] = 2
    scribble = np.full(mask.shape, UNLABELLED, np.uint8)
    scribble[:, 0, :] = 0
    scribble[:, 2, 3 : size - 3] = 1
    scribble[:, size // 2, 5 : size - 5] = 2
    images = tuple(
        write(root / f"{name}_{channel:04d}.nii.gz", (rng.normal(size=mask.shape) + mask).astype(np.float32))
        for channel in range(channels)
    )
    return Case(
        name,
        images,
        write(root / f"{name}_scribble.nii.gz", scribble),
        write(root / f"{name}_mask.nii.gz", mask),
    )


def without_mask(case: Case) -> Case:
    return replace(case, mask=None)
