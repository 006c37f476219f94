"""Dice on dense validation masks while training goes on: to look at, never to train or to choose by."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import torch
from torch import Tensor

from shapepu.data.store import SliceStore


def validation_dice(
    predict: Callable[[Tensor], Tensor], store: SliceStore, device: torch.device, batch_size: int
) -> dict[str, float]:
    """Mean Dice over volumes, for each structure and on average, on the training grid as predicted.

    A finished run is scored on the native grid after post-processing instead (:mod:`shapepu.evaluation`);
    these scores are cheap enough for every few epochs. A structure that neither has counts as 1. As there,
    pixels that the mask leaves unlabelled do not count.
    """
    assert store.masks is not None, "called only where dense masks exist"
    classes = store.labels_set.count
    volumes = len(store.cases)
    both, either = np.zeros((2, volumes, classes))
    for start in range(0, len(store), batch_size):
        images = torch.from_numpy(store.images[start : start + batch_size].astype(np.float32)).to(device)
        predicted = predict(images).argmax(dim=1).cpu().numpy()
        reference = np.asarray(store.masks[start : start + batch_size])
        known = reference < classes
        for row, case in enumerate(store.case_of_slice[start : start + batch_size]):
            ours, theirs = predicted[row][known[row]], reference[row][known[row]]
            for labels in (ours, theirs):
                either[case] += np.bincount(labels, minlength=classes)
            both[case] += np.bincount(theirs[ours == theirs], minlength=classes)
    dice = np.where(either > 0, 2 * both / np.maximum(either, 1), 1.0)[:, 1:].mean(axis=0)
    scores = {"dice": float(dice.mean())}
    return scores | {
        f"dice.{name}": float(d) for name, d in zip(store.labels_set.foreground, dice, strict=True)
    }
