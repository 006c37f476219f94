from __future__ import annotations

import csv
import json
import math

import numpy as np
import pytest
from label_files import save, slab

import shapepu
from shapepu.errors import InputError
from shapepu.evaluation.pairing import read_labels
from shapepu.evaluation.scoring import score_folders
from shapepu.labels import LabelSet, plain_labels


@pytest.fixture
def folders(tmp_path):
    """Two cases of two structures: the first is right; in the second, 1 is a row off and 2 is absent."""
    predictions, references = tmp_path / "predictions", tmp_path / "masks"
    whole = slab(0, 2) + slab(4, 8, label=2)
    for name in ("a", "b"):
        save(references / f"{name}_gt.nii.gz", whole if name == "a" else slab(0, 2))
    save(predictions / "a.nii.gz", whole)
    save(predictions / "b.nii.gz", slab(1, 3))
    return predictions, references


HEART = plain_labels(["rv", "lv"])


def test_scores_of_two_cases_worked_by_hand(folders):
    evaluation = score_folders(*folders, labels=HEART)
    np.testing.assert_allclose(evaluation.values("dice", "rv"), [1, 0.5])
    np.testing.assert_allclose(evaluation.values("dice", "lv"), [1, 1])
    np.testing.assert_allclose(evaluation.values("hd_mm", "rv"), [0, 1.5])
    np.testing.assert_allclose(evaluation.values("hd_mm", "lv"), [0, math.nan])
    assert evaluation.count("both_empty", "lv") == 1
    assert evaluation.count("both_empty") == 1
    assert evaluation.count("one_empty") == 0
    spread = evaluation.spread("dice", "rv")
    assert (spread.mean, spread.sd) == pytest.approx((0.75, 0.5 / math.sqrt(2)))


def test_the_public_name_gives_the_same(folders):
    assert shapepu.evaluate(*folders, labels=HEART).rows[0] == score_folders(*folders, labels=HEART).rows[0]


def test_the_average_of_a_case_leaves_out_structures_without_a_value(folders):
    evaluation = score_folders(*folders, labels=HEART)
    np.testing.assert_allclose(evaluation.values("dice"), [1, 0.75])
    # In the second case only one structure has a distance.
    np.testing.assert_allclose(evaluation.values("hd_mm"), [0, 1.5])


def test_each_case_and_structure_has_a_row(folders):
    rows = score_folders(*folders, labels=HEART).rows
    assert [(row["case"], row["structure"], row["label"]) for row in rows] == [
        ("a", "rv", 1),
        ("a", "lv", 2),
        ("b", "rv", 1),
        ("b", "lv", 2),
    ]
    assert rows[3]["note"] == "both empty"
    # 2 slices x 2 rows x 8 voxels of 18 cubic millimetres
    assert rows[0]["reference_ml"] == pytest.approx(32 * 0.018)


def test_summary_has_the_keys_of_nnunet_and_is_valid_json(folders, tmp_path):
    score_folders(*folders, labels=HEART).write(tmp_path / "out")

    def refuse(constant):
        raise AssertionError(f"{constant} is not JSON")

    summary = json.loads((tmp_path / "out/summary.json").read_text(), parse_constant=refuse)
    assert {"mean", "foreground_mean", "metric_per_case"} <= summary.keys()
    case = summary["metric_per_case"][1]
    assert case["reference_file"].endswith("b_gt.nii.gz")
    assert case["prediction_file"].endswith("b.nii.gz")
    assert {"Dice", "IoU", "FP", "TP", "FN", "TN", "n_pred", "n_ref"} <= case["metrics"]["1"].keys()
    assert case["metrics"]["1"]["Dice"] == 0.5
    assert case["metrics"]["2"]["HD"] is None
    assert summary["mean"]["1"]["Dice"] == 0.75
    assert summary["foreground_mean"]["Dice"] == pytest.approx((1 + 0.75) / 2)
    assert summary["labels"] == {"1": "rv", "2": "lv"}
    assert summary["both_empty"] == {"1": 0, "2": 1}
    assert "pooled" in summary["definitions"]


def test_cases_csv_leaves_a_missing_value_empty(folders, tmp_path):
    score_folders(*folders, labels=HEART).write(tmp_path)
    with open(tmp_path / "cases.csv", newline="") as stream:
        rows = list(csv.DictReader(stream))
    assert len(rows) == 4
    assert rows[3]["hd_mm"] == ""
    assert float(rows[2]["hd_mm"]) == 1.5


