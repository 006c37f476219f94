"""Mixture ratios: the fit against the formula in numpy, and a pool of 10^8 pixels in bounded memory.

    python benchmarks/em.py [--pixels 1000000] [--stream 100000000]

Prints, from one run, seconds and the ratio to numpy for one million pixels and four classes, and how much the
process grew while it counted the stream. Pixels are drawn from four Gaussians, so their posteriors are exact.
"""

from __future__ import annotations

import argparse
import resource
import statistics
import sys
import time
from collections.abc import Callable

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from shapepu.mixture import PosteriorHistogram, fit

RATIOS = torch.tensor([0.962, 0.012, 0.014, 0.012])
PRIORS = torch.tensor([0.55, 0.12, 0.18, 0.15], dtype=torch.float64)
MEANS = torch.tensor([[0.0, 0.0], [1.0, 0.0], [0.6, 0.8], [0.0, 1.0]])
TOLERANCE = 1e-6
MAX_ITERATIONS = 10_000
CHUNK = 2**20
WRITTEN = "numpy, Eq. (1) as written"


def pixels(count: int, separation: float, generator: torch.Generator) -> Tensor:
    """log q, shape (count, 4), float32 as a network gives it."""
    labels = torch.multinomial(RATIOS, count, replacement=True, generator=generator)
    points = separation * MEANS[labels] + torch.randn(count, 2, generator=generator)
    log_densities = -0.5 * (points[:, None] - separation * MEANS).square().sum(dim=2)
    return (log_densities + PRIORS.log().float()).log_softmax(dim=1)


def numpy_em(log_probs: Tensor) -> tuple[NDArray, int]:
    """Eq. (1) as it is written, in float64, a whole array at a time."""
    probs, priors = np.exp(log_probs.numpy().astype(np.float64)), PRIORS.numpy()
    ratios = priors
    iterations, change = 0, np.inf
    while change > TOLERANCE and iterations < MAX_ITERATIONS:
        joint = ratios * probs / priors
        updated = (joint / joint.sum(axis=1, keepdims=True)).mean(axis=0)
        change, ratios = np.abs(updated - ratios).sum(), updated
        iterations += 1
    return ratios, iterations


def exact(log_probs: Tensor) -> tuple[NDArray, int]:
    state = fit(log_probs, PRIORS, tolerance=TOLERANCE, max_iterations=MAX_ITERATIONS)
    return state.ratios.numpy(), state.iterations


def from_histogram(histogram: PosteriorHistogram) -> tuple[NDArray, int]:
    state = fit(
        histogram.log_probs,
        PRIORS,
        weights=histogram.weights,
        tolerance=TOLERANCE,
        max_iterations=MAX_ITERATIONS,
    )
    return state.ratios.numpy(), state.iterations


def counted(log_probs: Tensor) -> PosteriorHistogram:
    histogram = PosteriorHistogram(4)
    histogram.add(log_probs)
    return histogram


def compare(count: int, separation: float, repeats: int) -> None:
    log_probs = pixels(count, separation, torch.Generator().manual_seed(0))
    pool = counted(log_probs)
    ways: dict[str, Callable[[], tuple[NDArray, int]]] = {
        WRITTEN: lambda: numpy_em(log_probs),
        "fit, every pixel": lambda: exact(log_probs),
        "fit, counting included": lambda: from_histogram(counted(log_probs)),
        f"fit, pool of {len(pool)} bins": lambda: from_histogram(pool),
    }
    seconds: dict[str, list[float]] = {name: [] for name in ways}
    results = {name: way() for name, way in ways.items()}
    # In turns, so that whatever else the machine does falls on all alike.
    for _ in range(repeats):
        for name, way in ways.items():
            start = time.perf_counter()
            way()
            seconds[name].append(time.perf_counter() - start)
    reference = results[WRITTEN][0]
    base = statistics.median(seconds[WRITTEN])
    print(f"\n{count:,} pixels, 4 classes, separation {separation:g}, median of {repeats}")
    print(f"{'':30}{'seconds':>10}{'ratio':>10}{'steps':>8}{'largest difference of a ratio':>32}")
    for name, (ratios, steps) in results.items():
        median = statistics.median(seconds[name])
        difference = np.abs(ratios - reference).max()
        print(f"{name:30}{median:10.4f}{base / median:9.1f}x{steps:8d}{difference:32.1e}")


def stream(count: int, separation: float) -> None:
    """Count chunks that are made on the fly and thrown away."""
    generator = torch.Generator().manual_seed(1)
    histogram = PosteriorHistogram(4)
    histogram.add(pixels(CHUNK, separation, generator))
    before, done, seconds = peak_megabytes(), CHUNK, 0.0
    while done < count:
        chunk = pixels(min(CHUNK, count - done), separation, generator)
        start = time.perf_counter()
        histogram.add(chunk)
        seconds += time.perf_counter() - start
        done += len(chunk)
    start = time.perf_counter()
    ratios, steps = from_histogram(histogram)
    fitting = time.perf_counter() - start
    each = 1e9 * seconds / max(done - CHUNK, 1)
    seen = 16 * done / 2**20
    print(f"{done:,} pixels streamed: {len(histogram)} bins for {seen:,.0f} MiB of posteriors")
    print(f"counting {seconds:.1f} s ({each:.0f} ns a pixel), fit {fitting:.4f} s")
    print(f"peak memory grew by {peak_megabytes() - before:.0f} MiB after the first {CHUNK:,} pixels")
    print(f"ratios {np.round(ratios, 5)} after {steps} steps, drawn by {np.round(RATIOS.numpy(), 5)}")


def peak_megabytes() -> float:
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return peak / (2**20 if sys.platform == "darwin" else 2**10)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--pixels", type=int, default=10**6)
    parser.add_argument("--stream", type=int, default=10**8, help="pixels to stream; 0 leaves this out")
    parser.add_argument(
        "--separation", type=float, default=3.0, help="of the classes, in standard deviations"
    )
    parser.add_argument("--repeats", type=int, default=5)
    options = parser.parse_args()
    if options.stream > 0:
        # First, since the peak of a process never falls again.
        stream(options.stream, options.separation)
    compare(options.pixels, options.separation, options.repeats)


if __name__ == "__main__":
    main()
