"""Do steps become shorter when the networks are compiled, and after how long does that pay?

    python benchmarks/compiled_step.py [DATA] [--method pce] [--epochs 6]

Trains real epochs of the recipe ``fast`` as they are and then with compiled networks, in two processes.
Without DATA, synthetic hearts.
"""

from __future__ import annotations

import argparse
import sys
import tempfile
from dataclasses import replace
from pathlib import Path
from statistics import median

import torch

from processes import figures_of_a_process
from roofline import prepared_data, trainer_of


def measure(data: Path | None, method: str, epochs: int, compiled: bool) -> tuple[float, float]:
    """Seconds of the first epoch, and the median over the others of images per second."""
    with tempfile.TemporaryDirectory() as scratch:
        prepared = prepared_data(data, method, Path(scratch))
        settings = replace(prepared.settings, compile=compiled, minutes=None, steps=None, epochs=epochs)
        trainer = trainer_of(replace(prepared, settings=settings), Path(scratch) / "run")
        trainer.fit()
        first, *others = trainer.state.rows
        return 60 * float(first["minutes"] or 0), median(row["images_per_second"] or 0 for row in others)


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("data", type=Path, nargs="?", help="data set to take slices from")
    parser.add_argument("--method", default="pce")
    parser.add_argument("--epochs", type=int, default=6, help="epochs each way, the first to warm up")
    parser.add_argument("--way", choices=("plain", "compiled"), help=argparse.SUPPRESS)
    chosen = parser.parse_args()
    if chosen.way:
        torch.set_num_threads(2)
        print(*measure(chosen.data, chosen.method, max(2, chosen.epochs), chosen.way == "compiled"))
        return
    figures = {way: figures_of_a_process(__file__, sys.argv[1:], way) for way in ("plain", "compiled")}
    for way, (first, rate) in figures.items():
        print(f"{way:<9} {rate:8.1f} images/s after a first epoch of {first:.1f} s")
    print(f"compiled, an image takes {figures['plain'][1] / figures['compiled'][1]:.2f} times as long")


if __name__ == "__main__":
    main()
