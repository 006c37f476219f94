"""The dense conditional random field: its kernels against all pairs, its steps against plain loops."""

from __future__ import annotations

import math

import numpy as np
import pytest
import torch
from numpy.typing import NDArray
from torch import Tensor

from shapepu.errors import InputError
from shapepu.mean_field import (
    AppearanceKernel,
    GaussianKernel,
    MeanField,
    Messages,
    SmoothnessKernel,
    gaussian_features,
    pairwise_energy,
)

PIXELS, INTENSITY, SMOOTH = 2.0, 0.6, 1.2
EXACT = 1e-10


def example(side: int = 5, classes: int = 3, seed: int = 0) -> tuple[Tensor, Tensor, Tensor]:
    """Logits (1, 3, 5, 5), an image (1, 1, 5, 5) and inside (1, 5, 5), which lacks a row."""
    generator = torch.Generator().manual_seed(seed)
    logits = 2 * torch.randn(1, classes, side, side, generator=generator, dtype=torch.float64)
    image = torch.randn(1, 1, side, side, generator=generator, dtype=torch.float64)
    inside = torch.ones(1, side, side, dtype=torch.bool)
    inside[:, 0] = False
    return logits, image, inside


def all_pairs(image: NDArray, pixels: float, intensity: float | None) -> NDArray:
    """k_ij of an image (H, W) for every two pixels, one by one; 0 between a pixel and itself."""
    height, width = image.shape
    kernel = np.zeros((height, width, height, width))
    for a, b, c, d in np.ndindex(kernel.shape):
        if (a, b) != (c, d):
            exponent = ((a - c) ** 2 + (b - d) ** 2) / (2 * pixels**2)
            if intensity is not None:
                exponent += (image[a, b] - image[c, d]) ** 2 / (2 * intensity**2)
            kernel[a, b, c, d] = math.exp(-exponent)
    return kernel


def plain_mean_field(
    logits: NDArray,
    kernels: list[NDArray],
    inside: NDArray,
    kernel_weights: NDArray,
    compatibility: NDArray,
    iterations: int,
) -> NDArray:
    """Algorithm 1 of the paper for one image, pixel by pixel; returns Q, shape (K, H, W)."""
    classes, height, width = logits.shape
    q = softmax(logits)
    for _ in range(iterations):
        updated = np.zeros_like(logits)
        for y, x in np.ndindex(height, width):
            support = np.zeros(classes)
            for kernel, weights in zip(kernels, kernel_weights, strict=True):
                heard, total = np.zeros(classes), 0.0
                for v, u in np.ndindex(height, width):
                    if inside[v, u]:
                        heard += kernel[y, x, v, u] * q[:, v, u]
                        total += kernel[y, x, v, u]
                support += weights * heard / total
            for label in range(classes):
                price = sum(compatibility[label, other] * support[other] for other in range(classes))
                updated[label, y, x] = logits[label, y, x] - price
        q = softmax(updated)
    return q


def softmax(logits: NDArray) -> NDArray:
    exponentials = np.exp(logits - logits.max(axis=0))
    return exponentials / exponentials.sum(axis=0)


def kernels_of(image: Tensor, tolerance: float = EXACT) -> list[GaussianKernel]:
    return [
        AppearanceKernel(image[:, 0], pixels=PIXELS, intensity=INTENSITY, tolerance=tolerance),
        SmoothnessKernel((image.shape[2], image.shape[3]), SMOOTH, image),
    ]


def parameters(classes: int = 3, seed: int = 1) -> tuple[Tensor, Tensor]:
    generator = torch.Generator().manual_seed(seed)
    kernel_weights = 1 + torch.rand(2, classes, generator=generator, dtype=torch.float64)
    return kernel_weights, torch.rand(classes, classes, generator=generator, dtype=torch.float64)


@pytest.mark.parametrize("tolerance", [1e-1, 1e-2, 1e-3, 1e-6])
@pytest.mark.parametrize(("length", "deviation"), [(211, 20.0), (8, 0.4), (4, 10.0), (50, 1.0)])
def test_products_of_features_are_the_gaussian(length: float, deviation: float, tolerance: float) -> None:
    positions = torch.linspace(0, length, 301, dtype=torch.float64)
    features = gaussian_features(positions, length, deviation, tolerance)
    gaussian = torch.exp(-(((positions[:, None] - positions) / deviation) ** 2) / 2)
    error = (features @ features.T - gaussian).abs().max()
    # Where the interval is short, the coefficients are few, and the last one left out weighs more.
    assert error < 1.5 * tolerance
    assert features.shape[-1] % 2 == 1


