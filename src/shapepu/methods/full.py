"""Full supervision: dense masks, the reference that scribbles are measured against."""

from __future__ import annotations

from dataclasses import dataclass

from torch import Tensor

from shapepu.losses.partial_ce import partial_cross_entropy
from shapepu.methods.base import Batch, Method


@dataclass(frozen=True)
class FullConfig:
    """Full supervision has nothing to set."""


class Full(Method):
    """Cross-entropy on every pixel of a dense mask."""

    Config = FullConfig
    needs = frozenset({"masks"})

    def losses(self, batch: Batch) -> dict[str, Tensor]:
        assert batch.masks is not None, "declared in needs, so the data path provides masks"
        inside = batch.masks < batch.classes
        return {"positive": partial_cross_entropy(self.log_probs(batch.images), batch.masks, inside)}
