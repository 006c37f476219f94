"""How much faster is a ShapePU training step than the same step written down literally?

Same network, same batch, same losses, two threads. The literal path is what one writes first: float32, the
default memory format, augmentation and views image by image, an extra forward pass for EM, EM in numpy over
the unlabelled pixels, and a full sort per class for the ranking. The fast path is the product: the step of
the loop with everything around it (fetching, augmentation, averaging), and its share of the epoch's estimate.

    python benchmarks/training_step.py
"""

from __future__ import annotations

import argparse
import itertools
import tempfile
import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import numpy as np
import torch
from scipy import ndimage
from torch import Tensor, nn
from torch.nn import functional

from shapepu.data.batches import BatchSource
from shapepu.data.phantom import PhantomSettings, write_phantom_dataset
from shapepu.data.preprocess import Preprocessing
from shapepu.data.readers import read_dataset
from shapepu.methods import build_method
from shapepu.methods.base import EpochStart
from shapepu.prepare import Prepared, prepare
from shapepu.runfolder import RunFolder
from shapepu.settings import network_builder, settings_for
from shapepu.training import Trainer, make_fabric

SIDE, CUT, BATCH = 212, 32, 16
NEGATIVE_WEIGHT, CONSISTENCY_WEIGHT = 1.0, 0.05


def literal_step(
    network: nn.Module,
    optimiser: torch.optim.Optimizer,
    canvases: np.ndarray,
    label_maps: np.ndarray,
    priors: np.ndarray,
    rng: np.random.Generator,
) -> float:
    """One step, image by image and class by class."""
    images, labels = _literal_augmentation(canvases, label_maps, rng)
    network.eval()
    with torch.no_grad():  # the extra forward pass
        probs = network(images).softmax(dim=1).numpy()
    network.train()
    classes = len(priors)
    unlabelled = np.concatenate([probs[i][:, labels[i] == classes].T for i in range(len(images))]).astype(
        np.float64
    )
    ratios = _literal_em(unlabelled, priors)
    log_probs = network(images).log_softmax(dim=1)
    loss = _literal_cross_entropy(log_probs, labels)
    for label in range(1, classes):
        ranked = np.sort(unlabelled[:, label])[::-1]
        limit = ranked[min(len(ranked) - 1, int(ratios[label] * len(ranked)))]
        ruled_out = torch.from_numpy((labels == classes) & (probs[:, label] < limit))
        loss = loss - NEGATIVE_WEIGHT * torch.log(1 - log_probs.exp()[:, label][ruled_out] + 1e-7).mean()
    seen, seen_labels, expected, valid = _literal_views(images, labels, log_probs.exp(), classes, rng)
    seen_log_probs = network(seen).log_softmax(dim=1)
    loss = loss + _literal_cross_entropy(seen_log_probs, seen_labels)
    distance = 1 - functional.cosine_similarity(expected, seen_log_probs.exp(), dim=1)
    loss = loss + CONSISTENCY_WEIGHT * distance[valid].mean()
    optimiser.zero_grad()
    loss.backward()
    optimiser.step()
    return float(loss.detach())


def _literal_augmentation(
    canvases: np.ndarray, label_maps: np.ndarray, rng: np.random.Generator
) -> tuple[Tensor, np.ndarray]:
    images, labels = [], []
    for canvas, label_map in zip(canvases, label_maps, strict=True):
        angle, flip = rng.uniform(0, 360), rng.random() < 0.5
        image = ndimage.rotate(canvas.astype(np.float32), angle, reshape=False, order=1)
        label = ndimage.rotate(label_map, angle, reshape=False, order=0, cval=255)
        image, label = _centre(image), _centre(label)
        image = image * rng.uniform(0.75, 1.33) + rng.normal(0, 0.05, image.shape)
        images.append(image[:, ::-1] if flip else image)
        labels.append(label[:, ::-1] if flip else label)
    return torch.from_numpy(np.stack(images)[:, None].astype(np.float32)), np.stack(labels)


def _centre(array: np.ndarray) -> np.ndarray:
    row, column = (array.shape[0] - SIDE) // 2, (array.shape[1] - SIDE) // 2
    return array[row : row + SIDE, column : column + SIDE]


def _literal_em(posteriors: np.ndarray, priors: np.ndarray) -> np.ndarray:
    ratios = priors.copy()
    for _ in range(100):
        weighted = posteriors * ratios / priors
        updated = (weighted / weighted.sum(axis=1, keepdims=True)).mean(axis=0)
        if np.abs(updated - ratios).sum() < 1e-4:
            break
        ratios = updated
    return ratios


