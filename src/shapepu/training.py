"""The only training loop. It never asks which method it runs.

A checkpoint is written after every epoch on a CPU, and every few seconds on a GPU, where epochs take less;
whatever happens between two of them, resuming gives the weights of the run that was not interrupted, bit for
bit on one CPU when epochs or steps (not minutes) end the run.
"""

from __future__ import annotations

import logging
import math
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any, cast

import torch
from lightning_fabric import Fabric
from lightning_fabric.wrappers import is_wrapped
from torch import Tensor

from shapepu.averaging import WeightAverage
from shapepu.checkpoint import load_checkpoint, save_checkpoint
from shapepu.data.batches import BatchSource
from shapepu.data.store import SliceStore
from shapepu.errors import InputError
from shapepu.memory import keep_freed_memory
from shapepu.methods.base import EpochStart, Method
from shapepu.precision import computes_in_bfloat16
from shapepu.progress import RunProgress
from shapepu.runfolder import RunFolder
from shapepu.schedule import Budget, Stopwatch, learning_rate_factor
from shapepu.settings import Optimisation, TrainSettings, device_of
from shapepu.sharding import gpu_of_process
from shapepu.validation import validation_dice


@dataclass
class TrainingState:
    """Everything that changes while training, and so everything a checkpoint holds."""

    method: Method
    average: WeightAverage
    optimisers: dict[str, torch.optim.Optimizer]
    generator: torch.Generator
    epoch: int = 0
    step: int = 0
    seconds: float = 0.0
    validation_seconds: float = 0.0
    rows: list[dict[str, float | int | None]] = field(default_factory=list)

    def state_dict(self) -> dict[str, Any]:
        return {
            "method": self.method.state_dict(),
            "average": self.average.state_dict(),
            "optimisers": {name: o.state_dict() for name, o in self.optimisers.items()},
            "generator": self.generator.get_state(),
            "torch_rng": torch.get_rng_state(),
            "epoch": self.epoch,
            "step": self.step,
            "seconds": self.seconds,
            "validation_seconds": self.validation_seconds,
            "rows": self.rows,
        }

    def load_state_dict(self, state: dict[str, Any]) -> None:
        for each in (self.method, self.average.method):
            unwrap_networks(each)
        self.method.load_state_dict(state["method"])
        self.average.load_state_dict(state["average"])
        for name, optimiser in self.optimisers.items():
            optimiser.load_state_dict(state["optimisers"][name])
        self.generator.set_state(state["generator"])
        torch.set_rng_state(state["torch_rng"])
        for name in ("epoch", "step", "seconds", "validation_seconds", "rows"):
            setattr(self, name, state[name])


