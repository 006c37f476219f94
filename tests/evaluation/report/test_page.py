from __future__ import annotations

import csv
import re
import shutil
import statistics
from html.parser import HTMLParser
from pathlib import Path

import pytest
import yaml
from run_folders import DICE, metric_rows, score_rows, write_config, write_json, write_run, write_table

from shapepu.errors import InputError
from shapepu.evaluation.metrics import DEFINITIONS
from shapepu.evaluation.report.page import write_report

VOID = {"meta", "br", "img", "link", "input", "hr"}


class Page(HTMLParser):
    """A strict reader: every element closed in order, and the text of the elements asked for."""

    def __init__(self, html: str) -> None:
        super().__init__()
        self.elements: list[tuple[str, dict[str, str | None]]] = []
        self.open: list[str] = []
        self.rows: list[list[str]] = []
        self.headings: list[str] = []
        self.text = ""
        self.feed(html)
        assert self.open == []

    def handle_starttag(self, tag, attrs):
        self.elements.append((tag, dict(attrs)))
        if tag not in VOID:
            self.open.append(tag)
        if tag == "tr":
            self.rows.append([])
        if tag in ("td", "th") and self.rows:
            self.rows[-1].append("")
        if tag == "h3":
            self.headings.append("")

    def handle_startendtag(self, tag, attrs):
        self.elements.append((tag, dict(attrs)))

    def handle_endtag(self, tag):
        assert self.open.pop() == tag

    def handle_data(self, data):
        if {"script", "style"}.isdisjoint(self.open):
            self.text += data
        if {"td", "th"} & set(self.open):
            self.rows[-1][-1] += data
        if "h3" in self.open:
            self.headings[-1] += data

    def row(self, title: str) -> list[str]:
        return next([cell.strip() for cell in row] for row in self.rows if row and row[0].strip() == title)


def page_of(run: Path) -> Page:
    return Page(write_report(run).read_text(encoding="utf-8"))


@pytest.fixture(scope="module")
def finished(tmp_path_factory) -> Path:
    """A finished run with its report, for tests that change nothing."""
    run = write_run(tmp_path_factory.mktemp("finished") / "run")
    write_report(run)
    return run


@pytest.fixture(scope="module")
def page(finished) -> Page:
    return Page((finished / "report.html").read_text(encoding="utf-8"))


@pytest.fixture
def begun(tmp_path) -> Path:
    """A run after four of six epochs."""
    write_config(tmp_path / "begun")
    write_table(tmp_path / "begun/metrics.csv", metric_rows(4))
    return tmp_path / "begun"


def test_the_numbers_of_the_table_are_those_of_the_csv(finished, page):
    with open(finished / "validation/cases.csv", newline="") as stream:
        rows = list(csv.DictReader(stream))
    for structure in ("rv", "myo", "lv"):
        expected = []
        for name, digits in [
            ("dice", 3),
            ("hd_mm", 1),
            ("hd95_mm", 1),
            ("assd_mm", 2),
            ("volume_error_ml", 1),
        ]:
            values = [float(row[name]) for row in rows if row["structure"] == structure]
            mean, deviation = statistics.fmean(values), statistics.stdev(values)
            expected.append(f"{mean:.{digits}f} ± {deviation:.{digits}f}".replace("-", "−"))
        assert page.row(structure)[1:6] == expected
    assert page.row("average")[1].startswith("0.770 ±")
    assert page.row("rv")[6] == "5 (1 prediction empty)"


def test_every_case_is_in_the_table_of_cases(page):
    for case, values in DICE.items():
        assert page.row(case)[2:5] == [f"{value:.3f}" for value in values]


def test_best_median_and_worst_are_shown_with_pictures_and_scores(page):
    headings = [" ".join(text.split()) for text in page.headings]
    assert headings[:3] == [
        "Best case: bert mean Dice 0.920 · rv 0.950 · myo 0.850 · lv 0.960",
        "Median case: emil mean Dice 0.830 · rv 0.820 · myo 0.740 · lv 0.930",
        "Worst case: carl mean Dice 0.450 · rv 0.000 · myo 0.600 · lv 0.750",
    ]
    drawn = [attributes["id"].rsplit("-", 1)[0] for tag, attributes in page.elements if tag == "image"]
    assert drawn == ["case-best"] * 5 + ["case-median"] * 5 + ["case-worst"] * 5


