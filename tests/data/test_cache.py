"""What is remembered of a file holds exactly as long as the file does not change."""

from __future__ import annotations

import errno
import hashlib
import json
import os
from pathlib import Path

import numpy as np
import pytest
from small_cases import write

from shapepu.data import cache
from shapepu.data.cache import FileRecords, cache_folder, write_json, writing_to_cache
from shapepu.data.volumes import read_header
from shapepu.errors import InputError


@pytest.fixture
def image(tmp_path: Path) -> Path:
    return write(tmp_path / "image.nii.gz", np.arange(24, dtype=np.int16).reshape(2, 3, 4), (5.0, 0.7, 0.8))


@pytest.fixture
def digested(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Names of the files whose bytes were read, in order."""
    names: list[str] = []

    def digest(path: Path) -> str:
        names.append(path.name)
        return hashlib.sha256(path.read_bytes()).hexdigest()

    monkeypatch.setattr(cache, "_digest_of_file", digest)
    return names


def test_a_record_tells_digest_and_header(image: Path, tmp_path: Path) -> None:
    record = FileRecords(tmp_path / "cache").of(image)
    assert record.digest == hashlib.sha256(image.read_bytes()).hexdigest()
    assert record.header == read_header(image)
    assert FileRecords(tmp_path / "cache").of(image) == record, "remembered as it was"


def test_an_unchanged_file_is_read_once(image: Path, tmp_path: Path, digested: list[str]) -> None:
    for _ in range(3):
        FileRecords(tmp_path / "cache").of(image)
    assert digested == ["image.nii.gz"]


def test_a_change_that_keeps_size_and_date_is_noticed(
    image: Path, tmp_path: Path, digested: list[str]
) -> None:
    records = FileRecords(tmp_path / "cache")
    before, dates = records.of(image), image.stat()
    changed = bytearray(image.read_bytes())
    changed[4] ^= 1  # the time stamp of the gzip header, which nobody minds
    image.write_bytes(changed)
    os.utime(image, ns=(dates.st_atime_ns, dates.st_mtime_ns))
    assert image.stat().st_size == dates.st_size
    assert records.of(image).digest != before.digest


def test_a_file_written_just_now_is_not_trusted_yet(tmp_path: Path, digested: list[str]) -> None:
    image = write(tmp_path / "new.nii.gz", np.zeros((1, 2, 3), np.int16), old=False)
    records = FileRecords(tmp_path / "cache")
    records.of(image)
    records.of(image)
    assert len(digested) == 2


@pytest.mark.parametrize("content", ["", "{", "[]", '{"format": 1}', "\x00"])
def test_a_damaged_record_is_made_again(image: Path, tmp_path: Path, content: str) -> None:
    records = FileRecords(tmp_path / "cache")
    before = records.of(image)
    [place] = (tmp_path / "cache" / "files").iterdir()
    place.write_text(content)
    assert records.of(image) == before


def test_a_cache_that_cannot_be_written_still_answers(image: Path, tmp_path: Path) -> None:
    (tmp_path / "cache").write_text("a file where a folder should be")
    assert FileRecords(tmp_path / "cache").of(image).header.shape == (2, 3, 4)


def test_voxels_beside_a_header_file_count_as_part_of_it(tmp_path: Path) -> None:
    header = write(tmp_path / "scan.mhd", np.zeros((1, 2, 3), np.int16))
    records = FileRecords(tmp_path / "cache")
    before = records.of(header)
    (tmp_path / "scan.raw").write_bytes(np.ones(6, np.int16).tobytes())
    assert records.of(header).digest != before.digest


def test_any_slice_of_a_series_counts_as_part_of_it(
    tmp_path: Path, image: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    header = read_header(image)
    monkeypatch.setattr(cache, "read_header", lambda _: header)
    series = tmp_path / "series"
    series.mkdir()
    for name in ("a.dcm", "b.dcm"):
        (series / name).write_bytes(b"slice")
        os.utime(series / name, (1e9, 1e9))
    records = FileRecords(tmp_path / "cache")
    before = records.of(series).digest
    assert records.of(series).digest == before
    (series / "b.dcm").write_bytes(b"other")
    assert records.of(series).digest not in (before, None)
    (series / "b.dcm").rename(series / "c.dcm")
    (series / "c.dcm").write_bytes(b"slice")
    assert records.of(series).digest != before, "names give the order of slices"


def test_a_missing_file_is_an_input_error(tmp_path: Path) -> None:
    with pytest.raises(InputError, match=r"gone\.nii\.gz"):
        FileRecords(tmp_path / "cache").of(tmp_path / "gone.nii.gz")


def test_the_cache_is_where_the_user_says_or_else_where_caches_are(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.delenv("XDG_CACHE_HOME", raising=False)
    monkeypatch.delenv("SHAPEPU_CACHE", raising=False)
    assert cache_folder(None) == tmp_path / ".cache" / "shapepu"
    monkeypatch.setenv("XDG_CACHE_HOME", "/xdg")
    assert cache_folder(None) == Path("/xdg/shapepu")
    monkeypatch.setenv("SHAPEPU_CACHE", "~/mine")
    assert cache_folder(None) == tmp_path / "mine"
    assert cache_folder("given") == Path("given")


def test_two_with_one_process_number_write_one_record_at_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As containers on several machines that share a cache."""
    replace = os.replace

    def while_another_does(source: Path, target: Path) -> None:
        monkeypatch.setattr(os, "replace", replace)
        write_json(target, {"by": "another"})
        os.replace(source, target)

    monkeypatch.setattr(os, "replace", while_another_does)
    write_json(tmp_path / "record.json", {"by": "us"})
    assert json.loads((tmp_path / "record.json").read_text()) == {"by": "us"}
    assert os.listdir(tmp_path) == ["record.json"]


def test_a_refusal_to_write_says_that_the_cache_can_be_elsewhere(tmp_path: Path) -> None:
    with pytest.raises(InputError, match=r"no space left.*--cache FOLDER"), writing_to_cache(tmp_path):
        raise OSError(errno.ENOSPC, "No space left on device")


def test_other_errors_while_writing_are_passed_on_as_they_are(tmp_path: Path) -> None:
    with pytest.raises(InputError, match=r"^bad voxel$"), writing_to_cache(tmp_path):
        raise InputError("bad voxel") from OSError(errno.ENOSPC, "")
    with pytest.raises(OSError, match="unrelated"), writing_to_cache(tmp_path):
        raise OSError("unrelated")
