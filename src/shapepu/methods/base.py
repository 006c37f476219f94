"""The seam that matters: what a training method is, and everything it may ask of the loop.

A method is an ``nn.Module`` that holds its networks as direct children and overrides as few of the four hooks
as it can: :meth:`Method.losses` (most stop there), :meth:`Method.before_epoch`, :meth:`Method.step`,
:meth:`Method.predict`. Further networks are named in :meth:`Method.parameter_groups`. A network is run by
calling it, ``self.network(images)``: that is where the loop sets the precision. Devices, optimisers,
schedules, files and seeds belong to the loop, too.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar, Literal, Protocol

import torch
from torch import Tensor, nn

from shapepu.errors import InputError

Supervision = Literal["scribbles", "masks", "unpaired masks", "true ratios"]
"""What a method learns from. The data path hands over nothing that a method does not declare."""


@dataclass(frozen=True)
class Task:
    """What there is to segment, as far as a method needs to know.

    Args:
        classes: K, background included.
        channels: image channels.
        label_shares: pi, the share of each class among the labelled pixels, shape (K,).
        true_ratios: alpha, the share of each class among the unlabelled pixels, from dense masks; only for
            methods that declare ``"true ratios"``.
        training_slices: how many slices the training set holds; ``Batch.slices`` counts in them.
    """

    classes: int
    channels: int
    label_shares: tuple[float, ...]
    true_ratios: tuple[float, ...] | None = None
    training_slices: int = 0

    def given_ratios(self) -> tuple[float, ...]:
        """The true ratios, for a method that does without an estimate."""
        if self.true_ratios is None:
            raise InputError(
                "true_ratios: this method is given the share of each class among the unlabelled pixels; pass "
                "Task(true_ratios=...) or train from a folder with dense masks, on which they are counted."
            )
        return self.true_ratios


@dataclass(frozen=True)
class Batch:
    """Augmented training data on the device.

    Args:
        images: shape (N, C, H, W).
        labels: 0..K-1, K where unlabelled, 255 beyond the image; uint8, shape (N, H, W).
        classes: K.
        slices: which training slice each image is of, shape (N,).
        generator: where a method's random draws come from; saved with a checkpoint. Dropout and noise within
            a network come from torch's own generator instead, of which a checkpoint keeps that of the CPU.
        masks: dense labels, only for methods that declare ``"masks"``.
        unpaired_masks: dense labels of other patients, only for methods that declare ``"unpaired masks"``.
    """

    images: Tensor
    labels: Tensor
    classes: int
    slices: Tensor
    generator: torch.Generator
    masks: Tensor | None = None
    unpaired_masks: Tensor | None = None

    @property
    def labelled(self) -> Tensor:
        return self.labels < self.classes

    @property
    def unlabelled(self) -> Tensor:
        return self.labels == self.classes


class TrainingData(Protocol):
    """The training slices as they are, without augmentation: for estimates over more than a batch."""

    def __len__(self) -> int: ...

    def plain_batches(
        self, size: int, *, limit: int | None = None, generator: torch.Generator | None = None
    ) -> Iterator[Batch]:
        """Batches over all slices in order, or over ``limit`` slices drawn by ``generator``."""
        ...


@dataclass(frozen=True)
class EpochStart:
    """What a method may look at before an epoch.

    Args:
        epoch: counted from 0.
        progress: the share of the schedule that is done, from 0 to 1, by epochs or by minutes.
        data: the training slices.
        teacher: class probabilities by the averaged weights, in evaluation mode, without gradient. It stays
            valid, and follows the averaging, during the epoch.
        generator: as in :class:`Batch`.
    """

    epoch: int
    progress: float
    data: TrainingData
    teacher: Callable[[Tensor], Tensor]
    generator: torch.Generator


class Optimise(Protocol):
    """Minimise a loss over one group of parameters: zero the gradients, backward, clip, step."""

    def __call__(self, group: str, loss: Tensor) -> None: ...


NetworkBuilder = Callable[..., nn.Module]
"""Builds the network the run is configured with; ``channels=`` and ``classes=`` may be given to differ."""


class Method(nn.Module):
    """Base of all methods: a segmentation network and four hooks.

    Subclasses say what they learn from (``needs``), whether a run must keep a running average of the weights
    for them (``needs_average``), and how they are configured (``Config``, a frozen dataclass whose defaults
    are the paper's).
    """

    Config: ClassVar[type[Any]]
    needs: ClassVar[frozenset[Supervision]] = frozenset({"scribbles"})
    needs_average: ClassVar[bool] = False

    def __init__(self, config: Any, task: Task, build_network: NetworkBuilder) -> None:
        super().__init__()
        self.config = config
        self.task = task
        self.network = build_network()

    def losses(self, batch: Batch) -> dict[str, Tensor]:
        """The terms to minimise, by name and already weighted; their sum is the objective."""
        raise NotImplementedError

    def before_epoch(self, start: EpochStart) -> None:
        """Estimates over more than a batch: EM over a pool, rankings, a warm-up that ends."""

    def step(self, batch: Batch, optimise: Optimise) -> Mapping[str, Tensor]:
        """One turn of learning; methods with several players take their turns here."""
        terms = self.losses(batch)
        optimise("segmenter", torch.stack(tuple(terms.values())).sum())
        return terms

    def predict(self, images: Tensor) -> Tensor:
        """Class probabilities, shape (N, K, H, W)."""
        return self.network(images).float().softmax(dim=1)

    def parameter_groups(self) -> dict[str, list[nn.Parameter]]:
        """Which parameters each name given to ``optimise`` trains."""
        return {"segmenter": list(self.network.parameters())}

    def prediction_modules(self) -> tuple[str, ...]:
        """The children that :meth:`predict` uses; only these travel in a model bundle."""
        return ("network",)

    def report(self) -> dict[str, float | Sequence[float]]:
        """Figures for ``metrics.csv`` beside the losses; a sequence has one for each class."""
        return {}

    def log_probs(self, images: Tensor) -> Tensor:
        """log p, in float32 whatever the precision of the network, shape (N, K, H, W)."""
        # Class by class in memory: losses take classes apart, and would else step over the others.
        return self.network(images).float().contiguous().log_softmax(dim=1)