class Trainer:
    """One run: its state, its data and its folder.

    Args:
        settings: resolved settings.
        method: on the CPU, with initial weights.
        batches: the training slices.
        run: where metrics, log and checkpoint go.
        fabric: device and precision, from :func:`make_fabric`.
        validation: slices with dense masks to report on, or None.
    """

    def __init__(
        self,
        settings: TrainSettings,
        method: Method,
        batches: BatchSource,
        run: RunFolder,
        fabric: Fabric,
        validation: SliceStore | None = None,
    ) -> None:
        self.settings, self.batches, self.run, self.validation = settings, batches, run, validation
        self.budget = Budget(settings.epochs, settings.minutes, settings.steps)
        self.fabric = fabric
        method.to(self.fabric.device, memory_format=torch.channels_last)  # type: ignore[call-overload]
        average = WeightAverage(method, settings.optimisation.average)
        self._wrap(method, average.method)
        optimisers = {
            name: self._set_up(make_optimiser(group, settings.optimisation))
            for name, group in method.parameter_groups().items()
        }
        generator = torch.Generator().manual_seed(settings.seed)
        self.state = TrainingState(method, average, optimisers, generator)
        self.shown = RunProgress(run, self.budget)
        # A GPU has done a short epoch before its checkpoint is written.
        self.seconds_between_checkpoints = 0.0 if fabric.device.type == "cpu" else 15.0
        self._kept_epoch, self._kept_seconds = 0, 0.0

    def _wrap(self, method: Method, average: Method) -> None:
        # The average predicts in the precision that is trained, but images of any shape and number.
        wrap_networks(self.fabric, method, compiled=self.settings.compile)
        wrap_networks(self.fabric, average)

    def _set_up(self, optimiser: torch.optim.Optimizer) -> torch.optim.Optimizer:
        return cast(torch.optim.Optimizer, self.fabric.setup_optimizers(optimiser))

    def resume(self) -> None:
        """Go on from the run's last checkpoint."""
        state = load_checkpoint(self.run.checkpoint)
        try:
            self.state.load_state_dict(state)
        except (RuntimeError, KeyError, ValueError, TypeError, AttributeError) as error:
            raise InputError(
                f"{self.run.checkpoint}: does not fit the settings in {self.run.config}; was either edited?"
            ) from error
        self._wrap(self.state.method, self.state.average.method)
        # A kill right after the checkpoint was written has left its last row out.
        self.run.write_metrics(self.state.rows)
        self._kept_epoch, self._kept_seconds = self.state.epoch, self.state.seconds
        self.run.say(f"resuming after epoch {self.state.epoch}, {100 * self.progress_so_far:.0f} % done")

    def fit(self) -> Method:
        """Train to the end of the budget and return the method with averaged weights."""
        watch = Stopwatch(self.state.seconds)
        with self.shown.during(self.progress_so_far, watch.seconds), _explained_shortage_of_memory():
            while self.progress_so_far < 1:
                self._one_epoch(watch)
            self._keep()
        self.shown.draw()
        return unwrap_networks(self.state.average.method)

    @property
    def progress_so_far(self) -> float:
        """The share of the run that is done, by the state alone."""
        return self.progress(self.state.seconds)

    def progress(self, seconds: float) -> float:
        return self.budget.progress(self.state.step, self.batches.steps_per_epoch, seconds)

    def _one_epoch(self, watch: Stopwatch) -> None:
        state, started = self.state, watch.seconds
        state.method.before_epoch(
            EpochStart(
                epoch=state.epoch,
                progress=self.progress(started),
                data=self.batches,
                teacher=state.average.predict,
                generator=state.generator,
            )
        )
        losses, images = self._steps(watch)
        reject_divergence(losses, state.method, state.epoch + 1)
        state.epoch += 1
        # One reading of the clock decides whether time is up, so that the last epoch is scored, and so that
        # its row, the checkpoint and a resumed run all say that it was the last.
        state.seconds = watch.seconds
        images_per_second = images / (state.seconds - started)
        scores = self._validate(watch)
        if scores:
            state.seconds = watch.seconds
        row: dict[str, float | int | None] = {
            "epoch": state.epoch,
            "step": state.step,
            "minutes": state.seconds / 60,
            "learning_rate": self._learning_rate(),
            "images_per_second": images_per_second,
            **losses,
            **named_by_class(state.method.report(), self.batches.store.labels_set.names),
            **scores,
        }
        state.rows.append(row)
        if state.seconds - self._kept_seconds >= self.seconds_between_checkpoints:
            self._keep()
        self.shown.epoch(state.rows, self.progress_so_far, state.seconds)

    def _keep(self) -> None:
        """Checkpoint and metrics on disk as of the last epoch, unless they are already."""
        if self._kept_epoch == self.state.epoch:
            return
        save_checkpoint(self.run.checkpoint, self.state.state_dict())
        self.run.write_metrics(self.state.rows)
        self._kept_epoch, self._kept_seconds = self.state.epoch, self.state.seconds

    def _steps(self, watch: Stopwatch) -> tuple[dict[str, float], int]:
        """One pass over the data; the mean of each loss, and how many images were seen."""
        state, sums, steps, images = self.state, {}, 0, 0  # type: ignore[var-annotated]
        state.method.train()
        for batch in self.batches.epoch(state.generator):
            progress = self.progress(watch.seconds)
            if progress >= 1 and steps:
                break
            self._set_learning_rate(progress)
            terms = state.method.step(batch, self._optimise)
            state.average.update(state.method)
            state.step += 1
            steps += 1
            images += len(batch.images)
            for name, term in terms.items():
                sums[name] = sums.get(name, 0.0) + term.detach()
            self.shown.step(state.epoch + 1, self.progress(watch.seconds), watch.seconds)
        means = {f"loss.{name}": float(total) / steps for name, total in sums.items()}
        return {"loss": sum(means.values()), **means}, images

    def _optimise(self, group: str, loss: Tensor) -> None:
        optimiser = self.state.optimisers[group]
        optimiser.zero_grad(set_to_none=True)
        self.fabric.backward(loss)
        if self.settings.optimisation.clip_norm:
            self.fabric.clip_gradients(
                self.state.method,
                optimiser,
                max_norm=self.settings.optimisation.clip_norm,
                error_if_nonfinite=False,
            )
        optimiser.step()

    def _set_learning_rate(self, progress: float) -> None:
        chosen = self.settings.optimisation
        factor = learning_rate_factor(progress, chosen.schedule, chosen.warmup_share)
        for optimiser in self.state.optimisers.values():
            for group in optimiser.param_groups:
                group["lr"] = factor * chosen.learning_rate

    def _learning_rate(self) -> float:
        return next(iter(self.state.optimisers.values())).param_groups[0]["lr"]

    def _validate(self, watch: Stopwatch) -> Mapping[str, float]:
        """Dice on the validation masks, when there are any and the share of time set aside allows it."""
        state = self.state
        allowed = self.settings.validation_share * state.seconds
        due = state.validation_seconds <= allowed or self.progress_so_far >= 1
        if self.validation is None or not due:
            return {}
        started = watch.seconds
        scores = validation_dice(
            state.average.predict, self.validation, self.fabric.device, self.batches.batch_size
        )
        state.validation_seconds += watch.seconds - started
        return {f"validation.{name}": value for name, value in scores.items()}