def test_sums_over_all_pixels_are_those_of_every_pair() -> None:
    _, image, _ = example()
    values = torch.rand(1, 2, 5, 5, dtype=torch.float64, generator=torch.Generator().manual_seed(3))
    for kernel, intensity, pixels in zip(kernels_of(image), (INTENSITY, None), (PIXELS, SMOOTH), strict=True):
        pairs = all_pairs(image[0, 0].numpy(), pixels, intensity)
        others = np.einsum("abcd,kcd->kab", pairs, values[0].numpy())
        np.testing.assert_allclose(kernel.sums(values)[0] - kernel.own * values[0], others, atol=1e-8)


@pytest.mark.parametrize("iterations", [1, 2, 5])
def test_mean_field_is_that_of_plain_loops(iterations: int) -> None:
    logits, image, inside = example()
    weights, compatibility = parameters()
    messages = [Messages.of(kernel, inside[:, None].double()) for kernel in kernels_of(image)]
    energy = pairwise_energy(logits, messages, weights, compatibility, iterations=iterations)
    grey = image[0, 0].numpy()
    expected = plain_mean_field(
        logits[0].numpy(),
        [all_pairs(grey, PIXELS, INTENSITY), all_pairs(grey, SMOOTH, None)],
        inside[0].numpy(),
        weights.numpy(),
        compatibility.numpy(),
        iterations,
    )
    np.testing.assert_allclose((logits - energy).softmax(dim=1)[0], expected, atol=1e-7)


def test_a_message_is_a_mean_over_the_others_without_oneself() -> None:
    logits, image, inside = example()
    for kernel in kernels_of(image):
        send = Messages.of(kernel, inside[:, None].double())
        heard = send(logits.softmax(dim=1))
        torch.testing.assert_close(heard.sum(dim=1), torch.ones(1, 5, 5).double())
        mine_alone = torch.stack((torch.ones(1, 5, 5), torch.zeros(1, 5, 5)), dim=1).double()
        mine_alone[..., 2, 2] = torch.tensor([0.0, 1.0])
        heard = send(mine_alone)
        assert heard[0, 1, 2, 2].abs() < 1e-8
        assert heard[0, 1, 2, 3] > 1e-3


def test_the_layer_as_configured_errs_by_thousandths() -> None:
    """The bilateral filter is approximate; 24x24 pixels is as much as all pairs allow in a test."""
    generator = torch.Generator().manual_seed(0)
    image = 0.3 * torch.randn(1, 1, 24, 24, generator=generator)
    image[..., 12:] += 2  # two tissues
    logits = 2 * torch.randn(1, 4, 24, 24, generator=generator)
    field = a_field(classes=4, appearance_pixels=10.0, appearance_intensity=0.4, smoothness_pixels=3.0)
    with torch.no_grad():
        probs = field(logits, image, iterations=5).exp()
    positions = torch.cartesian_prod(torch.arange(24.0), torch.arange(24.0)).double()
    squared = torch.cdist(positions, positions) ** 2
    grey = image.double().clamp(-3, 5).flatten()
    appearance = torch.exp(-(squared / 10.0**2 + ((grey[:, None] - grey) / 0.4) ** 2) / 2)
    smoothness = torch.exp(-squared / 3.0**2 / 2)
    z = logits[0].double().flatten(1)
    q = z.softmax(dim=0)
    for _ in range(5):
        support = torch.zeros_like(q)
        for kernel, weight in ((appearance, 5.0), (smoothness, 3.0)):
            others = kernel - torch.eye(len(kernel))
            support += weight * (q @ others) / others.sum(dim=0)
        q = (z - (1 - torch.eye(4).double()) @ support).softmax(dim=0)
    errors = (probs[0].double().flatten(1) - q).abs()
    assert errors.max() < 5e-3
    assert errors.mean() < 1e-4


def test_half_the_resolution_changes_few_labels() -> None:
    rows, columns = torch.meshgrid(torch.arange(48.0), torch.arange(48.0), indexing="ij")
    mask = (torch.hypot(rows - 22.3, columns - 25.1) < 13).long()
    generator = torch.Generator().manual_seed(0)
    image = (2 * mask + 0.3 * torch.randn(48, 48, generator=generator)).view(1, 1, 48, 48)
    signs = 2.0 * torch.stack((1 - mask, mask))[None] - 1
    logits = signs + torch.randn(1, 2, 48, 48, generator=generator)
    labels = {}
    for stride in (1, 2):
        with torch.no_grad():
            field = a_field(classes=2, appearance_pixels=20.0, appearance_intensity=0.4, stride=stride)
            labels[stride] = field(logits, image, iterations=10).argmax(dim=1)[0]
    errors_before = (logits.argmax(dim=1)[0] != mask).float().mean()
    assert errors_before > 0.05
    for chosen in labels.values():
        assert (chosen != mask).float().mean() < 0.1 * errors_before
    assert (labels[1] != labels[2]).float().mean() < 0.005


