"""WPCE: partial cross-entropy with rare classes weighted up."""

from __future__ import annotations

from dataclasses import dataclass

from torch import Tensor

from shapepu.losses.weighted_ce import weighted_partial_cross_entropy
from shapepu.methods.base import Batch, Method


@dataclass(frozen=True)
class WPCEConfig:
    """WPCE has nothing to set."""


class WPCE(Method):
    """Cross-entropy on scribble pixels, each weighted by n / n_c of its class in the batch (Valvano 2021)."""

    Config = WPCEConfig

    def losses(self, batch: Batch) -> dict[str, Tensor]:
        log_probs = self.log_probs(batch.images)
        return {"positive": weighted_partial_cross_entropy(log_probs, batch.labels, batch.labelled)}
