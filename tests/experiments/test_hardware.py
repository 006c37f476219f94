"""What a run had to itself, in words for a table."""

from __future__ import annotations

import platform
from pathlib import Path

import pytest
import torch

from shapepu.experiments.hardware import cpu_name, this_hardware
from shapepu.experiments.records import Hardware

LISTING = """processor\t: 0
model name\t: A  Processor(R)   9000
processor\t: 1
model name\t: A  Processor(R)   9000
"""


@pytest.fixture
def with_a_card(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    monkeypatch.setattr(torch.cuda, "get_device_name", lambda: "A card")


def test_the_processor_has_its_name_where_the_system_tells_it(tmp_path: Path) -> None:
    (tmp_path / "cpuinfo").write_text(LISTING)
    assert cpu_name(tmp_path / "cpuinfo") == "A Processor(R) 9000"


@pytest.mark.parametrize("listing", [None, "processor : 0\n"])
def test_elsewhere_it_has_that_of_its_architecture(listing: str | None, tmp_path: Path) -> None:
    if listing is not None:
        (tmp_path / "cpuinfo").write_text(listing)
    assert cpu_name(tmp_path / "cpuinfo") in (platform.processor(), platform.machine())


def test_without_a_card_runs_are_computed_on_the_processor(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    threads = torch.get_num_threads()
    assert this_hardware("auto", workers=2) == Hardware(cpu_name(), None, threads, "cpu", 2)


@pytest.mark.usefixtures("with_a_card")
@pytest.mark.parametrize(
    ("device", "found"), [("auto", ("A card", "cuda")), ("cuda", ("A card", "cuda")), ("cpu", (None, "cpu"))]
)
def test_a_card_is_named_where_the_run_used_it(device: str, found: tuple[str | None, str]) -> None:
    hardware = this_hardware(device, workers=1)
    assert (hardware.gpu, hardware.device) == found
