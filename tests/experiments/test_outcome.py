from __future__ import annotations

import numpy as np
import pytest
from comparisons import cases, experiment, record, write

from shapepu.errors import InputError
from shapepu.evaluation.statistics import holm, wilcoxon
from shapepu.experiments.definition import NOTHING, Row
from shapepu.experiments.outcome import NOT_YET, data_outcome, read_outcome
from shapepu.experiments.records import FailedRun, MissingRow, record_path

TWO = experiment(Row("pce"), Row("shapepu"))


def outcome(results, *records, rows=TWO, **plan):
    return read_outcome(write(results, rows, records, **plan))


def table(results, *records, rows=TWO, **plan):
    return outcome(results, *records, rows=rows, **plan).tables[0]


def test_seeds_are_averaged_volume_by_volume_before_anything_is_tested(tmp_path):
    weak = [record("pce", cases({"lv": [0.5, 0.5, 0.5, 0.5, 0.5, 0.5]}), seed=seed) for seed in (0, 1)]
    one = record("shapepu", cases({"lv": [0.9, 0.3, 0.8, 0.7, 0.6, 0.7]}), seed=0)
    other = record("shapepu", cases({"lv": [0.5, 0.8, 0.4, 0.5, 0.6, 0.9]}), seed=1)
    found = table(tmp_path, *weak, one, other)
    averaged = found.rows[1].values("dice", "lv")
    np.testing.assert_allclose(averaged, [0.7, 0.55, 0.6, 0.6, 0.6, 0.8])
    test = found.test(found.rows[1], ("dice", "lv"))
    # All six means are better, so the exact two-sided p is 2 / 2^6; twelve runs are not twelve volumes.
    assert test.score.test.pairs == 6
    assert test.score.test.p_value == pytest.approx(2 / 2**6)
    assert test.score.difference == pytest.approx(3.85 / 6 - 0.5)


def test_rows_are_tested_on_the_seeds_that_both_have(tmp_path):
    """Two more seeds of one row, however lucky, say nothing of the other."""
    low, high = cases({"lv": [0.5, 0.6]}), cases({"lv": [0.9, 0.95]})
    lucky = [record("shapepu", high, seed=seed) for seed in (1, 2)]
    found = table(tmp_path, record("pce", low), record("shapepu", low), *lucky)
    assert found.rows[1].spread("dice").mean == pytest.approx((0.55 + 2 * 0.925) / 3)
    assert found.test(found.rows[1], ("dice", "lv")).score.difference == 0
    apart = table(tmp_path / "apart", record("pce", low), *lucky)
    assert np.isnan(apart.test(apart.rows[1], ("dice", "lv")).score.test.p_value)


def test_holm_is_over_all_questions_of_all_rows_of_the_table(tmp_path):
    rows = experiment(Row("pce"), Row("wpce"), Row("shapepu"))
    records = [
        record("pce", cases({"lv": [0.50, 0.52, 0.61, 0.44, 0.58, 0.49, 0.53]})),
        record("wpce", cases({"lv": [0.55, 0.50, 0.66, 0.52, 0.57, 0.60, 0.51]})),
        record("shapepu", cases({"lv": [0.80, 0.82, 0.79, 0.85, 0.90, 0.78, 0.83]})),
    ]
    tests = table(tmp_path, *records, rows=rows).tests
    asked = {("dice", "lv"), ("dice", None), ("hd_mm", None), ("hd95_mm", None)}
    assert [test.row for test in tests] == ["wpce"] * 4 + ["shapepu"] * 4
    assert {test.question for test in tests} == asked
    raw = [test.score.test.p_value for test in tests]
    assert [test.score.p_holm for test in tests] == holm(raw)
    assert min(raw) == pytest.approx(2 / 2**7)
    assert min(test.score.p_holm for test in tests) == pytest.approx(8 * 2 / 2**7)


def test_rows_are_tested_over_patients_too_with_their_volumes_averaged(tmp_path):
    one = {"lv": [0.5, 0.7, 0.6, 0.6]}
    other = {"lv": [0.9, 0.4, 0.8, 0.9]}
    records = [
        record(name, cases(dice, volumes_per_patient=2)) for name, dice in (("pce", one), ("shapepu", other))
    ]
    test = table(tmp_path, *records).tests[0]
    expected = wilcoxon([0.65, 0.85], [0.6, 0.6])
    assert test.patients == expected
    assert test.patients.pairs == 2
    assert test.score.test.pairs == 4


def test_the_mean_of_a_case_is_over_structures_then_seeds_then_rows(tmp_path):
    # PCE: a1 (0.9 + 0.7) / 2 = 0.8. ShapePU: seeds 0.2 and 0.4 give 0.3. Both rows: 0.55.
    found = table(
        tmp_path,
        record("pce", cases({"lv": [0.9], "myo": [0.7]})),
        record("shapepu", cases({"lv": [0.1], "myo": [0.3]}), seed=0),
        record("shapepu", cases({"lv": [0.4], "myo": [0.4]}), seed=1),
    )
    assert found.case_means == {"a1": pytest.approx(0.55)}


