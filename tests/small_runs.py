"""Runs that take seconds: synthetic hearts of a few slices and a network of a few thousand weights."""

from __future__ import annotations

import csv
import hashlib
import os
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

import pytest

from shapepu.cli import main
from shapepu.data.phantom import PhantomSettings, write_phantom_dataset

HEARTS = PhantomSettings(size_px=(32, 40), slices=(4, 5), spacing_mm=(4.0, 4.5))
SMALL_NETWORK = ("--net.widths", "8", "16")
SMALL_STEPS = ("--optimisation.batch-size", "4", "--optimisation.learning-rate", "3e-3")

SHAPEPU_AT_ONCE = (
    *("--method", "shapepu", "--shapepu.view.cut", "8", "--shapepu.readiness", "0"),
    *("--shapepu.warmup-epochs", "1", "--shapepu.warmup-share", "0"),
)
"""The full method without the patience that longer runs need, so that a short one has all of its state."""


def write_hearts(root: Path, *, train: int = 3, val: int = 1, masks_for_training: bool = False) -> Path:
    write_phantom_dataset(
        root,
        train=train,
        val=val,
        test=1,
        settings=HEARTS,
        masks_for_training=masks_for_training,
        quiet=True,
    )
    return root


def arguments(data: Path, run: Path, *options: str, epochs: int | None = 2, method: str = "pce") -> list[str]:
    """What follows ``shapepu``; options that are given come last and so win."""
    end = () if epochs is None else ("--epochs", str(epochs))
    chosen = () if "--method" in options else ("--method", method)
    return [
        *("train", str(data), "-o", str(run), "--cache", str(cache_beside(data))),
        *(*chosen, *end, *SMALL_NETWORK, *SMALL_STEPS, *options),
    ]


def resume_arguments(data: Path, run: Path, *options: str) -> list[str]:
    return ["train", "--resume", str(run), "--cache", str(cache_beside(data)), *options]


def train(data: Path, run: Path, *options: str, epochs: int | None = 2, method: str = "pce") -> Path:
    """Train in this process, as the command line does, and insist that it ends well."""
    assert main(arguments(data, run, *options, epochs=epochs, method=method)) == 0
    return run


def cache_beside(data: Path) -> Path:
    """Shared by all runs on the same data, so that only the first prepares it."""
    return data.parent / f"{data.name}-cache"


def start(argv: Sequence[str], *, threads: int = 1) -> subprocess.Popen[str]:
    """``python -m shapepu`` with as many threads as said, since sums depend on how many there are."""
    environment = {**os.environ, "OMP_NUM_THREADS": str(threads), "MKL_NUM_THREADS": str(threads)}
    return subprocess.Popen(
        [sys.executable, "-m", "shapepu", *argv],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env=environment,
    )


def metrics(run: Path) -> list[dict[str, str]]:
    with open(run / "metrics.csv", encoding="utf-8", newline="") as stream:
        return list(csv.DictReader(stream))


def figures(run: Path) -> list[dict[str, str]]:
    """The rows of metrics.csv without what a clock decides."""
    by_clock = ("minutes", "images_per_second", "validation.")
    return [
        {name: cell for name, cell in row.items() if not name.startswith(by_clock)} for row in metrics(run)
    ]


def weights(run: Path) -> str:
    """Digest of the exported weights, byte for byte."""
    return hashlib.sha256((run / "model/weights.safetensors").read_bytes()).hexdigest()


def visible_files(folder: Path) -> set[str]:
    """Relative names of the files below ``folder``, apart from hidden ones: those are files in the making."""
    files = (path.relative_to(folder) for path in folder.rglob("*") if path.is_file())
    return {str(file) for file in files if not any(part.startswith(".") for part in file.parts)}


def refused(argv: Sequence[str], capsys: pytest.CaptureFixture[str]) -> str:
    """The one line that refuses ``argv`` with exit code 2."""
    capsys.readouterr()
    assert main(list(argv)) == 2
    lines = [line for line in capsys.readouterr().err.splitlines() if line.startswith(f"shapepu {argv[0]}: ")]
    messages = [line for line in lines if line != f"shapepu {argv[0]}: loading"]
    assert len(messages) == 1, messages
    return messages[0]
