"""Everything a run can be told, and the recipes: named starting points that change only some of it."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field, replace
from typing import Any, Literal

import torch
from torch import nn

from shapepu.configuration import from_plain, to_plain
from shapepu.data.augment import Augmentation
from shapepu.data.choice import DataChoice
from shapepu.data.preprocess import Preprocessing
from shapepu.errors import InputError, unknown_name
from shapepu.methods import find_method
from shapepu.methods.base import NetworkBuilder, Task
from shapepu.networks import find_network
from shapepu.networks.fast_unet import FastUNetConfig
from shapepu.precision import Precision
from shapepu.predict_options import Averaging, Views

BEFORE_THERE_WAS_A_CHOICE = {"averaging": "none"}
"""What older runs and results did where their settings say nothing and the default is another by now."""


@dataclass(frozen=True)
class Optimisation:
    """How weights follow gradients.

    Args:
        optimiser: ``adamw`` or ``adam`` (without decay).
        learning_rate: at its highest.
        schedule: ``cosine`` falls to zero over the run; ``constant`` does not.
        warmup_share: the share of the run over which the learning rate rises from zero.
        weight_decay: of AdamW.
        clip_norm: gradients of a parameter group are scaled down to this norm; 0 leaves them.
        average: decay of the running average of the weights, which is what predicts; 0 predicts with the
            last weights.
        batch_size: images a step.
    """

    optimiser: Literal["adamw", "adam"] = "adamw"
    learning_rate: float = 3e-3
    schedule: Literal["cosine", "constant"] = "cosine"
    warmup_share: float = 0.02
    weight_decay: float = 1e-2
    clip_norm: float = 10.0
    average: float = 0.999
    batch_size: int = 16

    def __post_init__(self) -> None:
        for name, right in {
            "learning_rate": self.learning_rate > 0,
            "warmup_share": 0 <= self.warmup_share < 1,
            "weight_decay": self.weight_decay >= 0,
            "clip_norm": self.clip_norm >= 0,
            "average": 0 <= self.average < 1,
            "batch_size": self.batch_size >= 1,
        }.items():
            if not right:
                raise InputError(
                    f"optimisation.{name}: {getattr(self, name)} is out of range; choose another."
                )


@dataclass(frozen=True)
class TrainSettings:
    """A complete description of a training run, apart from the data.

    Args:
        recipe: the named starting point these settings came from.
        method: a name in the registry of methods.
        method_options: the method's own options.
        network: a name in the registry of networks.
        network_options: the network's own options.
        start: the model whose weights the network starts from, a run, a bundle or a shipped one; None draws
            them at random.
        data: which part of the training data to learn from.
        preprocessing: spacing, patch, intensities.
        augmentation: how training patches vary.
        optimisation: optimiser, schedule, batch size.
        epochs: passes over the training slices; None when something else ends the run.
        minutes: wall-clock length of the run, likewise.
        steps: batches, likewise: what is equal for data sets of any size.
        seed: of every random draw.
        precision: ``bf16`` computes networks in bfloat16 and losses in float32; ``auto`` does so where the
            hardware gains by it, and the run writes down what that was.
        compile: compile the networks at the start. Off, because it has not made steps shorter anywhere yet;
            ``benchmarks/compiled_step.py`` tells whether it does on other hardware.
        device: ``auto`` takes a GPU when there is one.
        averaging: the views of a slice that predictions of the model are averaged over unless somebody says
            otherwise then; ``auto`` takes ``flips`` where training images are mirrored and turned upside
            down, and no other view than the slice itself where they are not.
        validation_share: validation may take up to this share of the time; the last epoch is always scored.
    """

    recipe: str = "fast"
    method: str = "shapepu"
    method_options: Any = None
    network: str = "fast_unet"
    network_options: Any = None
    start: str | None = None
    data: DataChoice = field(default_factory=DataChoice)
    preprocessing: Preprocessing = field(default_factory=Preprocessing)
    augmentation: Augmentation = field(default_factory=Augmentation)
    optimisation: Optimisation = field(default_factory=Optimisation)
    epochs: int | None = None
    minutes: float | None = None
    steps: int | None = None
    seed: int = 0
    precision: Precision = "auto"
    compile: bool = False
    device: Literal["auto", "cpu", "cuda"] = "auto"
    averaging: Averaging = "auto"
    validation_share: float = 0.05

    def __post_init__(self) -> None:
        if self.method_options is None:
            object.__setattr__(self, "method_options", find_method(self.method).options(self.recipe))
        if self.network_options is None:
            object.__setattr__(self, "network_options", find_network(self.network).config())
        if self.epochs is not None and self.epochs < 1:
            raise InputError(f"epochs: expected at least 1, got {self.epochs}.")
        if self.minutes is not None and not self.minutes > 0:
            raise InputError(f"minutes: expected more than 0, got {self.minutes}.")
        if self.steps is not None and self.steps < 1:
            raise InputError(f"steps: expected at least 1, got {self.steps}.")
        if not 0 <= self.seed < 2**63:
            raise InputError(f"seed: expected a whole number from 0 to 2^63 - 1, got {self.seed}.")
        if not 0 <= self.validation_share <= 1:
            raise InputError(f"validation_share: expected a number from 0 to 1, got {self.validation_share}.")
        if self.epochs is None and self.minutes is None and self.steps is None:
            raise InputError("a run needs an end: give epochs, minutes or steps.")

    def to_plain(self) -> dict[str, Any]:
        """As written to ``config.yaml``."""
        return to_plain(self)

    @classmethod
    def from_plain(cls, plain: Any, where: str = "config") -> TrainSettings:
        """From ``config.yaml``; unknown names and ill-typed values are named."""
        if not isinstance(plain, dict) or "method" not in plain or "network" not in plain:
            raise InputError(f"{where}: expected the settings of a run with 'method' and 'network'.")
        plain = {**BEFORE_THERE_WAS_A_CHOICE, **plain}
        defaults = {
            "method_options": find_method(plain["method"]).options(),
            "network_options": find_network(plain["network"]).config(),
        }
        for name, default in defaults.items():
            plain[name] = from_plain(type(default), plain.get(name) or {}, f"{where}.{name}", default)
        return from_plain(cls, plain, where)


def fast(method: str) -> TrainSettings:
    """What measures best on two CPU cores or one GPU in a short time; docs/decisions/recipe.md says why."""
    return TrainSettings(recipe="fast", method=method, minutes=15.0)


def thorough(method: str) -> TrainSettings:
    """For an hour on two CPU cores: a network with more channels, and stronger augmentation."""
    return TrainSettings(
        recipe="thorough",
        method=method,
        method_options=find_method(method).options("fast"),
        network_options=FastUNetConfig(widths=(32, 48, 96, 128, 160)),
        augmentation=Augmentation(
            scale=(0.7, 1.4),
            stretch=1.2,
            elastic_pixels=2.0,
            contrast=(0.6, 1.6),
            gamma=(0.6, 1.7),
            brightness=0.3,
            noise=0.15,
            blur_pixels=0.8,
        ),
        minutes=60.0,
    )


def paper(method: str) -> TrainSettings:
    """The paper's section 3.1, as far as training goes; on two CPU cores this takes weeks.

    Runs of every recipe are scored with the same choice of a piece, which is not the paper's; see
    docs/decisions/recipe.md.
    """
    return TrainSettings(
        recipe="paper",
        method=method,
        network="unet",
        preprocessing=Preprocessing(spacing_mm=(1.37, 1.37), patch=(212, 212), canvas_margin=1.0),
        augmentation=Augmentation(
            scale=(1.0, 1.0),
            stretch=1.0,
            shift=0.0,
            contrast=(1.0, 1.0),
            gamma=(1.0, 1.0),
            brightness=0.0,
            noise=0.0,
        ),
        optimisation=Optimisation(
            optimiser="adam",
            learning_rate=1e-4,
            schedule="constant",
            warmup_share=0.0,
            weight_decay=0.0,
            clip_norm=0.0,
            average=0.0,
        ),
        epochs=1000,
        precision="fp32",
        averaging="none",
    )


RECIPES: dict[str, Callable[[str], TrainSettings]] = {"fast": fast, "thorough": thorough, "paper": paper}


def settings_for(recipe: str, method: str) -> TrainSettings:
    """The settings of ``recipe`` for ``method``; unknown names list the known ones."""
    if recipe not in RECIPES:
        raise unknown_name("recipe", recipe, tuple(RECIPES))
    find_method(method)
    return RECIPES[recipe](method)


def device_of(settings: TrainSettings) -> str:
    """Where a run computes."""
    # Not Fabric's own "auto": it would take devices that know no float64, which the estimates need.
    return "cuda" if settings.device != "cpu" and torch.cuda.is_available() else "cpu"


def views_to_average(settings: TrainSettings) -> Views:
    """The views of a slice that a model trained with these settings averages its predictions over."""
    if settings.averaging != "auto":
        return settings.averaging
    seen = settings.augmentation
    # Rows upside down are a mirror image that was turned by 180 degrees.
    return "flips" if seen.flip and seen.rotation_degrees >= 180 else "none"


def with_budget(
    settings: TrainSettings, epochs: int | None, minutes: float | None, steps: int | None = None
) -> TrainSettings:
    """The same settings, ending where the user says; a recipe's own end holds only when nothing is said."""
    if epochs is None and minutes is None and steps is None:
        return settings
    return replace(settings, epochs=epochs, minutes=minutes, steps=steps)


def network_builder(settings: TrainSettings, task: Task) -> NetworkBuilder:
    """Builds the configured network for ``task``; a method may ask for other channels or classes."""
    entry = find_network(settings.network)

    def build(*, channels: int | None = None, classes: int | None = None) -> nn.Module:
        return entry.build(channels or task.channels, classes or task.classes, settings.network_options)

    return build
