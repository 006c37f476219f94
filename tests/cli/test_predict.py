"""``shapepu predict`` as a user meets it: exit code, what is printed, and processes that die or share."""

from __future__ import annotations

import os
import pickle
import signal
import subprocess
import sys
import time
from pathlib import Path

import nibabel as nib
import numpy as np
import pytest

from shapepu.bundle import save_bundle
from shapepu.cli import main
from shapepu.sharding import LAUNCHERS
from tiny_models import random_method, tiny_spec
from volume_files import random_image, write_nifti

COMMAND = [sys.executable, "-c", "import sys; from shapepu.cli import main; sys.exit(main())", "predict"]


@pytest.fixture(autouse=True)
def no_launcher(monkeypatch):
    for names in LAUNCHERS:
        for name in names:
            monkeypatch.delenv(name, raising=False)


@pytest.fixture
def run_folder(tmp_path) -> Path:
    spec = tiny_spec()
    save_bundle(tmp_path / "run" / "model", method=random_method(spec), spec=spec)
    return tmp_path / "run"


@pytest.fixture
def images(tmp_path) -> Path:
    for number in range(3):
        write_nifti(tmp_path / "in" / f"case{number}_0000.nii.gz", random_image((3, 40, 36), seed=number))
    return tmp_path / "in"


def predict(*arguments: object) -> int:
    return main(["predict", *map(str, arguments)])


def labels_in(folder: Path) -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in folder.glob("*.nii.gz") if not path.name.startswith(".")}


def refused(capsys, *arguments: object) -> str:
    """The one line after which nothing happens."""
    assert predict(*arguments) == 2
    out, err = capsys.readouterr()
    assert out == ""
    last = err.splitlines()[-1]
    assert last.startswith("shapepu predict: ")
    return last


def test_a_folder_is_predicted_and_the_next_command_named(tmp_path, run_folder, images, capsys):
    assert predict(run_folder, images, tmp_path / "out") == 0
    out, err = capsys.readouterr()
    assert out.splitlines()[0].startswith("3 cases predicted, ")
    assert out.splitlines()[1] == f"next: shapepu evaluate {tmp_path / 'out'} REFERENCES"
    assert err.splitlines() == [
        f"shapepu predict: loading {run_folder}",
        "model: pce, fast_unet (0.0 M weights), rv, myo, lv, trained on toy",
    ]
    assert sorted(labels_in(tmp_path / "out")) == ["case0.nii.gz", "case1.nii.gz", "case2.nii.gz"]


def test_the_next_command_knows_the_names_of_the_structures(tmp_path, run_folder, images, capsys):
    predict(run_folder, images, tmp_path / "out", "--uncertainty", "--quiet")
    for number in range(3):
        write_nifti(tmp_path / "references" / f"case{number}.nii.gz", np.ones((3, 40, 36), np.uint8))
    assert main(["evaluate", str(tmp_path / "out"), str(tmp_path / "references")]) == 0
    out = capsys.readouterr().out
    assert "myo" in out
    assert "uncertainty" not in out


def test_the_second_time_everything_is_there_already(tmp_path, run_folder, images, capsys):
    predict(run_folder, images, tmp_path / "out", "--quiet")
    assert capsys.readouterr() == ("", "")
    assert predict(run_folder, images, tmp_path / "out") == 0
    assert "0 cases predicted; 3 were there already" in capsys.readouterr().out


def test_failures_are_listed_at_the_end_and_the_exit_code_tells(tmp_path, run_folder, images, capsys):
    (images / "case1_0000.nii.gz").write_bytes(b"")
    bad = np.full((3, 40, 36), np.nan, np.float32)
    write_nifti(images / "case2_0000.nii.gz", bad)
    assert predict(run_folder, images, tmp_path / "out") == 2
    out, err = capsys.readouterr()
    assert out.startswith("1 case predicted")
    listed = err.splitlines()[-3:]
    assert listed[0].startswith("shapepu predict: case1: ")
    assert "NaN" in listed[1]
    assert listed[2] == "shapepu predict: 2 of 3 cases could not be predicted."
    assert list(labels_in(tmp_path / "out")) == ["case0.nii.gz"]


