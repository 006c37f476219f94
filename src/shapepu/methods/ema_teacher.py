"""EMA teacher: the averaged network labels what it is sure of, and the network being trained learns that."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor

from shapepu.errors import InputError
from shapepu.losses.partial_ce import partial_cross_entropy
from shapepu.methods.base import Batch, EpochStart, Method, NetworkBuilder, Task
from shapepu.schedule import ramp_up
from shapepu.views import ViewSettings, draw_view


@dataclass(frozen=True)
class EMATeacherConfig:
    """How sure the teacher must be, and how much its labels count.

    Args:
        confidence: the probability from which on a class of the teacher becomes a pseudo label.
        weight: lambda, of the cross-entropy on pseudo labels beside that on scribbles.
        ramp_share: the share of the run over which the weight rises; 0 starts with all of it.
        second_view: the student sees the images cut and turned once more and the teacher as they are;
            otherwise both see the same.
        view: what the student's view may do. Right angles bring in no empty corners, of which the averaged
            batch statistics would tell the teacher.
    """

    confidence: float = 0.95
    weight: float = 1.0
    ramp_share: float = 0.25
    second_view: bool = True
    view: ViewSettings = field(default_factory=lambda: ViewSettings(rotation="right"))

    def __post_init__(self) -> None:
        if not 0 <= self.confidence <= 1:
            raise InputError(f"confidence: expected a probability from 0 to 1, got {self.confidence}.")
        if not 0 <= self.ramp_share <= 1:
            raise InputError(f"ramp_share: expected a share of the run from 0 to 1, got {self.ramp_share}.")


class EMATeacher(Method):
    r"""Mean teacher with hard pseudo labels above a confidence.

    .. math:: L = L^+ + \lambda(t) \operatorname{mean}_{i \in \Omega_c} (- \log p_{i, \hat y_i}), \quad
              \hat y_i = \arg\max_k \bar p_{ik}, \quad
              \Omega_c = \{i \in \Omega_u : \max_k \bar p_{ik} \ge \tau\}

    :math:`\bar p` is the prediction of the averaged weights for the augmented batch, Omega_u are the
    unlabelled pixels, so that a scribble is never overruled. With a second view the student sees the same
    images cut, turned and mirrored, and the labels follow; both of its losses are on that view, so that a
    step costs one prediction without gradient more than partial cross-entropy.

    Departs from its papers: the teacher is the average that every run keeps, in evaluation mode, with the
    decay of the run (``optimisation.average``, which must not be 0); agreement with it is
    cross-entropy with hard labels, as in FixMatch, but as a mean over the pixels it is sure of and not over
    all; and from ScribbleVS comes the idea of a teacher that labels what is not scribbled, but neither the
    spreading of labels over regions nor the competition between labels of teacher and student.

    Reference: Tarvainen and Valpola, Mean teachers are better role models, NeurIPS 2017; Sohn et al.,
    FixMatch, NeurIPS 2020; Wang et al., ScribbleVS, 2024.
    """

    Config = EMATeacherConfig
    needs_average = True

    def __init__(self, config: EMATeacherConfig, task: Task, build_network: NetworkBuilder) -> None:
        super().__init__(config, task, build_network)
        # Known before each epoch; no child of this module, or it would be trained, and saved twice.
        self.teacher: Callable[[Tensor], Tensor] | None = None
        self.pseudo_weight = 0.0
        self._pseudo_shares: list[Tensor] = []

    def before_epoch(self, start: EpochStart) -> None:
        self.teacher = start.teacher
        self.pseudo_weight = self.config.weight * ramp_up(start.progress, self.config.ramp_share)
        self._pseudo_shares = []

    def losses(self, batch: Batch) -> dict[str, Tensor]:
        assert self.teacher is not None, "before_epoch says who the teacher is"
        images, labels = batch.images, batch.labels
        targets = confident_labels(self.teacher(images), labels, self.config.confidence)
        if self.config.second_view:
            size = (images.shape[-2], images.shape[-1])
            view = draw_view(len(images), size, self.config.view, batch.generator, images.device)
            images = view.images(images)
            labels, targets = (view.labels(each, unlabelled=batch.classes) for each in (labels, targets))
        log_probs = self.log_probs(images)
        unlabelled = labels == batch.classes
        pseudo = unlabelled & (targets < batch.classes)
        self._pseudo_shares.append(pseudo.sum() / unlabelled.sum().clamp(min=1))
        return {
            "positive": partial_cross_entropy(log_probs, labels, labels < batch.classes),
            "pseudo": self.pseudo_weight * partial_cross_entropy(log_probs, targets, pseudo),
        }

    def report(self) -> dict[str, float | Sequence[float]]:
        """Of the unlabelled pixels of an epoch, the share that had a pseudo label."""
        if not self._pseudo_shares:
            return {}
        return {"pseudo_share": float(torch.stack(self._pseudo_shares).mean())}

    def __getstate__(self) -> dict[str, Any]:
        """A copy has no teacher: that would copy the averaged network with it."""
        return {**self.__dict__, "teacher": None}


def confident_labels(probs: Tensor, labels: Tensor, confidence: float) -> Tensor:
    """The labels with the most probable class filled in where a pixel is unlabelled and that class is sure.

    Args:
        probs: shape (N, K, H, W).
        labels: 0..K-1, K where unlabelled, anything else beyond the image; shape (N, H, W). Scribbles, and
            what lies beyond the image, stay.
        confidence: the probability that the class must reach.
    """
    highest, classes = probs.max(dim=1)
    sure = (labels == probs.shape[1]) & (highest >= confidence)
    return torch.where(sure, classes.to(labels.dtype), labels)
