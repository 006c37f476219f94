"""What does a method cost? Time and memory of its training step, as multiples of partial cross-entropy.

    python benchmarks/method_cost.py [--only crf shapepu] [--steps 5] [--json FILE] [--write-docs]

Every method trains by the recipe ``fast`` on the same synthetic hearts, with all that it does late in a run:
warm starts are over, weights have risen. A step is the product's own: fetching, augmentation, losses,
backward, optimiser, averaging. Steps of PCE are taken before and after each step of a method and the ratio is
to their mean, so that what else the machine does falls on both; the table has the median over all rounds and
the range of its middle half. What a method estimates before an epoch is a column of its own, in steps of PCE,
because its share of a run depends on how many steps an epoch has.

Memory is measured in a process for each method that does nothing else: the most that was ever resident, less
what was resident before the method was built.

``--write-docs`` writes ``src/shapepu/methods/cost.json``, which ``shapepu methods`` prints, and the figures
in ``docs/methods.md``; ``--figures FILE`` takes them from an earlier ``--json`` in place of measuring.
"""

from __future__ import annotations

import argparse
import json
import re
import resource
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

import psutil
import torch

from shapepu.api import seeded_method
from shapepu.data.batches import BatchSource
from shapepu.data.case import Dataset
from shapepu.data.phantom import write_phantom_dataset
from shapepu.data.preprocess import Preprocessing
from shapepu.data.readers import read_dataset
from shapepu.experiments.hardware import cpu_name
from shapepu.methods import METHODS
from shapepu.methods.base import Batch, EpochStart
from shapepu.methods.cost import COST_FILE, Cost
from shapepu.methods.shapepu import ShapePU
from shapepu.prepare import Prepared, prepare
from shapepu.runfolder import RunFolder
from shapepu.settings import TrainSettings, settings_for
from shapepu.training import Trainer, make_fabric

SIDE, BATCH, THREADS = 212, 16, 2
TRAINING, UNPAIRED = 26, 4
"""Cases; those for training have the 192 slices that the largest estimate before an epoch draws."""

WARMUP_STEPS, MEMORY_STEPS, ESTIMATES = 2, 2, 2
NOTHING = 0.05
"""Of a step of PCE: what takes less before an epoch is no estimate, but a weight that rises."""

LATE = {"epoch": 50, "progress": 0.9}
BASELINE = "pce"

DOCUMENT = Path(__file__).parents[1] / "docs" / "methods.md"
COMMAND = "python benchmarks/method_cost.py --write-docs"


@dataclass
class Run:
    """A method in training, one step at a time."""

    trainer: Trainer
    stream: Iterator[Batch]

    @classmethod
    def of(cls, method: str, folder: Path) -> Run:
        prepared = prepared_for(method, folder)
        return cls(trainer_for(prepared, folder / "runs" / method), iter(()))

    def estimate(self) -> None:
        """What comes before an epoch."""
        state = self.trainer.state
        if isinstance(state.method, ShapePU):
            state.method.pooled_at.fill_(-torch.inf)  # it makes none in most epochs of a long run
        state.method.before_epoch(
            EpochStart(
                **LATE, data=self.trainer.batches, teacher=state.average.predict, generator=state.generator
            )
        )
        state.method.train()

    def step(self) -> None:
        state = self.trainer.state
        batch = next(self.stream, None)
        if batch is None:
            self.stream = self.trainer.batches.epoch(state.generator)
            batch = next(self.stream)
        state.method.step(batch, self.trainer._optimise)
        state.average.update(state.method)


def write_data(folder: Path) -> None:
    write_phantom_dataset(
        folder / "data", train=TRAINING, val=UNPAIRED, test=0, masks_for_training=True, quiet=True
    )


def dataset_in(folder: Path) -> Dataset:
    """Everything that any method learns from: scribbles and masks, and masks of other patients."""
    dataset = read_dataset(folder / "data")
    return dataset.with_splits({case.name: "unpaired" for case in dataset.split("val")})