def make_fabric(settings: TrainSettings) -> Fabric:
    """Device and precision: losses stay in float32 either way."""
    if settings.device == "cuda" and not torch.cuda.is_available():
        raise InputError("device: 'cuda' was asked for, but there is no usable GPU; take 'cpu' or 'auto'.")
    device = device_of(settings)
    precision = "bf16-mixed" if computes_in_bfloat16(settings.precision, device) else "32-true"
    if device == "cpu":
        keep_freed_memory()
    # Fabric announces the precision on every start; config.yaml says it, too.
    logging.getLogger("lightning_fabric").setLevel(logging.WARNING)
    # Every batch has the same shape, so the fastest convolutions are worth looking for once.
    torch.backends.cudnn.benchmark = device == "cuda"
    devices = [gpu_of_process(torch.cuda.device_count())] if device == "cuda" else 1
    return Fabric(accelerator=device, devices=devices, precision=precision)  # type: ignore[arg-type]


def named_by_class(figures: Mapping[str, float | Sequence[float]], names: Sequence[str]) -> dict[str, float]:
    """One column a figure, and one a class for figures that each class has: ``ratio.myo``."""
    columns: dict[str, float] = {}
    for figure, values in figures.items():
        if isinstance(values, Sequence):
            columns |= {f"{figure}.{name}": value for name, value in zip(names, values, strict=True)}
        else:
            columns[figure] = values
    return columns


def wrap_networks(fabric: Fabric, method: Method, *, compiled: bool = False) -> None:
    """Let Fabric run every child network, so that precision and device are its business alone."""
    for name, module in list(method.named_children()):
        if any(True for _ in module.parameters()):
            # Training batches all have one shape, and code for that shape alone is faster.
            network = cast(torch.nn.Module, torch.compile(module, dynamic=False)) if compiled else module
            setattr(method, name, fabric.setup_module(network, move_to_device=False))


def unwrap_networks(method: Method) -> Method:
    """The same method with plain networks: names of weights are then those of the method itself."""
    for name, module in list(method.named_children()):
        if is_wrapped(module):
            setattr(method, name, module.module)
    return method


def make_optimiser(parameters: list[torch.nn.Parameter], chosen: Optimisation) -> torch.optim.Optimizer:
    """The optimiser of one parameter group."""
    if chosen.optimiser == "adam":
        return torch.optim.Adam(parameters, lr=chosen.learning_rate)
    return torch.optim.AdamW(
        parameters,
        lr=chosen.learning_rate,
        weight_decay=chosen.weight_decay,
        fused=True,
    )


def reject_divergence(losses: Mapping[str, float], method: Method, epoch: int) -> None:
    """Stop before weights that are no numbers replace the last good checkpoint."""
    broken = [f"{name} became {value}" for name, value in losses.items() if not math.isfinite(value)]
    if not broken and not _is_finite(method):
        broken = ["a weight became infinite or NaN"]
    if broken:
        raise InputError(
            f"{broken[-1]} in epoch {epoch}; start again with a lower learning rate "
            "(--optimisation.learning-rate) or in fp32 (--precision fp32)."
        )


def _is_finite(method: Method) -> bool:
    """Of the networks alone: what a method remembers may well be infinite."""
    tensors = (tensor for network in method.children() for tensor in network.state_dict().values())
    # Asked once: every answer that is waited for stops a GPU.
    return bool(torch.stack([torch.isfinite(tensor).all() for tensor in tensors]).all())


@contextmanager
def _explained_shortage_of_memory() -> Iterator[None]:
    try:
        yield
    except torch.OutOfMemoryError as error:
        raise InputError(
            "the GPU has too little memory for this run; start again with smaller batches "
            "(--optimisation.batch-size) or patches (--preprocessing.patch)."
        ) from error