@pytest.mark.parametrize("broken", ["truncated", "text", "two-dimensional", "four-dimensional"])
def test_one_image_that_cannot_be_used_is_named(tmp_path, run_folder, capsys, broken):
    path = tmp_path / "case.nii.gz"
    shape = {"two-dimensional": (8, 8), "four-dimensional": (2, 3, 8, 8)}.get(broken, (3, 8, 8))
    nib.save(nib.Nifti1Image(np.arange(np.prod(shape), dtype=np.int16).reshape(shape).T, np.eye(4)), path)
    if broken == "truncated":
        path.write_bytes(path.read_bytes()[:-40])
    if broken == "text":
        path.write_text("no image")
    assert str(path) in refused(capsys, run_folder, path, tmp_path / "out")
    assert not (tmp_path / "out").exists()


def test_what_cannot_be_used_is_said_in_one_line(tmp_path, run_folder, images, capsys):
    out = tmp_path / "out"
    (tmp_path / "empty").mkdir()
    (tmp_path / "model.pt").write_bytes(pickle.dumps({}))
    (tmp_path / "file").write_text("")
    write_nifti(images / "case0_0001.nii.gz", random_image())
    for arguments, message in [
        ((tmp_path / "nothing", images, out), "no such run, bundle or shipped model"),
        ((tmp_path / "empty", images, out), "no model.json in it"),
        ((tmp_path / "model.pt", images, out), "pickles, which can run any code"),
        ((run_folder, tmp_path / "nothing", out), "no such file or folder"),
        ((run_folder, tmp_path / "empty", out), "no image in it"),
        ((run_folder, images, images), "holds the images"),
        ((run_folder, images, tmp_path / "file"), "it is a file, not a folder"),
        ((run_folder, images, out, "--shard", "4/3"), "the first number counts from 1"),
    ]:
        assert message in refused(capsys, *arguments), message
    assert not out.exists()


def test_a_folder_that_cannot_be_written_is_known_before_anything_is_predicted(
    tmp_path, run_folder, images, capsys, monkeypatch
):
    def no_permission(self, *_):
        raise PermissionError(13, "Permission denied")

    monkeypatch.setattr(Path, "write_bytes", no_permission)
    assert "no permission to write there" in refused(capsys, run_folder, images, tmp_path / "out")


def test_a_disk_that_fills_up_ends_the_run_with_whole_files_only(tmp_path, run_folder, capsys):
    images, out = tmp_path / "in", tmp_path / "out"
    for number in range(5):  # 14 kB of labels each
        write_nifti(images / f"case{number}.nii", random_image((4, 60, 60), seed=number))
    out.mkdir()
    mount = ["mount", "-t", "tmpfs", "-o", "size=64k", "tmpfs", str(out)]
    if subprocess.run(mount, capture_output=True, check=False).returncode:
        pytest.skip("a small tmpfs cannot be mounted here")
    try:
        assert "no space left there" in refused(capsys, run_folder, images, out)
        assert sorted(path.name for path in out.iterdir()) == [
            "case0.nii",
            "case1.nii",
            "case2.nii",
            "prediction.json",
        ]
        assert nib.load(out / "case2.nii").get_fdata().shape == (60, 60, 4)
    finally:
        subprocess.run(["umount", str(out)], check=True)


