from __future__ import annotations

import subprocess
import sys

import numpy as np
import pytest
from matplotlib.colors import to_hex
from PIL import Image
from run_folders import DICE, metric_rows, score_rows, write_table

from shapepu.evaluation.report.contents import read_metrics, read_scores
from shapepu.evaluation.report.figures import (
    boxes_figure,
    curves_figure,
    plot_progress,
    progress_figure,
    ratios_figure,
)
from shapepu.evaluation.report.palette import STRUCTURES


@pytest.fixture
def metrics_of(tmp_path):
    def write(rows):
        write_table(tmp_path / "metrics.csv", rows)
        return read_metrics(tmp_path / "metrics.csv")

    return write


@pytest.fixture
def scores_of(tmp_path):
    def write(rows):
        write_table(tmp_path / "cases.csv", rows)
        return read_scores(tmp_path / "cases.csv")

    return write


def titles(figure) -> list[str]:
    return [axes.get_title(loc="left") for axes in figure.axes]


def panel(figure, title: str):
    return next(axes for axes in figure.axes if axes.get_title(loc="left").startswith(title))


def curves(axes) -> dict[str, tuple[list[float], list[float]]]:
    """The data of each line by the first word of its label."""
    return {
        line.get_label().split()[0]: (list(line.get_xdata()), list(line.get_ydata()))
        for line in axes.get_lines()
    }


def test_every_panel_a_run_has_data_for_is_there(metrics_of):
    figure = progress_figure(metrics_of(metric_rows()))
    assert titles(figure) == [
        "Loss",
        "Validation Dice",
        "Mixture ratios, %",
        "Learning rate × 10⁻³",
        "Images per second",
    ]


def test_panels_without_data_are_left_out(metrics_of):
    figure = progress_figure(metrics_of(metric_rows(ratios=False, validation=False)))
    assert titles(figure) == ["Loss", "Learning rate × 10⁻³", "Images per second"]


def test_the_dice_curve_goes_through_the_epochs_that_were_scored_and_no_others(metrics_of):
    axes = panel(curves_figure(metrics_of(metric_rows())), "Validation Dice")
    assert set(curves(axes)) == {"rv", "myo", "lv", "mean"}
    epochs, values = curves(axes)["mean"]
    assert epochs == [2, 4, 6]
    assert values == pytest.approx([0.2, 0.4, 0.6])


def test_ratios_are_in_percent_without_the_background(metrics_of):
    axes = panel(ratios_figure(metrics_of(metric_rows())), "Mixture")
    assert set(curves(axes)) == {"rv", "myo", "lv"}
    assert curves(axes)["rv"][1] == pytest.approx([1, 2, 3, 4, 5, 6])


def test_losses_that_span_magnitudes_get_a_logarithmic_axis_and_zeros_a_gap(metrics_of):
    axes = panel(curves_figure(metrics_of(metric_rows())), "Loss")
    assert axes.get_yscale() == "log"
    assert curves(axes)["negative"][0] == [3, 4, 5, 6]
    assert curves(axes)["total"][1] == pytest.approx(
        [1, 1 / 4, 1 / 9 + 0.1, 1 / 16 + 0.1, 0.14, 1 / 36 + 0.1]
    )


def test_a_term_that_was_never_switched_on_is_zero_in_the_legend(metrics_of):
    rows = [row | {"loss.negative": 0.0, "loss": row["loss.positive"]} for row in metric_rows()]
    labels = [line.get_label() for line in panel(curves_figure(metrics_of(rows)), "Loss").get_lines()]
    assert labels == ["positive", "negative (0)", "total"]


def test_a_loss_below_zero_keeps_the_axis_linear(metrics_of):
    rows = [row | {"loss.negative": -0.01} for row in metric_rows()]
    assert panel(curves_figure(metrics_of(rows)), "Loss").get_yscale() == "linear"


def test_a_single_term_is_not_drawn_twice(metrics_of):
    rows = [{name: row[name] for name in ("epoch", "loss", "loss.positive")} for row in metric_rows()]
    assert set(curves(panel(curves_figure(metrics_of(rows)), "Loss"))) == {"positive"}


