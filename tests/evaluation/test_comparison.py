from __future__ import annotations

import json
import math

import numpy as np
import pytest

from shapepu.errors import InputError
from shapepu.evaluation.comparison import compare
from shapepu.evaluation.metrics import StructureScores
from shapepu.evaluation.results import CaseScores, Evaluation
from shapepu.labels import plain_labels

LABELS = plain_labels(["rv", "lv"])


def scores(overlap: int, hd_mm: float = 1.0) -> StructureScores:
    """Ten voxels predicted, ten in the reference, ``overlap`` of them shared: Dice is a tenth of it."""
    return StructureScores(overlap, 10 - overlap, 10 - overlap, 80, hd_mm, hd_mm, hd_mm, voxel_ml=0.1)


def evaluation(overlaps: dict[str, tuple[int, int]], hd_mm: float = 1.0) -> Evaluation:
    """Overlaps of rv and lv by case name; the first letter of a name is the patient."""
    return Evaluation(
        LABELS,
        tuple(
            CaseScores(name, name[0], {label: scores(n, hd_mm) for label, n in enumerate(pair, start=1)})
            for name, pair in overlaps.items()
        ),
    )


def row(comparison, metric, structure):
    return next(r for r in comparison.rows if (r.metric, r.structure) == (metric, structure))


FIRST = {"a1": (9, 8), "a2": (8, 8), "b1": (9, 8), "c1": (7, 8), "d1": (9, 8)}
SECOND = {"a1": (8, 8), "a2": (6, 8), "b1": (6, 8), "c1": (3, 8), "d1": (4, 8)}


def test_means_difference_and_p_value_worked_by_hand():
    dice = row(compare(evaluation(FIRST), evaluation(SECOND)), "dice", "rv")
    assert (dice.first_mean, dice.second_mean, dice.difference) == pytest.approx((0.84, 0.54, 0.30))
    # Five differences of one sign: 2 / 2^5. Holm over two structures, one of which is equal: twice that.
    assert dice.test.p_value == pytest.approx(1 / 16)
    assert dice.p_holm == pytest.approx(1 / 8)


def test_equal_structures_do_not_differ_and_the_average_takes_half_of_the_difference():
    comparison = compare(evaluation(FIRST), evaluation(SECOND))
    same = row(comparison, "dice", "lv")
    assert (same.difference, same.test.p_value, same.interval.low, same.interval.high) == (0, 1, 0, 0)
    average = row(comparison, "dice", "average")
    assert average.difference == pytest.approx(0.15)
    assert math.isnan(average.p_holm)


def test_the_interval_holds_the_difference_and_draws_patients_not_volumes():
    alone = row(compare(evaluation(FIRST), evaluation(SECOND)), "dice", "rv").interval
    assert alone.low < 0.30 < alone.high
    # Sixteen volumes of the first patient (0.1 each) are still one patient of four, and a third of the draws
    # is without him. Drawn as 21 independent volumes, the mean would hardly exceed 0.25.
    many = {f"a{copy}": FIRST["a1"] for copy in range(16)} | FIRST
    other = {f"a{copy}": SECOND["a1"] for copy in range(16)} | SECOND
    assert row(compare(evaluation(many), evaluation(other)), "dice", "rv").interval.high > 0.4


def test_cases_are_paired_by_name_whatever_their_order_and_others_left_out():
    shuffled = dict(reversed(SECOND.items())) | {"e1": (0, 0)}
    expected = compare(evaluation(FIRST), evaluation(SECOND))
    assert repr(compare(evaluation(FIRST), evaluation(shuffled))) == repr(expected)


def test_a_pair_with_one_distance_missing_is_left_out_of_means_difference_and_test():
    first, second = evaluation(FIRST, hd_mm=2.0), evaluation(SECOND, hd_mm=5.0)
    first.cases[0].structures[1] = scores(0, hd_mm=100)
    second.cases[0].structures[1] = scores(0, hd_mm=math.nan)
    distance = row(compare(first, second), "hd_mm", "rv")
    assert (distance.first_mean, distance.second_mean, distance.difference) == (2, 5, -3)
    assert (distance.test.pairs, distance.test.left_out) == (4, 1)


def test_no_case_in_common_and_other_labels_are_refused():
    with pytest.raises(InputError, match="no case in common"):
        compare(evaluation({"a1": (1, 1)}), evaluation({"b1": (1, 1)}))
    stranger = Evaluation(plain_labels(["liver", "spleen"]), evaluation(FIRST).cases)
    with pytest.raises(InputError, match="same labels"):
        compare(evaluation(FIRST), stranger)


def test_too_few_volumes_for_significance_are_noted():
    assert "0.0625" in compare(evaluation(FIRST), evaluation(SECOND)).notes[0]
    six = {f"p{n}": (n, n) for n in range(6)}
    assert compare(evaluation(six), evaluation(six)).notes == ()


def test_the_file_is_valid_json_with_everything_a_row_has(tmp_path):
    compare(evaluation(FIRST), evaluation(SECOND), names=("ours", "theirs")).write(tmp_path)
    content = json.loads((tmp_path / "against.json").read_text())
    assert (content["first"], content["second"], content["groups"]) == ("ours", "theirs", 4)
    dice = content["rows"][0]
    assert (dice["metric"], dice["structure"]) == ("dice", "rv")
    assert dice["difference"] == pytest.approx(0.3)
    assert dice["test"]["pairs"] == 5
    assert content["rows"][2]["p_holm"] is None
    assert "Wilcoxon" in content["definitions"]


def test_the_table_has_a_line_for_each_score_and_structure():
    table = compare(evaluation(FIRST), evaluation(SECOND), names=("ours", "theirs")).table()
    lines = table.splitlines()
    assert len([line for line in lines if line.split()[:2] in (["Dice", "rv"], ["HD", "mm"])]) == 4
    assert lines[2].split()[:5] == ["Dice", "rv", "0.840", "0.540", "+0.300"]
    assert "0.0625" in lines[2]
    assert "drawing patients" in table.replace("\n", " ")


def test_the_seed_decides_the_interval():
    pair = evaluation(FIRST), evaluation(SECOND)
    intervals = [row(compare(*pair, seed=seed), "dice", "rv").interval for seed in (0, 0, 1)]
    assert intervals[0] == intervals[1]
    assert np.isclose(intervals[0].low, intervals[2].low, atol=0.05)
