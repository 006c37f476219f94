"""Two decoders on one encoder."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import nn

from shapepu.errors import InputError
from shapepu.networks import NETWORKS, build_network
from shapepu.networks.second_decoder import SecondDecoder

WIDTHS: dict[str, Any] = {"fast_unet": (4, 8, 8), "unet": (4, 8, 8)}
every_network = pytest.mark.parametrize("name", NETWORKS)


def pair(name: str, *, dropout: float = 0.5, alike: bool = False) -> tuple[nn.Module, SecondDecoder]:
    torch.manual_seed(0)
    network, donor = (build_network(name, 1, 3, widths=WIDTHS[name]) for _ in range(2))
    if alike:
        donor.load_state_dict(network.state_dict())
    return network, SecondDecoder(donor, dropout)


def some_images() -> torch.Tensor:
    return torch.randn(2, 1, 21, 18, generator=torch.Generator().manual_seed(0))


@every_network
def test_the_first_logits_are_those_of_the_network_by_itself(name: str) -> None:
    network, second = pair(name)
    network.eval()
    assert torch.equal(second(network, some_images())[0], network(some_images()))


@every_network
def test_a_decoder_with_the_same_weights_and_no_dropout_says_the_same(name: str) -> None:
    network, second = pair(name, dropout=0.0, alike=True)
    first, other = second(network, some_images())
    assert first.shape == (2, 3, 21, 18)
    assert torch.equal(first, other)


@every_network
def test_dropout_disturbs_the_second_decoder_alone_and_only_in_training(name: str) -> None:
    network, second = pair(name, alike=True)
    network.eval()
    second.eval()
    first, other = second(network, some_images())
    assert torch.equal(first, other)
    second.train()
    second.decoder.eval()  # of the difference nothing is due to batch statistics
    disturbed = [second(network, some_images()) for _ in range(2)]
    assert torch.equal(disturbed[0][0], first)
    assert not torch.equal(disturbed[0][1], other)
    assert not torch.equal(disturbed[0][1], disturbed[1][1])


@every_network
def test_dropout_takes_its_share_of_every_map_of_the_encoder(name: str, monkeypatch: Any) -> None:
    network, second = pair(name, dropout=0.25)
    encoded: list[torch.Tensor] = [torch.ones(1, 1, 200, 200), torch.ones(1, 1, 100, 100)]
    received: list[torch.Tensor] = []
    monkeypatch.setattr(network, "encode", lambda _: encoded)
    monkeypatch.setattr(network, "decode", lambda *_: torch.zeros(1))
    monkeypatch.setattr(second.decoder, "decode", lambda skips, _: received.extend(skips))
    second(network, some_images())
    for each in received:
        assert float((each == 0).float().mean()) == pytest.approx(0.25, abs=0.02)
        assert each.unique().tolist() == pytest.approx([0, 4 / 3])
    assert len(received) == len(encoded)


@every_network
def test_the_encoder_is_shared_and_runs_once(name: str) -> None:
    network, second = pair(name)
    runs = []
    network.down[0].register_forward_hook(lambda *_: runs.append(1))  # type: ignore[index,union-attr]
    second(network, some_images())[1].square().mean().backward()
    assert len(runs) == 1
    assert not [each for each, _ in second.named_parameters() if "down" in each]
    for each, parameter in (*network.down.named_parameters(), *second.named_parameters()):  # type: ignore[union-attr]
        assert parameter.grad is not None, each
    assert network.head.weight.grad is None  # type: ignore[union-attr]


def test_a_network_that_cannot_be_taken_apart_is_refused() -> None:
    with pytest.raises(InputError, match=r"Conv2d cannot; take fast_unet or unet"):
        SecondDecoder(nn.Conv2d(1, 3, 1), 0.5)
