"""One contract for every registered network; what is particular to one is in its own module."""

from __future__ import annotations

from itertools import pairwise
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from shapepu.errors import InputError
from shapepu.networks import NETWORKS, build_network

SMALL: dict[str, dict[str, Any]] = {"fast_unet": {}, "unet": {"widths": (8, 16, 24, 32)}}


def small(name: str, channels: int = 1, classes: int = 4, seed: int = 0) -> nn.Module:
    torch.manual_seed(seed)
    return build_network(name, channels, classes, **SMALL[name])


def trained_a_little(network: nn.Module, images: Tensor) -> nn.Module:
    """With running statistics that differ from where they start, in evaluation mode."""
    for _ in range(3):
        network(images)
    return network.eval()


def test_every_registered_network_is_tested_here() -> None:
    assert set(SMALL) == set(NETWORKS)


@pytest.mark.parametrize("name", SMALL)
@pytest.mark.parametrize("size", [(1, 1), (1, 40), (2, 3), (31, 33), (64, 48), (53, 70)])
def test_logits_have_the_size_of_the_images_whatever_it_is(name: str, size: tuple[int, int]) -> None:
    network = small(name)
    for count in (1, 2):
        logits = network(torch.randn(count, 1, *size))  # in training mode, where tiny maps break batch norm
        assert logits.shape == (count, 4, *size)
        assert logits.isfinite().all()


@pytest.mark.parametrize("name", SMALL)
@pytest.mark.parametrize(("channels", "classes"), [(1, 2), (3, 4), (4, 9)])
def test_any_number_of_channels_and_classes(name: str, channels: int, classes: int) -> None:
    assert small(name, channels, classes)(torch.randn(2, channels, 40, 40)).shape == (2, classes, 40, 40)


@pytest.mark.parametrize("name", SMALL)
def test_the_gradient_reaches_every_parameter(name: str) -> None:
    network = small(name)
    network(torch.randn(2, 1, 64, 64)).square().mean().backward()
    for parameter_name, parameter in network.named_parameters():
        assert parameter.grad is not None, parameter_name
        # The bias of a transposed convolution ahead of a normalisation is the one that may see nearly none.
        assert parameter.grad.abs().max() > 0, parameter_name


@pytest.mark.parametrize("name", SMALL)
def test_channels_last_gives_the_results_of_the_default_memory_format(name: str) -> None:
    images = torch.randn(2, 1, 53, 64)
    network = trained_a_little(small(name), images)
    expected = network(images)
    network.to(memory_format=torch.channels_last)  # type: ignore[call-overload]
    found = network(images.contiguous(memory_format=torch.channels_last))
    torch.testing.assert_close(found, expected, atol=1e-4, rtol=1e-4)


@pytest.mark.parametrize("name", SMALL)
def test_bfloat16_autocast_stays_close_to_float32(name: str) -> None:
    images = torch.randn(2, 1, 48, 48)
    network = trained_a_little(small(name), images)
    expected = network(images).softmax(1)
    with torch.autocast("cpu", torch.bfloat16):
        found = network(images)
    assert found.dtype == torch.bfloat16
    # 8 bits of mantissa: well below a percent on average, a few percent at the worst pixel.
    assert (found.float().softmax(1) - expected).abs().mean() < 0.01


@pytest.mark.parametrize("name", SMALL)
def test_in_evaluation_an_image_does_not_depend_on_its_batch(name: str) -> None:
    # A batch of another size may be summed in another order: float64 tells that from a dependence.
    images = torch.randn(3, 1, 50, 40, dtype=torch.float64)
    network = trained_a_little(small(name).double(), images)
    together = network(images)
    assert torch.equal(together, network(images))
    for i in range(3):
        torch.testing.assert_close(network(images[i : i + 1]), together[i : i + 1], atol=1e-10, rtol=1e-10)


@pytest.mark.parametrize("name", SMALL)
def test_the_seed_decides_the_weights(name: str) -> None:
    first, again, other = small(name, seed=1), small(name, seed=1), small(name, seed=2)
    for one, same in zip(first.parameters(), again.parameters(), strict=True):
        assert torch.equal(one, same)
    assert not torch.equal(next(first.parameters()), next(other.parameters()))


@pytest.mark.parametrize("name", SMALL)
def test_first_logits_are_of_the_order_of_one(name: str) -> None:
    logits = small(name)(torch.randn(4, 1, 64, 64))
    assert 0.1 < logits.std() < 5
    assert logits.std(dim=(0, 2, 3)).min() > 0.05


@pytest.mark.parametrize("name", SMALL)
def test_features_grow_from_the_coarsest_map_and_have_the_channels_they_say(name: str) -> None:
    network: Any = small(name)
    maps = network.features(torch.randn(1, 1, 64, 96))
    assert tuple(m.shape[1] for m in maps) == network.feature_channels
    for coarse, fine in pairwise(maps):
        assert fine.shape[-2:] == (2 * coarse.shape[-2], 2 * coarse.shape[-1])


@pytest.mark.parametrize("name", SMALL)
def test_a_network_can_tell_every_pixel_from_its_neighbour(name: str) -> None:
    # Labels that alternate from pixel to pixel: nothing that only upsamples coarse logits can fit them.
    torch.manual_seed(0)
    images = (torch.rand(2, 1, 16, 16) < 0.5).float()
    network = small(name, classes=2)
    optimiser = torch.optim.Adam(network.parameters(), lr=0.01)
    for _ in range(60):
        optimiser.zero_grad()
        nn.functional.cross_entropy(network(images), images[:, 0].long()).backward()
        optimiser.step()
    accuracy = (network(images).argmax(1) == images[:, 0]).float().mean()
    assert accuracy > 0.95


def test_an_unknown_network_is_refused_with_the_closest_name() -> None:
    with pytest.raises(InputError, match="did you mean 'fast_unet'"):
        build_network("fastunet", 1, 4)


def test_an_unknown_option_is_refused_with_the_closest_name() -> None:
    with pytest.raises(InputError, match="did you mean 'widths'"):
        build_network("unet", 1, 4, width=(8, 16))


@pytest.mark.parametrize("options", [{"widths": ()}, {"widths": (8, 0)}])
@pytest.mark.parametrize("name", SMALL)
def test_widths_that_make_no_network_are_refused(name: str, options: dict[str, Any]) -> None:
    with pytest.raises(InputError, match="widths"):
        build_network(name, 1, 4, **options)


@pytest.mark.parametrize(("channels", "classes"), [(0, 4), (1, 1)])
def test_too_few_channels_or_classes_are_refused(channels: int, classes: int) -> None:
    with pytest.raises(InputError, match="channels"):
        build_network("fast_unet", channels, classes)


@pytest.mark.parametrize("name", SMALL)
def test_a_configuration_read_from_a_file_builds_the_same_network(name: str) -> None:
    widths = list(NETWORKS[name].config().widths)[:2]  # YAML and JSON know lists only
    built: Any = build_network(name, 1, 2, widths=widths)
    assert built.config == NETWORKS[name].config(widths=tuple(widths))
    hash(built.config)
