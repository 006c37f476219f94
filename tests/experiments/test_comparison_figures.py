from __future__ import annotations

import json

import numpy as np
import pytest
from comparisons import cases, curve, experiment, ratios, record, write
from matplotlib.collections import PathCollection

from shapepu.evaluation.report.contours import CaseSlices, compared_figure, shared_slice
from shapepu.evaluation.report.palette import structure_colours
from shapepu.experiments.definition import Curve, Row
from shapepu.experiments.figures import drawings
from shapepu.experiments.figures.cases import compared_cases
from shapepu.experiments.figures.drawing import svg_file
from shapepu.experiments.figures.scores import seeds_drawing, volumes_drawing
from shapepu.experiments.figures.settings import points_by_method, setting_drawings
from shapepu.experiments.figures.training import curves_drawing, mean_line, ratios_drawing
from shapepu.experiments.outcome import read_outcome
from shapepu.experiments.records import CurvePoint, run_folder
from shapepu.labels import LabelSet
from volume_files import write_nifti

LABELS = LabelSet(("background", "lv", "rv"))


def outcome_of(results, rows, records, **plan):
    outcome = read_outcome(write(results, rows, records, **plan))
    return outcome, outcome.tables[0]


def points(axes) -> list[tuple[float, float]]:
    clouds = [drawn.get_offsets() for drawn in axes.collections if isinstance(drawn, PathCollection)]
    return [(float(x), float(y)) for cloud in clouds for x, y in cloud]


def test_the_example_has_every_figure_of_numbers(example):
    outcome, table = example
    assert [drawing.name for drawing in drawings(outcome, table)] == [
        "ACDC-dice",
        "ACDC-training",
        "ACDC-seeds",
        "ACDC-ratios",
    ]


def test_every_volume_is_a_point_beside_its_rows_label(example):
    _, table = example
    drawing = volumes_drawing(table)
    average, *structures = drawing.figure.axes
    assert [axes.get_title(loc="left") for axes in (average, *structures)] == ["Average", "LV", "MYO", "RV"]
    assert [text.get_text() for text in average.get_yticklabels()] == [
        "PCE",
        "*ShapePU*: L_+ & 100 %",
        "Full",
    ]
    shapepu = [x for x, y in points(average) if 0.5 < y < 1.5]
    assert sorted(shapepu) == pytest.approx(sorted(table.rows[1].values("dice")))
    assert "after averaging seeds" in drawing.caption


def test_every_run_is_a_point_in_the_figure_of_seeds(example):
    drawing = seeds_drawing(example[1])
    rows = [round(y) for _, y in points(drawing.figure.axes[0])]
    runs = [rows.count(row) for row in range(3)]
    assert runs == [2, 1, 1]


def test_of_one_seed_the_figure_says_that_nothing_is_known_of_seeds(tmp_path):
    _, table = outcome_of(tmp_path, experiment(Row("pce")), [record("pce", cases({"lv": [0.5]}))])
    assert "nothing is known yet" in seeds_drawing(table).caption


def test_seeds_of_a_curve_are_averaged_where_all_of_them_are():
    one = (np.array([1.0, 2.0, 3.0]), np.array([0.2, 0.4, 0.6]))
    other = (np.array([2.0, 4.0]), np.array([0.6, 1.0]))
    minutes, dice = mean_line([one, other])
    assert list(minutes) == [2.0, 3.0]
    assert list(dice) == pytest.approx([0.5, 0.7])  # at 3 minutes the other one is at 0.8


def test_curves_go_by_name_from_the_best_down(example):
    axes = curves_drawing(example[1]).figure.axes[0]
    legend = [text.get_text() for text in axes.get_legend().get_texts()]
    assert legend == ["*ShapePU*: L_+ & 100 %  0.800", "PCE  0.560"]


def test_without_curves_or_ratios_there_is_no_such_figure(tmp_path):
    _, table = outcome_of(tmp_path, experiment(Row("pce")), [record("pce", cases({"lv": [0.5]}))])
    assert curves_drawing(table) is None
    assert ratios_drawing(table) is None


