"""PostDAE: a denoising autoencoder, trained on masks alone, mends what the network predicts."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from torch import Tensor, nn

from shapepu.data.degrade import Degradation, degrade, draw_degradation
from shapepu.errors import InputError
from shapepu.losses.partial_ce import partial_cross_entropy
from shapepu.losses.partial_dice import partial_dice_loss
from shapepu.losses.weighted_ce import weighted_partial_cross_entropy
from shapepu.methods.base import Batch, Method, NetworkBuilder, Optimise, Task
from shapepu.networks.blocks import as_widths, one_hot
from shapepu.networks.denoiser import Denoiser


@dataclass(frozen=True)
class PostDAEConfig:
    """The autoencoder, and the damage that it learns to mend.

    Args:
        weighted: weigh scribbles by how rare their class is, as ``wpce`` does; the published row that this
            method is compared by seems to.
        widths: channels of each level of the autoencoder, the first at half the resolution.
        degradation: how the masks that it sees are damaged.
    """

    weighted: bool = False
    widths: tuple[int, ...] = (16, 32, 64, 128)
    degradation: Degradation = field(default_factory=Degradation)

    def __post_init__(self) -> None:
        object.__setattr__(self, "widths", as_widths(self.widths))
        if not self.widths or min(self.widths) < 1:
            raise InputError(f"postdae.widths: expected one or more widths of 1 or more; got {self.widths}.")


class PostDAE(Method):
    """Partial cross-entropy, and a denoising autoencoder behind it (Larrazabal et al. 2020).

    The autoencoder takes its own turn of each step: it sees damaged masks of other patients and learns the
    sound ones by soft Dice. The network never hears of it. A prediction is the autoencoder's answer to the
    most probable class of each pixel.

    Departs from the paper: it narrows to a coarse map instead of a vector, so that images may have any size;
    it is trained beside the network instead of after it, on as many masks as there are images, augmented as
    the images are; and discs and rectangles stand for all of the paper's shapes. What is beyond an image is
    background in its masks; in prediction, where nobody marks it, the network's guess.
    """

    Config = PostDAEConfig
    needs = frozenset({"scribbles", "unpaired masks"})

    def __init__(self, config: PostDAEConfig, task: Task, build_network: NetworkBuilder) -> None:
        super().__init__(config, task, build_network)
        self.denoiser = Denoiser(task.classes, config.widths)

    def losses(self, batch: Batch) -> dict[str, Tensor]:
        loss = weighted_partial_cross_entropy if self.config.weighted else partial_cross_entropy
        return {"positive": loss(self.log_probs(batch.images), batch.labels, batch.labelled)}

    def step(self, batch: Batch, optimise: Optimise) -> Mapping[str, Tensor]:
        terms = super().step(batch, optimise)
        denoising = self.denoising_loss(batch)
        optimise("denoiser", denoising)
        return {**terms, "denoising": denoising}

    def denoising_loss(self, batch: Batch) -> Tensor:
        """How far the autoencoder is from the masks when it sees them damaged."""
        masks, classes = batch.unpaired_masks, batch.classes
        assert masks is not None, "declared in needs, so the data path provides them"
        damage = draw_degradation(self.config.degradation, len(masks), classes, batch.generator, masks.device)
        mended = self.denoise(degrade(masks, classes, damage))
        return partial_dice_loss(mended, masks, masks < classes)

    def denoise(self, labels: Tensor) -> Tensor:
        """Class probabilities (N, K, H, W) of what labels (N, H, W) were meant to be."""
        return self.denoiser(one_hot(labels, self.task.classes)).float().softmax(dim=1)

    def predict(self, images: Tensor) -> Tensor:
        return self.denoise(self.network(images).argmax(dim=1))

    def parameter_groups(self) -> dict[str, list[nn.Parameter]]:
        return super().parameter_groups() | {"denoiser": list(self.denoiser.parameters())}

    def prediction_modules(self) -> tuple[str, ...]:
        return ("network", "denoiser")
