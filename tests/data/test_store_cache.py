"""An entry of the cache is whole or absent, whoever else is at work and whatever is killed."""

from __future__ import annotations

import errno
import json
import shutil
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from small_cases import LABELS, SAME_GRID, make_case

from shapepu.data import cache, store_build, store_entry
from shapepu.data.case import Case
from shapepu.data.store import SliceStore, open_store
from shapepu.data.store_entry import PRIVATE, ArrayWriter, open_entry, publish, remove_abandoned
from shapepu.errors import InputError


@pytest.fixture
def cases(tmp_path: Path) -> list[Case]:
    return [make_case(tmp_path / "data", name, seed=seed) for seed, name in enumerate(("one", "two"))]


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return tmp_path / "cache"


def open_quietly(cases: list[Case], folder: Path, **changes: object) -> SliceStore:
    return open_store(cases, LABELS, replace(SAME_GRID, **changes), folder, want_masks=True, quiet=True)


def entries(folder: Path) -> list[Path]:
    return sorted((folder / "stores").iterdir())


def forbid_reading(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_: object, **__: object) -> None:
        raise AssertionError("a file was read that had not changed")

    for module, name in (
        (cache, "read_header"),
        (cache, "_digest_of_file"),
        (store_build, "read_volume"),
        (store_build, "read_labels"),
    ):
        monkeypatch.setattr(module, name, refuse)


