"""From the slice store to augmented batches on the device: the one data path of every method."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property

import numpy as np
import torch
from torch import Tensor

from shapepu.data.augment import (
    IDENTITY,
    Augmentation,
    AugmentParameters,
    apply_intensity,
    apply_spatial,
    cut_out,
    draw,
)
from shapepu.data.mask_store import MaskStore
from shapepu.data.store import SliceStore
from shapepu.labels import OUTSIDE
from shapepu.methods.base import Batch, Supervision


@dataclass(frozen=True)
class BatchSource:
    """Training slices, and how they become batches.

    Args:
        store: the training slices.
        unpaired: masks of other patients, or None.
        needs: what the method declared; nothing else is handed over.
        augmentation: how patches vary.
        patch: size of a training patch, (H, W).
        batch_size: images a step.
        padding: ``unlabelled`` leaves what lies beyond an image out of every loss; ``background`` calls it
            background, as the paper's code does.
        device: where batches are made.
        slices_per_epoch: how many slices an epoch takes; None takes each once.
    """

    store: SliceStore
    needs: frozenset[Supervision]
    augmentation: Augmentation
    patch: tuple[int, int]
    batch_size: int
    padding: str
    device: torch.device
    unpaired: MaskStore | None = None
    slices_per_epoch: int | None = None

    def __len__(self) -> int:
        return len(self.store)

    @property
    def classes(self) -> int:
        return self.store.labels_set.count

    @property
    def steps_per_epoch(self) -> int:
        """One pass over the slices, rounded to full batches, so that every step weighs the same."""
        return max(1, round((self.slices_per_epoch or len(self.store)) / self.batch_size))

    def epoch(self, generator: torch.Generator) -> Iterator[Batch]:
        """One pass in a random order; every draw comes from ``generator``."""
        order = _shuffled(len(self.store), self.steps_per_epoch * self.batch_size, generator)
        for chosen in order.split(self.batch_size):
            yield self._batch(chosen, self._draw(generator), generator)

    def plain_batches(
        self, size: int, *, limit: int | None = None, generator: torch.Generator | None = None
    ) -> Iterator[Batch]:
        """The slices without augmentation, in order, or ``limit`` of them drawn by ``generator``."""
        generator = generator or torch.Generator()
        if limit is None or limit >= len(self.store):
            order = torch.arange(len(self.store))
        else:
            order = torch.randperm(len(self.store), generator=generator)[:limit].sort().values
        for chosen in order.split(size):
            yield self._batch(chosen, IDENTITY, generator)

    def _draw(self, generator: torch.Generator) -> AugmentParameters:
        return draw(self.augmentation, self.batch_size, generator, self.device)

    def _batch(self, chosen: Tensor, parameters: AugmentParameters, generator: torch.Generator) -> Batch:
        images = self._fetch("images", chosen).float()
        label_maps = [self._fetch("labels", chosen)]
        if "masks" in self.needs:
            label_maps.append(self._fetch("masks", chosen))
        images, label_maps = apply_spatial(images, label_maps, parameters, self.patch)
        images = apply_intensity(images, parameters)
        images, label_maps[0] = cut_out(images, label_maps[0], parameters, self.classes)
        label_maps = [self._fill_border(labels) for labels in label_maps]
        return Batch(
            images=images.contiguous(memory_format=torch.channels_last),
            labels=label_maps[0],
            classes=self.classes,
            slices=chosen.to(self.device, non_blocking=True),
            generator=generator,
            masks=label_maps[1] if len(label_maps) > 1 else None,
            unpaired_masks=self._unpaired_masks(generator),
        )

    def _unpaired_masks(self, generator: torch.Generator) -> Tensor | None:
        """Augmented masks of other patients."""
        if "unpaired masks" not in self.needs:
            return None
        assert self.unpaired is not None, "checked before training starts"
        chosen = torch.randint(len(self.unpaired), (self.batch_size,), generator=generator)
        masks = self._fetch("unpaired masks", chosen)
        nothing = torch.zeros(self.batch_size, 1, *masks.shape[1:], device=self.device)
        _, [masks] = apply_spatial(nothing, [masks], self._draw(generator), self.patch)
        return torch.where(masks < self.classes, masks, 0)

    def _fill_border(self, labels: Tensor) -> Tensor:
        if self.padding == "background":
            return torch.where(labels == OUTSIDE, 0, labels)
        return labels

    def _fetch(self, name: str, chosen: Tensor) -> Tensor:
        """The chosen ones of an array, where batches are made."""
        if self._kept is not None:
            return self._kept[name].index_select(0, chosen.to(self.device, non_blocking=True))
        return torch.from_numpy(np.ascontiguousarray(self._arrays[name][chosen.numpy()])).to(self.device)

    @cached_property
    def _arrays(self) -> dict[str, np.ndarray]:
        """Whatever batches are made of, by name."""
        arrays: dict[str, np.ndarray] = {"images": self.store.images, "labels": self.store.labels}
        if "masks" in self.needs:
            assert self.store.masks is not None, "checked before training starts"
            arrays["masks"] = self.store.masks
        if "unpaired masks" in self.needs:
            assert self.unpaired is not None, "checked before training starts"
            arrays["unpaired masks"] = self.unpaired.masks
        return arrays

    @cached_property
    def _kept(self) -> dict[str, Tensor] | None:
        """All of them on a GPU that has room: copied once, where every step would wait for its own copies."""
        size = sum(array.nbytes for array in self._arrays.values())
        if size > _room_on(self.device):
            return None
        return {name: torch.from_numpy(np.array(each)).to(self.device) for name, each in self._arrays.items()}


def _room_on(device: torch.device) -> int:
    """How many bytes of a device slices may take: a quarter of what is free, networks need the rest."""
    if device.type == "cuda":
        return torch.cuda.mem_get_info(device)[0] // 4
    return 0


def _shuffled(count: int, length: int, generator: torch.Generator) -> Tensor:
    """``length`` indices below ``count``: permutations end to end, so that none is drawn twice as often."""
    passes = -(-length // count)
    return torch.cat([torch.randperm(count, generator=generator) for _ in range(passes)])[:length]
