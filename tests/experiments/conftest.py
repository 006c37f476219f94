from __future__ import annotations

import pytest
from stored_example import write_example

from shapepu.experiments.outcome import DataOutcome, Outcome, read_outcome
from shapepu.experiments.rendering import Rendered, render


@pytest.fixture(scope="session")
def rendered(tmp_path_factory) -> Rendered:
    """The stored example with its tables, figures and report, for tests that change nothing."""
    return render(write_example(tmp_path_factory.mktemp("stored") / "results"))


@pytest.fixture(scope="session")
def example(rendered) -> tuple[Outcome, DataOutcome]:
    outcome = read_outcome(rendered.results)
    return outcome, outcome.tables[0]
