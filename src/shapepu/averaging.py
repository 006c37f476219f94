"""A running average of a method's weights: steadier than the last step's, and what predicts in the end."""

from __future__ import annotations

import copy
from typing import Any

import torch
from torch import Tensor

from shapepu.methods.base import Method


class WeightAverage:
    """A copy of ``method`` whose weights follow exponentially: average <- decay average + (1 - decay) weights.

    The decay rises with the number of updates, (1 + t) / (10 + t) at first, so that a short run is not
    held back by its initial weights. Buffers (batch statistics) are averaged too; integer ones are copied.
    """

    def __init__(self, method: Method, decay: float) -> None:
        self.method = copy.deepcopy(method).eval().requires_grad_(False)
        self.decay = decay
        self.updates = 0

    @torch.no_grad()
    def update(self, method: Method) -> None:
        self.updates += 1
        decay = min(self.decay, (1 + self.updates) / (10 + self.updates)) if self.decay else 0.0
        averages, currents = _tensors(self.method), _tensors(method)
        floating = [a.is_floating_point() for a in averages]
        torch._foreach_lerp_(
            [a for a, is_float in zip(averages, floating, strict=True) if is_float],
            [c for c, is_float in zip(currents, floating, strict=True) if is_float],
            1 - decay,
        )
        for average, current, is_float in zip(averages, currents, floating, strict=True):
            if not is_float:
                average.copy_(current)

    @torch.no_grad()
    def predict(self, images: Tensor) -> Tensor:
        """Class probabilities by the averaged weights."""
        return self.method.predict(images)

    def state_dict(self) -> dict[str, Any]:
        return {"method": self.method.state_dict(), "updates": self.updates}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        self.method.load_state_dict(state["method"])
        self.updates = int(state["updates"])


def _tensors(method: Method) -> list[Tensor]:
    return [*method.parameters(), *method.buffers()]
