"""(TED)^n: CVIR with ratios that are estimated on held-out slices instead of given."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace

import torch
from torch import Tensor

from shapepu.bbe import best_bin
from shapepu.errors import InputError
from shapepu.labels import OUTSIDE
from shapepu.methods.base import Batch, EpochStart, NetworkBuilder, Task
from shapepu.methods.cvir import CVIR, CVIRConfig, posteriors

HELD_OUT_PIXELS = 2**20
"""Unlabelled pixels scored for an estimate at most; their share of a rare class is then known to 1 %."""


@dataclass(frozen=True)
class TEDNConfig(CVIRConfig):
    """Warm start, hold-out and the constants of best bin estimation.

    Args:
        warmup_share: all unlabelled pixels are negatives for this share of the run: of the 1000 epochs that a
            run of the paper takes, 100.
        held_out_share: of the training slices, that nothing is learnt from and the ratios are estimated on.
        gamma: how much more chance counts than the bound, when the best bin is chosen.
        delta: the probability with which a bound may fail.
    """

    warmup_share: float = 0.1
    held_out_share: float = 0.2
    gamma: float = 0.01
    delta: float = 0.1

    def __post_init__(self) -> None:
        super().__post_init__()
        if not 0 <= self.warmup_share < 1:
            raise InputError(
                f"tedn.warmup_share: expected 0 or more and less than 1, got {self.warmup_share}."
            )
        for name, value in {"held_out_share": self.held_out_share, "delta": self.delta}.items():
            if not 0 < value < 1:
                raise InputError(f"tedn.{name}: expected a number between 0 and 1, got {value}.")


FAST = TEDNConfig(pool_slices=192, warmup_share=0.2)
"""For short schedules: a longer warm start, and estimates that cost little of an epoch."""


class TEDN(CVIR):
    """Transform, estimate, discard (Garg et al., NeurIPS 2021): CVIR and best bin estimation in turn.

    It starts warm, by scribbles against all unlabelled pixels. Then, before each epoch, alpha_j is estimated
    from the averaged network's scores of held-out scribbles of j and held-out unlabelled pixels, and the
    epoch goes as in :class:`CVIR` with that ratio. A class without a held-out scribble keeps its last ratio,
    at first 0: then nothing is discarded.

    Held out are whole slices, drawn once: pixels of one slice are too much alike to test what was learnt from
    their neighbours. The ratio of the background is what the others leave.
    """

    Config = TEDNConfig
    needs = frozenset({"scribbles"})
    held_out: Tensor

    def __init__(self, config: TEDNConfig, task: Task, build_network: NetworkBuilder) -> None:
        super().__init__(config, task, build_network)
        slices = task.training_slices
        count = min(max(1, round(config.held_out_share * slices)), max(0, slices - 1))
        held_out = torch.zeros(slices, dtype=torch.bool)
        held_out[torch.randperm(slices)[:count]] = True
        self.register_buffer("held_out", held_out)

    def losses(self, batch: Batch) -> dict[str, Tensor]:
        labels = batch.labels.masked_fill(self.is_held_out(batch), OUTSIDE)
        return super().losses(replace(batch, labels=labels))

    def is_held_out(self, batch: Batch) -> Tensor:
        """Of each image, (N, 1, 1)."""
        return self.held_out[batch.slices].view(-1, 1, 1)

    def before_epoch(self, start: EpochStart) -> None:
        if start.progress < self.config.warmup_share:
            return
        pool = self.empty_pool()
        scribbled, labels, unlabelled = [], [], []
        for batch, log_probs in posteriors(start, self.config.pool_slices):
            held_out = self.is_held_out(batch)
            pool.add(log_probs[batch.unlabelled & ~held_out])
            scribbled.append(log_probs[batch.labelled & held_out])
            labels.append(batch.labels[batch.labelled & held_out])
            thinned = slice(None, None, self._thinning(batch))
            unlabelled.append(log_probs[batch.unlabelled & held_out][thinned])
        self._estimate(torch.cat(scribbled), torch.cat(labels), torch.cat(unlabelled))
        self.log_limits.copy_(pool.thresholds(self.ratios))

    def _thinning(self, batch: Batch) -> int:
        """Every how many-th held-out pixel is scored, so that all of them together are not too many."""
        return math.ceil(int(self.held_out.sum()) * batch.labels[0].numel() / HELD_OUT_PIXELS)

    def _estimate(self, scribbled: Tensor, labels: Tensor, unlabelled: Tensor) -> None:
        """Best bins, from log p of held-out scribbles (S, K), their labels (S,), and others' log p (U, K)."""
        constants = {"gamma": self.config.gamma, "delta": self.config.delta}
        for label in range(1, self.task.classes):
            own = scribbled[labels == label, label]
            if len(own) and len(unlabelled):
                self.ratios[label] = best_bin(own, unlabelled[:, label], **constants).ratio
        self.ratios[0] = (1 - self.ratios[1:].sum()).clamp(min=0)
