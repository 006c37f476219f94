"""Checkpoints are whole or absent, and reading one executes nothing."""

from __future__ import annotations

import os
import pickle
from pathlib import Path

import pytest
import torch

from shapepu.checkpoint import load_checkpoint, save_checkpoint
from shapepu.errors import InputError


class Payload:
    """What an attacker would send: unpickling it makes a folder."""

    def __init__(self, target: Path) -> None:
        self.target = target

    def __reduce__(self) -> tuple[object, tuple[str]]:
        return os.mkdir, (str(self.target),)


def test_what_was_saved_comes_back(tmp_path: Path) -> None:
    save_checkpoint(tmp_path / "last.pt", {"weights": torch.arange(3.0), "rows": [{"epoch": 1, "loss": 0.5}]})
    state = load_checkpoint(tmp_path / "last.pt")
    assert torch.equal(state["weights"], torch.arange(3.0))
    assert state["rows"] == [{"epoch": 1, "loss": 0.5}]


def test_a_failed_write_keeps_the_checkpoint_that_was_there(tmp_path: Path) -> None:
    save_checkpoint(tmp_path / "last.pt", {"epoch": 1})
    with pytest.raises((AttributeError, pickle.PicklingError, TypeError)):
        save_checkpoint(tmp_path / "last.pt", {"epoch": lambda: 2})
    assert load_checkpoint(tmp_path / "last.pt")["epoch"] == 1
    assert [file.name for file in tmp_path.iterdir()] == ["last.pt"]


@pytest.mark.parametrize("bare", [False, True])
def test_a_hostile_pickle_is_refused_and_not_executed(tmp_path: Path, bare: bool) -> None:
    owned = tmp_path / "owned"
    state = {"format": 1, "epoch": Payload(owned)}
    if bare:
        (tmp_path / "last.pt").write_bytes(pickle.dumps(state, protocol=2))
    else:
        torch.save(state, tmp_path / "last.pt")
    with pytest.raises(InputError, match="nothing in it was executed"):
        load_checkpoint(tmp_path / "last.pt")
    assert not owned.exists()


@pytest.mark.parametrize("content", [b"", b"not a checkpoint", b"epoch,", b"PK\x03\x04 half a zip"])
def test_a_damaged_file_is_named(tmp_path: Path, content: bytes) -> None:
    (tmp_path / "last.pt").write_bytes(content)
    with pytest.raises(InputError, match=r"last\.pt: not a checkpoint of shapepu, or damaged"):
        load_checkpoint(tmp_path / "last.pt")


def test_a_truncated_checkpoint_is_named(tmp_path: Path) -> None:
    save_checkpoint(tmp_path / "last.pt", {"weights": torch.zeros(10_000)})
    whole = (tmp_path / "last.pt").read_bytes()
    (tmp_path / "last.pt").write_bytes(whole[: len(whole) // 2])
    with pytest.raises(InputError, match="damaged"):
        load_checkpoint(tmp_path / "last.pt")


def test_checkpoints_of_other_programs_and_versions_are_told_apart(tmp_path: Path) -> None:
    torch.save({"state_dict": {}}, tmp_path / "foreign.pt")
    with pytest.raises(InputError, match="of another program"):
        load_checkpoint(tmp_path / "foreign.pt")
    torch.save({"format": torch.zeros(2)}, tmp_path / "foreign.pt")
    with pytest.raises(InputError, match="of another program"):
        load_checkpoint(tmp_path / "foreign.pt")
    torch.save({"format": 99}, tmp_path / "newer.pt")
    with pytest.raises(InputError, match="checkpoint format 99"):
        load_checkpoint(tmp_path / "newer.pt")
    with pytest.raises(InputError, match="no checkpoint there"):
        load_checkpoint(tmp_path / "absent.pt")
