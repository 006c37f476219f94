"""The terms of the objectives: pure functions of tensors, one idea a file, symbols in docs/equations.md."""

from shapepu.losses.consistency import global_consistency
from shapepu.losses.negative import negative_loss, rule_out, rule_out_below, share_thresholds
from shapepu.losses.partial_ce import partial_cross_entropy

__all__ = [
    "global_consistency",
    "negative_loss",
    "partial_cross_entropy",
    "rule_out",
    "rule_out_below",
    "share_thresholds",
]
