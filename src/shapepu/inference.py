"""From the images of one case to labels on its own voxels.

The network sees what it saw in training: the same resampling, the same intensities, and beyond the image the
same continuation. It sees whole slices, though, not only the patch that training cuts out. Work goes on a
few slices at a time, so that memory depends on the size of a slice and hardly on their number.
"""

from __future__ import annotations

import math
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from shapepu.bundle import Bundle
from shapepu.data.grid import CHUNK_BYTES, SliceGrid
from shapepu.data.preprocess import PATCH_STEP, PreparedCase, fit, prepare_case
from shapepu.data.volumes import Volume
from shapepu.errors import InputError
from shapepu.postprocess import keep_largest_component, sureness
from shapepu.precision import computes_in_bfloat16
from shapepu.predict_options import Averaging, PredictOptions

__all__ = ["PredictOptions", "Prediction", "predict_volume"]

PIXELS_AT_ONCE = 2**19
"""Without a batch size, as many slices at once as have about this many pixels."""


@dataclass(frozen=True, eq=False)
class Prediction:
    """What a model says about one case, on the voxels of its images.

    Args:
        labels: classes 0..K-1, (Z, Y, X).
        probabilities: of each class before the largest component was kept, float16 (K, Z, Y, X), or None.
        uncertainty: the entropy of these probabilities over the largest it could be, 0 (sure) to 1 (each
            class as likely), float32 (Z, Y, X), or None.
        seconds: how long each stage took.
    """

    labels: NDArray[np.uint8]
    probabilities: NDArray[np.float16] | None
    uncertainty: NDArray[np.float32] | None
    seconds: dict[str, float]


def predict_volume(
    bundle: Bundle, images: Sequence[Volume], options: PredictOptions | None = None
) -> Prediction:
    """Segment one case.

    Args:
        bundle: the model.
        images: one volume a channel, in the order of the model's channels.
        options: the defaults when None.
    """
    options = (options or PredictOptions()).for_model(bundle.spec.averaging)
    channels = bundle.spec.channels
    if len(images) != len(channels):
        raise InputError(
            f"{images[0].source if images else 'no image'}: the model expects {len(channels)} channels "
            f"({', '.join(channels)}), got {len(images)}."
        )
    clock = _Clock()
    with clock("prepare"):
        case = prepare_case(images, bundle.spec.preprocessing)
    result = _Result.empty(case.grid, bundle.spec.labels.count, options)
    for part in _parts(case.grid.slices, options.batch_size or _slices_at_once(case.grid)):
        with clock("network"):
            probs = _predict_slices(bundle, case, part, options)
        with clock("restore"):
            result.put(part, probs)
    with clock("component"):
        sure = None if result.sure is None else _unstacked(result.sure, case.grid)
        labels = keep_largest_component(_unstacked(result.labels, case.grid), options.largest_component, sure)
    return Prediction(
        labels,
        None if result.probabilities is None else _unstacked(result.probabilities, case.grid),
        None if result.uncertainty is None else _unstacked(result.uncertainty, case.grid),
        clock.seconds,
    )


def views(averaging: Averaging) -> tuple[tuple[int, bool], ...]:
    """The views that are averaged, each a number of quarter turns after an optional flip left to right."""
    turns = {"none": (0,), "flips": (0, 2), "rotations": (0, 1, 2, 3)}[averaging]
    flips = (False,) if averaging == "none" else (False, True)
    return tuple((quarters, flipped) for quarters in turns for flipped in flips)


