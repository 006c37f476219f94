"""ShapePU: mixture ratios by EM, the negative loss they allow, and consistency of two views."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import Literal

import torch
from torch import Tensor

from shapepu.calibration import fit_calibration
from shapepu.errors import InputError
from shapepu.labels import OUTSIDE
from shapepu.losses.consistency import global_consistency
from shapepu.losses.negative import negative_loss, rule_out, rule_out_below
from shapepu.losses.partial_ce import partial_cross_entropy
from shapepu.methods.base import Batch, EpochStart, Method, NetworkBuilder, Task
from shapepu.mixture import PosteriorHistogram, fit
from shapepu.reach import within_reach
from shapepu.views import ViewSettings, draw_view


@dataclass(frozen=True)
class ShapePUConfig:
    """The switches of the paper's Table 1 and the weights of Eq. (5).

    Args:
        positive: L+, cross-entropy on scribble pixels.
        cutout: cut a square out of the second view.
        negative: L-, the negative loss.
        consistency: L_global, global consistency.
        negative_weight: lambda_1.
        consistency_weight: lambda_2.
        negative_form: ``per-class`` is Eq. (2); ``joint`` is the form of the authors' code.
        view: the second view; its cut applies while ``cutout`` is on.
        pool: whose posteriors EM sees: those of the ``batch``, or those of the averaged network on the
            training slices before each ``epoch``.
        pool_slices: training slices drawn for an ``epoch`` pool; 0 takes all.
        pool_every: epochs from one ``epoch`` pool to the next.
        pool_share: share of the run from one ``epoch`` pool to the next, where that is longer: the longer a
            run, the less an estimate changes from epoch to epoch. 0 leaves it out.
        ranking: which unlabelled pixels count as the highest alpha_j share: the highest of the ``batch``, or
            those above that share of the ``epoch`` pool, so that a slice without a heart keeps no positives.
        calibrate: correct an ``epoch`` pool's posteriors first, so that over the scribble pixels they agree
            with the scribbles; EM runs away from posteriors that do not.
        guard: never rule a class out where it is as probable as on all but this share of its own scribble
            pixels, whatever the estimate; needs ``ranking`` by the pool. 0 trusts the estimate.
        slack: rule a structure out beyond this many times its estimated share. Which pixels lie just outside
            the share is what an estimate knows least, and leaks are far larger; 1 is the paper's.
        reach: rule a class out, estimate or not, further from its scribbles than this share of their radius,
            and in slices that are scribbled without it (see :mod:`shapepu.reach`); EM then pools pixels
            within reach of a structure alone. A negative value leaves it out.
        warmup_epochs: L- by the estimate waits for this many epochs,
        warmup_share: and for this share of the run,
        readiness: and, with an ``epoch`` pool, until no foreground ratio changed by more than this,
            relatively, between two pools and each class is found on most of its scribble pixels; 0 does not
            wait.
    """

    positive: bool = True
    cutout: bool = True
    negative: bool = True
    consistency: bool = True
    negative_weight: float = 1.0
    consistency_weight: float = 0.05
    negative_form: Literal["per-class", "joint"] = "per-class"
    view: ViewSettings = field(default_factory=ViewSettings)
    pool: Literal["batch", "epoch"] = "batch"
    pool_slices: int = 0
    pool_every: int = 1
    pool_share: float = 0.0
    ranking: Literal["batch", "pool"] = "batch"
    calibrate: bool = False
    guard: float = 0.0
    slack: float = 1.0
    reach: float = -1.0
    warmup_epochs: int = 100
    warmup_share: float = 0.0
    readiness: float = 0.0

    def __post_init__(self) -> None:
        if not (self.positive or self.negative or self.consistency):
            raise InputError("shapepu: all losses are switched off; leave at least --shapepu.positive on.")
        if self.ranking == "pool" and self.pool == "batch":
            raise InputError("shapepu.ranking: 'pool' needs --shapepu.pool epoch.")
        if self.slack < 1:
            raise InputError(
                f"shapepu.slack: expected 1, the estimated share itself, or more; got {self.slack}."
            )
        if self.pool_every < 1 or self.pool_slices < 0 or not 0 <= self.pool_share < 1:
            raise InputError(
                "shapepu: expected pool_every of 1 or more, pool_slices of 0 or more and pool_share from 0 "
                f"to below 1; got {self.pool_every}, {self.pool_slices} and {self.pool_share}."
            )


FAST = ShapePUConfig(
    pool="epoch",
    pool_slices=48,
    pool_every=2,
    pool_share=0.04,
    ranking="pool",
    calibrate=True,
    guard=0.05,
    reach=1.0,
    negative_weight=1.0,
    view=ViewSettings(rotation="right"),
    warmup_epochs=0,
    warmup_share=0.3,
    readiness=0.25,
)
"""For short schedules: a pooled, steadier estimate, and no negative loss before it can be trusted."""

CALIBRATION_PIXELS = 20_000
"""Scribble pixels that calibrate a handful of numbers; more cost time and change nothing."""

RECALL_FOR_READINESS = 0.7
"""A class that is missed on its own scribbles has posteriors that say nothing of its share."""


class ShapePU(Method):
    """Shape-constrained positive-unlabelled learning (Zhang and Zhuang, MICCAI 2022).

    Departs from the paper: the losses are means over their pixels, not sums, so that lambda means the same
    for any patch, batch and scribble density.
    """

    Config = ShapePUConfig
    ratios: Tensor
    log_thresholds: Tensor
    label_shares: Tensor
    active: Tensor
    pooled_at: Tensor

    def __init__(self, config: ShapePUConfig, task: Task, build_network: NetworkBuilder) -> None:
        super().__init__(config, task, build_network)
        shares = torch.tensor(task.label_shares, dtype=torch.float64)
        self.register_buffer("label_shares", shares)
        self.register_buffer("ratios", shares.clone())
        self.register_buffer("log_thresholds", torch.full((task.classes,), -torch.inf, dtype=torch.float64))
        self.register_buffer("active", torch.tensor(False))
        # Epoch and progress of the last epoch pool.
        self.register_buffer("pooled_at", torch.full((2,), -torch.inf, dtype=torch.float64))

    def losses(self, batch: Batch) -> dict[str, Tensor]:
        config: ShapePUConfig = self.config
        log_probs = self.log_probs(batch.images)
        supervised = [(log_probs, batch.labels, batch.labelled)]
        terms: dict[str, Tensor] = {}
        if config.cutout or config.consistency:
            view = draw_view(
                len(batch.images),
                (batch.images.shape[-2], batch.images.shape[-1]),
                config.view if config.cutout else replace(config.view, cut=0),
                batch.generator,
                batch.images.device,
            )
            seen_labels = view.labels(batch.labels, unlabelled=batch.classes)
            seen_log_probs = self.log_probs(view.images(batch.images))
            supervised.append((seen_log_probs, seen_labels, seen_labels < batch.classes))
            if config.consistency:
                expected, valid = view.probs(log_probs.exp())
                valid = valid & (seen_labels != OUTSIDE)
                terms["consistency"] = config.consistency_weight * global_consistency(
                    expected, seen_log_probs.exp(), valid
                )
        if config.positive:
            terms["positive"] = partial_cross_entropy(
                *(torch.cat(parts) for parts in zip(*supervised, strict=True))
            )
        if config.negative:
            terms["negative"] = config.negative_weight * self.negative(log_probs, batch)
        return terms

    def negative(self, log_probs: Tensor, batch: Batch) -> Tensor:
        """L- on one batch: by the estimate once it is trusted, and by reach from the start."""
        config: ShapePUConfig = self.config
        ruled_out = torch.zeros_like(log_probs, dtype=torch.bool)
        with torch.no_grad():
            if self.active and config.pool == "batch":
                pixels = log_probs.movedim(1, -1)[self._pooled(batch)]
                self.ratios.copy_(fit(pixels, self.label_shares, tolerance=1e-4, max_iterations=100).ratios)
            if self.active and config.ranking == "pool":
                ruled_out = rule_out_below(log_probs, batch.unlabelled, self.log_thresholds)
            elif self.active:
                ruled_out = rule_out(log_probs, batch.unlabelled, self._kept_shares)
            if config.reach >= 0:
                beyond = ~within_reach(batch.labels, batch.classes, reach=config.reach)
                ruled_out |= beyond & batch.unlabelled[:, None]
        return negative_loss(log_probs, ruled_out, form=config.negative_form)

    @property
    def _kept_shares(self) -> Tensor:
        """The share of the pixels in which each class is not ruled out."""
        return (self.config.slack * self.ratios).clamp(max=1.0)

    def _pooled(self, batch: Batch) -> Tensor:
        """The unlabelled pixels whose posteriors EM sees."""
        if self.config.reach < 0:
            return batch.unlabelled
        near = within_reach(batch.labels, batch.classes, reach=self.config.reach)[:, 1:].any(dim=1)
        return batch.unlabelled & near

    def before_epoch(self, start: EpochStart) -> None:
        config: ShapePUConfig = self.config
        if not config.negative:
            return
        warm = start.epoch >= config.warmup_epochs and start.progress >= config.warmup_share
        if config.pool == "batch":
            self.active.fill_(warm)
            return
        # One estimate before the warm-up ends, so that the first to be used can be compared with it.
        before = start.epoch + 1 + config.pool_every >= config.warmup_epochs
        soon = before and start.progress >= 0.8 * config.warmup_share
        if (warm or soon) and self._is_due(start):
            steady = self._estimate(start)
            self.active.fill_(bool(self.active) or (warm and steady))

    def _is_due(self, start: EpochStart) -> bool:
        """Whether the last pool is far enough back for another; if so, this is the last one."""
        epoch, progress = self.pooled_at.tolist()
        config: ShapePUConfig = self.config
        # A run that was made longer has done less of it than before.
        if start.epoch - epoch < config.pool_every or 0 <= start.progress - progress < config.pool_share:
            return False
        self.pooled_at.copy_(torch.tensor((start.epoch, start.progress)))
        return True

    def _estimate(self, start: EpochStart) -> bool:
        """EM over the averaged network's posteriors; whether the estimate can be trusted."""
        config: ShapePUConfig = self.config
        pool, scribbled, labels = self._look_around(start)
        shares = torch.bincount(labels, minlength=self.task.classes)
        if not len(labels):
            return False  # nobody scribbled the slices that were drawn: the last estimate is the better one
        posteriors = pool.log_probs
        if config.calibrate:
            every = max(1, len(labels) // CALIBRATION_PIXELS)
            posteriors = fit_calibration(scribbled[::every], labels[::every]).apply(posteriors)
        state = fit(posteriors, shares, weights=pool.weights, tolerance=1e-6, max_iterations=500)
        recall = _share_by_class(scribbled.argmax(dim=1) == labels, labels, self.task.classes)
        trusted = self._is_steady(state.ratios) and bool((recall[shares > 0] >= RECALL_FOR_READINESS).all())
        self.ratios.copy_(state.ratios)
        self.log_thresholds.copy_(pool.thresholds(self._kept_shares))
        self.log_thresholds[shares == 0] = -torch.inf  # a class that no drawn slice shows may be in others
        if config.guard:
            lowest = _lowest_of_scribbles(scribbled, labels, config.guard)
            self.log_thresholds.copy_(torch.minimum(self.log_thresholds, lowest))
        return trusted or not config.readiness

    def _look_around(self, start: EpochStart) -> tuple[PosteriorHistogram, Tensor, Tensor]:
        """Averaged posteriors of unlabelled pixels, pooled, and of labelled ones with their labels."""
        pool = PosteriorHistogram(self.task.classes, device=self.ratios.device)
        scribbled, labels = [], []
        limit = self.config.pool_slices or None
        for batch in start.data.plain_batches(16, limit=limit, generator=start.generator):
            log_probs = start.teacher(batch.images).clamp(min=1e-30).log().movedim(1, -1)
            pool.add(log_probs[self._pooled(batch)])
            scribbled.append(log_probs[batch.labelled])
            labels.append(batch.labels[batch.labelled].long())
        return pool, torch.cat(scribbled), torch.cat(labels)

    def _is_steady(self, ratios: Tensor) -> bool:
        present = self.label_shares[1:] > 0
        before, now = self.ratios[1:][present], ratios[1:][present]
        return bool(((now > 0) & ((now - before).abs() <= self.config.readiness * before)).all())

    def report(self) -> dict[str, float | Sequence[float]]:
        if not self.config.negative:
            return {}
        return {"ratio": self.ratios.tolist(), "negative_active": float(self.active)}


def _share_by_class(claims: Tensor, labels: Tensor, classes: int) -> Tensor:
    """The share of the pixels of each class for which a claim is true."""
    true = torch.bincount(labels[claims], minlength=classes)
    return true / torch.bincount(labels, minlength=classes).clamp(min=1)


def _lowest_of_scribbles(log_probs: Tensor, labels: Tensor, share: float) -> Tensor:
    """For each class the log probability that all but ``share`` of its own scribble pixels exceed, (K,)."""
    lowest = torch.full((log_probs.shape[1],), -torch.inf, dtype=torch.float64, device=log_probs.device)
    for label in labels.unique().tolist():
        own = log_probs[labels == label, label].sort().values
        lowest[label] = own[int(share * len(own))]
    return lowest