def _literal_cross_entropy(log_probs: Tensor, labels: np.ndarray) -> Tensor:
    targets = torch.from_numpy(labels.astype(np.int64))
    targets[targets >= log_probs.shape[1]] = -100
    return functional.nll_loss(log_probs, targets)


def _literal_views(
    images: Tensor, labels: np.ndarray, probs: Tensor, classes: int, rng: np.random.Generator
) -> tuple[Tensor, np.ndarray, Tensor, Tensor]:
    seen, seen_labels, expected, valid = [], [], [], []
    for image, label, prob in zip(images, labels, probs, strict=True):
        row, column = rng.integers(0, SIDE - CUT, 2)
        quarters, flip = int(rng.integers(4)), rng.random() < 0.5
        kept = torch.ones(SIDE, SIDE, dtype=torch.bool)
        kept[row : row + CUT, column : column + CUT] = False
        parts = [image * kept, torch.from_numpy(np.where(kept, label, classes))[None], prob, kept[None]]
        turned = [torch.rot90(part, quarters, dims=(-2, -1)) for part in parts]
        turned = [part.flip(-1) if flip else part for part in turned]
        for out, part in zip((seen, seen_labels, expected, valid), turned, strict=True):
            out.append(part)
    return (
        torch.stack(seen),
        torch.stack(seen_labels)[:, 0].numpy(),
        torch.stack(expected),
        torch.stack(valid)[:, 0],
    )


def measure_literal(prepared: Prepared, steps: int) -> float:
    """Images per second of the literal path."""
    torch.manual_seed(0)
    network = network_builder(prepared.settings, prepared.task)()
    optimiser = torch.optim.Adam(network.parameters(), lr=1e-4)
    rng = np.random.default_rng(0)
    store, priors = prepared.train, np.array(prepared.task.label_shares)

    def step() -> None:
        chosen = rng.integers(0, len(store), BATCH)
        literal_step(network, optimiser, store.images[chosen, 0], store.labels[chosen], priors, rng)

    return _images_per_second(step, steps)


def measure_fast(prepared: Prepared, steps: int, folder: Path) -> float:
    """Images per second of the product's loop, with the negative loss switched on."""
    settings = prepared.settings
    torch.manual_seed(0)
    method = build_method(
        "shapepu", settings.method_options, prepared.task, network_builder(settings, prepared.task)
    )
    fabric = make_fabric(settings)
    batches = BatchSource(
        store=prepared.train,
        needs=frozenset({"scribbles"}),
        augmentation=settings.augmentation,
        patch=(SIDE, SIDE),
        batch_size=BATCH,
        padding="unlabelled",
        device=fabric.device,
    )
    trainer = Trainer(settings, method, batches, RunFolder(folder, quiet=True), fabric)
    state = trainer.state

    epochs = itertools.count(50)

    def estimate() -> None:
        epoch = next(epochs)
        late = EpochStart(epoch, epoch / 100, batches, state.average.predict, state.generator)
        method.before_epoch(late)
        method.active.fill_(True)
        method.train()

    estimate()
    stream = iter(())

    def step() -> None:
        nonlocal stream
        batch = next(stream, None)
        if batch is None:
            estimate()  # as often as in a run of a hundred epochs
            stream = batches.epoch(state.generator)
            batch = next(stream)
        method.step(batch, trainer._optimise)
        state.average.update(method)

    return _images_per_second(step, steps)


def _images_per_second(step: Callable[[], None], steps: int) -> float:
    step()
    started = time.perf_counter()
    for _ in range(steps):
        step()
    return steps * BATCH / (time.perf_counter() - started)


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument(
        "--steps", type=int, default=24, help="steps of the fast path; the literal takes a quarter"
    )
    arguments = parser.parse_args()
    torch.set_num_threads(2)
    with tempfile.TemporaryDirectory() as folder:
        data = Path(folder) / "data"
        write_phantom_dataset(data, train=24, val=0, test=0, settings=PhantomSettings(), quiet=True)
        settings = settings_for("fast", "shapepu")
        pixels = Preprocessing(spacing_mm=(0.9, 0.9), patch=(SIDE, SIDE))
        settings = replace(settings, preprocessing=pixels)
        prepared = prepare(read_dataset(data), settings, Path(folder) / "cache", quiet=True)
        print(
            f"{BATCH} images of {SIDE}x{SIDE} a step, {torch.get_num_threads()} threads, {settings.network}"
        )
        literal = measure_literal(prepared, max(2, arguments.steps // 4))
        print(f"literal path: {literal:6.1f} images/s")
        fast = measure_fast(prepared, arguments.steps, Path(folder) / "run")
        print(f"fast path:    {fast:6.1f} images/s")
        print(f"ratio:        {fast / literal:6.1f}")


if __name__ == "__main__":
    main()
