"""Gated CRF loss: pixels near each other that look alike should be segmented alike."""

from __future__ import annotations

from dataclasses import dataclass

from torch import Tensor
from torch.nn.functional import avg_pool2d

from shapepu.errors import InputError
from shapepu.losses.gated_crf import gated_crf_energy
from shapepu.methods.base import Batch
from shapepu.methods.regularised import Regularised, RegularisedConfig, inside_image


@dataclass(frozen=True)
class GatedCRFConfig(RegularisedConfig):
    """How much the loss counts and from when, its window and its kernel.

    Args:
        weight: of the energy a pixel, beside 1 for the cross-entropy.
        ramp_share: the share of the run over which the weight rises from almost nothing; 0 has it in full
            from the start.
        radius: of the window, so that it has 2 radius + 1 pixels a side.
        position_pixels: standard deviation of the kernel in position.
        intensity: standard deviation of the kernel in intensity, in standard deviations of the image.
        stride: the loss is computed on means over squares of so many pixels a side; ``radius`` and
            ``position_pixels`` count such squares.
    """

    radius: int = 5
    position_pixels: float = 6.0
    intensity: float = 0.45
    stride: int = 1

    def __post_init__(self) -> None:
        super().__post_init__()
        for name in ("radius", "position_pixels", "intensity", "stride"):
            if not getattr(self, name) > 0:
                raise InputError(f"{name}: expected more than 0, got {getattr(self, name)}; choose another.")


FAST = GatedCRFConfig(ramp_share=0.3, radius=3, position_pixels=3.0, stride=2)
"""For short schedules: about the same window at half the resolution, a tenth of the work."""


class GatedCRF(Regularised):
    """PCE and the Gated CRF loss (Obukhov et al., 2019).

    Pixels inside the image speak, unlabelled ones are spoken to: what has a scribble needs no neighbours to
    tell what it is.

    Departs from its paper: intensities are standardised, so its 0.1 for colours from 0 to 1, which spread by
    about 0.22 in photographs, becomes 0.45 standard deviations.
    """

    Config = GatedCRFConfig
    term = "gated_crf"

    def penalty(self, log_probs: Tensor, batch: Batch) -> Tensor:
        config: GatedCRFConfig = self.config
        inside = _in_squares(inside_image(batch)[:, None].float(), config.stride)[:, 0] == 1
        unlabelled = _in_squares(batch.unlabelled[:, None].float(), config.stride)[:, 0] > 0
        return gated_crf_energy(
            _in_squares(log_probs.exp(), config.stride),
            _in_squares(batch.images, config.stride),
            source=inside,
            destination=inside & unlabelled,
            radius=config.radius,
            position_pixels=config.position_pixels,
            intensity=config.intensity,
        )


def _in_squares(whole: Tensor, side: int) -> Tensor:
    return whole if side == 1 else avg_pool2d(whole, side)