def test_headline_notes_settings_scribbles_and_log_are_there(page):
    for text in (
        "shapepu on hearts",
        "The structures are found and roughly right",
        "2 of 5 cases: spacing differs.",
        "They were not used to train,\nand not to choose a checkpoint",
        DEFINITIONS,
        "epoch 2: loss 0.250\ndone",
        "How much of the training cases is labelled",
    ):
        assert text in page.text
    assert page.row("betas")[1] == "0.9, 0.999"
    assert page.row("torch")[1] == "2.13.0"
    assert page.row("t2")[4:6] == ["0.00 %", "0.50 %"]
    assert "Not in this report" not in page.text
    assert "has not ended" not in page.text


def test_the_file_loads_nothing_from_elsewhere(finished, page):
    html = (finished / "report.html").read_text(encoding="utf-8")
    assert "http" not in html
    assert "@import" not in html
    assert re.findall(r"url\((?!#)", html) == []
    for tag, attributes in page.elements:
        assert tag not in {"link", "iframe", "img", "object", "embed", "base"}
        for name in ("src", "href", "srcset", "data", "action", "poster", "xlink:href"):
            target = attributes.get(name)
            assert target is None or target.startswith(("#", "data:image/png;base64,"))


def test_the_same_run_gives_the_same_bytes(finished, tmp_path):
    first = (finished / "report.html").read_bytes()
    assert write_report(finished, tmp_path / "again.html").read_bytes() == first
    assert len(first) < 2_000_000


def test_identifiers_are_unique_and_links_lead_somewhere(page):
    identifiers = [attributes["id"] for _, attributes in page.elements if "id" in attributes]
    assert len(set(identifiers)) == len(identifiers)
    links = {attributes["href"] for tag, attributes in page.elements if tag == "a"}
    assert {link.removeprefix("#") for link in links} <= set(identifiers)
    assert links


def test_the_page_can_be_read_without_seeing_it(page):
    assert next(attributes for tag, attributes in page.elements if tag == "html") == {"lang": "en"}
    for tag, attributes in page.elements:
        if tag == "svg":
            assert attributes.get("aria-label") or attributes.get("aria-hidden") == "true"
        if tag == "th":
            assert attributes.get("scope") in {"row", "col", "colgroup"}


HOSTILE = "<script>alert(1)</script><b>&amp;\"'"


def test_whatever_comes_from_files_is_only_text(tmp_path):
    run = write_run(tmp_path / "<i>run")
    names = {"rv": HOSTILE, "myo": "$a_b$", "lv": "_lv"}
    rows = [row | {"structure": names[str(row["structure"])], "note": HOSTILE} for row in score_rows()]
    write_table(run / "validation/cases.csv", [row | {"case": f"{HOSTILE}{row['case']}"} for row in rows])
    write_json(run / "validation/summary.json", {"notes": [HOSTILE]})
    labelled = {HOSTILE: 3, "rv": 2}
    case = {"name": HOSTILE, "split": HOSTILE, "slices": 1, "labelled": labelled, "pixels": 10}
    write_json(run / "data.json", {"cases": [case]})
    metrics = [{name.replace("rv", HOSTILE): value for name, value in row.items()} for row in metric_rows()]
    write_table(run / "metrics.csv", metrics)
    config = {
        HOSTILE: HOSTILE,
        "data": {"name": HOSTILE},
        "settings": {"method": HOSTILE, HOSTILE: [HOSTILE]},
    }
    (run / "config.yaml").write_text(yaml.safe_dump({**config, "versions": {HOSTILE: HOSTILE}}))
    (run / "train.log").write_text(HOSTILE)
    html = write_report(run).read_text(encoding="utf-8")
    page = Page(html)
    assert [tag for tag, _ in page.elements].count("script") == 1
    assert not {"b", "i"} & {tag for tag, _ in page.elements}
    assert "<script>alert" not in html
    assert page.text.count(HOSTILE) >= 10


