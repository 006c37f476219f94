"""Where ``auto`` computes in bfloat16."""

from __future__ import annotations

import pytest
import torch

from shapepu.precision import Precision, computes_in_bfloat16


@pytest.mark.parametrize("able", [True, False])
@pytest.mark.parametrize("device", ["cpu", "cuda"])
def test_auto_goes_by_the_hardware(device: str, able: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch.cpu, "_is_avx512_bf16_supported", lambda: able)
    monkeypatch.setattr(torch.cuda, "is_bf16_supported", lambda **_: able)
    assert computes_in_bfloat16("auto", device) is able


@pytest.mark.parametrize(("precision", "expected"), [("bf16", True), ("fp32", False)])
def test_what_is_asked_for_is_done_on_any_hardware(
    precision: Precision, expected: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(torch.cpu, "_is_avx512_bf16_supported", lambda: not expected)
    assert computes_in_bfloat16(precision, "cpu") is expected