def test_a_volume_that_one_row_lacks_is_left_out_of_its_pairs_and_means(tmp_path):
    found = table(
        tmp_path,
        record("pce", cases({"lv": [0.5, 0.6]})),
        record("shapepu", cases({"lv": [0.7, 0.8, 0.9]})),
    )
    assert found.cases == ("a1", "a2", "a3")
    assert found.rows[0].spread("dice", "lv").count == 2
    assert found.test(found.rows[1], ("dice", "lv")).score.difference == pytest.approx(0.2)
    assert found.case_means["a3"] == pytest.approx(0.9)


def test_a_distance_without_a_value_is_no_zero(tmp_path):
    scored = cases({"lv": [0.5, 0.6], "myo": [0.5, 0.6]}, {"lv": [10.0, 20.0], "myo": [None, 40.0]})
    found = table(tmp_path, record("pce", scored))
    assert found.rows[0].spread("hd_mm").mean == pytest.approx((10 + 30) / 2)


def test_rows_that_are_not_there_say_why(tmp_path):
    rows = experiment(Row("pce"), Row("crf"), Row("maag"), Row("accl"))
    write(tmp_path, rows, [record("pce", cases({"lv": [0.5]}))])
    MissingRow("made", "ACDC", "crf", "no masks").write(tmp_path)
    FailedRun("made", "ACDC", "maag", 0, "RuntimeError: broken").write(tmp_path)
    FailedRun("made", "ACDC", "maag", 1, "RuntimeError: broken").write(tmp_path)
    pce, crf, maag, accl = read_outcome(tmp_path).tables[0].rows
    assert (pce.missing, pce.failed) == ("", False)
    assert (crf.missing, crf.failed) == ("no masks", False)
    assert (maag.missing, maag.failed) == ("RuntimeError: broken", True)
    assert (accl.missing, accl.failed) == (NOT_YET, False)


def test_a_failure_of_one_seed_leaves_the_row_and_one_that_was_made_good_is_forgotten(tmp_path):
    write(tmp_path, TWO, [record("pce", cases({"lv": [0.5]}))], seeds=(0, 1))
    FailedRun("made", "ACDC", "pce", 0, "long ago").write(tmp_path)
    FailedRun("made", "ACDC", "pce", 1, "just now").write(tmp_path)
    found = read_outcome(tmp_path)
    assert (found.tables[0].rows[0].missing, found.tables[0].rows[0].failed) == ("", False)
    assert [(run.seed, run.error) for run in found.failed] == [(1, "just now")]


def test_a_data_set_on_which_everything_failed_has_its_table(tmp_path):
    write(tmp_path, experiment(Row("pce"), data=("ACDC", "MSCMR")), [])
    FailedRun("made", "ACDC", "pce", 0, "broken").write(tmp_path)
    found = read_outcome(tmp_path)
    assert [each.data for each in found.tables] == ["ACDC"]
    assert found.absent == (f"MSCMR: {NOT_YET}.",)


def test_a_comparison_of_which_nothing_has_run_has_no_table(tmp_path):
    assert outcome(tmp_path).tables == ()


def test_a_row_of_another_data_set_is_not_in_the_table(tmp_path):
    rows = experiment(Row("pce", data=("ACDC",)), Row("shapepu", data=("MSCMR",)), data=())
    found = table(tmp_path, record("pce", cases({"lv": [0.5]})), rows=rows)
    assert [row.row.name for row in found.rows] == ["pce"]


def test_a_result_of_a_row_that_the_experiment_does_not_have_is_told(tmp_path):
    found = outcome(tmp_path, record("tv", cases({"lv": [0.5]})))
    assert "tv on ACDC: there is a result, but the experiment has no such row." in found.absent


def test_results_of_two_experiments_in_one_folder_are_refused(tmp_path):
    with pytest.raises(InputError, match=r"results of 'other'.*experiment\.yaml is of 'made'"):
        outcome(tmp_path, record("pce", cases({"lv": [0.5]}), experiment="other"))


def test_rows_that_were_scored_on_different_structures_are_refused(tmp_path):
    with pytest.raises(InputError, match="different structures"):
        outcome(tmp_path, record("pce", cases({"lv": [0.5]})), record("shapepu", cases({"rv": [0.5]})))


def test_a_record_that_was_moved_is_refused(tmp_path):
    write(tmp_path, TWO, [record("pce", cases({"lv": [0.5]}))])
    place = record_path(tmp_path, "ACDC", "pce", 0)
    place.rename(place.with_name("seed1.json"))
    with pytest.raises(InputError, match=r"it is the record of .*seed0\.json"):
        read_outcome(tmp_path)


@pytest.mark.parametrize(("against", "expected"), [("pce", ["pce", "pce"]), (NOTHING, [])])
def test_rows_are_tested_against_what_the_experiment_says(against, expected):
    rows = experiment(Row("pce"), Row("wpce"), Row("shapepu"), against=against)
    records = [record(name, cases({"lv": [0.5, 0.6]})) for name in ("pce", "wpce", "shapepu")]
    tests = data_outcome(rows, "ACDC", records).tests
    assert [test.against for test in tests if test.question == ("dice", None)] == expected


def test_the_spread_over_seeds_is_of_the_runs_means(tmp_path):
    runs = [
        record("pce", cases({"lv": [dice, dice]}), seed=seed) for seed, dice in enumerate((0.5, 0.6, 0.7))
    ]
    over = table(tmp_path, *runs).rows[0].over_seeds("dice")
    assert (over.mean, over.sd, over.count) == (pytest.approx(0.6), pytest.approx(0.1), 3)