def test_the_layer_starts_as_potts_and_returns_log_probabilities() -> None:
    field = a_field(classes=3)
    assert torch.equal(field.compatibility, 1 - torch.eye(3))
    assert field.kernel_weights.tolist() == [[5.0] * 3, [3.0] * 3]
    logits, image, _ = example()
    log_probs = field(logits, image, iterations=3)
    assert log_probs.dtype == torch.float32
    torch.testing.assert_close(log_probs.exp().sum(dim=1), torch.ones(1, 5, 5))


def test_compatibility_of_zero_leaves_the_network_alone() -> None:
    field = a_field(classes=3)
    torch.nn.init.zeros_(field.compatibility)
    logits, image, _ = example()
    torch.testing.assert_close(field(logits, image, iterations=5), logits.float().log_softmax(dim=1))


def test_several_channels_have_a_kernel_each() -> None:
    logits, image, _ = example()
    twice = a_field(channels=2, classes=3)
    assert twice.kernel_weights.shape == (3, 3)
    # Two channels that are alike say together what one says.
    expected = a_field(classes=3)(logits, image, iterations=4)
    torch.testing.assert_close(twice(logits, image.expand(1, 2, 5, 5), iterations=4), expected)


def test_gradients_reach_logits_weights_and_compatibility() -> None:
    logits, image, inside = example(side=4)
    weights, compatibility = parameters()
    messages = [Messages.of(kernel, inside[:, None].double()) for kernel in kernels_of(image)]

    def field(logits: Tensor, weights: Tensor, compatibility: Tensor) -> Tensor:
        energy = pairwise_energy(logits, messages, weights, compatibility, iterations=3)
        return (logits - energy).log_softmax(dim=1)

    inputs = tuple(tensor.requires_grad_() for tensor in (logits, weights, compatibility))
    assert torch.autograd.gradcheck(field, inputs)
    for gradient in torch.autograd.grad(field(*inputs)[:, 1].sum(), inputs):
        assert (gradient != 0).all()


@pytest.mark.parametrize("stride", [1, 2])
def test_what_lies_beyond_the_image_changes_nothing_inside(stride: int) -> None:
    logits, image, inside = example(side=9)
    field = a_field(classes=3, stride=stride)
    changed_logits = torch.where(inside[:, None], logits, 50.0)
    changed_image = torch.where(inside[:, None], image, -2.0)
    before = field(logits, image, inside, iterations=4).movedim(1, -1)[inside]
    after = field(changed_logits, changed_image, inside, iterations=4).movedim(1, -1)[inside]
    torch.testing.assert_close(before, after)


@pytest.mark.parametrize("stride", [1, 2, 3])
def test_any_size_goes_through_and_images_do_not_mix(stride: int) -> None:
    generator = torch.Generator().manual_seed(0)
    logits = torch.randn(2, 3, 7, 10, generator=generator)
    images = torch.randn(2, 1, 7, 10, generator=generator)
    field = a_field(classes=3, stride=stride)
    both = field(logits, images, iterations=3)
    assert both.shape == logits.shape
    torch.testing.assert_close(both[1:], field(logits[1:], images[1:], iterations=3))


def test_a_pixel_that_nothing_resembles_hears_nothing_wild() -> None:
    image = torch.zeros(1, 16, 16)
    image[0, 8, 8] = 1e4
    kernel = AppearanceKernel(image, pixels=5.0, intensity=0.1)
    probs = torch.rand(1, 3, 16, 16, generator=torch.Generator().manual_seed(0)).softmax(dim=1)
    heard = Messages.of(kernel, torch.ones(1, 1, 16, 16))(probs)
    assert heard.min() > -0.1
    assert heard.max() < 1.1


def test_bfloat16_around_it_does_not_reach_it() -> None:
    logits, image, _ = example()
    field = a_field(classes=3)
    expected = field(logits.float(), image.float(), iterations=5)
    with torch.autocast("cpu", torch.bfloat16):
        torch.testing.assert_close(field(logits.float(), image.float(), iterations=5), expected)


def test_widths_must_be_above_zero() -> None:
    with pytest.raises(InputError, match="widths above 0"):
        a_field(smoothness_pixels=0.0)


def a_field(**changes: float) -> MeanField:
    settings: dict[str, float] = {
        "channels": 1,
        "classes": 2,
        "appearance_pixels": 4.0,
        "appearance_intensity": 0.5,
        "smoothness_pixels": 1.5,
        "appearance_weight": 5.0,
        "smoothness_weight": 3.0,
    }
    return MeanField(**(settings | changes))  # type: ignore[arg-type]
