"""MAAG: attention gates at several depths, taught by an adversary that looks at several resolutions."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from torch import Tensor, nn

from shapepu.errors import InputError
from shapepu.losses.adversarial import (
    dynamic_weight,
    least_squares_discriminator,
    least_squares_segmenter,
)
from shapepu.losses.weighted_ce import weighted_partial_cross_entropy
from shapepu.methods.base import Batch, Method, NetworkBuilder, Optimise, Task
from shapepu.networks.attention_unet import AttentionUNet, class_pyramid
from shapepu.networks.blocks import one_hot
from shapepu.networks.discriminator import MultiScaleDiscriminator, frozen


@dataclass(frozen=True)
class MAAGConfig:
    """The adversary and its weight.

    Args:
        adversarial_weight: of the adversarial loss, beside a supervised loss that is scaled to its size.
        noise: standard deviation of the instance noise on all that the discriminator sees in training.
        width: channels of the discriminator's first convolution; they double from level to level.
    """

    adversarial_weight: float = 0.2
    noise: float = 0.2
    width: int = 16

    def __post_init__(self) -> None:
        if self.adversarial_weight < 0 or self.noise < 0 or self.width < 1:
            raise InputError(
                "maag: expected an adversarial weight and noise of 0 or more and a width of 1 or more; got "
                f"{self.adversarial_weight}, {self.noise}, {self.width}."
            )


class MAAG(Method):
    """Multi-scale adversarial attention gates (Valvano, Leo and Tsaftaris 2021).

    The network of the run gets attention gates on its decoder. Scribbles supervise the full resolution alone;
    the coarser class maps, and with them the gates, learn from the adversary.

    Departs from the paper: the backbone is the network of the run, the same as that of every other method,
    and the discriminator is scaled down with it; it averages over positions before its last layer, so that
    patches may have any size; drawn masks are averaged, not picked, down to the coarser resolutions; the two
    players share each batch of images; and the supervised loss is scaled to the segmenter's adversarial term,
    L_adv, where the paper writes |stopgrad(L_D / L_WPCE)|.
    """

    Config = MAAGConfig
    needs = frozenset({"scribbles", "unpaired masks"})

    def __init__(self, config: MAAGConfig, task: Task, build_network: NetworkBuilder) -> None:
        super().__init__(config, task, build_network)
        gated = AttentionUNet(self.network, task.classes)
        self.network = gated
        self.strides = gated.strides
        self.discriminator = MultiScaleDiscriminator(
            task.classes, gated.strides, width=config.width, noise=config.noise
        )

    def step(self, batch: Batch, optimise: Optimise) -> Mapping[str, Tensor]:
        assert batch.unpaired_masks is not None, "declared in needs, so the data path provides them"
        drawn = class_pyramid(one_hot(batch.unpaired_masks, batch.classes), self.strides)
        log_probs = [logits.float().log_softmax(dim=1) for logits in self.network(batch.images)]
        predicted = [each.exp() for each in log_probs]
        judged = least_squares_discriminator(
            self.discriminator(drawn), self.discriminator([probs.detach() for probs in predicted])
        )
        optimise("discriminator", judged)
        with frozen(self.discriminator):
            adversarial = least_squares_segmenter(self.discriminator(predicted))
        supervised = weighted_partial_cross_entropy(log_probs[0], batch.labels, batch.labelled)
        weight = dynamic_weight(adversarial, supervised)
        terms = {
            "positive": weight * supervised,
            "adversarial": self.config.adversarial_weight * adversarial,
        }
        optimise("segmenter", terms["positive"] + terms["adversarial"])
        # The weighted term is always as large as the adversarial one; only the plain one tells how it goes.
        return terms | {"positive": supervised, "discriminator": judged}

    def log_probs(self, images: Tensor) -> Tensor:
        return self.network(images)[0].float().log_softmax(dim=1)

    def predict(self, images: Tensor) -> Tensor:
        return self.log_probs(images).exp()

    def parameter_groups(self) -> dict[str, list[nn.Parameter]]:
        return super().parameter_groups() | {"discriminator": list(self.discriminator.parameters())}
