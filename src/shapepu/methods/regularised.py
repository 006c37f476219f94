"""What PCE with a term on further pixels has in common: the sum, and how the term comes in."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import torch
from torch import Tensor

from shapepu.errors import InputError
from shapepu.labels import OUTSIDE
from shapepu.losses.partial_ce import partial_cross_entropy
from shapepu.methods.base import Batch, EpochStart, Method, NetworkBuilder, Task
from shapepu.schedule import ramp_up


@dataclass(frozen=True)
class RegularisedConfig:
    """How much the term counts, and from when.

    Args:
        weight: of the term, beside 1 for the cross-entropy.
        ramp_share: the share of the run over which the weight rises from almost nothing; 0 has it in full
            from the start.
    """

    weight: float = 0.1
    ramp_share: float = 0.0

    def __post_init__(self) -> None:
        if not self.weight >= 0:
            raise InputError(f"weight: expected 0 or more, got {self.weight}; choose another.")
        if not 0 <= self.ramp_share <= 1:
            raise InputError(f"ramp_share: expected a number from 0 to 1, got {self.ramp_share}.")


class Regularised(Method):
    """Cross-entropy on scribble pixels, and a weighted term that other pixels have a part in.

    A network that knows nothing yet would be confirmed in what it happens to say, so the weight can rise
    over the run: by exp(-5 (1 - t)^2) for t from 0 to 1 (Laine and Aila, ICLR 2017), epoch by epoch.
    """

    Config = RegularisedConfig
    term: ClassVar[str]
    ramp: Tensor

    def __init__(self, config: RegularisedConfig, task: Task, build_network: NetworkBuilder) -> None:
        super().__init__(config, task, build_network)
        self.register_buffer("ramp", torch.tensor(ramp_up(0.0, config.ramp_share)))

    def penalty(self, log_probs: Tensor, batch: Batch) -> Tensor:
        """The term, before it is weighted."""
        raise NotImplementedError

    def before_epoch(self, start: EpochStart) -> None:
        self.ramp.fill_(ramp_up(start.progress, self.config.ramp_share))

    def losses(self, batch: Batch) -> dict[str, Tensor]:
        log_probs = self.log_probs(batch.images)
        return {
            "positive": partial_cross_entropy(log_probs, batch.labels, batch.labelled),
            self.term: self.config.weight * self.ramp * self.penalty(log_probs, batch),
        }


def inside_image(batch: Batch) -> Tensor:
    """Pixels that are not beyond the image, bool, shape (N, H, W)."""
    return batch.labels != OUTSIDE
