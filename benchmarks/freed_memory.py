"""What does it bring that the process keeps the memory which a training step frees?

    python benchmarks/freed_memory.py [DATA] [--method shapepu] [--steps 24]

Times real steps of the recipe ``fast`` in two processes each way, in turns, and counts the pages that were
missing when memory was taken again. Without DATA, synthetic hearts.
"""

from __future__ import annotations

import argparse
import itertools
import resource
import sys
import tempfile
import time
from pathlib import Path
from statistics import mean

import torch

from processes import figures_of_a_process
from roofline import estimate, prepared_data, trainer_of
from shapepu import training

WARMUP_STEPS, ROUNDS, THREADS = 3, 2, 2


def measure(data: Path | None, method: str, steps: int) -> tuple[float, float]:
    """Milliseconds and missing pages of a step."""
    torch.set_num_threads(THREADS)
    with tempfile.TemporaryDirectory() as scratch:
        trainer = trainer_of(prepared_data(data, method, Path(scratch)), Path(scratch) / "run")
        estimate(trainer)
        epochs = (trainer.batches.epoch(trainer.state.generator) for _ in itertools.count())
        stream = itertools.chain.from_iterable(epochs)
        for step in range(WARMUP_STEPS + steps):
            if step == WARMUP_STEPS:
                started, before = time.perf_counter(), resource.getrusage(resource.RUSAGE_SELF).ru_minflt
            trainer.state.method.step(next(stream), trainer._optimise)
        seconds = time.perf_counter() - started
        missing = resource.getrusage(resource.RUSAGE_SELF).ru_minflt - before
    return 1000 * seconds / steps, missing / steps


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("data", type=Path, nargs="?", help="data set to take slices from")
    parser.add_argument("--method", default="shapepu")
    parser.add_argument("--steps", type=int, default=24, help="steps to time in each process")
    parser.add_argument("--way", choices=("kept", "returned"), help=argparse.SUPPRESS)
    chosen = parser.parse_args()
    if chosen.way:
        if chosen.way == "returned":
            training.keep_freed_memory = lambda: False
        print(*measure(chosen.data, chosen.method, chosen.steps))
        return
    found: dict[str, list[tuple[float, ...]]] = {"returned": [], "kept": []}
    for way in (*found, *reversed(found)) * (ROUNDS // 2):
        found[way].append(figures_of_a_process(__file__, sys.argv[1:], way))
    times = {}
    for way, runs in found.items():
        times[way] = mean(milliseconds for milliseconds, _ in runs)
        missing = mean(pages for _, pages in runs)
        print(f"{way + ' memory:':<18}{times[way]:7.1f} ms a step, {missing:7.0f} missing pages")
    print(f"ratio:            {times['returned'] / times['kept']:7.2f}")


if __name__ == "__main__":
    main()
