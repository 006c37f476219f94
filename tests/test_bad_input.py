"""What cannot be used is refused in one line that says what to do: exit code 2, and nothing half-written."""

from __future__ import annotations

import hashlib
import io
import json
import os
import pickle
import shutil
import subprocess
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import SimpleITK as sitk
import torch
import yaml

from shapepu.checkpoint import load_checkpoint
from shapepu.cli import main
from shapepu.training import Trainer
from small_runs import (
    arguments,
    figures,
    metrics,
    refused,
    resume_arguments,
    train,
    visible_files,
    weights,
    write_hearts,
)

Message = Callable[..., str]
UNLABELLED = 4


@pytest.fixture(scope="module")
def hearts(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Good data; no test may change it."""
    return write_hearts(tmp_path_factory.mktemp("bad") / "hearts")


@pytest.fixture
def data(tmp_path: Path) -> Path:
    """Good data to spoil."""
    return write_hearts(tmp_path / "data")


@pytest.fixture(scope="module")
def finished(hearts: Path) -> Path:
    return train(hearts, hearts.parent / "finished", "--quiet", epochs=1)


@pytest.fixture
def copy(finished: Path, tmp_path: Path) -> Path:
    """A finished run to spoil."""
    shutil.copytree(finished, tmp_path / "copy")
    return tmp_path / "copy"


@pytest.fixture
def message(capsys: pytest.CaptureFixture[str]) -> Message:
    """The line that refuses to train, after making sure that no run was left behind."""

    def of(data: Path, *options: str, run: Path | None = None) -> str:
        run = run or data.parent / "refused"
        there = visible_files(run) if run.is_dir() else run.exists()
        said = refused(arguments(data, run, *options), capsys)
        assert (visible_files(run) if run.is_dir() else run.exists()) == there, "nothing is half-written"
        return said

    return of


@contextmanager
def tmpfs(folder: Path, size: str) -> Iterator[Path]:
    """A file system of its own, small enough to be filled."""
    folder.mkdir()
    mounted = subprocess.run(
        ["mount", "-t", "tmpfs", "-o", f"size={size}", "none", str(folder)], capture_output=True, text=True
    )
    if mounted.returncode:
        pytest.skip(f"a tmpfs cannot be mounted here: {mounted.stderr.strip()}")
    try:
        yield folder
    finally:
        subprocess.run(["umount", "--lazy", str(folder)], check=True)


def fill(folder: Path) -> Path:
    """Leave not a byte."""
    filler = folder / "filler"
    with open(filler, "wb", buffering=0) as stream:
        try:
            while stream.write(b"0" * 4096):
                pass
        except OSError:
            return filler
    raise AssertionError("unreachable")


class TestOptions:
    @pytest.mark.parametrize(
        ("options", "expected"),
        [
            (("--method", "shapup"), "unknown method 'shapup'; did you mean 'shapepu'? Known: "),
            (
                ("--recipe", "fsat"),
                "unknown recipe 'fsat'; did you mean 'fast'? Known: fast, paper, thorough.",
            ),
            (("--network", "unett"), "unknown network 'unett'; did you mean 'unet'? Known: fast_unet, unet."),
            (("--layout", "nnunett"), "unknown layout 'nnunett'; did you mean 'nnunet'?"),
            (("--epochs", "0"), "epochs: expected at least 1, got 0."),
            (("--minutes", "-1"), "minutes: expected more than 0, got -1.0."),
            (("--seed", "-1"), "seed: expected a whole number from 0 to 2^63 - 1, got -1."),
            (("--optimisation.batch-size", "0"), "optimisation.batch_size: 0 is out of range"),
            (("--splits", "absent.json"), "absent.json: no such split file."),
        ],
    )
    def test_wrong_values_are_named(
        self, options: tuple[str, ...], expected: str, hearts: Path, message: Message
    ) -> None:
        assert expected in message(hearts, *options)

    @pytest.mark.skipif(torch.cuda.is_available(), reason="a GPU is there")
    def test_a_gpu_that_is_not_there(self, hearts: Path, message: Message) -> None:
        said = message(hearts, "--device", "cuda")
        assert "'cuda' was asked for, but there is no usable GPU; take 'cpu' or 'auto'" in said

    def test_all_losses_switched_off(self, hearts: Path, message: Message) -> None:
        off = ("--shapepu.no-positive", "--shapepu.no-negative", "--shapepu.no-consistency")
        assert "leave at least --shapepu.positive on" in message(hearts, "--method", "shapepu", *off)


class TestOutput:
    def test_a_run_that_is_there(self, hearts: Path, finished: Path, message: Message) -> None:
        before = weights(finished)
        assert f"a run is already there; continue it with --resume {finished}" in message(
            hearts, run=finished
        )
        assert weights(finished) == before

    def test_a_file_in_its_place(self, hearts: Path, tmp_path: Path, message: Message) -> None:
        (tmp_path / "run").write_text("precious")
        assert "it is a file, not a folder; choose another name" in message(hearts, run=tmp_path / "run")
        assert "not a folder; choose another" in message(hearts, run=tmp_path / "run/below")
        assert (tmp_path / "run").read_text() == "precious"

    def test_a_folder_that_cannot_be_written(self, hearts: Path, tmp_path: Path, message: Message) -> None:
        with tmpfs(tmp_path / "disk", "1m") as disk:
            subprocess.run(["mount", "-o", "remount,ro", str(disk)], check=True)
            assert f"cannot write {disk / 'run'}: it is read-only" in message(hearts, run=disk / "run")

    @pytest.mark.skipif(os.geteuid() == 0, reason="root may write anywhere")
    def test_a_folder_of_somebody_else(self, hearts: Path, tmp_path: Path, message: Message) -> None:
        (tmp_path / "locked").mkdir(mode=0o500)
        assert "no permission to write there" in message(hearts, run=tmp_path / "locked/run")

    def test_a_full_disk_is_known_before_work_begins(
        self, hearts: Path, tmp_path: Path, message: Message
    ) -> None:
        with tmpfs(tmp_path / "disk", "1m") as disk:
            fill(disk)
            assert "no space left there; free some or choose another folder" in message(
                hearts, run=disk / "run"
            )
            assert [path.name for path in disk.iterdir()] == ["filler"]

    def test_a_cache_without_space_names_the_option(
        self, data: Path, tmp_path: Path, message: Message
    ) -> None:
        with tmpfs(tmp_path / "disk", "1m") as disk:
            fill(disk)
            assert "--cache FOLDER" in message(data, "--cache", str(disk / "cache"))

    @pytest.mark.parametrize("name", ["_steps", "_validate"])
    def test_a_disk_that_fills_up_while_training_costs_an_epoch(
        self,
        name: str,
        hearts: Path,
        tmp_path: Path,
        capsys: pytest.CaptureFixture[str],
        monkeypatch: pytest.MonkeyPatch,
    ) -> None:
        straight = train(hearts, tmp_path / "straight", "--quiet", epochs=4)
        original = getattr(Trainer, name)

        with tmpfs(tmp_path / "disk", "4m") as disk:

            def filling(trainer: Trainer, watch: Any) -> Any:
                if trainer.state.epoch == 2:
                    fill(disk)
                return original(trainer, watch)

            with monkeypatch.context() as patched:
                patched.setattr(Trainer, name, filling)
                said = refused(arguments(hearts, disk / "run", "--quiet", epochs=4), capsys)
            assert "no space left there; free some" in said
            kept = 2 if name == "_steps" else 1
            assert load_checkpoint(disk / "run/checkpoint/last.pt")["epoch"] == kept
            assert len(metrics(disk / "run")) == kept
            (disk / "filler").unlink()
            assert main(resume_arguments(hearts, disk / "run", "--quiet")) == 0
            assert weights(disk / "run") == weights(straight)
            assert figures(disk / "run") == figures(straight)

    def test_a_disk_that_is_full_at_the_export_costs_nothing(
        self,
        hearts: Path,
        tmp_path: Path,
        capsys: pytest.CaptureFixture[str],
        monkeypatch: pytest.MonkeyPatch,
    ) -> None:
        with tmpfs(tmp_path / "disk", "4m") as disk:
            fit = Trainer.fit

            def filling(trainer: Trainer) -> Any:
                method = fit(trainer)
                fill(disk)
                return method

            with monkeypatch.context() as patched:
                patched.setattr(Trainer, "fit", filling)
                assert "no space left" in refused(arguments(hearts, disk / "run", "--quiet"), capsys)
            assert not (disk / "run/model").exists()
            (disk / "filler").unlink()
            assert main(resume_arguments(hearts, disk / "run", "--quiet")) == 0
            assert (disk / "run/validation/summary.json").is_file()

    @pytest.mark.parametrize("suffix", [".nii.gz", ".nrrd", ".mha"])
    def test_predictions_on_a_full_disk_are_whole_or_absent(
        self, suffix: str, finished: Path, hearts: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
    ) -> None:
        image = sitk.ReadImage(str(hearts / "test/images/test000.nii.gz"))
        (tmp_path / "images").mkdir()
        sitk.WriteImage(image, str(tmp_path / f"images/heart{suffix}"))
        with tmpfs(tmp_path / "disk", "1m") as disk:
            (disk / "out").mkdir()
            filler = fill(disk)
            os.truncate(filler, filler.stat().st_size - 4096)  # enough for the record and for no labels
            argv = ["predict", str(finished), str(tmp_path / "images"), str(disk / "out"), "--quiet"]
            assert "no space left" in refused(argv, capsys)
            assert not (disk / f"out/heart{suffix}").exists()
            filler.unlink()
            assert main(argv) == 0
            whole = sitk.GetArrayFromImage(sitk.ReadImage(str(disk / f"out/heart{suffix}")))
            assert whole.shape == sitk.GetArrayFromImage(image).shape


class TestData:
    def test_no_such_folder(self, tmp_path: Path, message: Message) -> None:
        said = message(tmp_path / "absent")
        assert f"{tmp_path / 'absent'}: a data set folder expected, but nothing of that name is there" in said

    def test_a_folder_of_no_known_layout(self, tmp_path: Path, message: Message) -> None:
        (tmp_path / "odd").mkdir()
        assert "no known layout" in message(tmp_path / "odd")

    def test_no_scribbles_at_all(self, data: Path, message: Message) -> None:
        for path in (data / "train/scribbles").iterdir():
            path.unlink()
        assert "no training case" in message(data)

    def test_scribbles_that_hold_nothing(self, data: Path, message: Message) -> None:
        for path in sorted((data / "train/scribbles").iterdir()):
            rewrite(path, lambda labels: np.full_like(labels, UNLABELLED))
        assert "the scribble files of the training cases are empty; draw some" in message(data)

    def test_a_class_that_is_never_scribbled(self, data: Path, message: Message) -> None:
        for path in sorted((data / "train/scribbles").iterdir()):
            rewrite(path, lambda labels: np.where(labels == 2, UNLABELLED, labels))
        said = message(data)
        assert "class 'myo' is scribbled in no training case, so it cannot be learned; draw some" in said

    def test_labels_outside_the_set(self, data: Path, message: Message) -> None:
        path = data / "train/scribbles/train001.nii.gz"
        rewrite(path, lambda labels: labels + 7)
        said = message(data)
        assert f"{path}: it holds the values 7 (" in said
        assert "expected 0 background, 1 rv, 2 myo, 3 lv, 4 ignore; correct the file or the label set" in said

    def test_labels_that_are_no_whole_numbers(self, data: Path, message: Message) -> None:
        path = data / "train/scribbles/train001.nii.gz"
        rewrite(path, lambda labels: np.where(labels == 1, 1.5, labels).astype(np.float32))
        said = message(data)
        assert f"{path}: labels are whole numbers, but " in said
        assert "voxels are not (for example 1.5)" in said

    @pytest.mark.parametrize(
        ("shape", "reason"),
        [
            ((40, 32), "got 2-D (32 x 40); save a single 2-D image as a volume of one slice"),
            ((2, 4, 40, 32), "got 4-D (32 x 40 x 4 x 2); save each time frame as a case"),
        ],
    )
    def test_an_image_that_is_no_volume(
        self, shape: tuple[int, ...], reason: str, data: Path, message: Message
    ) -> None:
        path = data / "train/images/train001.nii.gz"
        write(path, np.zeros(shape, np.int16), (4.0,) * len(shape))
        assert f"{path}: a 3-D volume expected, {reason}" in message(data)

    def test_an_image_and_a_scribble_of_different_size(self, data: Path, message: Message) -> None:
        rewrite(data / "train/scribbles/train001.nii.gz", lambda labels: labels[:, :-1])
        said = message(data)
        assert "scribbles/train001.nii.gz" in said
        assert "shape" in said

    @pytest.mark.parametrize("value", [np.nan, np.inf])
    def test_voxels_that_are_no_numbers(self, value: float, data: Path, message: Message) -> None:
        def spoil(image: np.ndarray) -> np.ndarray:
            image = image.astype(np.float32)
            image[0, 0, 0] = value
            return image

        rewrite(data / "train/images/train002.nii.gz", spoil)
        said = message(data)
        assert "train002.nii.gz: 1 of " in said
        assert "Repair the file or leave the case out" in said

    @pytest.mark.parametrize("kind", ["images", "scribbles"])
    @pytest.mark.parametrize(
        ("spoil", "reason"),
        [
            (lambda content: b"", "an image expected, but the file is empty (0 bytes)"),
            (
                lambda content: b"not an image",
                "a NIfTI file expected, but its content starts with b'not an image'",
            ),
            (lambda content: content[:-40], "truncated: its compressed stream ends too early"),
        ],
        ids=["empty", "text", "truncated"],
    )
    def test_a_file_that_is_no_image(
        self, kind: str, spoil: Callable[[bytes], bytes], reason: str, data: Path, message: Message
    ) -> None:
        path = data / f"train/{kind}/train000.nii.gz"
        path.write_bytes(spoil(path.read_bytes()))
        assert f"{path}: {reason}" in message(data)

    def test_a_broken_validation_case_is_known_before_training(self, data: Path, message: Message) -> None:
        rewrite(data / "val/masks/val000.nii.gz", lambda labels: labels[:-1])
        said = message(data)
        assert "val000.nii.gz" in said
        assert "shape" in said

    @pytest.mark.parametrize(
        ("text", "reason"),
        [
            (None, "dataset.json is missing: nnU-Net's layout needs it, with labels, channel_names and file"),
            ('{"labels":', "dataset.json: invalid JSON in line 1, column 11"),
            ('{"labels": [0, 1]}', 'dataset.json: the key "labels" is missing or not an object'),
            ('{"labels": {"background": 0, "rv": 1}}', 'dataset.json: "channel_names" must number the'),
            (
                '{"channel_names": {"0": "MRI"}, "labels": {"background": 0, "rv": 1, "ignore": 9}}',
                'dataset.json: "ignore" must be the highest label, here 2; got 9',
            ),
        ],
        ids=["missing", "broken", "labels as a list", "no channels", "ignore too high"],
    )
    def test_a_missing_or_wrong_dataset_json(
        self, text: str | None, reason: str, data: Path, tmp_path: Path, message: Message
    ) -> None:
        root = as_nnunet(data, tmp_path / "nnunet")
        if text is not None:
            (root / "dataset.json").write_text(text)
        assert reason in message(root)


class TestUnusualData:
    """Fine, though unusual: no message, a run that ends well."""

    def test_slices_cases_and_images_of_any_size_train_together(self, data: Path, tmp_path: Path) -> None:
        """A case without a heart, one slice, one pixel, an image smaller and one larger than the patch."""
        images, scribbles = data / "train/images", data / "train/scribbles"
        shapes = {"empty": (3, 36, 36), "flat": (1, 36, 36), "dot": (1, 1, 1), "small": (2, 9, 7)}
        shapes["large"] = (2, 150, 130)
        for name, shape in shapes.items():
            image = np.random.default_rng(0).integers(0, 1000, shape).astype(np.int16)
            write(images / f"{name}.nii.gz", image)
            write(scribbles / f"{name}.nii.gz", np.where(image % 7 == 0, 0, UNLABELLED).astype(np.uint8))
        run = train(data, tmp_path / "run", "--quiet", "--preprocessing.patch", "48", "48")
        assert len(metrics(run)) == 2
        names = [case["name"] for case in yaml.safe_load((run / "data.json").read_text())["cases"]]
        assert {"dot", "empty", "flat", "large", "small"} < set(names)
        out = tmp_path / "out"
        assert main(["predict", str(run), str(images), str(out), "--quiet"]) == 0
        for name, shape in shapes.items():
            assert sitk.GetArrayFromImage(sitk.ReadImage(str(out / f"{name}.nii.gz"))).shape == shape

    def test_a_case_without_scribble_is_left_out_and_named(
        self, data: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
    ) -> None:
        (data / "train/scribbles/train001.nii.gz").unlink()
        train(data, tmp_path / "run")
        err = capsys.readouterr().err
        assert "left out: train001" in err
        assert "data: 2 training and 1 validation cases" in err


class TestRuns:
    @pytest.mark.parametrize("spoil", [lambda b: b[: len(b) // 2], lambda b: b"", lambda b: b"PK" + b[3:]])
    def test_a_corrupted_checkpoint(
        self, spoil: Callable[[bytes], bytes], copy: Path, hearts: Path, capsys: pytest.CaptureFixture[str]
    ) -> None:
        last = copy / "checkpoint/last.pt"
        last.write_bytes(spoil(last.read_bytes()))
        said = refused(resume_arguments(hearts, copy, "--epochs", "2"), capsys)
        assert f"{last}: not a checkpoint of shapepu, or damaged" in said
        assert weights(copy), "the model that was exported stays"
        assert yaml.safe_load((copy / "config.yaml").read_text())["settings"]["epochs"] == 1

    @pytest.mark.parametrize("file", ["checkpoint/last.pt", "model/weights.safetensors"])
    @pytest.mark.parametrize("kind", ["text", "pickle", "torch.save"])
    def test_bytes_of_a_stranger_are_refused_and_not_executed(
        self,
        kind: str,
        file: str,
        copy: Path,
        hearts: Path,
        tmp_path: Path,
        capsys: pytest.CaptureFixture[str],
    ) -> None:
        owned, out, before = tmp_path / "owned", tmp_path / "out", visible_files(copy)
        content = b"epoch," if kind == "text" else hostile(owned, zipped=kind == "torch.save")
        (copy / file).write_bytes(content)
        vouch_for(content, copy / "model/model.json")
        argv = resume_arguments(hearts, copy, "--epochs", "2")
        if "weights" in file:
            argv = ["predict", str(copy), str(hearts / "test/images"), str(out), "--quiet"]
        said = refused(argv, capsys)
        assert f"{copy / file}: not a " in said
        assert not owned.exists()
        assert not out.exists()
        assert visible_files(copy) == before

    def test_a_checkpoint_of_another_program(
        self, copy: Path, hearts: Path, capsys: pytest.CaptureFixture[str]
    ) -> None:
        torch.save({"state_dict": {}}, copy / "checkpoint/last.pt")
        assert "a file of another program" in refused(resume_arguments(hearts, copy), capsys)

    @pytest.mark.parametrize(
        ("change", "expected"),
        [
            (lambda config: {"model": "resnet"}, "expected the sections 'data' and 'settings' of a run"),
            (lambda config: "text", "expected the settings of a run, got str"),
            (lambda config: {**config, "settings": {}}, "with 'method' and 'network'"),
            (lambda config: {**config, "data": {}}, "the section 'data' is damaged ('path')"),
            (
                lambda config: {**config, "settings": {**config["settings"], "sede": 1}},
                "unknown setting 'sede'. Known: recipe, method,",
            ),
            (
                lambda config: {**config, "settings": {**config["settings"], "method": "magic"}},
                "unknown method 'magic'; did you mean ",
            ),
            (
                lambda config: {**config, "settings": {**config["settings"], "epochs": "ten"}},
                "config.yaml: settings.epochs: expected a value of type int, got 'ten'",
            ),
            (
                lambda config: {
                    **config,
                    "settings": {**config["settings"], "method": "full", "method_options": {}},
                },
                "needs dense masks of the training cases",
            ),
            (
                lambda config: {
                    **config,
                    "settings": {
                        **config["settings"],
                        "network": "unet",
                        "network_options": {"widths": [4, 8]},
                    },
                },
                "last.pt: does not fit the settings in ",
            ),
        ],
    )
    def test_a_foreign_or_edited_config(
        self,
        change: Callable[[Any], Any],
        expected: str,
        copy: Path,
        hearts: Path,
        capsys: pytest.CaptureFixture[str],
    ) -> None:
        config = yaml.safe_load((copy / "config.yaml").read_text())
        (copy / "config.yaml").write_text(yaml.safe_dump(change(config)))
        before = (copy / "config.yaml").read_bytes()
        assert expected in refused(resume_arguments(hearts, copy), capsys)
        assert (copy / "config.yaml").read_bytes() == before

    def test_a_learning_rate_that_explodes(
        self, hearts: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
    ) -> None:
        rate = ("--optimisation.learning-rate", "1e30", "--optimisation.clip-norm", "0", "--quiet")
        said = refused(arguments(hearts, tmp_path / "run", *rate, epochs=5), capsys)
        assert "start again with a lower learning rate (--optimisation.learning-rate)" in said
        assert "stopped: InputError: " in (tmp_path / "run/train.log").read_text()
        last = tmp_path / "run/checkpoint/last.pt"
        if last.exists():
            state = load_checkpoint(last)["method"]
            assert all(bool(torch.isfinite(tensor).all()) for tensor in state.values())


class Payload:
    """What an attacker would send: unpickling it makes a folder."""

    def __init__(self, target: Path) -> None:
        self.target = target

    def __reduce__(self) -> tuple[object, tuple[str]]:
        return os.mkdir, (str(self.target),)


def hostile(owned: Path, *, zipped: bool) -> bytes:
    """A checkpoint that makes the folder ``owned`` when it is unpickled."""
    state, stream = {"format": 1, "epoch": Payload(owned)}, io.BytesIO()
    if zipped:
        torch.save(state, stream)
    else:
        pickle.dump(state, stream, protocol=2)
    return stream.getvalue()


def vouch_for(content: bytes, description: Path) -> None:
    """Let a model say that ``content`` is its weights, or nobody would look into them."""
    plain = json.loads(description.read_text())
    plain["weights_sha256"] = hashlib.sha256(content).hexdigest()
    description.write_text(json.dumps(plain))


def as_nnunet(data: Path, root: Path) -> Path:
    """The training cases in nnU-Net's layout, still without dataset.json."""
    for kind, folder, ending in (("images", "imagesTr", "_0000"), ("scribbles", "labelsTr", "")):
        (root / folder).mkdir(parents=True)
        for path in (data / "train" / kind).iterdir():
            name = path.name.removesuffix(".nii.gz")
            shutil.copy(path, root / folder / f"{name}{ending}.nii.gz")
    return root


def rewrite(path: Path, change: Callable[[np.ndarray], np.ndarray]) -> None:
    """Exchange the voxels of a file and keep their size in mm."""
    image = sitk.ReadImage(str(path))
    array = change(sitk.GetArrayFromImage(image))
    write(path, array, image.GetSpacing()[::-1])


def write(path: Path, array: np.ndarray, spacing_mm: tuple[float, ...] = (8.0, 4.0, 4.0)) -> None:
    image = sitk.GetImageFromArray(array, isVector=False)
    image.SetSpacing(spacing_mm[::-1])
    sitk.WriteImage(image, str(path))