def test_the_table_shows_structures_average_definitions_and_notes(folders):
    save(folders[0] / "extra.nii.gz", slab(0, 1))
    table = score_folders(*folders, labels=HEART).table()
    lines = table.splitlines()
    assert [line.split()[0] for line in lines[2:5]] == ["rv", "lv", "average"]
    assert "0.750 ± 0.354" in lines[2]
    assert lines[2].split()[-3:] == ["2", "0", "0"]
    assert lines[3].split()[-3:] == ["2", "1", "0"]
    assert "both directions pooled" in table.replace("\n", " ")
    assert "1 predictions have no reference and are not scored: extra." in table


@pytest.mark.parametrize("ending", ["", "_mask", "_gt", "_manual", "_label", "_labels"])
def test_references_pair_by_name_without_their_ending(tmp_path, ending):
    save(tmp_path / "predictions/case_1.nrrd", slab(0, 2))
    save(tmp_path / f"masks/case_1{ending}.nii.gz", slab(0, 2))
    evaluation = score_folders(tmp_path / "predictions", tmp_path / "masks")
    assert [case.name for case in evaluation.cases] == ["case_1"]


def test_two_single_files_pair_whatever_their_names(tmp_path):
    prediction, reference = save(tmp_path / "one.nii", slab(0, 2)), save(tmp_path / "other.mha", slab(0, 2))
    assert score_folders(prediction, reference).spread("dice").mean == 1


def test_two_files_of_one_case_are_refused(folders):
    save(folders[1] / "a_mask.nii.gz", slab(0, 2))
    with pytest.raises(InputError, match=r"a_gt\.nii\.gz and a_mask\.nii\.gz are both"):
        score_folders(*folders)


def test_hidden_files_of_an_interrupted_write_are_passed_over(folders):
    (folders[0] / ".123-c.nii.gz").write_bytes(b"half")
    assert len(score_folders(*folders, labels=HEART).cases) == 2


def test_structures_are_named_by_their_numbers_when_nothing_names_them(folders):
    evaluation = score_folders(*folders)
    assert evaluation.structures == ("1", "2")
    assert any("numbers in the files" in note for note in evaluation.notes)


def test_names_are_found_beside_the_files(folders):
    (folders[1].parent / "dataset.json").write_text(
        '{"labels": {"background": 0, "rv": 2, "lv": 1, "ignore": 9}}'
    )
    evaluation = score_folders(*folders)
    assert evaluation.labels == LabelSet(("background", "rv", "lv"), (0, 2, 1), 9)
    np.testing.assert_allclose(evaluation.values("dice", "lv"), [1, 0.5])
    assert set(evaluation.summary["mean"]) == {"1", "2"}


def test_values_of_a_label_set_need_not_be_consecutive(tmp_path):
    for folder in ("predictions", "masks"):
        save(tmp_path / folder / "a.nii.gz", slab(0, 2, label=200) + slab(3, 4, label=10))
    labels = LabelSet(("background", "rv", "lv"), (0, 200, 10))
    evaluation = score_folders(tmp_path / "predictions", tmp_path / "masks", labels=labels)
    assert list(evaluation.summary["mean"]) == ["200", "10"]
    assert evaluation.values("n_ref", "lv") == 16


def test_a_missing_prediction_is_refused_unless_allowed(folders):
    (folders[0] / "b.nii.gz").unlink()
    with pytest.raises(InputError, match=r"1 of 2 references have no prediction: b.*--allow-missing"):
        score_folders(*folders)
    evaluation = score_folders(*folders, allow_missing=True)
    assert [case.name for case in evaluation.cases] == ["a"]
    assert any("no prediction: b" in note for note in evaluation.notes)


def test_shapes_that_differ_are_refused_naming_both(folders):
    save(folders[0] / "b.nii.gz", np.zeros((2, 8, 9), np.uint8))
    with pytest.raises(InputError) as refused:
        score_folders(*folders, labels=HEART)
    for part in ("b.nii.gz", "b_gt.nii.gz", "(2, 8, 9)", "(2, 8, 8)"):
        assert part in str(refused.value)


