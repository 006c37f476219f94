"""A bundle keeps a model exactly, is whole or absent, and never runs what a stranger put into it."""

from __future__ import annotations

import hashlib
import json
import os
import pickle
import resource
from dataclasses import dataclass, replace
from pathlib import Path

import pytest
import safetensors.torch
import torch
from torch import nn

from shapepu import methods
from shapepu.bundle import DESCRIPTION, WEIGHTS, load_bundle, save_bundle
from shapepu.data.preprocess import Preprocessing
from shapepu.errors import InputError
from shapepu.labels import LabelSet
from shapepu.methods import METHODS
from shapepu.methods.accl import ACCLConfig
from shapepu.methods.pce import PCE
from tiny_models import random_method, tiny_spec

IMAGES = torch.linspace(-2, 2, 2 * 40 * 36).reshape(2, 1, 40, 36).sin()


@pytest.fixture
def saved(tmp_path) -> Path:
    spec = tiny_spec()
    return save_bundle(tmp_path / "model", method=random_method(spec), spec=spec)


def refusal(path: Path) -> str:
    """The one line with which ``path`` is refused."""
    with pytest.raises(InputError) as error:
        load_bundle(path)
    assert "\n" not in str(error.value)
    return str(error.value)


def edit(folder: Path, **changes: object) -> Path:
    """Rewrite entries of model.json; ``a__b`` is entry b of a; None deletes."""
    description = json.loads((folder / DESCRIPTION).read_text())
    for path, value in changes.items():
        *outer, last = path.split("__")
        place = description
        for key in outer:
            place = place[key]
        if value is None:
            del place[last]
        else:
            place[last] = value
    (folder / DESCRIPTION).write_text(json.dumps(description))
    return folder


def replace_weights(folder: Path, content: bytes) -> Path:
    """Other weights with the fingerprint of those, as a stranger would write it."""
    (folder / WEIGHTS).write_bytes(content)
    return edit(folder, weights_sha256=hashlib.sha256(content).hexdigest())


@pytest.mark.parametrize("method", METHODS)
def test_a_model_predicts_the_same_before_and_after(tmp_path, method):
    spec = replace(tiny_spec(), method=method, method_options=None)
    before = random_method(spec)
    after = load_bundle(save_bundle(tmp_path / "m", method=before, spec=spec))
    assert torch.equal(after.method.predict(IMAGES), before.predict(IMAGES))
    assert replace(after.spec, provenance=spec.provenance) == spec
    assert not after.method.training
    assert not any(weight.requires_grad for weight in after.method.parameters())


def test_labels_and_provenance_survive(tmp_path):
    labels = LabelSet(("background", "scar", "blood"), (0, 500, -7), 99)
    spec = replace(tiny_spec(labels), provenance={"data": "toy", "dice": float("nan"), "minutes": 1.5})
    loaded = load_bundle(save_bundle(tmp_path / "m", method=random_method(spec), spec=spec))
    assert loaded.spec.labels == labels
    assert loaded.spec.provenance["minutes"] == 1.5
    assert loaded.spec.provenance["dice"] is None
    assert loaded.spec.provenance["versions"]["torch"] == torch.__version__


def test_the_same_model_gives_the_same_bytes(tmp_path):
    spec = tiny_spec()
    for name in "ab":
        save_bundle(tmp_path / name, method=random_method(spec), spec=spec)
    for file in (DESCRIPTION, WEIGHTS):
        assert (tmp_path / "a" / file).read_bytes() == (tmp_path / "b" / file).read_bytes()


def test_half_precision_halves_the_kernels_and_changes_little(tmp_path, saved):
    spec = tiny_spec()
    half = save_bundle(tmp_path / "half", method=random_method(spec), spec=spec, half_precision=True)
    kinds = {name: tensor.dtype for name, tensor in safetensors.torch.load_file(half / WEIGHTS).items()}
    assert {kind for name, kind in kinds.items() if "running" in name} == {torch.float32}
    assert torch.float16 in kinds.values()
    full, halved = (load_bundle(folder).method.predict(IMAGES) for folder in (saved, half))
    assert 0 < (full - halved).abs().max() < 0.01


@dataclass(frozen=True)
class PlayersConfig:
    """Size of the player that does not predict."""

    width: int = 8


class TwoPlayers(PCE):
    """A segmenter, a discriminator that does not predict, and a correction that does."""

    Config = PlayersConfig

    def __init__(self, config, task, build_network):
        super().__init__(config, task, build_network)
        self.discriminator = nn.Linear(config.width, config.width)
        self.correction = nn.Conv2d(task.classes, task.classes, 1)

    def predict(self, images):
        return self.correction(self.network(images)).softmax(dim=1)

    def prediction_modules(self):
        return ("network", "correction")


@pytest.fixture
def two_players(tmp_path, monkeypatch):
    entry = methods.MethodEntry(TwoPlayers, "toy", "none")
    monkeypatch.setitem(METHODS, "two-players", entry)
    spec = replace(tiny_spec(), method="two-players", method_options=PlayersConfig())
    method = random_method(spec)
    return method, save_bundle(tmp_path / "players", method=method, spec=spec)


