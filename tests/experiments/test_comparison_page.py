from __future__ import annotations

import re
from html.parser import HTMLParser
from pathlib import Path

import pytest
from comparisons import cases, experiment, record, write

from shapepu.evaluation.metrics import DEFINITIONS
from shapepu.experiments.definition import Row
from shapepu.experiments.outcome import read_outcome
from shapepu.experiments.page import verdict
from shapepu.experiments.records import FailedRun, MissingRow
from shapepu.experiments.rendering import render

VOID = {"meta", "br", "hr", "img", "link", "input"}


class Page(HTMLParser):
    """A strict reader: every element closed in order; the cells of tables with the markup inside them."""

    def __init__(self, html: str) -> None:
        super().__init__()
        self.elements: list[tuple[str, dict[str, str | None]]] = []
        self.open: list[str] = []
        self.rows: list[list[str]] = []
        self.text = ""
        self.feed(html)
        assert self.open == []

    def handle_starttag(self, tag, attrs):
        self.elements.append((tag, dict(attrs)))
        if tag not in VOID:
            self.open.append(tag)
        if tag == "tr":
            self.rows.append([])
        if tag in ("td", "th"):
            self.rows[-1].append("")
        elif {"td", "th"} & set(self.open):
            self.rows[-1][-1] += f"<{tag}>"

    def handle_startendtag(self, tag, attrs):
        self.elements.append((tag, dict(attrs)))

    def handle_endtag(self, tag):
        assert self.open.pop() == tag
        if {"td", "th"} & set(self.open):
            self.rows[-1][-1] += f"</{tag}>"

    def handle_data(self, data):
        if {"script", "style"}.isdisjoint(self.open):
            self.text += data
        if {"td", "th"} & set(self.open):
            self.rows[-1][-1] += data

    def row(self, title: str) -> list[str]:
        return next(row for row in self.rows if row and row[0].strip() == title)

    @property
    def words(self) -> str:
        return " ".join(self.text.split())


def page_of(results: Path) -> Page:
    render(results)
    return Page((results / "report.html").read_text(encoding="utf-8"))


@pytest.fixture(scope="module")
def html(rendered) -> str:
    return (rendered.results / "report.html").read_text(encoding="utf-8")


@pytest.fixture(scope="module")
def page(html) -> Page:
    return Page(html)


def test_title_command_budget_and_note_are_there(page):
    assert "Made up" in page.words
    assert "shapepu compare made --data ACDC=... --steps-per-run 300 --seeds 0,1 -o RESULTS" in page.words
    assert "Recipe fast; 300 steps for every run; seeds 0, 1." in page.words
    assert page.words.count("A note on the whole.") == 1


def test_the_best_is_strong_the_second_underlined_and_marks_are_raised(page):
    best = page.row("Full")
    assert best[1] == "<strong>0.885 ± 0.024</strong>"
    second = page.row("*ShapePU*: L_+ & 100 %<sup>a</sup>")
    assert second[1].startswith("<u>0.853 ± 0.037</u><sup>†")


def test_published_figures_stand_under_a_heading_of_their_own(page):
    shaded = [found for _, found in page.elements if "published" in (found.get("class") or "")]
    assert shaded[0] == {"class": "group published", "colspan": "2", "scope": "colgroup"}
    assert page.row("PCE")[-2:] == ["0.765", "26.9"]
    assert "Published: A paper, Table 2. Those figures are of other volumes and another budget" in page.words


def test_rows_without_a_result_say_why(page):
    assert page.row("CRF<sup>b</sup>")[1] == "not run"
    assert page.row("MAAG<sup>c</sup>")[1] == "failed"
    assert page.row("ACCL")[1] == "not run yet"
    assert "b the data set has no validation case." in page.words
    assert "MAAG on ACDC, seed 0, failed: RuntimeError: out of memory" in page.words
    assert "Full on ACDC, seed 1, failed: OSError: disk full" in page.words


def test_distances_are_defined_and_fairness_differences_and_figures_are_there(page):
    assert " ".join(DEFINITIONS.split()) in page.words
    assert "What each row was given (ACDC)" in page.words
    assert "data.cases" in page.words
    for title in ("Dice by volume", "Dice over minutes", "Stability over seeds", "Mixture ratios"):
        assert title in page.words
    pictures = [attributes for tag, attributes in page.elements if attributes.get("role") == "img"]
    assert len(pictures) == 4
    assert all(attributes["aria-label"] for attributes in pictures)


def test_cases_that_cannot_be_drawn_say_so(page):
    assert "Worst case: a1" in page.words
    assert "the run folder is not beside the records" in page.words


def test_the_file_loads_nothing_from_elsewhere(html, page):
    for tag, attributes in page.elements:
        assert tag not in ("link", "iframe", "img", "object", "embed", "base")
        assert "src" not in attributes
        for name in ("href", "xlink:href"):
            assert (attributes.get(name) or "#").startswith(("#", "data:"))
    assert not re.findall(r"https?://|url\((?!#)|@import", html)


def test_no_folder_is_named(rendered, html):
    assert str(rendered.results) not in html


def test_identifiers_are_unique_and_links_lead_somewhere(page):
    identifiers = [attributes["id"] for _, attributes in page.elements if "id" in attributes]
    assert len(identifiers) == len(set(identifiers))
    links = [attributes["href"] for tag, attributes in page.elements if tag == "a"]
    assert links
    assert {link.removeprefix("#") for link in links} <= set(identifiers)


def test_two_data_sets_share_no_identifier(tmp_path):
    rows = experiment(Row("pce"), Row("shapepu"), data=("ACDC", "MSCMR"))
    scored = cases({"lv": [0.5, 0.6]})
    records = [record(row.name, scored, data=data) for data in rows.data for row in rows.rows]
    page = page_of(write(tmp_path, rows, records))
    identifiers = [attributes["id"] for _, attributes in page.elements if "id" in attributes]
    assert len(identifiers) == len(set(identifiers))


def test_whatever_comes_from_files_is_only_text(tmp_path):
    evil = "<script>alert(1)</script>"
    rows = experiment(
        Row("pce", label=evil, note=evil, group=evil),
        Row("crf", label="CRF"),
        Row("full", label="Full"),
        title=evil,
        note=f"note {evil}",
        published_source=evil,
    )
    write(tmp_path, rows, [record("pce", cases({evil: [0.5, 0.6]}), versions={evil: evil})])
    MissingRow("made", "ACDC", "crf", evil).write(tmp_path)
    FailedRun("made", "ACDC", "full", 0, evil).write(tmp_path)
    page = page_of(tmp_path)
    assert [tag for tag, _ in page.elements].count("script") == 1
    assert evil in page.text


@pytest.mark.parametrize(
    ("dice", "expected"),
    [
        ({"pce": 0.5}, ""),
        (
            {"pce": 0.5, "crf": 0.75},
            "ACDC: best average Dice crf (0.750), next pce (0.500). Of 3 rows, 1 without a result.",
        ),
        (
            {"pce": 0.5, "crf": 0.25, "full": 0.75},
            "ACDC: best average Dice full (0.750), next pce (0.500).",
        ),
    ],
)
def test_the_verdict_names_the_best_and_the_next(tmp_path, dice, expected):
    rows = experiment(Row("pce"), Row("crf"), Row("full"))
    write(tmp_path, rows, [record(name, cases({"lv": [value]})) for name, value in dice.items()])
    assert verdict(read_outcome(tmp_path).tables[0]) == expected
