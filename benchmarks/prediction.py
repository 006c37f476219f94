"""How long does a whole volume take from file to file, where does the time go, and how much is that gain?

    python benchmarks/prediction.py                  # the fast network, weights at random
    python benchmarks/prediction.py --model RUN      # a trained model, and how often bfloat16 changes a label

One volume of 15 slices of 480 x 480 pixels on two threads: read, prepared, predicted, restored to its voxels,
largest component kept, written. The literal path does the same as one writes it first: slices one by one in
float32 and the default memory format, zoomed by scipy, components labelled in the whole volume. Best of a few
runs of each, taken alternately so that a busy machine disturbs both.
"""

from __future__ import annotations

import argparse
import tempfile
import time
from dataclasses import replace
from pathlib import Path

import numpy as np
import torch
from numpy.typing import NDArray
from scipy import ndimage

from shapepu.bundle import Bundle, BundleSpec, load_bundle, save_bundle
from shapepu.data.intensity import standardise
from shapepu.data.phantom import PhantomSettings, make_case
from shapepu.data.preprocess import Preprocessing
from shapepu.data.volumes import Volume, read_volume, write_labels, write_scalar
from shapepu.inference import predict_volume
from shapepu.labels import plain_labels
from shapepu.methods import Task, build_method
from shapepu.networks import build_network
from shapepu.predict_options import PredictOptions

SLICES, SIDE, SPACING_MM = 15, 480, (10.0, 0.74, 0.74)


def untrained(folder: Path) -> Bundle:
    """The fast network as a run on MSCMRseg would plan it."""
    spec = BundleSpec(
        "pce",
        "fast_unet",
        plain_labels(("rv", "myo", "lv")),
        ("image",),
        Preprocessing((1.39, 1.39), (224, 224)),
    )
    torch.manual_seed(0)
    method = build_method(
        spec.method, None, Task(4, 1, (0.25,) * 4), lambda **_: build_network(spec.network, 1, 4)
    )
    return load_bundle(save_bundle(folder / "model", method=method, spec=spec))


def write_image(folder: Path) -> Path:
    """A synthetic heart, enlarged to the size of the benchmark, as a compressed NIfTI file."""
    image = make_case(0, PhantomSettings()).image
    factors = np.array((SLICES, SIDE, SIDE)) / image.shape
    array = ndimage.zoom(image, factors, order=1).astype(np.float32)
    like = Volume(array, SPACING_MM, (0.0,) * 3, tuple(np.eye(3).ravel()), Path("none"))
    write_scalar(folder / "image.nii.gz", array, like)
    return folder / "image.nii.gz"


def product(
    bundle: Bundle, path: Path, options: PredictOptions
) -> tuple[NDArray[np.uint8], dict[str, float]]:
    started = time.perf_counter()
    volume = read_volume(path)
    read = time.perf_counter()
    prediction = predict_volume(bundle, [volume], options)
    predicted = time.perf_counter()
    write_labels(path.with_name("labels.nii.gz"), prediction.labels, volume)
    written = time.perf_counter()
    stages = {"read": read - started, **prediction.seconds, "write": written - predicted}
    return prediction.labels, {**stages, "all": written - started}


@torch.no_grad()
def literal(bundle: Bundle, path: Path) -> float:
    started = time.perf_counter()
    volume = read_volume(path)
    spacing_mm = bundle.spec.preprocessing.spacing_mm
    assert spacing_mm is not None
    factors = [step / target for step, target in zip(volume.spacing_mm[1:], spacing_mm, strict=True)]
    slices = standardise(np.stack([ndimage.zoom(plane, factors, order=1) for plane in volume.array]))
    labels = np.zeros(volume.array.shape, np.uint8)
    for number, plane in enumerate(slices):
        probs = bundle.method.predict(torch.from_numpy(plane)[None, None].contiguous())[0].numpy()
        back = [native / now for native, now in zip(labels.shape[1:], plane.shape, strict=True)]
        labels[number] = np.stack([ndimage.zoom(one, back, order=1) for one in probs]).argmax(axis=0)
    pieces, count = ndimage.label(labels > 0, np.ones((3, 3, 3)))
    if count:
        sizes = ndimage.sum_labels(labels > 0, pieces, range(1, count + 1))
        labels[pieces != 1 + np.argmax(sizes)] = 0
    write_labels(path.with_name("literal.nii.gz"), labels, volume)
    return time.perf_counter() - started


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--model", help="a trained model; without it, random weights")
    parser.add_argument("--runs", type=int, default=5)
    views = ("none", "flips", "rotations")
    parser.add_argument("--averaging", default="none", choices=views, help="the literal path has none")
    parser.add_argument("--threads", type=int, default=2)
    arguments = parser.parse_args()
    torch.set_num_threads(arguments.threads)
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        bundle = load_bundle(arguments.model) if arguments.model else untrained(folder)
        slow = load_bundle(bundle.path)
        slow.method.to(memory_format=torch.contiguous_format)
        path, options = write_image(folder), PredictOptions(averaging=arguments.averaging)
        product(bundle, path, options)  # the first call chooses kernels
        fast_runs, slow_runs = [], []
        for _ in range(arguments.runs):
            fast_runs.append(product(bundle, path, options)[1])
            slow_runs.append(literal(slow, path))
        exact = product(bundle, path, replace(options, precision="fp32"))[0]
        rounded = product(bundle, path, replace(options, precision="bf16"))[0]
    best = min(fast_runs, key=lambda run: run["all"])
    print(
        f"{bundle}; {SLICES} slices of {SIDE} x {SIDE}, {arguments.threads} threads, best of {arguments.runs}"
    )
    for stage, seconds in best.items():
        print(f"  {stage:<10}{seconds:7.3f} s")
    print(f"literal path {min(slow_runs):.3f} s: {min(slow_runs) / best['all']:.1f} times as long")
    print(f"labels that bfloat16 changes: {100 * (exact != rounded).mean():.3f} % of voxels")


if __name__ == "__main__":
    main()
