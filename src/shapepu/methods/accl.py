"""ACCL: scribbles say where the classes are, an adversary says what their shapes look like."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from torch import Tensor, nn

from shapepu.errors import InputError
from shapepu.losses.adversarial import minimax_discriminator, minimax_segmenter
from shapepu.losses.partial_ce import partial_cross_entropy
from shapepu.methods.base import Batch, Method, NetworkBuilder, Optimise, Task
from shapepu.networks.blocks import one_hot
from shapepu.networks.discriminator import PatchDiscriminator, frozen


@dataclass(frozen=True)
class ACCLConfig:
    """The weight of the adversary and its size.

    Args:
        adversarial_weight: of the adversarial loss beside the cross-entropy on scribbles.
        width: channels of the discriminator's first convolution; they double from level to level.
        levels: its strided convolutions; 4 judge patches of 63 pixels.
    """

    adversarial_weight: float = 0.05
    width: int = 16
    levels: int = 4

    def __post_init__(self) -> None:
        if self.adversarial_weight < 0 or self.width < 1 or self.levels < 1:
            raise InputError(
                "accl: expected an adversarial weight of 0 or more, and a width and levels of 1 or more; got "
                f"{self.adversarial_weight}, {self.width}, {self.levels}."
            )


class ACCL(Method):
    """Partial cross-entropy and an adversarial loss (Zhang, Zhong and Li 2020).

    The discriminator sees class probabilities of the network and one-hot masks of other patients, never an
    image. It judges overlapping patches.

    Departs from the paper: its idea is kept, partial cross-entropy against a convolutional discriminator that
    has seen reference masks; width, depth and weight of the adversary are chosen here, so that it costs less
    than the network that it teaches, and its optimiser is that of the run.
    """

    Config = ACCLConfig
    needs = frozenset({"scribbles", "unpaired masks"})

    def __init__(self, config: ACCLConfig, task: Task, build_network: NetworkBuilder) -> None:
        super().__init__(config, task, build_network)
        self.discriminator = PatchDiscriminator(task.classes, width=config.width, levels=config.levels)

    def step(self, batch: Batch, optimise: Optimise) -> Mapping[str, Tensor]:
        assert batch.unpaired_masks is not None, "declared in needs, so the data path provides them"
        log_probs = self.log_probs(batch.images)
        predicted, drawn = log_probs.exp(), one_hot(batch.unpaired_masks, batch.classes)
        judged = minimax_discriminator(self.discriminator(drawn), self.discriminator(predicted.detach()))
        optimise("discriminator", judged)
        with frozen(self.discriminator):
            adversarial = minimax_segmenter(self.discriminator(predicted))
        terms = {
            "positive": partial_cross_entropy(log_probs, batch.labels, batch.labelled),
            "adversarial": self.config.adversarial_weight * adversarial,
        }
        optimise("segmenter", terms["positive"] + terms["adversarial"])
        return terms | {"discriminator": judged}

    def parameter_groups(self) -> dict[str, list[nn.Parameter]]:
        return super().parameter_groups() | {"discriminator": list(self.discriminator.parameters())}
