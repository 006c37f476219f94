"""The terms of the objectives: pure functions of tensors, one idea a file, symbols in docs/equations.md."""

from shapepu.losses.adversarial import (
    dynamic_weight,
    least_squares_discriminator,
    least_squares_segmenter,
    minimax_discriminator,
    minimax_segmenter,
)
from shapepu.losses.consistency import global_consistency
from shapepu.losses.cvir import value_ignoring_risk
from shapepu.losses.entropy import mean_entropy
from shapepu.losses.gated_crf import gated_crf_energy
from shapepu.losses.mumford_shah import mumford_shah_energy
from shapepu.losses.negative import negative_loss, rule_out, rule_out_below, share_thresholds
from shapepu.losses.nnpu import non_negative_risk
from shapepu.losses.partial_ce import partial_cross_entropy
from shapepu.losses.partial_dice import partial_dice_loss
from shapepu.losses.total_variation import mean_total_variation
from shapepu.losses.weighted_ce import weighted_partial_cross_entropy

__all__ = [
    "dynamic_weight",
    "gated_crf_energy",
    "global_consistency",
    "least_squares_discriminator",
    "least_squares_segmenter",
    "mean_entropy",
    "mean_total_variation",
    "minimax_discriminator",
    "minimax_segmenter",
    "mumford_shah_energy",
    "negative_loss",
    "non_negative_risk",
    "partial_cross_entropy",
    "partial_dice_loss",
    "rule_out",
    "rule_out_below",
    "share_thresholds",
    "value_ignoring_risk",
    "weighted_partial_cross_entropy",
]
