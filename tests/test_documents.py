"""The documents: what they point to is there, every method has its section, and the Python guide runs."""

from __future__ import annotations

import json
import re
import shutil
from pathlib import Path

import pytest

from shapepu.methods import METHODS
from shapepu.methods.cost import COST_FILE, measured_costs
from small_runs import write_hearts

ROOT = Path(__file__).parents[1]
DOCUMENTS = sorted([*ROOT.glob("*.md"), *(ROOT / "docs").rglob("*.md")])
FENCED = re.compile(r"^```.*?^```", re.DOTALL | re.MULTILINE)
LINK = re.compile(r"\[[^\]]*\]\(([^)\s]+)\)")
CODE_PATH = re.compile(r"`((?:src|tests|benchmarks|docs)/(?!\S*NAME)[\w./-]+\.\w+)`")
METHODS_PAGE = ROOT / "docs" / "methods.md"


def prose(document: Path) -> str:
    return FENCED.sub("", document.read_text(encoding="utf-8"))


def anchors(document: Path) -> set[str]:
    """As GitHub makes them from headings."""
    headings = re.findall(r"^#+ +(.*)$", prose(document), re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", heading.lower()).strip().replace(" ", "-") for heading in headings}


def sections() -> dict[str, str]:
    """The text of each third-level heading of the page on methods."""
    _, *parts = re.split(r"^### ", METHODS_PAGE.read_text(encoding="utf-8"), flags=re.MULTILINE)
    return {
        heading.strip(): re.split(r"^## ", text, maxsplit=1, flags=re.MULTILINE)[0]
        for heading, _, text in (part.partition("\n") for part in parts)
    }


def named(document: Path) -> str:
    return str(document.relative_to(ROOT))


@pytest.mark.parametrize("document", DOCUMENTS, ids=named)
def test_every_relative_link_leads_somewhere(document: Path) -> None:
    broken = []
    for target in LINK.findall(prose(document)):
        if re.match(r"[a-z]+:", target):
            continue
        path, _, anchor = target.partition("#")
        there = (document.parent / path) if path else document
        if not there.exists() or (anchor and there.suffix == ".md" and anchor not in anchors(there)):
            broken.append(target)
    assert not broken


@pytest.mark.parametrize("document", DOCUMENTS, ids=named)
def test_every_file_that_is_named_exists(document: Path) -> None:
    assert [path for path in CODE_PATH.findall(prose(document)) if not (ROOT / path).exists()] == []


def test_every_method_has_a_section_and_no_other_has() -> None:
    assert set(sections()) == set(METHODS)


@pytest.mark.parametrize("name", METHODS)
def test_a_section_says_equation_cost_and_departures(name: str) -> None:
    section = sections()[name]
    assert "$" in section
    assert f"Cost: <!-- cost of {name} -->" in " ".join(section.split())
    assert "Departs: " in " ".join(section.split())
    for need in METHODS[name].needs - {"scribbles"}:
        assert need in " ".join(section.lower().split()), need


@pytest.mark.parametrize("name", METHODS)
def test_a_section_has_the_cost_that_was_measured(name: str) -> None:
    assert f"<!-- cost of {name} -->{measured_costs()[name]}<!-- end -->" in sections()[name]


def test_the_table_has_what_was_measured_and_how() -> None:
    text = METHODS_PAGE.read_text(encoding="utf-8")
    table = text.partition("<!-- costs -->")[2].partition("<!-- end -->")[0]
    for name, cost in measured_costs().items():
        row = next(line for line in table.splitlines() if line.startswith(f"| [`{name}`](#{name}) |"))
        assert f"| {', '.join(sorted(METHODS[name].needs))} | {cost.time:.1f} | {cost.memory:.1f} |" in row
    written = json.loads(COST_FILE.read_text(encoding="utf-8"))
    assert written["conditions"] in table
    assert f"`{written['command']}`" in table


@pytest.mark.slow
def test_the_guide_to_python_runs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """All its blocks, one after the other, on hearts; for an epoch where it says minutes."""
    data = write_hearts(tmp_path / "DATA")
    shutil.copytree(data / "test" / "images", tmp_path / "IMAGES")
    shutil.copytree(data / "test" / "masks", tmp_path / "MASKS")
    shutil.copy(data / "test" / "images" / "test000.nii.gz", tmp_path / "new_image.nii.gz")
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("SHAPEPU_CACHE", str(tmp_path / "cache"))
    text = (ROOT / "docs" / "how-to" / "python.md").read_text(encoding="utf-8")
    code = "\n".join(re.findall(r"^```python\n(.*?)^```", text, re.DOTALL | re.MULTILINE))
    code = code.replace("minutes=15", "epochs=1").replace("minutes=30", "epochs=2")
    assert "minutes" not in code.replace("# later", "")
    exec(compile(code, "python.md", "exec"), {})
    for made in ("RUN/model", "OTHER/model", "MINE/model", "OUT/test000.nii.gz", "SCORES/cases.csv"):
        assert (tmp_path / made).exists(), made
