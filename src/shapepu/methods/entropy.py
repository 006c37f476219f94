"""Entropy minimisation: the network should be sure about pixels without scribbles as well."""

from __future__ import annotations

from dataclasses import dataclass

from torch import Tensor

from shapepu.losses.entropy import mean_entropy
from shapepu.methods.base import Batch
from shapepu.methods.regularised import Regularised, RegularisedConfig


@dataclass(frozen=True)
class EntropyConfig(RegularisedConfig):
    """How much the entropy counts, and from when.

    Args:
        weight: of the mean entropy of the unlabelled pixels, beside 1 for the cross-entropy.
        ramp_share: the share of the run over which the weight rises from almost nothing; 0 has it in full
            from the start.
    """


FAST = EntropyConfig(ramp_share=0.5)
"""For short schedules: a network that is made sure of its first guesses keeps them."""


class Entropy(Regularised):
    """PCE and the mean entropy of the unlabelled pixels (Grandvalet and Bengio, NeurIPS 2004).

    The weight is a choice of this package: the paper tunes it on each data set, from 0 to 1.
    """

    Config = EntropyConfig
    term = "entropy"

    def penalty(self, log_probs: Tensor, batch: Batch) -> Tensor:
        return mean_entropy(log_probs, batch.unlabelled)
