"""Puts the tables of ``results/`` into ``docs/results.md``, between the comments that name them.

    python benchmarks/write_results.py [--check]

The tables are computed from the records, as ``shapepu compare EXPERIMENT -o results/EXPERIMENT`` does; with
``--check`` nothing is written, and the exit code is 1 where the page or a table under ``results/`` differs.
"""

from __future__ import annotations

import argparse
import re
from pathlib import Path

from shapepu.experiments.markup import as_markdown
from shapepu.experiments.outcome import read_outcome
from shapepu.experiments.rendering import table_files
from shapepu.experiments.tables import data_tables

ROOT = Path(__file__).parents[1]
PAGE = ROOT / "docs" / "results.md"

BLOCK = re.compile(r"(<!-- (\w[\w-]*) (\w+) (scores|tests|fairness) -->\n).*?(<!-- end -->)", re.DOTALL)
"""``<!-- table1 ACDC scores -->`` ... ``<!-- end -->``"""


def page_with_tables(text: str, results: Path) -> str:
    """``text`` with every block filled from the records."""

    def filled(block: re.Match[str]) -> str:
        outcome = read_outcome(results / block[2])
        [table] = [table for table in outcome.tables if table.data == block[3]]
        shown = getattr(data_tables(outcome, table), block[4])
        return block[1] + as_markdown(shown) + block[5]

    return BLOCK.sub(filled, text)


def stale_tables(results: Path) -> list[Path]:
    """Files under ``tables/`` that their records would not give."""
    stale = []
    for folder in sorted(path.parent for path in results.glob("*/experiment.yaml")):
        outcome = read_outcome(folder)
        for table in outcome.tables:
            for path, text in table_files(outcome, table, data_tables(outcome, table)).items():
                if not (folder / path).is_file() or (folder / path).read_text(encoding="utf-8") != text:
                    stale.append(folder / path)
    return stale


def main() -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--check", action="store_true", help="write nothing, tell what differs")
    check = parser.parse_args().check
    text = PAGE.read_text(encoding="utf-8")
    now = page_with_tables(text, ROOT / "results")
    if not check:
        PAGE.write_text(now, encoding="utf-8")
        return 0
    stale = [*stale_tables(ROOT / "results"), *([PAGE] if now != text else [])]
    for path in stale:
        print(f"{path.relative_to(ROOT)} is not what the records give")
    return 1 if stale else 0


if __name__ == "__main__":
    raise SystemExit(main())