def test_another_spacing_is_noted_and_the_references_is_used(folders):
    save(folders[0] / "b.nii.gz", slab(1, 3), spacing_mm=(8, 2, 2))
    evaluation = score_folders(*folders, labels=HEART)
    assert evaluation.values("hd_mm", "rv")[1] == pytest.approx(1.5)
    assert any("1 of 2 cases: the prediction's header has another voxel size" in n for n in evaluation.notes)
    assert any("b, 8 x 2 x 2 mm and 8 x 1.5 x 1.5 mm" in note for note in evaluation.notes)


def test_a_mask_that_lost_its_spacing_takes_that_of_the_prediction(folders):
    save(folders[1] / "b_gt.nii.gz", slab(0, 2), spacing_mm=(1, 1, 1))
    evaluation = score_folders(*folders, labels=HEART)
    assert evaluation.values("hd_mm", "rv")[1] == pytest.approx(1.5)
    assert any("the reference's header has another voxel size" in note for note in evaluation.notes)


def test_voxels_of_one_millimetre_everywhere_are_used_and_noted(folders):
    save(folders[0] / "b.nii.gz", slab(1, 3), spacing_mm=(1, 1, 1))
    save(folders[1] / "b_gt.nii.gz", slab(0, 2), spacing_mm=(1, 1, 1))
    evaluation = score_folders(*folders, labels=HEART)
    assert evaluation.values("hd_mm", "rv")[1] == 1
    assert any("all headers say 1 x 1 x 1 mm" in note for note in evaluation.notes)


def test_another_orientation_is_noted_and_compared_by_voxel(folders):
    save(folders[0] / "b.nii.gz", slab(1, 3), flipped=True)
    evaluation = score_folders(*folders, labels=HEART)
    assert evaluation.values("dice", "rv")[1] == 0.5
    assert any("orientation differs" in note for note in evaluation.notes)


def test_unlabelled_voxels_of_a_reference_are_left_out_and_said(folders):
    reference = slab(0, 2) + slab(2, 8, label=3)
    save(folders[1] / "b_gt.nii.gz", reference)
    evaluation = score_folders(*folders, labels=HEART)
    assert evaluation.values("fp", "rv")[1] == 0
    assert math.isnan(evaluation.values("hd_mm", "rv")[1])
    assert evaluation.count("partly_labelled", "rv") == 1
    assert any("annotated voxels only" in note for note in evaluation.notes)


def test_the_unlabelled_value_can_be_given_where_nothing_describes_the_labels(folders):
    save(folders[1] / "b_gt.nii.gz", slab(0, 2) + slab(2, 8, label=9))
    evaluation = score_folders(*folders, ignore=9)
    assert evaluation.structures == ("1", "2")
    assert evaluation.values("fp", "1")[1] == 0


def test_scribbles_are_not_taken_for_masks_with_a_large_structure(folders):
    save(folders[1] / "b_gt.nii.gz", slab(0, 2) + slab(2, 8, label=9))
    save(folders[1] / "a_gt.nii.gz", slab(0, 2) + slab(2, 8, label=9))
    with pytest.raises(InputError, match=r"most voxels are 9.*--ignore 9"):
        score_folders(*folders)


def test_an_unlabelled_voxel_in_a_prediction_is_refused(folders):
    save(folders[0] / "b.nii.gz", slab(0, 2, label=3))
    with pytest.raises(InputError, match="32 voxels have the unlabelled value 3"):
        score_folders(*folders, labels=HEART)


def test_a_value_outside_the_label_set_is_refused(folders):
    save(folders[0] / "b.nii.gz", slab(0, 2, label=7))
    with pytest.raises(InputError, match=r"b\.nii\.gz.*7"):
        score_folders(*folders, labels=HEART)


def test_whole_numbers_stored_as_floats_are_labels_and_fractions_are_not(folders):
    save(folders[0] / "b.nii.gz", slab(0, 2, dtype=np.float32))
    assert score_folders(*folders, labels=HEART).values("dice", "rv")[1] == 1
    save(folders[0] / "b.nii.gz", slab(0, 2, dtype=np.float32) / 2)
    with pytest.raises(InputError, match="whole numbers"):
        score_folders(*folders, labels=HEART)


def test_an_image_in_place_of_a_label_map_is_refused(tmp_path):
    image = np.random.default_rng(0).integers(-500, 1500, (2, 8, 8)).astype(np.int16)
    prediction, reference = save(tmp_path / "a.nii", slab(0, 2)), save(tmp_path / "b.nii", image)
    with pytest.raises(InputError, match="Is it an image"):
        score_folders(prediction, reference)