def test_a_run_without_validation_says_so(run):
    shutil.rmtree(run / "validation")
    write_table(run / "metrics.csv", metric_rows(ratios=False, validation=False))
    page = page_of(run)
    assert "No case was scored against a dense mask" in page.text
    assert "the scores: validation/cases.csv is not there" in page.text
    assert "#scores" not in {attributes.get("href") for _, attributes in page.elements}
    labels = [attributes.get("aria-label") or "" for tag, attributes in page.elements if tag == "svg"]
    assert not any(label.startswith("Mixture ratios") for label in labels)
    assert any(label.startswith("Losses") for label in labels)


def test_a_run_that_has_only_begun_says_how_far_it_is(begun):
    page = page_of(begun)
    assert "Training has not ended: 4 epochs and 2.0 minutes are done of 6 epochs." in page.text
    assert "last validation Dice" in page.text


def test_a_run_that_ends_by_steps_says_how_far_it_is(begun):
    write_config(begun, epochs=None, steps=100)
    said = "Training has not ended: 4 epochs, 40 steps and 2.0 minutes are done of 100 steps."
    assert said in page_of(begun).text
    write_config(begun, epochs=None, steps=40)
    assert "has not ended" not in page_of(begun).text


@pytest.mark.parametrize(
    ("options", "pooled"),
    [
        ({"reach": 1.0}, "the unlabelled pixels within reach (1) of a structure's scribbles (α)"),
        ({"reach": -1.0}, "the unlabelled pixels (α)"),
        ({}, "the unlabelled pixels (α)"),
        (None, "the unlabelled pixels (α)"),
    ],
)
def test_ratios_are_said_to_be_of_the_pixels_that_were_pooled(begun, options, pooled):
    write_config(begun, method_options=options)
    assert f"Share of each structure among {pooled}: estimated, or given" in page_of(begun).text


def test_scores_of_a_run_that_was_taken_up_again_are_called_old(begun):
    write_table(begun / "validation/cases.csv", score_rows())
    assert "The scores were taken before it was taken up again." in page_of(begun).text


@pytest.mark.parametrize(
    "kept",
    [["config.yaml"], ["metrics.csv"], ["metrics.csv", "validation/cases.csv"], ["config.yaml", "data.json"]],
)
def test_any_part_of_a_run_makes_a_report(finished, kept, tmp_path):
    for file in kept:
        (tmp_path / "part" / file).parent.mkdir(parents=True, exist_ok=True)
        shutil.copy(finished / file, tmp_path / "part" / file)
    page = page_of(tmp_path / "part")
    for file in {"config.yaml", "metrics.csv", "data.json", "validation/cases.csv"} - set(kept):
        assert f"{file} is not there" in page.text


@pytest.mark.parametrize("lost", ["images", "masks"])
def test_a_case_whose_files_are_gone_is_named_and_the_others_are_shown(run, lost):
    (run.parent / f"data/{lost}/1.nii.gz").unlink()
    page = page_of(run)
    assert f"data/{lost}/1.nii.gz" in page.text
    drawn = {attributes["id"].rsplit("-", 1)[0] for tag, attributes in page.elements if tag == "image"}
    assert drawn == {"case-median", "case-worst"}


def test_a_case_that_cases_json_does_not_know_is_named(run):
    write_json(
        run / "validation/cases.json", {"cases": [], "labels": {"background": 0, "rv": 1, "ignore": 2}}
    )
    assert page_of(run).text.count("cases.json does not say where its files are") == 3


def test_a_class_that_was_never_drawn_is_an_alert(begun):
    write_json(
        begun / "data.json",
        {"cases": [{"name": "a", "slices": 2, "labelled": {"background": 5, "rv": 0}, "pixels": 100}]},
    )
    assert "Never drawn: rv." in page_of(begun).text


def test_an_output_folder_takes_the_report_under_its_name(begun, tmp_path):
    (tmp_path / "out").mkdir()
    assert write_report(begun, tmp_path / "out") == tmp_path / "out/report.html"
    assert (tmp_path / "out/report.html").is_file()
    assert not (begun / "report.html").exists()


def test_nothing_is_written_for_a_folder_without_a_run(tmp_path):
    with pytest.raises(InputError, match="not a run folder"):
        write_report(tmp_path)
    assert list(tmp_path.iterdir()) == []