def test_a_structure_has_one_colour_in_all_figures(metrics_of, scores_of):
    metrics = metrics_of([row | {"validation.dice.rv": ""} for row in metric_rows()])
    dice = {
        line.get_label().split()[0]: line.get_color() for line in curves_figure(metrics).axes[1].get_lines()
    }
    ratios = {
        line.get_label().split()[0]: line.get_color() for line in ratios_figure(metrics).axes[0].get_lines()
    }
    points = boxes_figure(scores_of(score_rows())).axes[0].collections
    assert [to_hex(drawn.get_facecolor()[0]) for drawn in points] == [*STRUCTURES[:3]]
    assert [ratios[name] for name in ("rv", "myo", "lv")] == [*STRUCTURES[:3]]
    assert dice["lv"] == STRUCTURES[2]
    assert "rv" not in dice


def test_each_case_is_a_point_and_five_make_a_box(scores_of):
    axes = boxes_figure(scores_of(score_rows())).axes[0]
    for column, points in enumerate(axes.collections):
        offsets = np.asarray(points.get_offsets())
        assert offsets[:, 1] == pytest.approx(sorted(values[column] for values in DICE.values()))
        assert np.all(np.abs(offsets[:, 0] - column) < 0.25)
    medians = [line.get_ydata()[0] for line in axes.get_lines() if line.get_linewidth() == 2.0]
    assert medians == pytest.approx([0.82, 0.74, 0.92])


def test_of_four_cases_there_is_no_box(scores_of):
    few = dict(list(DICE.items())[:4])
    axes = boxes_figure(scores_of(score_rows(few))).axes[0]
    assert axes.get_lines() == []
    bars = [drawn.get_segments()[0] for drawn in axes.collections if hasattr(drawn, "get_segments")]
    assert [bar[0][1] for bar in bars] == pytest.approx([0.825, 0.74, 0.91])


def test_one_case_that_went_wrong_does_not_flatten_the_distances_of_all_others(scores_of):
    with_outlier = boxes_figure(scores_of(score_rows())).axes[1]
    assert with_outlier.get_yscale() == "symlog"
    assert "logarithmic" in with_outlier.get_title(loc="left")
    without = boxes_figure(scores_of(score_rows({"a": (0.8, 0.8, 0.8), "b": (0.7, 0.7, 0.7)}))).axes[1]
    assert without.get_yscale() == "linear"


def test_names_are_shown_as_they_are_and_never_read_as_formulas(metrics_of, scores_of):
    rename = {
        f"validation.dice.{old}": f"validation.dice.{new}" for old, new in [("rv", "_rv"), ("lv", r"$\x$")]
    }
    metrics = metrics_of(
        [{rename.get(name, name): value for name, value in row.items()} for row in metric_rows()]
    )
    figure = curves_figure(metrics)
    figure.draw_without_rendering()
    texts = [text.get_text() for text in figure.axes[1].get_legend().get_texts()]
    assert texts == [" _rv 0.600", "myo 0.600", r"$\x$ 0.600", "mean 0.600"]
    boxes = boxes_figure(scores_of([row | {"structure": r"$\x$"} for row in score_rows({"a": (1, 1, 1)})]))
    boxes.draw_without_rendering()


@pytest.mark.parametrize("epochs", [0, 1, 2])
def test_the_first_epochs_can_be_drawn(tmp_path, epochs):
    write_table(tmp_path / "metrics.csv", metric_rows(6)[:epochs] or [])
    if not epochs:
        (tmp_path / "metrics.csv").write_text("epoch,loss\n")
    plot_progress(tmp_path / "metrics.csv", tmp_path / "progress.png")
    with Image.open(tmp_path / "progress.png") as picture:
        assert picture.size == (1200, 800)


def test_the_same_table_gives_the_same_picture_and_nothing_else_is_left(tmp_path):
    write_table(tmp_path / "metrics.csv", metric_rows())
    pictures = []
    for _ in range(2):
        plot_progress(tmp_path / "metrics.csv", tmp_path / "progress.png")
        pictures.append((tmp_path / "progress.png").read_bytes())
    assert pictures[0] == pictures[1]
    assert {path.name for path in tmp_path.iterdir()} == {"metrics.csv", "progress.png"}


def test_pyplot_is_never_imported():
    code = "import sys, shapepu.evaluation.report.page; sys.exit('matplotlib.pyplot' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0