def test_a_run_that_was_watched_once_is_a_point(tmp_path):
    once = record("pce", cases({"lv": [0.5]}), curve=(CurvePoint(1.0, 1, 10, 0.5),))
    _, table = outcome_of(tmp_path, experiment(Row("pce")), [once])
    assert curves_drawing(table).figure.axes[0].lines[0].get_marker() == "o"


def test_ratios_are_solid_and_the_true_ones_dashed_in_percent_without_the_background(example):
    axes = ratios_drawing(example[1]).figure.axes[0]
    colours = structure_colours(("lv", "myo", "rv"))
    solid = {line.get_color(): line.get_ydata()[-1] for line in axes.lines if line.get_linestyle() == "-"}
    dashed = {
        line.get_color(): line.get_ydata()[0]
        for line in axes.lines
        if line.get_color() in colours.values() and line.get_linestyle() != "-"
    }
    last = ratios()[-1].ratios
    assert solid == {colours[name]: pytest.approx(100 * last[name], abs=1e-4) for name in colours}
    assert dashed == {
        colours["lv"]: pytest.approx(2.0),
        colours["myo"]: pytest.approx(1.8),
        colours["rv"]: pytest.approx(1.2),
    }


def test_where_ratios_begin_to_be_used_there_is_a_line(example):
    axes = ratios_drawing(example[1]).figure.axes[0]
    assert [line.get_xdata()[0] for line in axes.lines if list(line.get_xdata()) == [4, 4]] == [4]


def test_true_ratios_that_nobody_knows_are_not_drawn(tmp_path):
    run = record("shapepu", cases({"lv": [0.5]}), ratios=ratios())
    _, table = outcome_of(tmp_path, experiment(Row("shapepu")), [run])
    drawing = ratios_drawing(table)
    assert "no dense masks" in drawing.caption
    svg_file(drawing.figure)


def test_the_truth_is_not_drawn_beside_ratios_of_fewer_pixels_than_it_was_counted_on(tmp_path):
    truth = {"background": 0.95, "lv": 0.05}
    scored = cases({"lv": [0.5]})
    near, everywhere = (
        record(name, scored, ratios=ratios(), true_ratios=truth, true_ratios_from="train", settings=options)
        for name, options in (
            ("shapepu", {"method_options": {"reach": 1.0}}),
            ("pu", {"method_options": {"reach": -1.0}}),
        )
    )
    _, table = outcome_of(tmp_path, experiment(Row("shapepu"), Row("pu")), [near, everywhere])
    drawing = ratios_drawing(table)
    at_five_percent = [
        sum(np.array_equal(line.get_ydata(), [5.0, 5.0]) for line in axes.lines)
        for axes in drawing.figure.axes[:2]
    ]
    assert at_five_percent == [0, 1]
    assert "shapepu: among the unlabelled pixels within reach" in drawing.caption
    assert "counted on the dense masks of the training volumes" in drawing.caption


SERIES = tuple(
    Row(f"{method}-{number}", method=method, settings={"data": {"cases": number}} if number else {})
    for method in ("pce", "shapepu")
    for number in (5, 10, None)
)


def series(results):
    curves = (Curve("data.cases", tuple(row.name for row in SERIES), "patients"),)
    records = [
        record(
            row.name,
            cases({"lv": [0.5 + 0.05 * place, 0.7 + 0.05 * place]}),
            method=row.method,
            settings={"data": {"cases": (row.settings.get("data") or {}).get("cases")}},
            training_cases=2 * ((row.settings.get("data") or {}).get("cases") or 35),
        )
        for place, row in enumerate(SERIES)
        if row.name != "pce-10"
    ]
    return outcome_of(results, experiment(*SERIES, curves=curves), records)


