"""Where the time of a training step goes, and how near it comes to what the machine allows.

Measures the rate of bfloat16 matrix products (the best of several sizes) and of copying memory; counts the
multiply-adds of the network, forward and backward, and the bytes that its operations read and write; then
times real training steps of the recipe ``fast`` part by part. Shares of parts and of the machine come from
one run. The recipe aims at less than 5 % of a step for data and less than 3 % for EM and ranking.

    python benchmarks/roofline.py [DATA] [--method pce shapepu] [--steps 24]

Without DATA, synthetic hearts: about as many slices as the training set of MSCMRseg has. On a GPU the same
command measures the GPU.
"""

from __future__ import annotations

import argparse
import itertools
import math
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path
from statistics import median
from typing import Any

import torch
from torch import Tensor
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves
from torch.utils.flop_counter import FlopCounterMode

from shapepu.api import seeded_method
from shapepu.data import batches as batches_module
from shapepu.data.batches import BatchSource
from shapepu.data.phantom import PhantomSettings, write_phantom_dataset
from shapepu.data.preprocess import Preprocessing
from shapepu.data.readers import read_dataset
from shapepu.methods import find_method
from shapepu.methods import shapepu as shapepu_module
from shapepu.methods.base import Batch, EpochStart
from shapepu.prepare import Prepared, prepare
from shapepu.runfolder import RunFolder
from shapepu.settings import settings_for
from shapepu.training import Trainer, make_fabric

SIDE, BATCH = 212, 16
TARGETS = {"data": 0.05, "EM and ranking": 0.03}
"""Largest shares of a step that the recipe allows."""

RANKING = ("within_reach", "rule_out_below", "rule_out")
"""Functions that say which pixels a class is ruled out for."""

WHOLE = "whole step"

PARTS = (
    "data",
    "data: turn, scale, shift",
    "data: intensities",
    "network, forward",
    "losses and views, forward",
    "ranking",
    "backward",
    "optimiser",
    "averaging",
    "EM, amortised",
)
"""In the order of the table; what follows a colon is part of what stands before it."""


@dataclass
class Timer:
    """Seconds of named parts, nested or not; on a GPU each part is waited for."""

    device: torch.device
    seconds: dict[str, float] = field(default_factory=dict)
    calls: dict[str, int] = field(default_factory=dict)
    timed: list[tuple[Any, str, Any]] = field(default_factory=list)

    @contextmanager
    def __call__(self, part: str) -> Iterator[None]:
        started = self._now()
        yield
        self.seconds[part] = self.seconds.get(part, 0.0) + self._now() - started
        self.calls[part] = self.calls.get(part, 0) + 1

    def around(self, owner: Any, name: str, part: str) -> None:
        """From now on every call of ``owner.name`` counts as ``part``."""
        inner = getattr(owner, name)

        def timed(*args: Any, **kwargs: Any) -> Any:
            with self(part):
                return inner(*args, **kwargs)

        self.timed.append((owner, name, inner))
        setattr(owner, name, timed)

    def undo(self) -> None:
        """Leave everything as it was before :meth:`around`."""
        for owner, name, inner in reversed(self.timed):
            setattr(owner, name, inner)

    def clear(self) -> None:
        self.seconds.clear()
        self.calls.clear()

    def median_of(self, run: Callable[[], object], *, seconds: float = 0.5) -> float:
        """Seconds of one call: the median of as many as fit."""
        run()
        taken: list[float] = []
        while sum(taken) < seconds or len(taken) < 3:
            started = self._now()
            run()
            taken.append(self._now() - started)
        return median(taken)

    def _now(self) -> float:
        if self.device.type == "cuda":
            torch.cuda.synchronize()
        return time.perf_counter()


class TrafficMode(TorchDispatchMode):
    """Counts the bytes of the tensors that operations read and write; views move nothing.

    What a cache saves is not known here, so this is more than the memory itself sees.
    """

    def __init__(self) -> None:
        super().__init__()
        self.bytes = 0

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        result = func(*args, **(kwargs or {}))
        if not func.is_view:
            tensors = (each for each in tree_leaves((args, kwargs, result)) if isinstance(each, Tensor))
            self.bytes += sum(tensor.numel() * tensor.element_size() for tensor in tensors)
        return result


