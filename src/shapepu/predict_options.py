"""How to predict: read by the command line before torch is imported."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Literal

from shapepu.errors import InputError
from shapepu.postprocess import ComponentRule
from shapepu.precision import Precision

Views = Literal["none", "flips", "rotations"]
"""Of a slice, over which a prediction is averaged: itself alone, 4, or 8."""

Averaging = Literal["auto", Views]


@dataclass(frozen=True)
class PredictOptions:
    """How a volume is predicted.

    Args:
        largest_component: keep only one connected piece, in 3-D: the ``balanced`` choice is the piece with
            most of all structures, each counted by its own size, and each voxel by how sure the model is;
            ``foreground`` is the largest one, as in the paper; ``per-class`` keeps the
            largest of each structure, ``off`` keeps all.
        averaging: mean probabilities over views of each slice: its 4 ``flips``, or all 8 ``rotations`` by
            right angles and their mirror images; takes 4 or 8 times as long. ``auto`` does what the model was
            made for: ``flips``, where its training has turned and mirrored the images.
        probabilities: keep the probability of each class in each voxel; of files, in probabilities/CASE.npz.
        uncertainty: compute how undecided the model is in each voxel, from 0 to 1; of files, in uncertainty/.
        batch_size: slices at once; 0 chooses by their size.
        precision: ``bf16`` computes the network in bfloat16; ``auto`` does so where the hardware gains by it.
    """

    largest_component: ComponentRule = "balanced"
    averaging: Averaging = "auto"
    probabilities: bool = False
    uncertainty: bool = False
    batch_size: int = 0
    precision: Precision = "auto"

    def __post_init__(self) -> None:
        if self.batch_size < 0:
            raise InputError(f"batch_size: expected 1 or more, or 0 to choose, got {self.batch_size}.")

    def for_model(self, views: Views) -> PredictOptions:
        """The same options with nothing left to the model, which was made for these ``views``."""
        return replace(self, averaging=views) if self.averaging == "auto" else self
