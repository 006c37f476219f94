"""PCE: partial cross-entropy, the baseline that learns from scribble pixels and from nothing else."""

from __future__ import annotations

from dataclasses import dataclass

from torch import Tensor

from shapepu.losses.partial_ce import partial_cross_entropy
from shapepu.losses.partial_dice import partial_dice_loss
from shapepu.methods.base import Batch, Method


@dataclass(frozen=True)
class PCEConfig:
    """What is added to the cross-entropy.

    Args:
        dice_weight: lambda, of the Dice loss on scribble pixels; 0 leaves it out, as the paper.
    """

    dice_weight: float = 0.0


class PCE(Method):
    r"""Cross-entropy on scribble pixels, and their Dice loss where it is asked for.

    .. math:: L = L^+ + \lambda L_{Dice}

    Reference: Tang et al., Normalized Cut Loss for Weakly-supervised CNN Segmentation, CVPR 2018; with the
    Dice loss: Gotkowski et al., Embarrassingly Simple Scribble Supervision for 3D Medical Segmentation, 2024.
    """

    Config = PCEConfig

    def losses(self, batch: Batch) -> dict[str, Tensor]:
        log_probs = self.log_probs(batch.images)
        terms = {"positive": partial_cross_entropy(log_probs, batch.labels, batch.labelled)}
        if self.config.dice_weight:
            overlap = partial_dice_loss(log_probs.exp(), batch.labels, batch.labelled)
            terms["dice"] = self.config.dice_weight * overlap
        return terms
