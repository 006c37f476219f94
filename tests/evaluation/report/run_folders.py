"""Run folders as training leaves them, written without the package and with numbers known beforehand."""

from __future__ import annotations

import csv
import json
from collections.abc import Mapping, Sequence
from pathlib import Path

import numpy as np
import SimpleITK as sitk
import yaml

STRUCTURES = ("rv", "myo", "lv")
LABELS = {"background": 0, "rv": 1, "myo": 2, "lv": 3, "ignore": 4}

DICE = {
    "anna": (0.80, 0.70, 0.90),
    "bert": (0.95, 0.85, 0.96),
    "carl": (0.00, 0.60, 0.75),
    "dora": (0.85, 0.78, 0.92),
    "emil": (0.82, 0.74, 0.93),
}
"""Means .8000, .9200, .4500, .8500, .8300: worst carl, median emil, best bert."""


def write_table(path: Path, rows: Sequence[Mapping[str, object]]) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    with open(path, "w", newline="", encoding="utf-8") as stream:
        writer = csv.DictWriter(stream, list(dict.fromkeys(name for row in rows for name in row)))
        writer.writeheader()
        writer.writerows(rows)


def metric_rows(epochs: int = 6, *, ratios: bool = True, validation: bool = True) -> list[dict[str, object]]:
    """Validation every second epoch; the negative term is switched on in the third."""
    rows = []
    for epoch in range(1, epochs + 1):
        row: dict[str, object] = {
            "epoch": epoch,
            "step": 10 * epoch,
            "minutes": 0.5 * epoch,
            "learning_rate": 0.001 / epoch,
            "images_per_second": 40 + epoch,
            "loss": 1.0 / epoch**2 + (0.1 if epoch > 2 else 0.0),
            "loss.positive": 1.0 / epoch**2,
            "loss.negative": 0.1 if epoch > 2 else 0.0,
        }
        if ratios:
            row |= {"ratio.background": 0.9, "ratio.rv": 0.01 * epoch, "ratio.myo": 0.02, "ratio.lv": 0.03}
        if validation:
            scored = epoch % 2 == 0
            row["validation.dice"] = 0.1 * epoch if scored else ""
            row |= {f"validation.dice.{name}": 0.1 * epoch if scored else "" for name in STRUCTURES}
        rows.append(row)
    return rows


def score_rows(dice: Mapping[str, Sequence[float]] = DICE) -> list[dict[str, object]]:
    """Distances follow the Dice; where it is 0 the structure was missed and the distance is a diagonal."""
    return [
        {
            "case": case,
            "group": case,
            "structure": structure,
            "label": LABELS[structure],
            "dice": value,
            "hd_mm": 100.0 if value == 0 else 20 * (1 - value),
            "hd95_mm": 100.0 if value == 0 else 10 * (1 - value),
            "assd_mm": 100.0 if value == 0 else 5 * (1 - value),
            "volume_ml": 50 * value,
            "reference_ml": 50.0,
            "volume_error_ml": 50 * value - 50,
            "n_pred": round(1000 * value),
            "n_ref": 1000,
            "note": "prediction empty" if value == 0 else "",
        }
        for case, values in dice.items()
        for structure, value in zip(STRUCTURES, values, strict=True)
    ]


def heart(shift: int = 0, shape: tuple[int, int, int] = (6, 24, 24)) -> np.ndarray:
    """Boxes for rv, myo and lv in all slices but the first; ``shift`` moves them down some rows."""
    labels = np.zeros(shape, np.uint8)
    labels[1:, 8 + shift : 16 + shift, 4:9] = 1
    labels[1:, 8 + shift : 16 + shift, 9:17] = 2
    labels[1:, 10 + shift : 14 + shift, 11:15] = 3
    return labels


def write_volume(path: Path, array: np.ndarray, spacing_mm: tuple[float, ...] = (8.0, 1.5, 1.5)) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    image = sitk.GetImageFromArray(array)
    image.SetSpacing(spacing_mm[::-1])
    sitk.WriteImage(image, str(path))
    return path


def write_validation(run: Path, names: Sequence[str] = tuple(DICE)) -> None:
    """Images and references beside the run, predictions inside it, and ``cases.json`` that says so."""
    data, listing = run.parent / "data", []
    for seed, name in enumerate(names):
        image = np.random.default_rng(seed).normal(100, 10, (6, 24, 24)).astype(np.float32)
        listing.append(
            {
                "name": name,
                "images": [str(write_volume(data / f"images/{seed}.nii.gz", image))],
                "reference": str(write_volume(data / f"masks/{seed}.nii.gz", heart())),
                "prediction": f"predictions/{seed}.nii.gz",
            }
        )
        write_volume(run / f"validation/predictions/{seed}.nii.gz", heart(shift=1))
    write_json(run / "validation/cases.json", {"cases": listing, "labels": LABELS})


def write_json(path: Path, content: object) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps(content), encoding="utf-8")


def write_config(run: Path, **settings: object) -> None:
    chosen = {"method": "shapepu", "network": "fast", "epochs": 6, "minutes": None, "seed": 0, **settings}
    config = {
        "data": {"path": "hearts", "name": "hearts", "labels": LABELS, "cases": {"train": ["t1", "t2"]}},
        "settings": {**chosen, "optimisation": {"optimiser": "adamw", "betas": [0.9, 0.999]}},
        "versions": {"shapepu": "0.1.0", "torch": "2.13.0"},
    }
    run.mkdir(parents=True, exist_ok=True)
    (run / "config.yaml").write_text(yaml.safe_dump(config, sort_keys=False), encoding="utf-8")


def scribbled_case(name: str, **labelled: int) -> dict[str, object]:
    return {
        "name": name,
        "group": name,
        "split": "train",
        "slices": 5,
        "labelled": {"background": 300, "rv": 20, "myo": 50, "lv": 30, **labelled},
        "pixels": 10_000,
    }


def write_run(run: Path) -> Path:
    """A finished run with every piece."""
    write_config(run)
    write_table(run / "metrics.csv", metric_rows())
    write_table(run / "validation/cases.csv", score_rows())
    write_json(run / "validation/summary.json", {"notes": ["2 of 5 cases: spacing differs."]})
    write_validation(run)
    write_json(run / "data.json", {"cases": [scribbled_case("t1"), scribbled_case("t2", rv=0)]})
    (run / "train.log").write_text("epoch 1: loss 1.000\nepoch 2: loss 0.250\ndone\n", encoding="utf-8")
    return run
