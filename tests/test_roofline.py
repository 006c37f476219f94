"""``benchmarks/roofline.py`` counts what it says it counts."""

from __future__ import annotations

import time
from types import SimpleNamespace

import torch
from benchmarks.roofline import Timer, TrafficMode, Work, work_of
from torch import nn


def test_a_convolution_forward_and_backward_is_counted_by_hand() -> None:
    layer = nn.Conv2d(3, 8, 3, padding=1, bias=False)
    images = torch.randn(2, 3, 10, 12)
    multiply_adds = 2 * 8 * 3 * 3 * 3 * 10 * 12
    assert work_of(lambda: layer(images)).operations == 2 * multiply_adds
    # The gradient of the weights costs as much again; the image needs none, so nothing is counted for it.
    assert work_of(lambda: layer(images).sum().backward()).operations == 4 * multiply_adds


def test_what_is_read_and_written_is_counted_in_bytes() -> None:
    values = torch.zeros(1000)
    with TrafficMode() as traffic:
        values + 1
    assert traffic.bytes == 4 * 2000
    with TrafficMode() as traffic:
        values.view(10, 100).T.unsqueeze(0)
    assert traffic.bytes == 0, "a view moves nothing"
    with TrafficMode() as traffic:
        values.bfloat16()
    assert traffic.bytes == 1000 * (4 + 2)
    assert work_of(lambda: values + 1) == Work(0, 8000)


def test_parts_are_timed_wherever_they_are_called_from_and_left_as_they_were() -> None:
    def work() -> str:
        time.sleep(0.02)
        return "done"

    owner, timer = SimpleNamespace(work=work), Timer(torch.device("cpu"))
    timer.around(owner, "work", "part")
    assert [owner.work(), owner.work()] == ["done", "done"]
    with timer("other"):
        pass
    assert timer.calls == {"part": 2, "other": 1}
    assert timer.seconds["part"] >= 0.04 > timer.seconds["other"]
    timer.undo()
    assert owner.work is work


def test_a_median_is_of_single_calls() -> None:
    seconds = Timer(torch.device("cpu")).median_of(lambda: time.sleep(0.01), seconds=0.05)
    assert 0.01 <= seconds < 0.04