def test_only_what_predicts_travels(two_players):
    method, folder = two_players
    names = safetensors.torch.load_file(folder / WEIGHTS)
    assert {name.split(".")[0] for name in names} == {"network", "correction"}
    loaded = load_bundle(folder).method
    assert {name for name, _ in loaded.named_children()} == {"network", "correction"}
    assert torch.equal(loaded.predict(IMAGES), method.predict(IMAGES))


def test_loading_leaves_the_random_state_alone(saved):
    torch.manual_seed(5)
    expected = torch.rand(3)
    torch.manual_seed(5)
    load_bundle(saved)
    assert torch.equal(torch.rand(3), expected)


def test_a_run_folder_is_a_model_too(tmp_path, saved):
    run = tmp_path / "run"
    run.mkdir()
    saved.rename(run / "model")
    assert load_bundle(run).path == run / "model"
    assert "no such run, bundle or shipped model; " in refusal(tmp_path / "nothing")


def test_a_new_bundle_replaces_an_old_one_and_leaves_nothing_beside_it(tmp_path, saved):
    spec = tiny_spec()
    save_bundle(saved, method=random_method(spec, seed=1), spec=spec)
    expected = random_method(spec, seed=1).predict(IMAGES)
    assert torch.equal(load_bundle(saved).method.predict(IMAGES), expected)
    assert os.listdir(tmp_path) == ["model"]
    assert sorted(os.listdir(saved)) == [DESCRIPTION, WEIGHTS]


def test_a_write_that_fails_leaves_the_old_bundle_and_nothing_else(tmp_path, saved, monkeypatch):
    def full_disk(*_):
        raise OSError(28, "No space left on device")

    before = (saved / WEIGHTS).read_bytes()
    monkeypatch.setattr(Path, "write_bytes", full_disk)
    with pytest.raises(InputError, match="no space left"):
        save_bundle(saved, method=random_method(tiny_spec(), seed=1), spec=tiny_spec())
    assert (saved / WEIGHTS).read_bytes() == before
    assert os.listdir(tmp_path) == ["model"]


def test_a_kill_between_the_two_renames_leaves_the_old_model(saved, monkeypatch):
    before, rename = (saved / WEIGHTS).read_bytes(), os.replace

    def killed(source, target):
        if Path(target) == saved:
            raise KeyboardInterrupt
        rename(source, target)

    monkeypatch.setattr(os, "replace", killed)
    with pytest.raises(KeyboardInterrupt):
        save_bundle(saved, method=random_method(tiny_spec(), seed=1), spec=tiny_spec())
    monkeypatch.undo()
    assert not saved.exists()
    assert (load_bundle(saved).path / WEIGHTS).read_bytes() == before
    save_bundle(saved, method=random_method(tiny_spec(), seed=1), spec=tiny_spec())
    assert load_bundle(saved).path == saved


class Payload:
    """Unpickling this creates a file."""

    def __init__(self, target: Path) -> None:
        self.target = target

    def __reduce__(self):
        return (open, (str(self.target), "w"))


@pytest.mark.parametrize("name", ["model.pt", "model.pth", "model.pkl", "last.ckpt", "pytorch_model.bin"])
def test_a_hostile_pickle_is_refused_and_never_runs(tmp_path, name):
    (tmp_path / name).write_bytes(pickle.dumps(Payload(tmp_path / "it ran")))
    assert "pickles, which can run any code" in refusal(tmp_path / name)
    assert not (tmp_path / "it ran").exists()
    pickle.loads((tmp_path / name).read_bytes())
    assert (tmp_path / "it ran").exists(), "the payload of this test does nothing"


def test_a_hostile_pickle_in_the_place_of_weights_never_runs(tmp_path, saved):
    target = tmp_path / "it ran"
    for content in (pickle.dumps(Payload(target)), b""):
        assert "not a safetensors file" in refusal(replace_weights(saved, content))
    torch.save({"w": Payload(target)}, tmp_path / "zip")
    assert "not a safetensors file" in refusal(replace_weights(saved, (tmp_path / "zip").read_bytes()))
    assert not target.exists()


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"kind": "other"}, "not the description of a model"),
        ({"format": 2}, "newer shapepu"),
        ({"format": "1"}, "expected a whole number"),
        ({"method": "magic"}, "unknown method 'magic'"),
        ({"network": "resnet"}, "unknown network 'resnet'"),
        ({"method": 3}, "method: expected str"),
        ({"labels": None}, "labels: expected dict"),
        ({"labels": {"background": 0}}, "2 to 250 classes"),
        ({"labels": {"background": 0, "a": 1.5}}, "expected a whole number"),
        ({"labels": {"background": 0, "a": 10**9}}, "16 bits"),
        ({"labels": {"background": 0, "a\x1b[2J": 1}}, "no name for a class"),
        ({"channels": []}, "1 to 64 expected"),
        ({"channels": ["c"] * 100_000}, "1 to 64 expected"),
        ({"channels": [{"path": "../../etc"}]}, "no name for a class or channel"),
        ({"network_options__widths": [2**40, 2]}, "out of range"),
        ({"network_options__widths": [2**16] * 50}, "another network"),
        ({"network_options__depth": 3}, "unknown setting 'depth'"),
        ({"network_options__widths": []}, "widths"),
        ({"network_options__widths": [4, 16]}, "another network"),
        ({"preprocessing__spacing_mm": [0.0, 1.0]}, "two positive numbers"),
        ({"preprocessing__patch": None}, "missing"),
        ({"preprocessing__patch": [10**7, 10]}, "at most 8192 pixels"),
        ({"preprocessing__intensity": "ct"}, "statistics are missing"),
        ({"preprocessing__statistics": [{"low": 1.0}]}, "'deviation' is missing"),
        ({"averaging": "all"}, "averaging: expected one of none, flips, rotations"),
        ({"averaging": ["none"]}, "averaging: expected one of"),
        ({"weights_sha256": "0" * 64}, "damaged"),
        ({"weights_sha256": None}, "weights_sha256: expected str"),
    ],
)
def test_a_wrong_description_is_refused_in_one_line(saved, changes, message):
    assert message in refusal(edit(saved, **changes))


