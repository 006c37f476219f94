"""PCE: partial cross-entropy, the baseline that learns from scribble pixels and from nothing else."""

from __future__ import annotations

from dataclasses import dataclass

from torch import Tensor

from shapepu.losses.partial_ce import partial_cross_entropy
from shapepu.methods.base import Batch, Method


@dataclass(frozen=True)
class PCEConfig:
    """PCE has nothing to set."""


class PCE(Method):
    """Cross-entropy on scribble pixels (Tang et al. 2018)."""

    Config = PCEConfig

    def losses(self, batch: Batch) -> dict[str, Tensor]:
        return {"positive": partial_cross_entropy(self.log_probs(batch.images), batch.labels, batch.labelled)}
