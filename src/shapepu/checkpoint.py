"""What a run needs to go on as if it had not stopped, in one file that is whole or absent.

The file is read with ``weights_only``: tensors, numbers and plain containers, never code.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import torch

from shapepu.bundle_spec import first_line
from shapepu.errors import InputError
from shapepu.files import atomic_path

FORMAT = 1


def save_checkpoint(path: Path, state: dict[str, Any]) -> None:
    """Write ``state`` to ``path``; a reader sees the old file or the new one, never half of one."""
    with atomic_path(path) as temporary, open(temporary, "wb") as stream:
        try:
            torch.save({"format": FORMAT, **state}, stream)
        except RuntimeError as error:
            # torch hides the refusal of the operating system, such as a full disk, behind one of its own.
            if isinstance(error.__context__, OSError):
                raise error.__context__ from error
            raise


def load_checkpoint(path: Path) -> dict[str, Any]:
    """The state saved at ``path``, on the CPU."""
    if not path.is_file():
        raise InputError(f"{path}: no checkpoint there; is this the folder of a run that was started?")
    try:
        state = torch.load(path, map_location="cpu", weights_only=True)
    except Exception as error:  # bytes that are no pickle can make torch's reader trip over anything
        raise InputError(
            f"{path}: not a checkpoint of shapepu, or damaged ({first_line(error)}); nothing in it was "
            "executed. Start the run again in a new folder."
        ) from error
    if not isinstance(state, dict) or not isinstance(state.get("format"), int):
        raise InputError(f"{path}: a file of another program, not a checkpoint of shapepu.")
    if state["format"] != FORMAT:
        raise InputError(
            f"{path}: checkpoint format {state['format']}, but this version reads {FORMAT}; "
            "resume with the version that wrote it (see config.yaml)."
        )
    return state
