"""CVIR: scribbles against the unlabelled pixels that remain when the most probable ones are left out."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from shapepu.errors import InputError
from shapepu.losses.cvir import value_ignoring_risk
from shapepu.losses.negative import rule_out_below
from shapepu.methods.base import Batch, EpochStart, Method, NetworkBuilder, Task
from shapepu.mixture import PosteriorHistogram

IMAGES_AT_ONCE = 16


@dataclass(frozen=True)
class CVIRConfig:
    """How much is ranked.

    Args:
        pool_slices: training slices drawn for the ranking before each epoch; 0 takes all.
    """

    pool_slices: int = 0

    def __post_init__(self) -> None:
        if self.pool_slices < 0:
            raise InputError(f"pool_slices: expected 0 (for all) or more, got {self.pool_slices}.")


FAST = CVIRConfig(pool_slices=96)
"""For short schedules: a ranking that costs little of an epoch."""


class CVIR(Method):
    """Conditional value-ignoring risk, one class against the rest (Garg et al., NeurIPS 2021).

    Before each epoch the unlabelled pixels of the training set are ranked by the probability of class j, and
    the highest share alpha_j is discarded: those pixels are no negatives of j in that epoch. The scribbles of
    j and what remains then count the same. Scribbles of other classes are known negatives: they join what
    remains and are never discarded. A class without scribbles in a batch is left out of its step.

    The ranking is over the pool, not the batch: slices with much of a class then have much discarded, and
    those without it nothing. It is held as one limit a class, the probability above which the averaged
    network puts the share alpha_j of the pool; in a batch the pixels above it are discarded. Memory is that
    of a histogram, however large the pool.

    True ratios: alpha_j is given, the share of class j among the unlabelled pixels of the training patches.
    It is counted on the dense masks of the training cases, by :meth:`SliceStore.true_ratios`, handed over as
    ``Task.true_ratios``, and all that is ever seen of the masks.

    Departs from its paper: the softmax of one network stands for as many binary classifiers; and augmented
    patches never show the same pixels again, so an epoch discards what lies above the limit, not a list.
    """

    Config = CVIRConfig
    needs = frozenset({"scribbles", "true ratios"})
    ratios: Tensor
    log_limits: Tensor

    def __init__(self, config: CVIRConfig, task: Task, build_network: NetworkBuilder) -> None:
        super().__init__(config, task, build_network)
        given = task.given_ratios() if "true ratios" in self.needs else (1.0,) + (0.0,) * (task.classes - 1)
        self.register_buffer("ratios", torch.tensor(given, dtype=torch.float64))
        # Above +inf lies nothing: all unlabelled pixels are negatives until there is a ranking.
        self.register_buffer("log_limits", torch.full((task.classes,), torch.inf, dtype=torch.float64))

    def losses(self, batch: Batch) -> dict[str, Tensor]:
        log_probs = self.log_probs(batch.images)
        discarded = self.discarded(log_probs, batch)
        return {"value_ignoring": value_ignoring_risk(log_probs, batch.labels, discarded)}

    def discarded(self, log_probs: Tensor, batch: Batch) -> Tensor:
        """Unlabelled pixels above the limits, and so no negatives of the class, (N, K, H, W)."""
        kept = rule_out_below(log_probs, batch.unlabelled, self.log_limits)
        return batch.unlabelled[:, None] & ~kept

    def before_epoch(self, start: EpochStart) -> None:
        pool = self.empty_pool()
        for batch, log_probs in posteriors(start, self.config.pool_slices):
            pool.add(log_probs[batch.unlabelled])
        self.log_limits.copy_(pool.thresholds(self.ratios))

    def empty_pool(self) -> PosteriorHistogram:
        return PosteriorHistogram(self.task.classes, device=self.ratios.device)

    def report(self) -> dict[str, float | Sequence[float]]:
        return {"ratio": self.ratios.tolist()}


def posteriors(start: EpochStart, slices: int) -> Iterator[tuple[Batch, Tensor]]:
    """Plain batches with log p by the averaged weights, (N, H, W, K); of all slices when ``slices`` is 0."""
    for batch in start.data.plain_batches(IMAGES_AT_ONCE, limit=slices or None, generator=start.generator):
        yield batch, start.teacher(batch.images).clamp(min=1e-30).log().movedim(1, -1)
