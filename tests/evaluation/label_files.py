"""Small label maps on disk, written without the package."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import SimpleITK as sitk


def save(path: Path, labels, spacing_mm=(8.0, 1.5, 1.5), *, flipped=False) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    image = sitk.GetImageFromArray(np.asarray(labels))
    image.SetSpacing(spacing_mm[::-1])
    if flipped:
        image.SetDirection((-1, 0, 0, 0, -1, 0, 0, 0, 1))
    sitk.WriteImage(image, str(path))
    return path


def slab(first_row: int, last_row: int, label: int = 1, dtype=np.uint8):
    """A 2 x 8 x 8 map whose rows ``first_row`` to ``last_row`` (not included) hold ``label``."""
    labels = np.zeros((2, 8, 8), dtype)
    labels[:, first_row:last_row] = label
    return labels