def test_nothing_but_background_needs_a_name_for_what_is_missing(tmp_path):
    files = [save(tmp_path / name, slab(0, 0)) for name in ("a.nii", "b.nii")]
    with pytest.raises(InputError, match=r"all voxels are 0.*--labels"):
        score_folders(*files)
    assert score_folders(*files, labels=HEART).count("both_empty") == 2


@pytest.mark.parametrize(
    ("content", "complaint"),
    [("[]", "class names"), ('{"rv": "x"}', "class names"), ("{", "JSON"), ('{"rv": 1}', "2 to")],
)
def test_a_label_file_that_is_not_one_is_refused_naming_it(tmp_path, content, complaint):
    (tmp_path / "labels.json").write_text(content)
    with pytest.raises(InputError, match=rf"labels\.json.*{complaint}"):
        read_labels(tmp_path / "labels.json")


@pytest.mark.parametrize(
    ("pattern", "expected"),
    [
        (None, ["p1", "p1", "p2"]),
        (r"p(\d)", ["1", "1", "2"]),
        (r"frame\d+", ["frame01", "frame12", "frame01"]),
    ],
)
def test_patients_are_found_in_the_names_of_masks(tmp_path, pattern, expected):
    for name in ("p1_frame01", "p1_frame12", "p2_frame01"):
        save(tmp_path / "predictions" / f"{name}.nii.gz", slab(0, 2))
        save(tmp_path / "masks" / f"{name}_gt.nii.gz", slab(0, 2))
    chosen = {"group_pattern": pattern} if pattern else {}
    evaluation = score_folders(tmp_path / "predictions", tmp_path / "masks", **chosen)
    assert [case.group for case in evaluation.cases] == expected
    assert evaluation.summary["groups"] == 2


def test_a_broken_group_pattern_is_refused(folders):
    with pytest.raises(InputError, match="not a regular expression"):
        score_folders(*folders, group_pattern="(")


@pytest.fixture
def data_set(tmp_path):
    """A data set folder: one training case with a scribble, two validation cases, one of them with a mask."""
    root = tmp_path / "data"
    (root / "train").mkdir(parents=True)
    (root / "labels.json").write_text('{"background": 0, "rv": 1, "lv": 2, "ignore": 3}')
    scribble = slab(0, 2) + slab(2, 8, label=3)
    for split, name in (("train", "t"), ("val", "a"), ("val", "b")):
        save(root / split / "images" / f"{name}.nii.gz", slab(0, 1).astype(np.float32))
        save(root / split / "scribbles" / f"{name}.nii.gz", scribble)
        save(tmp_path / "predictions" / f"{name}.nii.gz", slab(0, 2))
    save(root / "val/masks/a.nii.gz", slab(0, 3))
    return root


def test_a_data_set_folder_gives_masks_and_names_of_the_chosen_split(data_set, tmp_path):
    evaluation = score_folders(tmp_path / "predictions", data_set)
    assert evaluation.structures == ("rv", "lv")
    assert [case.name for case in evaluation.cases] == ["a"]
    assert evaluation.values("dice", "rv") == pytest.approx(2 * 32 / (32 + 48))
    assert any("1 cases of split 'val' have no mask" in note for note in evaluation.notes)


def test_the_image_of_a_data_set_knows_the_voxel_size_best(data_set, tmp_path):
    save(data_set / "val/masks/a.nii.gz", slab(0, 3), spacing_mm=(1, 1, 1))
    save(tmp_path / "predictions/a.nii.gz", slab(0, 2), spacing_mm=(3, 3, 3))
    evaluation = score_folders(tmp_path / "predictions", data_set)
    assert evaluation.values("hd_mm", "rv") == pytest.approx(1.5)
    assert any(
        "the reference's header has another voxel size than the image's" in n for n in evaluation.notes
    )


def test_a_split_without_masks_is_scored_on_its_scribbles_and_says_so(data_set, tmp_path):
    evaluation = score_folders(tmp_path / "predictions", data_set, split="train")
    assert evaluation.values("dice", "rv") == 1
    assert math.isnan(evaluation.spread("hd_mm").mean)
    assert any("scored against scribbles" in note for note in evaluation.notes)


def test_a_split_without_cases_is_refused_listing_the_others(data_set, tmp_path):
    with pytest.raises(InputError, match=r"split 'test'.*'train': 1, 'val': 2.*--split"):
        score_folders(tmp_path / "predictions", data_set, split="test")
