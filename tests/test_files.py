"""Files appear whole or not at all, and a refusal says what to do."""

from __future__ import annotations

import errno
import os
from pathlib import Path

import pytest

from shapepu.errors import InputError
from shapepu.files import atomic_path, explained, writable_folder, write_text


def test_a_file_appears_when_it_is_complete(tmp_path: Path) -> None:
    target = tmp_path / "new" / "a.txt"
    with atomic_path(target) as temporary:
        temporary.write_text("half")
        assert not target.exists()
        temporary.write_text("whole")
    assert target.read_text() == "whole"
    assert os.listdir(target.parent) == ["a.txt"]


def test_a_failure_leaves_what_was_there_and_nothing_else(tmp_path: Path) -> None:
    write_text(tmp_path / "a.txt", "old")

    def fail_halfway() -> None:
        with atomic_path(tmp_path / "a.txt") as temporary:
            temporary.write_text("new")
            raise RuntimeError

    with pytest.raises(RuntimeError):
        fail_halfway()
    assert (tmp_path / "a.txt").read_text() == "old"
    assert os.listdir(tmp_path) == ["a.txt"]


def test_the_temporary_name_is_hidden_and_keeps_the_suffixes(tmp_path: Path) -> None:
    with atomic_path(tmp_path / "case.nii.gz") as temporary:
        assert temporary.name.startswith(".")
        assert temporary.name.endswith(".nii.gz")
        temporary.touch()


def test_two_writers_of_one_file_with_one_process_number_do_not_meet(tmp_path: Path) -> None:
    """As containers on several machines that share a folder."""
    with atomic_path(tmp_path / "a.txt") as first:
        first.write_text("first")
        write_text(tmp_path / "a.txt", "second")
        assert (tmp_path / "a.txt").read_text() == "second"
    assert (tmp_path / "a.txt").read_text() == "first"
    assert os.listdir(tmp_path) == ["a.txt"]


def test_two_with_one_process_number_prove_a_folder_writable_at_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    write_bytes = Path.write_bytes

    def while_another_does(path: Path, content: bytes) -> int:
        monkeypatch.setattr(Path, "write_bytes", write_bytes)
        written = path.write_bytes(content)
        writable_folder(path.parent)
        return written

    monkeypatch.setattr(Path, "write_bytes", while_another_does)
    assert os.listdir(writable_folder(tmp_path)) == []


@pytest.mark.parametrize(
    ("code", "advice"),
    [
        (errno.ENOSPC, "no space left"),
        (errno.EROFS, "read-only"),
        (errno.EACCES, "no permission"),
        (errno.ENOTDIR, "is a file, not a folder"),
    ],
)
def test_the_refusals_of_a_system_say_what_to_do(code: int, advice: str) -> None:
    with pytest.raises(InputError, match=f"cannot write out: .*{advice}"), explained(Path("out")):
        raise OSError(code, os.strerror(code))


def test_other_errors_of_the_system_pass_unchanged() -> None:
    with pytest.raises(OSError, match="I/O"), explained(Path("out")):
        raise OSError(errno.EIO, "I/O error")


def test_an_output_folder_that_is_a_file_is_refused(tmp_path: Path) -> None:
    (tmp_path / "out").touch()
    with pytest.raises(InputError, match="it is a file, not a folder"):
        writable_folder(tmp_path / "out")
    with pytest.raises(InputError, match="is a file, not a folder"):
        writable_folder(tmp_path / "out" / "deeper")


def test_proving_that_a_folder_is_writable_leaves_it_empty(tmp_path: Path) -> None:
    assert os.listdir(writable_folder(tmp_path / "out")) == []