@torch.inference_mode()
def _predict_slices(
    bundle: Bundle, case: PreparedCase, part: slice, options: PredictOptions
) -> NDArray[np.float32]:
    """Mean class probabilities of some resampled slices over all views, (s, K, h, w)."""
    device = next((p.device for p in bundle.method.parameters()), torch.device("cpu"))
    padded = fit(case.images[part], _padded_size(case.grid, bundle), case.beyond[:, None, None])
    images = torch.from_numpy(padded).to(device)
    total: Tensor | None = None
    with torch.autocast(device.type, torch.bfloat16, enabled=computes_in_bfloat16(options.precision, device)):
        for quarters, flipped in views(options.averaging):
            seen = torch.rot90(images.flip(3) if flipped else images, quarters, (2, 3))
            probs = bundle.method.predict(seen.contiguous(memory_format=torch.channels_last)).float()
            probs = torch.rot90(probs, -quarters, (2, 3))
            probs = probs.flip(3) if flipped else probs
            total = probs if total is None else total + probs
    assert total is not None
    mean = total / len(views(options.averaging))
    return fit(mean.cpu().numpy(), case.grid.size, 0)


def _padded_size(grid: SliceGrid, bundle: Bundle) -> tuple[int, int]:
    """At least the training patch, so that a small image is framed as it was in training."""
    patch = bundle.spec.preprocessing.patch
    assert patch is not None, "checked when the model was loaded"
    rows, columns = (
        -(-max(side, trained) // PATCH_STEP) * PATCH_STEP
        for side, trained in zip(grid.size, patch, strict=True)
    )
    return rows, columns


@dataclass
class _Result:
    """Arrays on the native slices, (S, rows, columns), filled a few slices at a time."""

    grid: SliceGrid
    labels: NDArray[np.uint8]
    sure: NDArray[np.uint8] | None
    probabilities: NDArray[np.float16] | None
    uncertainty: NDArray[np.float32] | None

    @classmethod
    def empty(cls, grid: SliceGrid, classes: int, options: PredictOptions) -> _Result:
        shape = (grid.slices, *grid.native_size)
        return cls(
            grid,
            np.empty(shape, np.uint8),
            np.empty(shape, np.uint8) if options.largest_component == "balanced" else None,
            np.empty((classes, *shape), np.float16) if options.probabilities else None,
            np.empty(shape, np.float32) if options.uncertainty else None,
        )

    def put(self, part: slice, probs: NDArray[np.float32]) -> None:
        """Restore the probabilities (s, K, h, w) of some slices and keep what was asked for."""
        classes = probs.shape[1]
        rows, columns = self.grid.native_size
        for inner in _parts(len(probs), max(1, CHUNK_BYTES // (4 * classes * rows * columns))):
            native = self.grid.restore_slices(probs[inner].swapaxes(0, 1))
            here = slice(part.start + inner.start, part.start + inner.stop)
            values = torch.from_numpy(native)
            highest = values.max(dim=0)  # argmax(dim=0) takes ten times as long
            self.labels[here] = highest.indices.numpy()
            if self.sure is not None:
                self.sure[here] = sureness(highest.values.numpy())
            if self.probabilities is not None:
                self.probabilities[:, here] = native
            if self.uncertainty is not None:
                entropy = torch.special.entr(values).sum(dim=0) / math.log(classes)
                self.uncertainty[here] = entropy.clamp(0, 1).numpy()


def _unstacked(array: NDArray, grid: SliceGrid) -> NDArray:
    """The slice axis back where it was in (..., Z, Y, X)."""
    return np.ascontiguousarray(np.moveaxis(array, -3, grid.axis - 3))


def _slices_at_once(grid: SliceGrid) -> int:
    return max(1, PIXELS_AT_ONCE // (grid.size[0] * grid.size[1]))


def _parts(count: int, step: int) -> Iterator[slice]:
    for first in range(0, count, step):
        yield slice(first, min(first + step, count))


@dataclass
class _Clock:
    """Seconds spent in each stage."""

    seconds: dict[str, float] = field(default_factory=dict)

    @contextmanager
    def __call__(self, stage: str) -> Iterator[None]:
        started = time.perf_counter()
        yield
        self.seconds[stage] = self.seconds.get(stage, 0.0) + time.perf_counter() - started