def test_rows_of_one_method_make_a_curve_over_the_setting_and_all_patients_have_a_number(tmp_path):
    outcome, table = series(tmp_path)
    found = points_by_method(outcome, table, outcome.experiment.curves[0])
    assert {method: [point.x for point in points] for method, points in found.items()} == {
        "pce": [5, 35],
        "shapepu": [5, 10, 35],
    }
    assert [point.mean for point in found["shapepu"]] == pytest.approx([0.75, 0.8, 0.85])
    low_high = found["shapepu"][0].interval
    assert (low_high.low, low_high.high) == pytest.approx((0.65, 0.85))  # two patients, all of the extremes


def test_the_figure_against_a_setting_draws_intervals_and_names_what_is_not_there(tmp_path):
    outcome, table = series(tmp_path)
    (drawing,) = setting_drawings(outcome, table)
    assert drawing.name == "ACDC-curve1"
    assert drawing.caption.endswith("Not there: pce-10.")
    axes = drawing.figure.axes[0]
    assert [text.get_text() for text in axes.get_xticklabels()] == ["5", "10", "35"]
    assert len(axes.collections) == 5


@pytest.mark.parametrize("label", ["$x_1$ & <b>", "_hidden", "a very long label that " + "goes on " * 12])
def test_labels_are_shown_as_they_are_and_fit(tmp_path, label):
    run = record("pce", cases({"lv": [0.5, 0.6]}), curve=curve(0.5), ratios=ratios())
    outcome, table = outcome_of(tmp_path, experiment(Row("pce", label=label)), [run])
    for drawing in drawings(outcome, table):
        svg_file(drawing.figure)
    figure = volumes_drawing(table).figure
    figure.draw_without_rendering()
    tick = figure.axes[0].get_yticklabels()[0]
    assert " ".join(tick.get_text().split()) == " ".join(label.split())
    assert tick.get_window_extent().x0 >= 0


def test_a_figure_gives_the_same_bytes_twice_and_names_neither_a_day_nor_a_place(example):
    outcome, table = example
    for first, second in zip(drawings(outcome, table), drawings(outcome, table), strict=True):
        text = svg_file(first.figure)
        assert text == svg_file(second.figure)
        assert "<dc:date>" not in text
        assert "matplotlib.org" not in text


def heart(shift: int = 0) -> np.ndarray:
    """lv in slices 1 to 3 of five, the largest in slice 2."""
    labels = np.zeros((5, 24, 24), np.uint8)
    labels[1:4, 8 + shift : 14 + shift, 8:14] = 1
    labels[2, 8 + shift : 16 + shift, 8:16] = 1
    labels[2, 8 + shift : 16 + shift, 16:20] = 2
    return labels


def write_run(results, row, shift, names):
    folder = run_folder(results, "ACDC", row, 0) / "validation"
    listing = []
    for name in names:
        data = results / "data"
        image = np.random.default_rng(0).normal(100, 10, (5, 24, 24)).astype(np.float32)
        write_nifti(folder / f"predictions/{name}.nii.gz", heart(shift))
        listing.append(
            {
                "name": name,
                "images": [str(write_nifti(data / f"{name}.nii.gz", image))],
                "reference": str(write_nifti(data / f"{name}_gt.nii.gz", heart())),
                "prediction": f"predictions/{name}.nii.gz",
            }
        )
    text = json.dumps({"cases": listing, "labels": LABELS.as_dict()})
    (folder / "cases.json").write_text(text, encoding="utf-8")


def three_cases(results):
    """PCE alone is worst in a1, ShapePU alone in a3; of both together a2 is worst and a1 the median."""
    pce = cases({"lv": [0.2, 0.4, 0.9], "rv": [0.2, 0.4, 0.9]})
    shapepu = cases({"lv": [0.9, 0.5, 0.4], "rv": [0.9, 0.5, 0.4]})
    rows = experiment(Row("pce", label="PCE"), Row("shapepu", label="ShapePU"), Row("crf"))
    return outcome_of(results, rows, [record("pce", pce), record("shapepu", shapepu)])


def test_worst_and_median_case_are_chosen_by_the_mean_of_all_rows(tmp_path):
    outcome, table = three_cases(tmp_path)
    found = compared_cases(outcome.results, table)
    assert [(case.role, case.name) for case in found] == [("worst", "a2"), ("median", "a1")]
    assert [case.mean_dice for case in found] == pytest.approx([0.45, 0.55])