def settings_of(method: str) -> TrainSettings:
    options = METHODS[method].options("fast")
    if hasattr(options, "readiness"):
        # A network of a few steps is not one whose estimate would be trusted, but the cost is the same.
        options = replace(options, readiness=0.0)
    pixels = Preprocessing(spacing_mm=(0.9, 0.9), patch=(SIDE, SIDE))
    settings = settings_for("fast", method)
    return replace(settings, method_options=options, preprocessing=pixels, device="cpu")


def prepared_for(method: str, folder: Path) -> Prepared:
    return prepare(dataset_in(folder), settings_of(method), folder / "cache", quiet=True)


def trainer_for(prepared: Prepared, folder: Path) -> Trainer:
    settings = prepared.settings
    fabric = make_fabric(settings)
    batches = BatchSource(
        store=prepared.train,
        unpaired=prepared.unpaired,
        needs=METHODS[settings.method].needs,
        augmentation=settings.augmentation,
        patch=(SIDE, SIDE),
        batch_size=BATCH,
        padding="unlabelled",
        device=fabric.device,
    )
    method = seeded_method(settings, prepared.task)
    return Trainer(settings, method, batches, RunFolder(folder, quiet=True), fabric)


def added_megabytes(method: str, folder: Path) -> float:
    """By training a few steps, in a process that does nothing else."""
    torch.set_num_threads(THREADS)
    prepared = prepared_for(method, folder)
    before = psutil.Process().memory_info().rss / 2**20
    run = Run(trainer_for(prepared, folder / "runs" / method), iter(()))
    run.estimate()
    for _ in range(MEMORY_STEPS):
        run.step()
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return peak / (2**20 if sys.platform == "darwin" else 2**10) - before


@dataclass(frozen=True)
class Times:
    """By method the ratios to PCE, one a round, and the steps of PCE before an epoch; seconds of its step."""

    ratios: dict[str, list[float]]
    before_epoch: dict[str, float]
    seconds: float


def measure_memory(methods: list[str], folder: Path) -> dict[str, float]:
    """Megabytes by method, of a fresh process each."""
    command = [sys.executable, __file__, "--memory-with", str(folder), "--only"]
    found = {}
    for name in methods:
        done = subprocess.run([*command, name], stdout=subprocess.PIPE, text=True, check=True)
        found[name] = float(done.stdout)
    return found


def measure_time(methods: list[str], folder: Path, rounds: int) -> Times:
    """Steps in turns: one of PCE, one of a method, one of PCE, one of the next method."""
    baseline = Run.of(BASELINE, folder)
    runs = {name: Run.of(name, folder) for name in methods}
    for run in (baseline, *runs.values()):
        run.estimate()
        for _ in range(WARMUP_STEPS):
            run.step()
    estimates = {name: steps_before_epoch(run, baseline) for name, run in runs.items()}
    ratios: dict[str, list[float]] = {name: [] for name in methods}
    all_seconds = [seconds_of(baseline.step)]
    for _ in range(rounds):
        for name, run in runs.items():
            taken = seconds_of(run.step)
            all_seconds.append(seconds_of(baseline.step))
            ratios[name].append(2 * taken / sum(all_seconds[-2:]))
    return Times(ratios, estimates, statistics.median(all_seconds))


def steps_before_epoch(run: Run, baseline: Run) -> float:
    """How many steps of PCE the method's estimates before an epoch take; most methods make none."""
    found = []
    for _ in range(ESTIMATES):
        found.append(seconds_of(run.estimate) / seconds_of(baseline.step))
        if found[0] < NOTHING:
            return 0.0
    return statistics.median(found)


def seconds_of(work: Callable[[], None]) -> float:
    started = time.perf_counter()
    work()
    return time.perf_counter() - started


def table(costs: dict[str, Cost]) -> str:
    """For the document: one row a method."""
    rows = [
        "| method | what | learns from | step | memory | before an epoch |",
        "|---|---|---|---:|---:|---:|",
    ]
    for name, cost in costs.items():
        entry = METHODS[name]
        before = f"{cost.steps_before_epoch:.0f} steps" if cost.steps_before_epoch >= 0.5 else ""
        rows.append(
            f"| [`{name}`](#{name}) | {entry.title} | {', '.join(sorted(entry.needs))} "
            f"| {cost.time:.1f} | {cost.memory:.1f} | {before} |"
        )
    return "\n".join(rows)


