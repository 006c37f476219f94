"""Mumford-Shah: classes of even intensity in each image, with short borders."""

from __future__ import annotations

from dataclasses import dataclass

from torch import Tensor

from shapepu.errors import InputError
from shapepu.losses.mumford_shah import mumford_shah_energy
from shapepu.methods.base import Batch
from shapepu.methods.regularised import Regularised, RegularisedConfig, inside_image


@dataclass(frozen=True)
class MumfordShahConfig(RegularisedConfig):
    """How much the functional counts, and from when.

    Args:
        weight: of the functional, beside 1 for the cross-entropy.
        ramp_share: the share of the run over which the weight rises from almost nothing; 0 has it in full
            from the start.
        length_weight: of the total variation within the functional.
    """

    length_weight: float = 1.0

    def __post_init__(self) -> None:
        super().__post_init__()
        if not self.length_weight >= 0:
            raise InputError(f"length_weight: expected 0 or more, got {self.length_weight}; choose another.")


FAST = MumfordShahConfig(ramp_share=0.3)
"""For short schedules: what the classes are should come from the scribbles before intensities divide them."""


class MumfordShah(Regularised):
    """PCE and the Mumford-Shah functional over the whole image (Kim and Ye, IEEE TIP 2020).

    Departs from its paper: means over the pixels in place of sums, on standardised intensities. The paper's
    weights, for sums and for its own images, mean nothing here; these are a choice of this package. On whole
    scans the default makes the air around the body, which nobody scribbles, one of the classes.
    """

    Config = MumfordShahConfig
    term = "mumford_shah"

    def penalty(self, log_probs: Tensor, batch: Batch) -> Tensor:
        return mumford_shah_energy(
            log_probs.exp(), batch.images, inside_image(batch), length_weight=self.config.length_weight
        )