def test_ranks_of_a_launcher_divide_the_folder(tmp_path, run_folder, images, capsys, monkeypatch):
    out, written = tmp_path / "out", []
    monkeypatch.setenv("WORLD_SIZE", "2")
    for rank in "01":
        monkeypatch.setenv("RANK", rank)
        before = set(labels_in(out)) if out.exists() else set()
        assert predict(run_folder, images, out) == 0
        assert f"shard {int(rank) + 1}/2 by RANK" in capsys.readouterr().err
        written.append(set(labels_in(out)) - before)
    assert written == [{"case0.nii.gz", "case2.nii.gz"}, {"case1.nii.gz"}]


def test_a_shard_without_a_case_is_done_at_once(tmp_path, run_folder, images, capsys):
    assert predict(run_folder, images, tmp_path / "out", "--shard", "5/5") == 0
    assert capsys.readouterr().out.startswith("0 cases predicted")


def test_ctrl_c_ends_with_130_and_leaves_whole_files_only(tmp_path, run_folder):
    images, out = tmp_path / "many", tmp_path / "out"
    for number in range(24):
        write_nifti(images / f"case{number:02d}.nii.gz", random_image((4, 200, 200), seed=number))
    process = subprocess.Popen(
        [*COMMAND, run_folder, images, out],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        # A shell lets what it starts in the background ignore Ctrl-C, and so would these tests there.
        preexec_fn=lambda: signal.signal(signal.SIGINT, signal.SIG_DFL),
    )
    while process.poll() is None and not labels_in(out):
        time.sleep(0.002)
    process.send_signal(signal.SIGINT)
    _, err = process.communicate(timeout=60)
    assert process.returncode == 130, err
    assert err.splitlines()[-1] == "shapepu predict: interrupted."
    assert "Traceback" not in err
    done = labels_in(out)
    assert 0 < len(done) < 24, "was finished before it could be interrupted"
    assert {path.name for path in out.rglob("*")} == {*done, "prediction.json"}
    for name in done:
        assert nib.load(out / name).get_fdata().shape == (200, 200, 4)
    assert predict(run_folder, images, out, "--quiet") == 0
    assert len(labels_in(out)) == 24


@pytest.mark.slow
def test_two_processes_share_a_folder_and_one_killed_at_work_is_made_up_for(tmp_path, run_folder):
    images, out, alone = tmp_path / "many", tmp_path / "out", tmp_path / "alone"
    for number in range(24):
        write_nifti(images / f"case{number:02d}.nii.gz", random_image((4, 200, 200), seed=number))
    assert predict(run_folder, images, alone, "--quiet") == 0
    # One thread each, and no bfloat16: sums then do not depend on who else is at work.
    environment = {**os.environ, "OMP_NUM_THREADS": "1"}
    processes = [
        subprocess.Popen(
            [*COMMAND, run_folder, images, out, "--shard", f"{number}/2"],
            env=environment,
            stderr=subprocess.DEVNULL,
        )
        for number in (1, 2)
    ]
    while processes[0].poll() is None and not (out / "case04.nii.gz").exists():
        time.sleep(0.002)
    processes[0].send_signal(signal.SIGKILL)
    assert processes[0].wait() == -signal.SIGKILL, "was finished before it could be killed"
    assert processes[1].wait() == 0
    done = labels_in(out)
    assert {f"case{number:02d}.nii.gz" for number in range(1, 24, 2)} <= set(done)
    assert len(done) < 24
    for name in done:
        assert nib.load(out / name).get_fdata().shape == (200, 200, 4)
    assert predict(run_folder, images, out, "--quiet") == 0
    assert set(labels_in(out)) == set(labels_in(alone))
    for name in labels_in(alone):
        ours, theirs = (nib.load(folder / name).get_fdata() for folder in (out, alone))
        assert (ours != theirs).mean() < 1e-3, name


def test_the_help_text_is_without_marks_for_documentation_pages(capsys):
    with pytest.raises(SystemExit):
        main(["predict", "--help"])
    assert "`" not in capsys.readouterr().out


def test_the_help_text_does_not_wait_for_torch():
    code = "import sys, shapepu.cli.predict; sys.exit('torch' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0