def test_a_description_from_before_views_were_averaged_means_the_slice_alone(saved):
    description = json.loads((saved / DESCRIPTION).read_text())
    assert description.pop("averaging") == "none"
    (saved / DESCRIPTION).write_text(json.dumps(description))
    assert load_bundle(saved).spec.averaging == "none"


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "cannot be read as JSON"),
        ("[" * 100_000, "cannot be read as JSON"),
        ('{"kind": NaN}', "NaN is no finite number"),
        ('{"kind": 1e999}', "1e999 is no finite number"),
        ("\udcff", "cannot be read as JSON"),
        ("[1, 2]", "not the description of a model"),
        (" " * 2**21, "larger than"),
    ],
)
def test_a_description_that_is_no_json_is_refused(saved, text, message):
    (saved / DESCRIPTION).write_bytes(text.encode("utf-8", "surrogateescape"))
    assert message in refusal(saved)


def test_weights_that_are_not_the_networks_are_refused(saved):
    weights = safetensors.torch.load_file(saved / WEIGHTS)
    name = "network.head.weight"
    for changed, message in [
        ({k: w for k, w in weights.items() if k != name}, "is missing"),
        ({**weights, "network.extra": torch.zeros(1)}, "network.extra is unknown"),
        ({**weights, name: weights[name][:1]}, "expected"),
        ({**weights, name: torch.full_like(weights[name], torch.nan)}, "NaN or infinity"),
        ({**weights, name: weights[name].long()}, "torch.int64"),
    ]:
        assert message in refusal(replace_weights(saved, safetensors.torch.save(changed)))


def test_a_single_flipped_bit_and_a_truncation_are_noticed(saved):
    content = bytearray((saved / WEIGHTS).read_bytes())
    content[-5] ^= 1
    (saved / WEIGHTS).write_bytes(content)
    assert "damaged" in refusal(saved)
    assert "not a safetensors file" in refusal(replace_weights(saved, bytes(content[:-40])))
    (saved / WEIGHTS).unlink()
    assert "missing" in refusal(saved)


def test_sizes_beyond_reason_are_refused_before_memory_is_taken(saved, two_players):
    tensor = {"dtype": "F32", "shape": [2**34], "data_offsets": [0, 2**36]}
    header = json.dumps({"network.a": tensor}).encode()
    hostile = len(header).to_bytes(8, "little") + header + bytes(16)
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    assert "not a safetensors file" in refusal(replace_weights(saved, hostile))
    # Weights that fit, beside a module that does not predict and would take 16 GiB.
    assert "at most" in refusal(edit(two_players[1], method_options__width=2**16))
    assert resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before < 100 * 1024


def test_the_description_is_complete_before_training_ends_in_vain():
    with pytest.raises(InputError, match="spacing_mm, patch or statistics are missing"):
        replace(tiny_spec(), preprocessing=Preprocessing())
    with pytest.raises(InputError, match="the background must be the first class"):
        tiny_spec(LabelSet(("a", "background")))


@pytest.mark.parametrize("number", [float("nan"), float("inf"), 1e6])
def test_options_that_could_not_be_read_again_are_refused_before_they_are_written(number):
    with pytest.raises(InputError, match=r"method_options: .* is out of range"):
        replace(tiny_spec(), method="accl", method_options=ACCLConfig(adversarial_weight=number))


def test_names_may_hold_any_space_and_values_any_16_bits(tmp_path):
    labels = LabelSet(("background", "left\xa0ventricle", "右\u3000心室"), (0, 40_000, -7), 65_535)
    spec = tiny_spec(labels, channels=("T2\u202fstar",))
    loaded = load_bundle(save_bundle(tmp_path / "m", method=random_method(spec), spec=spec)).spec
    assert (loaded.labels, loaded.channels) == (labels, ("T2\u202fstar",))
