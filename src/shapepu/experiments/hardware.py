"""What a run is computed on, in words for a table."""

from __future__ import annotations

import platform
from pathlib import Path

import torch

from shapepu.experiments.records import Hardware


def this_hardware(device: str, workers: int) -> Hardware:
    """As seen by this process.

    Args:
        device: as in the settings of a run.
        workers: runs at a time on this machine.
    """
    on_gpu = device != "cpu" and torch.cuda.is_available()
    return Hardware(
        cpu=cpu_name(),
        gpu=torch.cuda.get_device_name() if on_gpu else None,
        threads=torch.get_num_threads(),
        device="cuda" if on_gpu else "cpu",
        workers=workers,
    )


def cpu_name(listing: Path = Path("/proc/cpuinfo")) -> str:
    """The model where the system tells it, else its architecture."""
    try:
        lines = listing.read_text(encoding="utf-8", errors="replace").splitlines()
    except OSError:
        lines = []
    names = [line.partition(":")[2].strip() for line in lines if line.startswith("model name")]
    return " ".join((names or [platform.processor() or platform.machine()])[0].split())
