"""A dense CRF behind the network: when it acts, what it learns, and where it travels."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch

from shapepu.bundle import BundleSpec, load_bundle, save_bundle
from shapepu.errors import InputError
from shapepu.labels import OUTSIDE
from shapepu.losses import weighted_partial_cross_entropy
from shapepu.methods import Batch
from shapepu.methods.base import EpochStart
from shapepu.methods.crf import CRF, FAST, CRFConfig
from toys import LABELS, PREPROCESSING, SIDE, toy_batches, toy_method, toy_settings, toy_store, toy_trainer


def a_method(config: CRFConfig | None = None) -> CRF:
    method = toy_method(toy_settings("crf", method_options=config or CRFConfig()), toy_store())
    assert isinstance(method, CRF)
    return method.eval()


def a_batch(seed: int = 0) -> Batch:
    batches = toy_batches(toy_settings("crf"), toy_store())
    return next(batches.epoch(torch.Generator().manual_seed(seed)))


def start_at(progress: float) -> EpochStart:
    batches = toy_batches(toy_settings("crf"), toy_store())
    return EpochStart(0, progress, batches, lambda images: images, torch.Generator())


def test_the_loss_is_weighted_cross_entropy_of_the_field_after_five_steps() -> None:
    method, batch = a_method(), a_batch()
    inside = batch.labels != OUTSIDE
    field = method.crf(method.network(batch.images), batch.images, inside, iterations=5)
    expected = weighted_partial_cross_entropy(field, batch.labels, batch.labelled)
    terms = method.losses(batch)
    assert set(terms) == {"positive"}
    torch.testing.assert_close(terms["positive"], expected)


def test_prediction_applies_the_field_with_more_steps() -> None:
    method, images = a_method(), a_batch().images
    with torch.no_grad():
        expected = method.crf(method.network(images), images, iterations=10).exp()
        five = method.crf(method.network(images), images, iterations=5).exp()
        predicted = method.predict(images)
    torch.testing.assert_close(predicted, expected)
    assert (predicted - five).abs().max() > 1e-6
    assert (predicted - method.network(images).softmax(dim=1)).abs().max() > 1e-3


def test_one_step_trains_network_kernels_and_compatibility_together() -> None:
    method, batch = a_method(), a_batch()
    members = {id(parameter) for parameter in method.parameter_groups()["segmenter"]}
    assert members == {id(parameter) for parameter in method.parameters()}
    method.losses(batch)["positive"].backward()
    for name, parameter in method.crf.named_parameters():
        assert parameter.grad is not None, name
        assert (parameter.grad != 0).all(), name
    assert any(p.grad is not None and p.grad.abs().max() > 0 for p in method.network.parameters())


def test_pixels_beyond_the_image_do_not_change_the_loss() -> None:
    method, batch = a_method(), a_batch()
    outside = batch.labels == OUTSIDE
    network, seen = method.network, batch.images

    class Beyond(torch.nn.Module):
        """The same network, which says something else beyond the image."""

        def forward(self, images: torch.Tensor) -> torch.Tensor:
            return torch.where(outside[:, None], 30.0, network(seen))

    expected = method.losses(batch)["positive"]
    method.network = Beyond()
    images = torch.where(outside[:, None], 4.0, batch.images)
    torch.testing.assert_close(method.losses(replace(batch, images=images))["positive"], expected)


def test_the_fast_recipe_waits_for_the_network() -> None:
    method, batch = a_method(FAST), a_batch()
    method.before_epoch(start_at(0.1))
    plain = weighted_partial_cross_entropy(method.log_probs(batch.images), batch.labels, batch.labelled)
    torch.testing.assert_close(method.losses(batch)["positive"], plain)
    method.before_epoch(start_at(0.9))
    assert (method.losses(batch)["positive"] - plain).abs() > 1e-3


def test_what_the_field_has_learnt_travels_in_the_bundle(tmp_path: Path) -> None:
    settings = toy_settings("crf")
    method = a_method(settings.method_options)
    field: Any = method.crf
    with torch.no_grad():
        field.kernel_weights += 1
        field.compatibility += torch.randn(3, 3, generator=torch.Generator().manual_seed(0))
    spec = BundleSpec(
        method="crf",
        method_options=settings.method_options,
        network=settings.network,
        network_options=settings.network_options,
        labels=LABELS,
        channels=("image",),
        preprocessing=PREPROCESSING,
    )
    save_bundle(tmp_path / "model", method=method, spec=spec)
    restored = load_bundle(tmp_path / "model").method
    for name in ("kernel_weights", "compatibility"):
        assert torch.equal(getattr(restored.crf, name), getattr(field, name))


def test_training_moves_the_field(tmp_path: Path) -> None:
    settings = toy_settings("crf", method_options=CRFConfig(stride=2), epochs=2)
    trainer = toy_trainer(tmp_path, settings)
    trainer.fit()
    field: Any = trainer.state.average.method.crf
    assert (field.compatibility - (1 - torch.eye(3))).abs().min() > 0
    assert (field.kernel_weights - torch.tensor([[5.0], [3.0]])).abs().min() > 0


def test_images_of_any_size_are_predicted() -> None:
    images = torch.randn(1, 1, SIDE + 5, SIDE - 3, generator=torch.Generator().manual_seed(0))
    with torch.no_grad():
        probs = a_method(FAST).predict(images)
    assert probs.shape == (1, 3, SIDE + 5, SIDE - 3)
    torch.testing.assert_close(probs.sum(dim=1), torch.ones(1, SIDE + 5, SIDE - 3))


def test_options_out_of_range_are_refused() -> None:
    with pytest.raises(InputError, match="iterations and test_iterations must be 1 or more"):
        CRFConfig(test_iterations=0)
    with pytest.raises(InputError, match="warmup_share"):
        CRFConfig(warmup_share=1.0)
    with pytest.raises(InputError, match="widths above 0"):
        a_method(CRFConfig(appearance_pixels=-1.0))