@dataclass(frozen=True)
class Work:
    """What a pass of the network forward and backward asks of the machine."""

    operations: int
    bytes: int


def matrix_rate(device: torch.device) -> tuple[float, int]:
    """The best rate of bfloat16 matrix products in FLOP/s, and the size that reached it."""
    rates = {}
    for size in (512, 1024, 2048, 4096):
        left, right = (torch.randn(size, size, device=device).bfloat16() for _ in range(2))
        rates[size] = 2 * size**3 / Timer(device).median_of(lambda a=left, b=right: a @ b)
    best = max(rates, key=lambda size: rates[size])
    return rates[best], best


def memory_rate(device: torch.device) -> float:
    """Bytes read and written a second by a copy that no cache holds."""
    source = torch.empty(2**28, dtype=torch.uint8, device=device)
    target = torch.empty_like(source)
    return 2 * source.numel() / Timer(device).median_of(lambda: target.copy_(source))


def work_of(run: Callable[[], object]) -> Work:
    """Floating-point operations (two a multiply-add) and bytes of ``run``."""
    with FlopCounterMode(display=False) as counter:
        run()
    with TrafficMode() as traffic:
        run()
    return Work(counter.get_total_flops(), traffic.bytes)


def prepared_data(data: Path | None, method: str, scratch: Path) -> Prepared:
    """Slices as a run of ``method`` has them, in patches of 212 x 212."""
    settings = settings_for("fast", method)
    if data is None:
        data = scratch / "hearts"
        if not data.exists():
            write_phantom_dataset(data, train=36, val=0, test=0, settings=PhantomSettings(), quiet=True)
        pixels = Preprocessing(spacing_mm=(0.9, 0.9), patch=(SIDE, SIDE))
    else:
        pixels = replace(settings.preprocessing, patch=(SIDE, SIDE))
    settings = replace(settings, preprocessing=pixels)
    return prepare(read_dataset(data), settings, scratch / "cache", quiet=True)


def trainer_of(prepared: Prepared, folder: Path) -> Trainer:
    settings = prepared.settings
    fabric = make_fabric(settings)
    source = BatchSource(
        store=prepared.train,
        needs=find_method(settings.method).needs,
        augmentation=settings.augmentation,
        patch=(SIDE, SIDE),
        batch_size=BATCH,
        padding="unlabelled",
        device=fabric.device,
    )
    return Trainer(
        settings, seeded_method(settings, prepared.task), source, RunFolder(folder, quiet=True), fabric
    )


def estimate(trainer: Trainer) -> None:
    """What a method does before an epoch late in a run; its negative loss is then on."""
    method, state = trainer.state.method, trainer.state
    if isinstance(method, shapepu_module.ShapePU):
        method.pooled_at.fill_(-torch.inf)
    start = EpochStart(50, 0.9, trainer.batches, state.average.predict, state.generator)
    method.before_epoch(start)
    if hasattr(method, "active"):
        method.active.fill_(True)
    method.train()


def steps_between_estimates(trainer: Trainer, seconds_a_step: float) -> int:
    """In a run as long as the recipe says; all methods but ShapePU estimate before every epoch or never."""
    method, steps = trainer.state.method, trainer.batches.steps_per_epoch
    if not isinstance(method, shapepu_module.ShapePU):
        return steps
    minutes = settings_for("fast", trainer.settings.method).minutes
    assert minutes, "the recipe ends by minutes"
    epochs = 60 * minutes / (seconds_a_step * steps)
    return steps * max(method.config.pool_every, math.ceil(method.config.pool_share * epochs))


def time_steps(trainer: Trainer, steps: int) -> Timer:
    """Real steps, as the loop takes them, with their parts."""
    state, fabric = trainer.state, trainer.fabric
    method, timer = state.method, Timer(fabric.device)
    stream = itertools.chain.from_iterable(trainer.batches.epoch(state.generator) for _ in itertools.count())

    def step() -> None:
        with timer(WHOLE):
            with timer("data"):
                batch = next(stream)
            method.step(batch, trainer._optimise)
            state.average.update(method)

    for owner, name, part in [
        (batches_module, "apply_spatial", "data: turn, scale, shift"),
        (batches_module, "apply_intensity", "data: intensities"),
        (method, "losses", "losses"),
        (method.network.module, "forward", "network, forward"),
        *((shapepu_module, name, "ranking") for name in RANKING if hasattr(shapepu_module, name)),
        (fabric, "backward", "backward"),
        (fabric, "clip_gradients", "optimiser"),
        *((optimiser, "step", "optimiser") for optimiser in state.optimisers.values()),
        (state.average, "update", "averaging"),
    ]:
        timer.around(owner, name, part)
    step()  # the first allocates and plans
    timer.clear()
    for _ in range(steps):
        step()
    timer.undo()
    return timer


