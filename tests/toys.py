"""Small data that a method can learn within seconds: bright discs in brighter rings, scribbled thinly."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import torch

from shapepu.data.augment import Augmentation
from shapepu.data.batches import BatchSource
from shapepu.data.case import Case
from shapepu.data.degrade import Degradation
from shapepu.data.preprocess import Preprocessing
from shapepu.data.store import SliceStore
from shapepu.data.store_build import StoredCase
from shapepu.labels import OUTSIDE, plain_labels
from shapepu.methods import METHODS, Method, Task, build_method, find_method
from shapepu.methods.ema_teacher import EMATeacherConfig
from shapepu.methods.gatedcrf import GatedCRFConfig
from shapepu.methods.postdae import PostDAEConfig
from shapepu.methods.shapepu import ShapePU, ShapePUConfig
from shapepu.methods.tedn import TEDNConfig
from shapepu.networks import FastUNetConfig
from shapepu.runfolder import RunFolder
from shapepu.settings import Optimisation, TrainSettings, network_builder
from shapepu.training import Trainer, make_fabric
from shapepu.views import ViewSettings

LABELS = plain_labels(("ring", "disc"))
SIDE = 32
PREPROCESSING = Preprocessing(spacing_mm=(1.0, 1.0), patch=(SIDE, SIDE), canvas_margin=1.0)
SMALL_NETWORK = FastUNetConfig(widths=(8, 16, 32))


def toy_store(slices: int = 12, *, seed: int = 0, scribbled_share: float = 0.06) -> SliceStore:
    """Two cases of discs in rings; every class of every slice has some labelled pixels."""
    rng = np.random.default_rng(seed)
    masks = np.stack([_disc_in_ring(rng) for _ in range(slices)])
    intensities = np.array([-0.5, 1.5, 0.5])[masks] + 0.2 * rng.standard_normal(masks.shape)
    scribbled = rng.random(masks.shape) < scribbled_share
    labels = np.where(scribbled, masks, LABELS.unlabelled)
    # A border beyond the image, which no method may learn from or count.
    labels[:, :2], masks[:, :2] = OUTSIDE, OUTSIDE
    half = slices // 2
    return SliceStore(
        images=intensities[:, None].astype(np.float16),
        labels=labels.astype(np.uint8),
        masks=masks.astype(np.uint8),
        cases=tuple(Case(name, (Path(f"{name}.nii.gz"),)) for name in ("first", "second")),
        stored=(
            _stored("first", labels[:half], masks[:half]),
            _stored("second", labels[half:], masks[half:]),
        ),
        labels_set=LABELS,
        preprocessing=PREPROCESSING,
    )


# The paper's square would cut out the whole of a toy image.
TOY_SHAPEPU = ShapePUConfig(
    view=ViewSettings(cut=8), pool="epoch", ranking="pool", calibrate=True, guard=0.05, warmup_epochs=1
)

TOY_OPTIONS: dict[str, Any] = {
    **{
        name: replace(TOY_SHAPEPU, **entry.switches)
        for name, entry in METHODS.items()
        if entry.method is ShapePU
    },
    "ema-teacher": EMATeacherConfig(view=ViewSettings(cut=8, rotation="right")),
    # The usual window is wider than a toy disc, whose pixels would all be told to be what is around them.
    "gatedcrf": GatedCRFConfig(ramp_share=0.3, radius=2, position_pixels=2.0),
    "postdae": PostDAEConfig(widths=(16, 32), degradation=Degradation(radius=2, swap_reach=2)),
    "tedn": TEDNConfig(held_out_share=0.34),
}
"""Options of methods whose defaults are meant for larger images and longer runs."""


def toy_settings(method: str = "pce", **changes: Any) -> TrainSettings:
    """A few epochs on the toy data with a network of a few thousand weights."""
    plain: dict[str, Any] = {
        "method": method,
        "method_options": TOY_OPTIONS.get(method),
        "network_options": SMALL_NETWORK,
        "preprocessing": PREPROCESSING,
        "augmentation": Augmentation(rotation_degrees=20, shift=0.05),
        "optimisation": Optimisation(batch_size=4, learning_rate=3e-3, average=0.9),
        "epochs": 3,
        "precision": "fp32",
        "device": "cpu",
    }
    return TrainSettings(**{**plain, **changes})


def toy_task(store: SliceStore, method: str) -> Task:
    counts = store.labelled_counts / store.labelled_counts.sum()
    given = "true ratios" in find_method(method).needs
    return Task(
        classes=LABELS.count,
        channels=1,
        label_shares=tuple(map(float, counts)),
        true_ratios=tuple(map(float, store.true_ratios())) if given else None,
        training_slices=len(store),
    )


def toy_method(settings: TrainSettings, store: SliceStore) -> Method:
    torch.manual_seed(settings.seed)
    task = toy_task(store, settings.method)
    return build_method(settings.method, settings.method_options, task, network_builder(settings, task))


def toy_batches(
    settings: TrainSettings, store: SliceStore, *, unpaired: SliceStore | None = None
) -> BatchSource:
    return BatchSource(
        store=store,
        unpaired=unpaired,
        needs=find_method(settings.method).needs,
        augmentation=settings.augmentation,
        patch=(SIDE, SIDE),
        batch_size=settings.optimisation.batch_size,
        padding="unlabelled",
        device=torch.device("cpu"),
    )


def toy_trainer(
    folder: Path, settings: TrainSettings, *, method: Method | None = None, store: SliceStore | None = None
) -> Trainer:
    """Everything put together; ``method`` replaces the one that the settings name."""
    store = store or toy_store()
    run = RunFolder(folder, quiet=True)
    run.root.mkdir(parents=True, exist_ok=True)
    return Trainer(
        settings,
        method or toy_method(settings, store),
        toy_batches(settings, store, unpaired=toy_store(seed=1)),
        run,
        make_fabric(settings),
        toy_store(seed=2),
    )


def _disc_in_ring(rng: np.random.Generator) -> np.ndarray:
    row, column = rng.uniform(11, SIDE - 11, 2)
    outer, inner = rng.uniform(8, 10), rng.uniform(4, 5)
    rows, columns = np.mgrid[:SIDE, :SIDE]
    distance = np.hypot(rows - row, columns - column)
    return np.where(distance < inner, 2, np.where(distance < outer, 1, 0))


def _stored(name: str, labels: np.ndarray, masks: np.ndarray) -> StoredCase:
    unlabelled = labels == LABELS.unlabelled
    counted = np.bincount(labels.ravel(), minlength=256)
    return StoredCase(
        name=name,
        slices=len(labels),
        shape=(len(labels), SIDE, SIDE),
        spacing_mm=(5.0, 1.0, 1.0),
        pixels=int((labels != OUTSIDE).sum()),
        labelled=tuple(counted[: LABELS.count].tolist()),
        unlabelled=int(unlabelled.sum()),
    )
