"""Training on less than there is: fewer patients, shorter scribbles; and whose masks true ratios are from."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

import numpy as np

from shapepu.data.case import Case, groups_of
from shapepu.errors import InputError


@dataclass(frozen=True)
class DataChoice:
    """Which part of the training data a run learns from.

    Args:
        cases: train on this many of the training patients, drawn by the seed, so that fewer are always some
            of more; None takes all.
        scribble_share: shorten every line of the scribbles to this share of its length.
        true_ratios_from: for methods that are given the true class ratios, whose dense masks they are
            counted on: those of the training cases, or of the validation cases (``val``) when no training
            case has one.
        slices_per_epoch: how many slices an epoch takes; None takes each training slice once, or with
            ``cases`` as many as all patients have, so that fewer patients are not fewer steps.
    """

    cases: int | None = None
    scribble_share: float = 1.0
    true_ratios_from: Literal["train", "val"] = "train"
    slices_per_epoch: int | None = None

    def __post_init__(self) -> None:
        if self.cases is not None and self.cases < 1:
            raise InputError(f"data.cases: expected 1 or more patients, got {self.cases}.")
        if not 0 < self.scribble_share <= 1:
            raise InputError(
                f"data.scribble_share: expected a number above 0 and at most 1, got {self.scribble_share}."
            )
        if self.slices_per_epoch is not None and self.slices_per_epoch < 1:
            raise InputError(f"data.slices_per_epoch: expected 1 or more, got {self.slices_per_epoch}.")

    def of(self, cases: Sequence[Case], seed: int) -> tuple[Case, ...]:
        """The chosen ones of ``cases``, in their order: all volumes of each chosen patient."""
        if self.cases is None:
            return tuple(cases)
        groups = sorted(groups_of(cases))
        if self.cases > len(groups):
            raise InputError(
                f"data.cases: {self.cases} asked for, but {len(groups)} training patients have what the "
                "method learns from; ask for fewer."
            )
        chosen = set(np.random.default_rng(seed).permutation(groups)[: self.cases].tolist())
        return tuple(case for case in cases if case.group in chosen)
