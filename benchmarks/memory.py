"""How much memory does a training run take, and how much of it is the data?

    python benchmarks/memory.py ../shared/data/MSCMR_dataset [--method shapepu] [--minutes 1]

Runs ``shapepu train`` as a process of its own, from an empty cache, so that reading, resampling, training,
validation and export all count, and prints the most memory that was ever resident: mapped pages of the cache
included, which the system may take back at any time. Beside it, the same after two seconds of training with
the smallest network, which is what Python, torch and the data need by themselves.
"""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
import tempfile
from pathlib import Path

FEW_WEIGHTS = ("--net.widths", "2", "--optimisation.batch-size", "1")
SECONDS_OF_NOTHING = 2


def resident_gigabytes(argv: list[str]) -> float:
    """The peak of ``shapepu ARGV``; only this process is counted, and it starts no others."""
    process = subprocess.Popen(
        [sys.executable, "-m", "shapepu", *argv], stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True
    )
    assert process.stderr is not None
    said = process.stderr.read()
    _, status, usage = os.wait4(process.pid, 0)
    process.returncode = os.waitstatus_to_exitcode(status)
    if process.returncode:
        raise SystemExit(said)
    return usage.ru_maxrss * (1 if sys.platform == "darwin" else 1024) / 1e9


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("data", type=Path, help="a data set folder")
    parser.add_argument("--method", default="shapepu")
    parser.add_argument("--minutes", type=float, default=1.0)
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)

        def train(run: str, minutes: float, *options: str) -> float:
            argv = ["train", str(arguments.data), "-o", str(folder / run), "--minutes", f"{minutes:g}"]
            argv += ["--method", arguments.method, "--cache", str(folder / f"cache of {run}")]
            return resident_gigabytes([*argv, *options])

        whole = train("run", arguments.minutes)
        stored = sum(path.stat().st_size for path in (folder / "cache of run").rglob("*.npy")) / 1e9
        bare = train("bare", SECONDS_OF_NOTHING / 60, *FEW_WEIGHTS)
    print(f"{arguments.data.name}, {arguments.method}, {arguments.minutes:g} minutes of training")
    print(f"most resident:                 {whole:.2f} GB")
    print(f"with next to no network:       {bare:.2f} GB")
    print(f"slices in the cache, mapped:   {stored:.2f} GB")


if __name__ == "__main__":
    main()
