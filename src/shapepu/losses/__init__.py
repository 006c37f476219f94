"""The terms of the objectives: pure functions of tensors, one idea a file, symbols in docs/equations.md."""

from shapepu.losses.consistency import global_consistency
from shapepu.losses.cvir import value_ignoring_risk
from shapepu.losses.negative import negative_loss, rule_out, rule_out_below, share_thresholds
from shapepu.losses.nnpu import non_negative_risk
from shapepu.losses.partial_ce import partial_cross_entropy

__all__ = [
    "global_consistency",
    "negative_loss",
    "non_negative_risk",
    "partial_cross_entropy",
    "rule_out",
    "rule_out_below",
    "share_thresholds",
    "value_ignoring_risk",
]
