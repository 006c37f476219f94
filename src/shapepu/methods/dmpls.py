"""DMPLS: two decoders teach each other by pseudo labels that are mixed anew at every step."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor, nn

from shapepu.errors import InputError
from shapepu.losses.partial_ce import partial_cross_entropy
from shapepu.losses.partial_dice import partial_dice_loss
from shapepu.methods.base import Batch, EpochStart, Method, NetworkBuilder, Task
from shapepu.networks.second_decoder import SecondDecoder
from shapepu.schedule import ramp_up


@dataclass(frozen=True)
class DMPLSConfig:
    """The weight of the pseudo labels, and what makes the decoders differ.

    Args:
        weight: lambda, of the Dice loss on pseudo labels beside the cross-entropy on scribbles.
        dropout: on the maps that the second decoder receives from the encoder.
        ramp_share: the share of the run over which the weight rises; 0 starts with all of it.
    """

    weight: float = 0.5
    dropout: float = 0.5
    ramp_share: float = 0.0

    def __post_init__(self) -> None:
        if not 0 <= self.dropout < 1:
            raise InputError(f"dropout: expected a probability from 0 to below 1, got {self.dropout}.")
        if not 0 <= self.ramp_share <= 1:
            raise InputError(f"ramp_share: expected a share of the run from 0 to 1, got {self.ramp_share}.")


FAST = DMPLSConfig(ramp_share=0.1)
"""For short schedules: the first pseudo labels, which are noise, would be a tenth of all."""


class DMPLS(Method):
    r"""Dual-branch network with dynamically mixed pseudo labels (Luo et al., MICCAI 2022).

    One encoder has two decoders, p and p'. At each step a number alpha is drawn uniformly from 0 to 1, and

    .. math:: \hat y_i = \arg\max_k (\alpha p_{ik} + (1 - \alpha) p'_{ik}), \quad
              L = \tfrac12 (L^+(p) + L^+(p'))
              + \tfrac{\lambda}{2} (L_{Dice}(p, \hat y) + L_{Dice}(p', \hat y))

    No gradient flows through the pseudo labels. The first decoder predicts; the second is not in a bundle.

    Departs from the paper: a scribbled pixel keeps the class of its scribble, where the paper replaces it by
    the pseudo label; a class that has no pixel in a batch is left out of the Dice loss; and the noise of the
    second decoder is dropout of what the encoder hands over, as in the authors' code, rather than ahead of
    each of the decoder's blocks.

    Reference: Luo et al., Scribble-Supervised Medical Image Segmentation via Dual-Branch Network and
    Dynamically Mixed Pseudo Labels Supervision, MICCAI 2022.
    """

    Config = DMPLSConfig

    def __init__(self, config: DMPLSConfig, task: Task, build_network: NetworkBuilder) -> None:
        super().__init__(config, task, build_network)
        self.auxiliary = SecondDecoder(build_network(), config.dropout)
        self.pseudo_weight = config.weight * ramp_up(0.0, config.ramp_share)

    def before_epoch(self, start: EpochStart) -> None:
        self.pseudo_weight = self.config.weight * ramp_up(start.progress, self.config.ramp_share)

    def losses(self, batch: Batch) -> dict[str, Tensor]:
        both = self.both_log_probs(batch.images)
        first, second = (log_probs.exp() for log_probs in both)
        share = float(torch.rand((), generator=batch.generator))
        targets = mixed_pseudo_labels(first.detach(), second.detach(), batch.labels, share)
        inside = targets < batch.classes
        supervised = [partial_cross_entropy(each, batch.labels, batch.labelled) for each in both]
        agreement = [partial_dice_loss(each, targets, inside) for each in (first, second)]
        return {
            "positive": torch.stack(supervised).mean(),
            "pseudo": self.pseudo_weight * torch.stack(agreement).mean(),
        }

    def both_log_probs(self, images: Tensor) -> tuple[Tensor, Tensor]:
        """log p by the first decoder and by the second, in float32, each (N, K, H, W)."""
        first, second = self.auxiliary(self.network, images)
        return first.float().log_softmax(dim=1), second.float().log_softmax(dim=1)

    def parameter_groups(self) -> dict[str, list[nn.Parameter]]:
        return {"segmenter": [*self.network.parameters(), *self.auxiliary.parameters()]}


def mixed_pseudo_labels(first: Tensor, second: Tensor, labels: Tensor, share: float) -> Tensor:
    """The labels with the most probable class of a mixture of two predictions where a pixel is unlabelled.

    Args:
        first, second: probabilities, shape (N, K, H, W).
        labels: 0..K-1, K where unlabelled, anything else beyond the image; shape (N, H, W). Scribbles, and
            what lies beyond the image, stay.
        share: alpha, of ``first`` in the mixture.
    """
    # max and not argmax, which takes ten times longer across channels.
    classes = torch.lerp(second, first, share).max(dim=1).indices
    return torch.where(labels == first.shape[1], classes.to(labels.dtype), labels)
