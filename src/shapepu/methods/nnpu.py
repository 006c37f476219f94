"""nnPU: each foreground class against the rest by the non-negative PU risk, given the true ratios."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from shapepu.errors import InputError
from shapepu.losses.nnpu import non_negative_risk
from shapepu.losses.partial_ce import partial_cross_entropy
from shapepu.methods.base import Batch, Method, NetworkBuilder, Task


@dataclass(frozen=True)
class NNPUConfig:
    """The constants of the correction, and what is added for several classes.

    Args:
        beta: how far the negative risk may fall below 0 before the step goes back.
        gamma: the weight of the step back, from 0 to 1.
        positive: L+, cross-entropy on scribble pixels of all classes. Without it the scribbles of the other
            classes go unused, and those of a class weigh no more than its ratio.
    """

    beta: float = 0.0
    gamma: float = 1.0
    positive: bool = True

    def __post_init__(self) -> None:
        if not self.beta >= 0:
            raise InputError(f"nnpu.beta: expected 0 or more, got {self.beta}; choose another.")
        if not 0 <= self.gamma <= 1:
            raise InputError(f"nnpu.gamma: expected a number from 0 to 1, got {self.gamma}; choose another.")


class NNPU(Method):
    """Non-negative PU learning, one class against the rest (Kiryo et al., NeurIPS 2017).

    The network is the one of all methods. The score of class j is the log-odds of its probability,
    g_j = z_j - logsumexp of the other logits, so the binary problems of the foreground classes are solved
    together by one softmax. P are the scribbles of j in the batch, U its unlabelled pixels; a class without
    scribbles in a batch is left out of its step.

    True ratios: alpha_j is given, the share of class j among the unlabelled pixels of the training patches.
    It is counted on the dense masks of the training cases, by :meth:`SliceStore.true_ratios`, handed over as
    ``Task.true_ratios``, and all that is ever seen of the masks.

    Departs from its paper: with several classes the scribbles of the others are known negatives; they enter
    by the cross-entropy on all scribble pixels, L = L+ + sum_j L_j. That also keeps the positives from being
    drowned: the paper's problems have alpha of about .4, a ventricle has .01. So a step in which a risk turns
    around is not that risk alone, as in the paper, but has a part of L+ and of the other classes' risks.
    """

    Config = NNPUConfig
    needs = frozenset({"scribbles", "true ratios"})

    def __init__(self, config: NNPUConfig, task: Task, build_network: NetworkBuilder) -> None:
        super().__init__(config, task, build_network)
        self.ratios = task.given_ratios()

    def losses(self, batch: Batch) -> dict[str, Tensor]:
        log_probs = self.log_probs(batch.images)
        terms = {"non_negative": self.risk(log_probs.exp(), batch)}
        if self.config.positive:
            terms["positive"] = partial_cross_entropy(log_probs, batch.labels, batch.labelled)
        return terms

    def risk(self, probs: Tensor, batch: Batch) -> Tensor:
        """The sum over the foreground classes; each turns around by itself."""
        risks = [
            non_negative_risk(
                probs[:, label],
                batch.labels == label,
                batch.unlabelled,
                ratio=ratio,
                beta=self.config.beta,
                gamma=self.config.gamma,
            )
            for label, ratio in enumerate(self.ratios)
            if label > 0
        ]
        return torch.stack(risks).sum()

    def report(self) -> dict[str, float | Sequence[float]]:
        return {"ratio": list(self.ratios)}
