"""Training that starts from another model: what is copied, what begins anew, and what cannot fit."""

from __future__ import annotations

import json
import shutil
from dataclasses import replace
from pathlib import Path

import pytest
import torch
import yaml

import shapepu
from shapepu.bundle import load_bundle, save_bundle
from shapepu.cli import main
from shapepu.data.case import Dataset
from shapepu.errors import InputError
from shapepu.labels import plain_labels
from shapepu.methods import METHODS
from shapepu.networks import FastUNet, FastUNetConfig
from shapepu.settings import TrainSettings, settings_for
from shapepu.starting import adopt, find_start, network_of
from small_runs import SMALL_STEPS, cache_beside, metrics, refused, resume_arguments, train, write_hearts
from tiny_models import HEART, random_method, tiny_spec
from toys import SMALL_NETWORK, toy_method, toy_settings, toy_store

IMAGES = torch.linspace(-2, 2, 2 * 40 * 36).reshape(2, 1, 40, 36).sin()
PCE = settings_for("fast", "pce")


@pytest.fixture(scope="module")
def hearts(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_hearts(tmp_path_factory.mktemp("starting") / "hearts")


@pytest.fixture(scope="module")
def source(hearts: Path) -> Path:
    """A run that has learned something."""
    return train(hearts, hearts.parent / "source", "--quiet", epochs=8)


@pytest.fixture
def bundle(tmp_path: Path) -> Path:
    spec = tiny_spec()
    return save_bundle(tmp_path / "heart", method=random_method(spec), spec=spec)


def dataset(labels: object = HEART, channels: tuple[str, ...] = ("image",)) -> Dataset:
    return Dataset(Path("DATA"), "folder", labels, (), channels)  # type: ignore[arg-type]


def arguments(data: Path, run: Path, source: Path, *options: str) -> list[str]:
    """A command line that leaves the network to the model it starts from."""
    where = ("train", str(data), "-o", str(run), "--cache", str(cache_beside(data)), "--from", str(source))
    return [*where, "--method", "pce", "--epochs", "1", "--quiet", *SMALL_STEPS, *options]


def settings_of(run: Path) -> TrainSettings:
    return TrainSettings.from_plain(yaml.safe_load((run / "config.yaml").read_text())["settings"])


def provenance(run: Path) -> dict[str, object]:
    return dict(json.loads((run / "model/model.json").read_text())["provenance"])


def test_a_run_takes_network_and_pixel_size_from_the_model_and_plans_its_patch(
    hearts: Path, bundle: Path, tmp_path: Path
) -> None:
    assert main(arguments(hearts, tmp_path / "run", bundle)) == 0
    settings, spec = settings_of(tmp_path / "run"), load_bundle(bundle).spec
    assert settings.network_options == spec.network_options == FastUNetConfig(widths=(4, 8), convolutions=1)
    assert settings.preprocessing.spacing_mm == spec.preprocessing.spacing_mm == (1.5, 1.5)
    # The hearts' 32 x 40 pixels of some 4 mm are about as many of 1.5 mm; the model was trained on 32 x 32.
    assert settings.preprocessing.patch == (112, 112)
    log = (tmp_path / "run/train.log").read_text()
    assert "starting from heart: 21 of 21 tensors of its network copied\n" in log


def test_what_a_run_started_from_is_written_down(hearts: Path, bundle: Path, tmp_path: Path) -> None:
    run = tmp_path / "run"
    model = shapepu.train(
        hearts, output=run, method="pce", start=bundle, epochs=1, cache=cache_beside(hearts), quiet=True
    )
    expected = {"model": "heart", "weights_sha256": load_bundle(bundle).fingerprint, "anew": []}
    assert model.bundle.spec.provenance["started_from"] == expected
    assert yaml.safe_load((run / "config.yaml").read_text())["started_from"] == expected
    assert settings_of(run).start == str(bundle)


def test_the_pixel_size_that_was_asked_for_stays(hearts: Path, bundle: Path, tmp_path: Path) -> None:
    spacing = ("--preprocessing.spacing-mm", "5", "5")
    assert main(arguments(hearts, tmp_path / "run", bundle, *spacing)) == 0
    assert settings_of(tmp_path / "run").preprocessing.spacing_mm == (5.0, 5.0)


def test_complete_settings_leave_the_pixel_size_to_the_model_unless_they_name_one(
    hearts: Path, bundle: Path, tmp_path: Path
) -> None:
    chosen = replace(PCE, network_options=load_bundle(bundle).spec.network_options)
    shapepu.train(
        hearts,
        output=tmp_path / "run",
        settings=chosen,
        start=bundle,
        epochs=1,
        cache=cache_beside(hearts),
        quiet=True,
    )
    assert settings_of(tmp_path / "run").preprocessing.spacing_mm == (1.5, 1.5)


def test_before_the_first_step_the_run_predicts_as_the_model_does(bundle: Path) -> None:
    expected = load_bundle(bundle).method.predict(IMAGES)
    method = random_method(tiny_spec(), seed=1)
    assert not torch.allclose(method.predict(IMAGES), expected, atol=0.01)
    find_start(adopt(PCE, bundle), dataset()).copy_to(method)
    assert torch.equal(method.predict(IMAGES), expected)


def test_weights_and_their_average_both_begin_with_the_model(
    hearts: Path, source: Path, tmp_path: Path
) -> None:
    assert main(arguments(hearts, tmp_path / "run", source, "--optimisation.learning-rate", "1e-12")) == 0
    before, after = (dict(load_bundle(run).method.named_parameters()) for run in (source, tmp_path / "run"))
    for name, weights in before.items():
        torch.testing.assert_close(after[name], weights, atol=1e-6, rtol=0)


def test_what_was_learned_is_not_learned_again(hearts: Path, source: Path, tmp_path: Path) -> None:
    """From the model the first epoch already loses less than the model's own first two did."""
    assert main(arguments(hearts, tmp_path / "run", source)) == 0
    own = [float(row["loss"]) for row in metrics(source)]
    assert float(metrics(tmp_path / "run")[0]["loss"]) < own[1] < own[0]


@pytest.mark.parametrize("method", METHODS)
def test_every_method_can_start_from_every_model_of_its_network(method: str, tmp_path: Path) -> None:
    store = toy_store()
    plain = toy_settings("pce", network_options=SMALL_NETWORK)
    spec = replace(
        tiny_spec(store.labels_set),
        method=method,
        method_options=toy_settings(method).method_options,
        network_options=SMALL_NETWORK,
    )
    theirs = random_method(spec)
    save_bundle(tmp_path / "theirs", method=theirs, spec=spec)
    for settings, seed in ((plain, 1), (replace(toy_settings(method), seed=2), 2)):
        own = toy_method(replace(settings, seed=seed), store).eval()
        start = find_start(replace(settings, start=str(tmp_path / "theirs")), dataset(store.labels_set))
        start.copy_to(own)
        expected = network_of(theirs, FastUNet)(IMAGES)
        torch.testing.assert_close(network_of(own, FastUNet)(IMAGES), expected)


@pytest.mark.parametrize("structures", [("scar",), ("lv", "myo", "rv")])
def test_for_other_classes_the_last_layer_begins_anew(bundle: Path, structures: tuple[str, ...]) -> None:
    """Also for as many of other names, of which the model knows nothing."""
    labels = plain_labels(structures)
    start = find_start(adopt(PCE, bundle), dataset(labels))
    assert start.anew == ("head.weight", "head.bias")
    assert str(start) == (
        "starting from heart: 19 of 21 tensors of its network copied; head.weight, head.bias start anew, "
        "since its classes are others (rv, myo, lv)"
    )
    method = random_method(tiny_spec(labels), seed=1)
    drawn = method.network.head.weight.clone()
    start.copy_to(method)
    theirs = load_bundle(bundle).method.network.state_dict()
    ours = method.network.state_dict()
    assert torch.equal(ours["head.weight"], drawn)
    assert all(torch.equal(ours[name], theirs[name]) for name in theirs if not name.startswith("head."))


def refusal(start: str | Path, data: Dataset, **changes: object) -> str:
    settings = replace(adopt(PCE, start), **changes)
    with pytest.raises(InputError) as error:
        find_start(settings, data)
    assert "\n" not in str(error.value)
    return str(error.value)


def test_what_cannot_fit_is_refused_in_one_line(bundle: Path) -> None:
    other = refusal(bundle, dataset(), network="unet", network_options=None)
    assert other.startswith(f"{bundle}: its network is fast_unet, but the run is to train unet; leave the ")
    channels = refusal(bundle, dataset(channels=("T2", "LGE")))
    assert "its channels are image, but those of DATA are T2, LGE; as many are needed" in channels
    wider = refusal(bundle, dataset(), network_options=FastUNetConfig(widths=(4, 16), convolutions=1))
    assert "its network has other options than the run (widths (4, 8), convolutions 1, " in wider


def test_the_command_line_refuses_before_anything_is_written(
    hearts: Path, bundle: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    run = tmp_path / "run"
    (tmp_path / "stranger.pt").write_bytes(b"")
    (tmp_path / "empty").mkdir()
    for source, options, message in [
        (bundle, ("--network", "unet"), "its network is fast_unet, but the run is to train unet"),
        (bundle, ("--net.widths", "8", "16"), "its network has other options than the run"),
        (tmp_path / "stranger.pt", (), "pickles, which can run any code"),
        (tmp_path / "empty", (), "no model.json in it"),
        (Path("acdc-cnie"), (), "no such run, bundle or shipped model"),
    ]:
        assert message in refused(arguments(hearts, run, source, *options), capsys)
        assert not run.exists()
    assert "--from cannot be given with --resume" in refused(
        resume_arguments(hearts, run, "--from", str(bundle)), capsys
    )


def test_a_resumed_run_has_its_own_weights_and_needs_its_start_no_more(
    hearts: Path, bundle: Path, tmp_path: Path
) -> None:
    run = tmp_path / "run"
    assert main(arguments(hearts, run, bundle)) == 0
    started = provenance(run)["started_from"]
    shutil.rmtree(bundle)
    assert main(resume_arguments(hearts, run, "--epochs", "2", "--quiet")) == 0
    assert [row["epoch"] for row in metrics(run)] == ["1", "2"]
    assert provenance(run)["started_from"] == started is not None


def test_a_run_that_was_killed_before_its_first_checkpoint_starts_once_more(
    hearts: Path, bundle: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    run = tmp_path / "run"
    assert main(arguments(hearts, run, bundle)) == 0
    rows = metrics(run)
    shutil.rmtree(run / "checkpoint")
    assert main(resume_arguments(hearts, run, "--quiet")) == 0
    assert metrics(run)[0]["loss"] == rows[0]["loss"]
    shutil.rmtree(run / "checkpoint")
    shutil.rmtree(bundle)
    assert "heart: no such run, bundle or shipped model" in refused(resume_arguments(hearts, run), capsys)


def test_looking_at_a_start_draws_no_random_numbers(bundle: Path) -> None:
    torch.manual_seed(3)
    expected = torch.rand(3)
    torch.manual_seed(3)
    find_start(adopt(PCE, bundle), dataset(plain_labels(("scar",))))
    assert torch.equal(torch.rand(3), expected)