def with_costs(document: str, costs: dict[str, Cost], conditions: str) -> str:
    """The document with the table and the figure of each section replaced."""

    def between(start: str, end: str, new: str, text: str) -> str:
        pattern = re.compile(f"({re.escape(start)}).*?({re.escape(end)})", re.DOTALL)
        changed, count = pattern.subn(lambda found: found[1] + new + found[2], text)
        if count != 1:
            raise SystemExit(f"{DOCUMENT.name}: expected {start!r} ... {end!r} once, found it {count} times.")
        return changed

    document = between(
        "<!-- costs -->\n",
        "<!-- end -->",
        f"{table(costs)}\n\n{conditions}\nCommand: `{COMMAND}`.\n",
        document,
    )
    for name, cost in costs.items():
        document = between(f"<!-- cost of {name} -->", "<!-- end -->", str(cost), document)
    return document


def measure(methods: list[str], rounds: int) -> dict[str, Any]:
    """All figures of one run, as they are kept; what a person should see meanwhile is printed."""
    others = [name for name in methods if name != BASELINE]
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        write_data(folder)
        for method in METHODS:  # so that what is timed and weighed finds all slices in the cache
            prepared_for(method, folder)
        megabytes = measure_memory([BASELINE, *others], folder)
        times = measure_time(others, folder, rounds)
    print(f"{'':14}{'step':>7}{'middle half':>14}{'memory':>9}{'before an epoch':>17}")
    costs = {}
    for name in [known for known in METHODS if known in {BASELINE, *others}]:
        ratios = times.ratios.get(name, [1.0])
        low, median, high = (
            statistics.quantiles(ratios, n=4, method="inclusive") if len(ratios) > 1 else ratios * 3
        )
        memory = megabytes[name] / megabytes[BASELINE]
        cost = Cost(round(median, 2), round(memory, 2), round(times.before_epoch.get(name, 0.0), 1))
        costs[name] = asdict(cost)
        print(
            f"{name:14}{median:7.2f}{low:8.2f}-{high:.2f}{memory:9.2f}{cost.steps_before_epoch:11.1f} steps"
        )
    conditions = (
        f"A step of `{BASELINE}` takes {times.seconds:.2f} s and {megabytes[BASELINE]:.0f} MiB: {BATCH} "
        f"images of {SIDE}x{SIDE}, `fast_unet`, recipe `fast`, {THREADS} threads of {cpu_name()}, torch "
        f"{torch.__version__.split('+')[0]}; medians of {rounds} steps a method."
    )
    print(f"\n{conditions}")
    return {"command": COMMAND, "conditions": conditions, "methods": costs}


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--only", nargs="+", choices=METHODS, metavar="METHOD", help="these methods alone")
    parser.add_argument("--steps", type=int, default=5, help="timed steps of each method")
    parser.add_argument("--json", type=Path, metavar="FILE", help="write the figures there, too")
    parser.add_argument("--figures", type=Path, metavar="FILE", help="take them from there: measure nothing")
    parser.add_argument("--write-docs", action="store_true", help="put the figures in the package and docs")
    parser.add_argument("--memory-with", type=Path, help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.memory_with:  # the process of one method
        print(added_megabytes(arguments.only[0], arguments.memory_with))
        return
    if arguments.write_docs and arguments.only:
        parser.error("--write-docs needs all methods from one run; leave --only out")
    torch.set_num_threads(THREADS)
    if arguments.figures:
        figures = json.loads(arguments.figures.read_text(encoding="utf-8"))
    else:
        figures = measure(arguments.only or list(METHODS), arguments.steps)
    written = json.dumps(figures, indent=1) + "\n"
    if arguments.json:
        arguments.json.write_text(written, encoding="utf-8")
    if arguments.write_docs:
        costs = {name: Cost(**each) for name, each in figures["methods"].items()}
        document = with_costs(DOCUMENT.read_text(encoding="utf-8"), costs, figures["conditions"])
        COST_FILE.write_text(written, encoding="utf-8")
        DOCUMENT.write_text(document, encoding="utf-8")


if __name__ == "__main__":
    main()
