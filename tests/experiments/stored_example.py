"""A small comparison with everything that a table can hold; the files it must give are in ``expected/``."""

from __future__ import annotations

from pathlib import Path

from comparisons import cases, curve, experiment, ratios, record, write

from shapepu.experiments.definition import Row
from shapepu.experiments.records import FailedRun, Hardware, MissingRow

EXPECTED = Path(__file__).parent / "expected"

VOLUMES = 8

ROWS = (
    Row(
        "pce",
        label="PCE",
        group="35 scribbles",
        published={"ACDC": {"lv": (0.795, 0.193), "myo": (0.745, 0.143), "average": 0.765, "hd_mm": 26.9}},
    ),
    Row(
        "shapepu",
        label="*ShapePU*: L_+ & 100 %",
        group="35 scribbles",
        published={"ACDC": {"lv": (0.86, 0.122), "average": 0.834, "hd_mm": 12.6}},
        note="Two patients' scribbles were < 3 pixels.",
    ),
    Row("crf", label="CRF", group="35 scribbles"),
    Row("maag", label="MAAG", group="35 scribbles and 35 masks"),
    Row("accl", label="ACCL", group="35 scribbles and 35 masks"),
    Row("full", label="Full", group="35 masks"),
)

SETTINGS = {
    "pce": {"method": "pce", "data": {"cases": None}, "network": "fast"},
    "shapepu": {"method": "shapepu", "data": {"cases": 5}, "network": "fast", "extra": 1},
    "full": {"method": "full", "data": {"cases": 5}, "network": "fast"},
}


def steps(first: float, step: float) -> list[float]:
    """An even row of scores, one a volume."""
    return [round(first + step * place, 6) for place in range(VOLUMES)]


def write_example(results: Path) -> Path:
    """PCE of two seeds, ShapePU and Full of one; CRF could not run, MAAG failed, ACCL waits."""
    weak = {"lv": steps(0.6, 0.01), "myo": steps(0.5, 0.02), "rv": [0.0, *steps(0.4, 0.03)[1:]]}
    weaker = {"lv": steps(0.58, 0.01), "myo": steps(0.52, 0.02), "rv": [0.0, *steps(0.4, 0.02)[1:]]}
    good = {"lv": steps(0.8, 0.015), "myo": steps(0.7, 0.02), "rv": steps(0.65, 0.02)}
    full = {"lv": steps(0.85, 0.01), "myo": steps(0.69, 0.021), "rv": steps(0.7, 0.02)}
    true = {"background": 0.95, "lv": 0.02, "myo": 0.018, "rv": 0.012}
    gpu = Hardware(cpu="A processor", gpu="A card", threads=1, device="cuda", workers=2)
    records = [
        record("pce", cases(weak, volumes_per_patient=2), seed=0, curve=curve(0.55)),
        record("pce", cases(weaker, volumes_per_patient=2), seed=1, curve=curve(0.57), minutes=1.7),
        record(
            "shapepu",
            cases(good, volumes_per_patient=2),
            method="shapepu",
            curve=curve(0.8),
            ratios=ratios(),
            true_ratios=true,
            true_ratios_from="train",
        ),
        record(
            "full", cases(full, volumes_per_patient=2), method="full", supervision=("masks",), hardware=gpu
        ),
    ]
    made = experiment(*ROWS, note="A note on the whole.", published_source="A paper, Table 2")
    write(results, made, records, seeds=(0, 1), settings=SETTINGS)
    MissingRow("made", "ACDC", "crf", "the data set has no validation case.").write(results)
    FailedRun("made", "ACDC", "maag", 0, "RuntimeError: out of memory").write(results)
    FailedRun("made", "ACDC", "full", 1, "OSError: disk full").write(results)
    return results