def report(trainer: Trainer, steps: int, rate: float, bandwidth: float) -> None:
    """Print the parts of a step and how near they come to what the machine allows."""
    device, method = trainer.fabric.device, trainer.state.method
    batch = next(trainer.batches.epoch(trainer.state.generator))
    method.train()
    work = work_of(lambda: network_pass(trainer, batch))
    alone = Timer(device).median_of(lambda: network_pass(trainer, batch), seconds=3)
    estimated = Timer(device).median_of(lambda: estimate(trainer), seconds=1)
    timer = time_steps(trainer, steps)
    each = {part: seconds / steps for part, seconds in timer.seconds.items()}
    passes = timer.calls["network, forward"] // steps
    each["ranking"] = each.get("ranking", 0.0)
    each["losses and views, forward"] = each.pop("losses") - each["network, forward"] - each["ranking"]
    each["EM, amortised"] = estimated / steps_between_estimates(trainer, each[WHOLE])
    whole = each.pop(WHOLE) + each["EM, amortised"]

    print(f"\n{trainer.settings.method}: {trainer.batches.steps_per_epoch} steps an epoch")
    for part, seconds in ((part, each[part]) for part in PARTS if part in each):
        print(f"  {part:<28}{1000 * seconds:9.1f} ms{100 * seconds / whole:7.1f} %")
    print(f"  {WHOLE:<28}{1000 * whole:9.1f} ms  {BATCH / whole:.1f} images/s")
    operations = passes * work.operations
    allowed = BATCH * rate / operations
    print(
        f"  {passes} x the network forward and backward, {operations / BATCH / 1e9:.2f} GFLOP an image; the "
        f"matrix rate alone would allow {allowed:.0f} images/s"
    )
    moved = work.bytes / bandwidth
    for what, seconds, runs in ((f"{WHOLE}s", whole, passes), ("the network alone", alone, 1)):
        print(
            f"  {what}: {100 * runs * work.operations / rate / seconds:.1f} % of the matrix rate; "
            f"{100 * runs * moved / seconds:.0f} % of the bytes that the memory could move meanwhile"
        )
    shares = {"data": each["data"], "EM and ranking": each["EM, amortised"] + each["ranking"]}
    for what, seconds in shares.items():
        share = seconds / whole
        verdict = "reached" if share < TARGETS[what] else "MISSED"
        print(f"  {what}: {100 * share:.1f} % of a step, target below {100 * TARGETS[what]:.0f} %: {verdict}")


def network_pass(trainer: Trainer, batch: Batch) -> None:
    """The network forward and backward, with next to no loss."""
    trainer.fabric.backward(trainer.state.method.network(batch.images).mean())


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("data", type=Path, nargs="?", help="data set to take slices from")
    parser.add_argument("--method", nargs="+", default=["pce", "shapepu"], help="methods to time")
    parser.add_argument("--steps", type=int, default=24, help="steps to time")
    chosen = parser.parse_args()
    device = make_fabric(settings_for("fast", "pce")).device
    if device.type == "cpu":
        torch.set_num_threads(2)
    rate, size = matrix_rate(device)
    bandwidth = memory_rate(device)
    where = (
        torch.cuda.get_device_name() if device.type == "cuda" else f"{torch.get_num_threads()} CPU threads"
    )
    print(
        f"{where}: bfloat16 matrix products {rate / 1e12:.3g} TFLOP/s (of {size} x {size}), copies "
        f"{bandwidth / 1e9:.3g} GB/s; steps of {BATCH} images of {SIDE}x{SIDE}"
    )
    with tempfile.TemporaryDirectory() as scratch:
        for method in chosen.method:
            trainer = trainer_of(prepared_data(chosen.data, method, Path(scratch)), Path(scratch) / method)
            report(trainer, chosen.steps, rate, bandwidth)


if __name__ == "__main__":
    main()
