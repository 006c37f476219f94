"""The fast U-Net: half resolution inside, full resolution outside."""

from __future__ import annotations

import torch

from shapepu.networks import FastUNet, FastUNetConfig


def test_the_defaults_stay_near_one_and_a_half_million_parameters() -> None:
    assert 1.2e6 < sum(p.numel() for p in FastUNet(1, 4).parameters()) < 1.8e6


def test_nothing_is_computed_at_full_resolution() -> None:
    with torch.device("meta"):
        maps = FastUNet(1, 4).features(torch.empty(1, 1, 212, 212))
    assert [tuple(m.shape[1:]) for m in maps] == [
        (256, 7, 7),
        (128, 14, 14),
        (64, 27, 27),
        (32, 53, 53),
        (16, 106, 106),
    ]


def test_each_position_of_the_head_writes_its_own_two_by_two_pixels() -> None:
    network = FastUNet(1, 3, FastUNetConfig((4,))).eval()
    maps = network.encode(torch.randn(1, 1, 6, 10))
    before = network.decode(maps, (6, 10))
    maps[0][0, :, 1, 3] += 1
    changed = (network.decode(maps, (6, 10)) != before).any(dim=1)[0]
    assert changed.nonzero().tolist() == [[2, 6], [2, 7], [3, 6], [3, 7]]


def test_the_four_pixels_of_a_position_start_with_the_same_logits() -> None:
    torch.manual_seed(0)
    logits = FastUNet(1, 3)(torch.randn(2, 1, 64, 64))
    corners = [logits[..., row::2, column::2] for row in (0, 1) for column in (0, 1)]
    for corner in corners[1:]:
        torch.testing.assert_close(corner, corners[0])
    assert not torch.allclose(logits[:, 0], logits[:, 1])


def test_classes_keep_their_places_in_the_head() -> None:
    # A bias on class 2 alone must raise class 2 alone, at all four pixels.
    network = FastUNet(1, 3, FastUNetConfig((4, 8))).eval()
    images = torch.randn(1, 1, 20, 20)
    before = network(images)
    network.head.bias.data.view(4, 3)[:, 2] += 1.0
    difference = network(images) - before
    torch.testing.assert_close(difference[:, 2], torch.ones(1, 20, 20))
    torch.testing.assert_close(difference[:, :2], torch.zeros(1, 2, 20, 20))


def test_an_odd_size_repeats_one_row_or_column() -> None:
    network = FastUNet(1, 3, FastUNetConfig((4, 8))).eval()
    images = torch.randn(1, 1, 21, 20)
    padded = torch.cat((images, images[..., -1:, :]), dim=-2)
    assert torch.equal(network(images), network(padded)[..., :21, :])


def test_the_whole_image_is_seen_from_the_centre() -> None:
    # Five halvings reach across the paper's patch, so the context a heart needs is in view.
    torch.manual_seed(0)
    network = FastUNet(1, 4).eval()
    images = torch.randn(1, 1, 212, 212, requires_grad=True)
    network(images)[0, :, 106, 106].sum().backward()
    assert images.grad is not None
    rows = images.grad[0, 0].abs().amax(dim=1).nonzero().flatten()
    assert rows.max() - rows.min() > 150
