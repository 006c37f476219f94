"""A running average of a method's weights: steadier than the last step's, and what predicts in the end."""

from __future__ import annotations

import copy
from typing import Any

import torch
from torch import Tensor

from shapepu.methods.base import Method


class WeightAverage:
    """A copy of ``method`` that follows: average <- decay average + (1 - decay) weights.

    The decay rises with the number of updates, (1 + t) / (10 + t) at first, so that a short run is not
    held back by its initial weights. Batch statistics of the networks are averaged, too; their counters, and
    what the method itself remembers (estimates, switches), are copied.
    """

    def __init__(self, method: Method, decay: float) -> None:
        self.method = copy.deepcopy(method).eval().requires_grad_(False)
        self.decay = decay
        self.updates = 0

    @torch.no_grad()
    def update(self, method: Method) -> None:
        self.updates += 1
        decay = min(self.decay, (1 + self.updates) / (10 + self.updates)) if self.decay else 0.0
        averaged, copied = _averaged_and_copied(self.method)
        weights, remembered = _averaged_and_copied(method)
        torch._foreach_lerp_(averaged, weights, 1 - decay)
        if copied:
            torch._foreach_copy_(copied, remembered)

    @torch.no_grad()
    def predict(self, images: Tensor) -> Tensor:
        """Class probabilities by the averaged weights."""
        return self.method.predict(images)

    def state_dict(self) -> dict[str, Any]:
        return {"method": self.method.state_dict(), "updates": self.updates}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        self.method.load_state_dict(state["method"])
        self.updates = int(state["updates"])


def _averaged_and_copied(method: Method) -> tuple[list[Tensor], list[Tensor]]:
    """Tensors of the networks that have a mean, and all others."""
    averaged: list[Tensor] = list(method.parameters())
    copied: list[Tensor] = []
    for name, buffer in method.named_buffers():
        of_network = "." in name
        (averaged if of_network and buffer.is_floating_point() else copied).append(buffer)
    return averaged, copied
