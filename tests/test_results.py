"""The figures of the documentation are those of the stored records."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest
from benchmarks.write_results import BLOCK, PAGE, ROOT, page_with_tables, stale_tables


def test_stored_tables_are_what_their_records_give() -> None:
    assert stale_tables(ROOT / "results") == []


def test_the_results_page_shows_the_stored_tables() -> None:
    text = PAGE.read_text(encoding="utf-8")
    assert len(BLOCK.findall(text)) >= 5
    assert page_with_tables(text, ROOT / "results") == text


def test_a_changed_record_makes_its_tables_stale(tmp_path: Path) -> None:
    for path in (ROOT / "results" / "table3").rglob("*"):
        if path.is_file() and path.suffix in (".json", ".yaml", ".md", ".csv", ".tex"):
            target = tmp_path / "table3" / path.relative_to(ROOT / "results" / "table3")
            target.parent.mkdir(parents=True, exist_ok=True)
            target.write_bytes(path.read_bytes())
    assert stale_tables(tmp_path) == []
    record = tmp_path / "table3" / "records" / "MSCMR" / "pce" / "seed0.json"
    text = record.read_text(encoding="utf-8")
    record.write_text(text.replace('"dice": 0.9', '"dice": 0.8'), encoding="utf-8")
    assert {path.name for path in stale_tables(tmp_path)} >= {"MSCMR.md", "MSCMR.csv"}


def test_results_hold_small_text_alone() -> None:
    """No image of a patient, no weights. What git ignores is not a result."""
    listed = subprocess.run(["git", "ls-files", "results"], cwd=ROOT, capture_output=True, text=True)
    if listed.returncode:
        pytest.skip(f"not a git checkout: {listed.stderr.strip()}")
    paths = [ROOT / line for line in listed.stdout.splitlines()]
    assert paths
    odd = [path for path in paths if path.suffix not in (".json", ".yaml", ".md", ".csv", ".tex")]
    assert odd == []
    assert max(path.stat().st_size for path in paths) < 300_000
