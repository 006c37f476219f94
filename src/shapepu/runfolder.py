"""A run on disk: the one place that knows which file of a run is called what."""

from __future__ import annotations

import csv
import io
import json
import os
import platform
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path
from typing import Any, TextIO

import yaml

from shapepu._version import __version__
from shapepu.claims import claim, last_holder
from shapepu.console import say
from shapepu.errors import InputError
from shapepu.files import explained, writable_folder, write_text


class RunFolder:
    """Settings, figures, log, checkpoint and model of one run."""

    def __init__(self, root: str | Path, *, quiet: bool = False) -> None:
        self.root = Path(root)
        self.quiet = quiet
        self._log: TextIO | None = None
        self._made_here = False

    config = property(lambda self: self.root / "config.yaml")
    metrics = property(lambda self: self.root / "metrics.csv")
    progress_picture = property(lambda self: self.root / "progress.png")
    log = property(lambda self: self.root / "train.log")
    data = property(lambda self: self.root / "data.json")
    checkpoint = property(lambda self: self.root / "checkpoint" / "last.pt")
    model = property(lambda self: self.root / "model")
    validation = property(lambda self: self.root / "validation")
    lock = property(lambda self: self.root / ".lock")

    def create(self) -> None:
        """Make a new run's folder; a run that is already there is never overwritten."""
        if self.config.exists() or self.checkpoint.exists():
            raise InputError(
                f"{self.root}: a run is already there; continue it with --resume {self.root}, or choose "
                "another folder."
            )
        self._made_here = not self.root.exists()
        writable_folder(self.root)

    @contextmanager
    def told(self) -> Iterator[None]:
        """Around a run, which has the folder to itself.

        ``train.log`` says what ended it, and what never became a run leaves nothing.
        """
        with self._claimed():
            try:
                yield
            except BaseException as error:
                with suppress(OSError, InputError):
                    self.note(f"stopped: {type(error).__name__}: {error}")
                if isinstance(error, KeyboardInterrupt) and self.checkpoint.exists():
                    say(f"go on with: shapepu train --resume {self.root}", quiet=self.quiet)
                raise
            finally:
                self._leave()

    @contextmanager
    def _claimed(self) -> Iterator[None]:
        """Refuse a folder that another process is at work in: two would mix their checkpoints."""
        with ExitStack() as stack:
            try:
                mine = stack.enter_context(claim(self.lock)) and self._lock_is_there()
            except (InputError, OSError):
                mine = True  # where there are no locks, a run that is alone must not suffer for it
            if not mine:
                raise InputError(
                    f"{self.root}: another process (number {last_holder(self.lock)}) is at work on this run; "
                    "wait until it has ended, or stop it first."
                )
            yield

    def _lock_is_there(self) -> bool:
        """Whether the file just locked is the folder's, not one that its last holder took away meanwhile."""
        return sys.platform == "win32" or last_holder(self.lock) == os.getpid()

    def _leave(self) -> None:
        """Close the log, clear away what never became a run, and let go of the folder."""
        self.close()
        is_run = self.config.exists()
        if not is_run:
            self.log.unlink(missing_ok=True)
        with suppress(OSError):
            self.lock.unlink(missing_ok=True)
            if self._made_here and not is_run:
                self.root.rmdir()

    def require(self) -> None:
        """Refuse a folder that holds no run."""
        if not self.config.is_file():
            raise InputError(f"{self.root}: not a run folder (no config.yaml in it).")

    def write_config(self, config: dict[str, Any]) -> None:
        write_text(self.config, yaml.safe_dump(config, sort_keys=False, allow_unicode=True))

    def read_config(self) -> dict[str, Any]:
        """The resolved settings of the run; YAML's own types only, never objects."""
        self.require()
        try:
            config = yaml.safe_load(self.config.read_text(encoding="utf-8"))
        except (yaml.YAMLError, UnicodeDecodeError) as error:
            said = " ".join(str(error).split())
            raise InputError(f"{self.config}: not readable as YAML ({said}).") from error
        if not isinstance(config, dict):
            raise InputError(f"{self.config}: expected the settings of a run, got {type(config).__name__}.")
        return config

    def write_data(self, description: dict[str, Any]) -> None:
        write_text(self.data, json.dumps(description, indent=1))

    def say(self, text: str) -> None:
        """A line for the person who waits and for ``train.log``."""
        say(text, quiet=self.quiet)
        self.note(text)

    def note(self, text: str) -> None:
        """A line for ``train.log`` alone."""
        with explained(self.log):
            if self._log is None:
                self.root.mkdir(parents=True, exist_ok=True)
                self._log = open(self.log, "a", encoding="utf-8", buffering=1)  # noqa: SIM115
            print(time.strftime("%Y-%m-%d %H:%M:%S"), text, file=self._log)

    def close(self) -> None:
        if self._log is not None:
            # A line that a full disk refused is tried once more, and must not hide what ended the run.
            with suppress(OSError):
                self._log.close()
            self._log = None

    def write_metrics(self, rows: list[dict[str, float | int | None]]) -> None:
        """All rows so far. Columns are every name that any row has, in the order of first appearance."""
        names = list(dict.fromkeys(name for row in rows for name in row))
        text = io.StringIO()
        writer = csv.DictWriter(text, names, lineterminator="\n")
        writer.writeheader()
        for row in rows:
            writer.writerow({name: _cell(row.get(name)) for name in names})
        write_text(self.metrics, text.getvalue())


def _cell(value: float | int | None) -> str:
    if value is None:
        return ""
    return str(value) if isinstance(value, int) else f"{value:.6g}"


def commit() -> str:
    """Of the checkout that this code runs from, "-dirty" where files differ from it; empty outside of one."""
    root = Path(__file__).parents[2]
    if not (root / ".git").exists() or not (root / "src" / "shapepu").is_dir():
        return ""
    command = ["git", "-C", str(root), "describe", "--always", "--dirty", "--exclude=*", "--abbrev=12"]
    try:
        return subprocess.run(command, capture_output=True, text=True, check=True, timeout=10).stdout.strip()
    except (OSError, subprocess.SubprocessError):
        return ""


def versions() -> dict[str, str]:
    """What a figure depends on beside the settings."""
    import numpy
    import torch

    made_from = commit()
    return {
        "shapepu": __version__,
        **({"commit": made_from} if made_from else {}),
        "torch": str(torch.__version__),
        "numpy": numpy.__version__,
        "python": platform.python_version(),
        "machine": f"{platform.machine()}, {torch.get_num_threads()} threads",
    }
