"""Fixtures every test may use."""

from __future__ import annotations

from pathlib import Path

import pytest


@pytest.fixture(scope="session")
def real_data() -> Path:
    """The real data sets beside the checkout; tests that need them skip where they are absent, and say so."""
    folder = Path(__file__).resolve().parents[2] / "shared" / "data"
    if not (folder / "MSCMR_dataset").is_dir():
        pytest.skip(f"real data not found at {folder}: put MSCMR_dataset and ACDC there to run this test")
    return folder
