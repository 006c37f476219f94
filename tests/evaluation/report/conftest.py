from __future__ import annotations

from pathlib import Path

import pytest
from run_folders import write_run


@pytest.fixture
def run(tmp_path: Path) -> Path:
    """A finished run with every piece; data lie beside it."""
    return write_run(tmp_path / "run")