def test_without_run_folders_there_is_no_picture_but_a_reason(tmp_path):
    outcome, table = three_cases(tmp_path)
    worst = compared_cases(outcome.results, table)[0]
    assert worst.drawing is None
    assert worst.problems == (
        "PCE, ShapePU: the run folder is not beside the records, or has no validation/cases.json.",
    )


def test_every_row_has_a_panel_on_the_same_slice(tmp_path):
    outcome, table = three_cases(tmp_path)
    for row, shift in (("pce", 3), ("shapepu", 1)):
        write_run(tmp_path, row, shift, ("a1", "a2", "a3"))
    worst = compared_cases(outcome.results, table)[0]
    assert worst.problems == ()
    assert [axes.get_title(loc="left") for axes in worst.drawing.figure.axes] == [
        "Reference\nslice 3 of 5",
        "PCE\nDice 0.400",
        "ShapePU\nDice 0.500",
    ]
    contours = [len(axes.collections) for axes in worst.drawing.figure.axes]
    assert contours == [2, 4, 4]  # two structures of the reference, and as many of a prediction


@pytest.mark.parametrize(
    ("lost", "reason"),
    [
        ("data/a2.nii.gz", "PCE: the image is not there any more (a2.nii.gz)."),
        ("data/a2_gt.nii.gz", "PCE: the reference is not there any more (a2_gt.nii.gz)."),
        (
            "runs/ACDC/pce/seed0/validation/predictions/a2.nii.gz",
            "PCE: the prediction is not there any more (a2.nii.gz).",
        ),
    ],
)
def test_what_is_lost_is_named_without_a_folder(tmp_path, lost, reason):
    outcome, table = three_cases(tmp_path)
    write_run(tmp_path, "pce", 1, ("a1", "a2"))
    (tmp_path / lost).unlink()
    worst = compared_cases(outcome.results, table)[0]
    assert worst.problems[0] == reason
    assert str(tmp_path) not in " ".join(worst.problems)


@pytest.mark.parametrize("text", ["{}", "[", '{"cases": [{"name": 1}], "labels": {}}'])
def test_a_damaged_listing_is_a_reason_and_the_other_rows_are_drawn(tmp_path, text):
    outcome, table = three_cases(tmp_path)
    for row in ("pce", "shapepu"):
        write_run(tmp_path, row, 1, ("a2", "a1"))
    listing = run_folder(tmp_path, "ACDC", "pce", 0) / "validation/cases.json"
    listing.write_text(text, encoding="utf-8")
    worst = compared_cases(outcome.results, table)[0]
    assert worst.problems[0].startswith("PCE: validation/cases.json is damaged")
    assert len(worst.drawing.figure.axes) == 2


def slices(prediction: np.ndarray) -> CaseSlices:
    image = np.random.default_rng(0).normal(100, 10, (5, 24, 24))
    return CaseSlices(image, prediction, heart(), (1.0, 1.0))


def test_the_slice_is_where_all_rows_together_are_wrong_most_and_the_reference_has_a_structure():
    stray = heart()
    stray[0] = 1  # most wrong pixels, but nothing is there to be found
    stray[3, :1] = 1
    assert shared_slice([slices(stray), slices(heart())], LABELS) == 3
    assert shared_slice([slices(stray), slices(heart(3))], LABELS) == 2
    assert shared_slice([slices(heart())], LABELS) == 2, "nothing is wrong: most of the structures"


def test_panels_stand_in_even_rows_inside_the_figure():
    figure = compared_figure([slices(heart(place % 3)) for place in range(8)], ["row"] * 8, LABELS)
    boxes = [axes.get_position() for axes in figure.axes]
    assert len(boxes) == 9
    assert sorted({round(box.y0, 3) for box in boxes})[0] >= 0
    assert [sum(abs(box.y0 - y) < 1e-6 for box in boxes) for y in (boxes[0].y0, boxes[-1].y0)] == [5, 4]
    assert max(box.x1 for box in boxes) <= 1 + 1e-9