def test_a_second_start_reads_no_file_of_the_data_set(
    cases: list[Case], folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    first = open_quietly(cases, folder)
    forbid_reading(monkeypatch)
    second = open_quietly(cases, folder)
    np.testing.assert_array_equal(second.images, first.images)
    assert second.stored == first.stored
    assert second.true_ratios().tolist() == first.true_ratios().tolist()


def test_changed_content_or_settings_make_another_store(cases: list[Case], folder: Path) -> None:
    first = open_quietly(cases, folder)
    assert len(entries(folder)) == 1
    open_quietly(cases, folder, padding="background")
    open_quietly(cases[::-1], folder)
    open_store(cases, LABELS, SAME_GRID, folder, quiet=True)
    assert len(entries(folder)) == 4
    kept = np.array(first.images)
    make_case(cases[0].images[0].parent, "one", seed=7)
    assert not np.array_equal(open_quietly(cases, folder).images, kept)
    assert len(entries(folder)) == 5
    np.testing.assert_array_equal(first.images, kept)


def test_the_same_content_elsewhere_is_the_same_store(
    cases: list[Case], folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    open_quietly(cases, folder)
    shutil.copytree(tmp_path / "data", tmp_path / "moved")
    moved = [
        replace(
            case,
            images=tuple(tmp_path / "moved" / path.name for path in case.images),
            scribble=tmp_path / "moved" / case.scribble.name,
            mask=tmp_path / "moved" / case.mask.name,
        )
        for case in cases
        if case.scribble and case.mask
    ]
    monkeypatch.setattr(store_build, "read_volume", None)
    assert len(open_quietly(moved, folder)) == 4
    assert len(entries(folder)) == 1


def test_another_patch_on_the_same_canvas_shares_the_arrays(cases: list[Case], folder: Path) -> None:
    open_quietly(cases, folder, patch=(28, 28), canvas_margin=1.15)
    other = open_quietly(cases, folder, patch=(32, 32), canvas_margin=1.0)
    assert len(entries(folder)) == 1
    assert other.preprocessing.patch == (32, 32)


@pytest.mark.parametrize("name", ["images.npy", "labels.npy", "masks.npy", "index.json"])
@pytest.mark.parametrize("damage", ["missing", "empty", "shortened", "lengthened", "nonsense"])
def test_a_damaged_entry_is_noticed_and_made_again(
    cases: list[Case], folder: Path, name: str, damage: str, capsys: pytest.CaptureFixture[str]
) -> None:
    kept = np.array(open_quietly(cases, folder).images)
    [entry] = entries(folder)
    part, content = entry / name, (entry / name).read_bytes()
    if damage == "missing":
        part.unlink()
    else:
        spoilt = {
            "empty": b"",
            "shortened": content[:-1],
            "lengthened": content + b"x",
            "nonsense": b"\x80\x04" * (len(content) // 2),
        }
        part.write_bytes(spoilt[damage])
    again = open_store(cases, LABELS, SAME_GRID, folder, want_masks=True)
    np.testing.assert_array_equal(again.images, kept)
    assert f"{entry} is damaged; preparing its data again" in capsys.readouterr().err
    assert entries(folder) == [entry]


def test_an_index_that_lies_about_its_arrays_is_not_believed(cases: list[Case], folder: Path) -> None:
    open_quietly(cases, folder)
    [entry] = entries(folder)
    index = json.loads((entry / "index.json").read_text())
    index["arrays"]["labels"][0][0] += 1
    (entry / "index.json").write_text(json.dumps(index))
    assert open_quietly(cases, folder).labels.shape == (4, 16, 16)


def test_an_interrupted_build_leaves_nothing(
    cases: list[Case], folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def interrupt(*_: object) -> None:
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(store_build, "write_index", interrupt)
        with pytest.raises(KeyboardInterrupt):
            open_quietly(cases, folder)
    assert entries(folder) == []
    assert len(open_quietly(cases, folder)) == 4


PROCESS = """
import json, os, sys, time
from pathlib import Path
sys.path.insert(0, {tests!r})
from small_cases import LABELS, SAME_GRID
from shapepu.data import store_build
from shapepu.data.case import Case
from shapepu.data.store import open_store

meeting, waiting_for = Path({meeting!r}), {waiting_for}

def wait_then(function):
    def waiting(*arguments):
        (meeting / str(os.getpid())).touch()
        while len(list(meeting.iterdir())) < waiting_for:
            time.sleep(0.01)
        return function(*arguments)
    return waiting

store_build.publish = wait_then(store_build.publish)
cases = [Case(n, (Path(i),), Path(s), Path(m)) for n, i, s, m in json.loads({cases!r})]
store = open_store(cases, LABELS, SAME_GRID, Path({folder!r}), want_masks=True, quiet=True)
print(int(store.images.view("u2").astype(int).sum()), store.labelled_counts.tolist())
"""


def start_process(cases: list[Case], folder: Path, meeting: Path, waiting_for: int) -> subprocess.Popen[str]:
    """A process that opens the store, but shows what it has built only when as many are ready as said."""
    meeting.mkdir(exist_ok=True)
    files = [(case.name, str(case.images[0]), str(case.scribble), str(case.mask)) for case in cases]
    script = PROCESS.format(
        tests=str(Path(__file__).parent),
        meeting=str(meeting),
        waiting_for=waiting_for,
        cases=json.dumps(files),
        folder=str(folder),
    )
    return subprocess.Popen(
        [sys.executable, "-c", script], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    )


def wait_for(condition: object, seconds: float = 120) -> None:
    end = time.monotonic() + seconds
    while not condition():  # type: ignore[operator]
        assert time.monotonic() < end, "waited too long"
        time.sleep(0.02)


def test_two_processes_build_the_same_store_at_once(cases: list[Case], folder: Path, tmp_path: Path) -> None:
    both = [start_process(cases, folder, tmp_path / "meeting", 2) for _ in range(2)]
    answers = [process.communicate(timeout=300) for process in both]
    assert [process.returncode for process in both] == [0, 0], answers
    assert answers[0][0] == answers[1][0]
    assert len(list((tmp_path / "meeting").iterdir())) == 2, "both had built it before either showed it"
    assert len(entries(folder)) == 1
    ours = open_quietly(cases, folder)
    assert answers[0][0].split()[0] == str(int(ours.images.view("u2").astype(int).sum()))


def test_a_killed_build_is_not_taken_for_a_store_and_is_cleaned_up(
    cases: list[Case], folder: Path, tmp_path: Path
) -> None:
    meeting = tmp_path / "meeting"
    process = start_process(cases, folder, meeting, waiting_for=99)
    wait_for(lambda: process.poll() is not None or list(meeting.iterdir()))
    [left] = entries(folder)
    assert left.name.startswith(PRIVATE)
    open_quietly(cases[:1], folder)
    assert left in entries(folder), "its process is still alive"
    process.send_signal(signal.SIGKILL)
    process.communicate()
    assert (left / "images.npy").exists(), "the build had come far"
    assert len(open_quietly(cases, folder)) == 4
    assert not any(entry.name.startswith(PRIVATE) for entry in entries(folder))


def test_a_private_folder_of_another_machine_is_left_alone_for_a_day(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    foreign, odd = tmp_path / f"{PRIVATE}else-where-1-00ff", tmp_path / f"{PRIVATE}{socket.gethostname()}"
    for private in (foreign, odd):
        private.mkdir()
    remove_abandoned(tmp_path)
    assert foreign.exists()
    assert odd.exists()
    later = time.time() + 25 * 3600
    monkeypatch.setattr(store_entry.time, "time", lambda: later)
    remove_abandoned(tmp_path)
    assert list(tmp_path.iterdir()) == []


def test_the_first_to_publish_wins(tmp_path: Path) -> None:
    for name in ("winner", "loser"):
        (tmp_path / name).mkdir()
        (tmp_path / name / "who").write_text(name)
        publish(tmp_path / name, tmp_path / "place")
    assert (tmp_path / "place" / "who").read_text() == "winner"


def test_an_entry_that_is_shown_just_after_it_was_looked_for_is_taken_not_discarded(tmp_path: Path) -> None:
    looks: list[Path] = []

    def read(place: Path) -> str | None:
        looks.append(place)
        if len(looks) == 1:
            place.mkdir(parents=True)
            (place / "content").write_text("of another process")
            return None
        return (place / "content").read_text()

    def build(_: Path) -> None:
        raise AssertionError("it was there")

    assert open_entry(tmp_path, "key", read, build, quiet=True) == "of another process"


def test_an_array_written_in_pieces_is_an_ordinary_npy_file(tmp_path: Path) -> None:
    rng = np.random.default_rng(0)
    whole = rng.normal(size=(7, 3, 2)).astype(np.float16)
    with ArrayWriter(tmp_path / "a.npy", whole.shape, "<f2") as writer:
        writer.append(whole[:4])
        writer.append(np.asfortranarray(whole[4:]))
    np.testing.assert_array_equal(np.load(tmp_path / "a.npy"), whole)


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[Path]:
    """A file system of 64 kB."""
    place = tmp_path / "disk"
    place.mkdir()
    mount = ["mount", "-t", "tmpfs", "-o", "size=64k", "tmpfs", str(place)]
    if shutil.which("mount") is None or subprocess.run(mount, capture_output=True, check=False).returncode:
        pytest.skip("mounting a small file system is not allowed here")
    yield place
    subprocess.run(["umount", str(place)], check=True)


@pytest.mark.parametrize("looks_first", [True, False])
def test_a_full_disk_is_explained_and_nothing_is_left_on_it(
    tmp_path: Path, small_disk: Path, looks_first: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    big = [make_case(tmp_path / "data", "big", slices=40, size=64)]
    if not looks_first:
        monkeypatch.setattr(store_build, "_reject_full_disk", lambda *_: None)
    with pytest.raises(InputError, match="--cache FOLDER") as caught:
        open_quietly(big, small_disk, patch=(64, 64))
    assert "\n" not in str(caught.value)
    assert entries(small_disk) == []


def test_running_out_of_space_is_explained_even_where_no_disk_can_be_mounted(
    cases: list[Case], folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(*_: object) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(ArrayWriter, "append", full)
    with pytest.raises(InputError, match=r"no space left there.*--cache FOLDER"):
        open_quietly(cases, folder)
    assert entries(folder) == []


def test_a_cache_that_is_a_file_is_explained(cases: list[Case], folder: Path) -> None:
    folder.write_text("in the way")
    with pytest.raises(InputError, match="--cache FOLDER"):
        open_quietly(cases, folder)
