"""TV: probabilities with short borders."""

from __future__ import annotations

from dataclasses import dataclass

from torch import Tensor

from shapepu.losses.total_variation import mean_total_variation
from shapepu.methods.base import Batch
from shapepu.methods.regularised import Regularised, RegularisedConfig, inside_image


@dataclass(frozen=True)
class TVConfig(RegularisedConfig):
    """How much the total variation counts, and from when.

    Args:
        weight: of the total variation a pixel, beside 1 for the cross-entropy.
        ramp_share: the share of the run over which the weight rises from almost nothing; 0 has it in full
            from the start.
    """


FAST = TVConfig(ramp_share=0.3)
"""For short schedules: borders are to be found before they are shortened."""


class TV(Regularised):
    """PCE and the total variation of the probabilities over the whole image (Javanmardi et al., 2016).

    Departs from its paper: the mean over the pixels in place of the sum, and so another weight.
    """

    Config = TVConfig
    term = "variation"

    def penalty(self, log_probs: Tensor, batch: Batch) -> Tensor:
        return mean_total_variation(log_probs.exp(), inside_image(batch))
