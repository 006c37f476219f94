"""Three minutes on real hearts teach a model, within the memory of a small machine."""

from __future__ import annotations

import json
import os
from pathlib import Path
from statistics import fmean
from typing import Any

import pytest

from small_runs import metrics, start

pytestmark = [pytest.mark.real, pytest.mark.slow]

MINUTES = 3.0


def test_pce_learns_mscmr_in_three_minutes_and_three_gigabytes(
    real_data: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    run = tmp_path / "run"
    argv = ["train", str(real_data / "MSCMR_dataset"), "-o", str(run), "--method", "pce"]
    process = start([*argv, "--minutes", str(MINUTES), "--cache", str(tmp_path / "cache")], threads=2)
    assert process.stderr is not None
    said = process.stderr.read()
    _, status, usage = os.wait4(process.pid, 0)
    process.returncode = os.waitstatus_to_exitcode(status)
    assert process.returncode == 0, said

    summary = json.loads((run / "validation/summary.json").read_text(encoding="utf-8"))
    dice, chance = summary["foreground_mean"]["Dice"], dice_of_chance(summary)
    resident_gb = usage.ru_maxrss * 1024 / 1e9
    with capsys.disabled():
        print(
            f"\nMSCMR, PCE, {MINUTES:g} minutes, {len(metrics(run))} epochs: validation Dice {dice:.3f}, "
            f"by chance {chance:.3f}, {resident_gb:.2f} GB resident"
        )
    assert len(summary["metric_per_case"]) == 5
    assert dice > max(0.5, 10 * chance)
    assert resident_gb < 3


def dice_of_chance(summary: dict[str, Any]) -> float:
    """What labels drawn at random by the true shares of the structures would score: those shares."""
    return fmean(
        counts["n_ref"] / (counts["TP"] + counts["FP"] + counts["FN"] + counts["TN"])
        for case in summary["metric_per_case"]
        for counts in case["metrics"].values()
    )
