"""CRF: a dense conditional random field behind the network, trained with it."""

from __future__ import annotations

from dataclasses import dataclass

from torch import Tensor, nn

from shapepu.errors import InputError
from shapepu.labels import OUTSIDE
from shapepu.losses.weighted_ce import weighted_partial_cross_entropy
from shapepu.mean_field import MeanField
from shapepu.methods.base import Batch, EpochStart, Method, NetworkBuilder, Task


@dataclass(frozen=True)
class CRFConfig:
    """The kernels of the field, how they begin, and how often they are applied.

    Args:
        training_iterations: steps of mean field in training.
        test_iterations: steps of mean field in prediction.
        appearance_pixels: standard deviation of the appearance kernel in position.
        appearance_intensity: standard deviation of the appearance kernel in intensity, in standard deviations
            of the image.
        smoothness_pixels: standard deviation of the smoothness kernel.
        appearance_weight: of the appearance kernel at the start; learned.
        smoothness_weight: of the smoothness kernel at the start; learned.
        stride: messages run between squares of so many pixels a side; 1 is the field of the paper.
        warmup_share: the share of the run in which the network learns without the field.
    """

    training_iterations: int = 5
    test_iterations: int = 10
    appearance_pixels: float = 20.0
    appearance_intensity: float = 0.4
    smoothness_pixels: float = 3.0
    appearance_weight: float = 5.0
    smoothness_weight: float = 3.0
    stride: int = 1
    warmup_share: float = 0.0

    def __post_init__(self) -> None:
        if min(self.training_iterations, self.test_iterations) < 1:
            raise InputError("crf: training_iterations and test_iterations must be 1 or more.")
        if not 0 <= self.warmup_share < 1:
            raise InputError(f"warmup_share: expected 0 or more and less than 1, got {self.warmup_share}.")


FAST = CRFConfig(stride=2, warmup_share=0.3)
"""For short schedules: messages at half the resolution, and a network that knows something first."""


class CRF(Method):
    """WPCE on a dense CRF as recurrent mean field, end to end (Zheng et al., ICCV 2015).

    Weighted partial cross-entropy is that of the field's output; its gradient goes through all steps of mean
    field into the network, the weights of the kernels and the compatibility. Pixels beyond the image send no
    messages in training; in prediction, where nobody marks them, they are what images are framed with.

    Departs from its paper in the widths of the appearance kernel, which were chosen for photographs: 160
    pixels, about an object there, and 3 of 255 grey levels, which is below the noise of a scan. Here they are
    20 pixels, about a ventricle, and 0.4 standard deviations of the image. Smoothness, weights at the start
    and numbers of steps are those of the authors' code. Several channels have an appearance kernel each;
    the authors have one of all colours. The filter is no permutohedral lattice but Fourier series, for which
    extreme intensities count as less extreme, see :mod:`shapepu.mean_field`.
    """

    Config = CRFConfig
    crf: nn.Module

    def __init__(self, config: CRFConfig, task: Task, build_network: NetworkBuilder) -> None:
        super().__init__(config, task, build_network)
        self.crf = MeanField(
            task.channels,
            task.classes,
            appearance_pixels=config.appearance_pixels,
            appearance_intensity=config.appearance_intensity,
            smoothness_pixels=config.smoothness_pixels,
            appearance_weight=config.appearance_weight,
            smoothness_weight=config.smoothness_weight,
            stride=config.stride,
        )
        self.active = config.warmup_share == 0

    def before_epoch(self, start: EpochStart) -> None:
        self.active = start.progress >= self.config.warmup_share

    def losses(self, batch: Batch) -> dict[str, Tensor]:
        log_probs = self.log_probs(batch.images)
        if self.active:
            inside = batch.labels != OUTSIDE
            # The field begins with a softmax, which does not see that the logits are normalised.
            log_probs = self.crf(log_probs, batch.images, inside, iterations=self.config.training_iterations)
        return {"positive": weighted_partial_cross_entropy(log_probs, batch.labels, batch.labelled)}

    def predict(self, images: Tensor) -> Tensor:
        log_probs = self.crf(self.log_probs(images), images, iterations=self.config.test_iterations)
        return log_probs.exp()

    def parameter_groups(self) -> dict[str, list[nn.Parameter]]:
        return {"segmenter": [*self.network.parameters(), *self.crf.parameters()]}

    def prediction_modules(self) -> tuple[str, ...]:
        return ("network", "crf")
