"""A run on disk: the one place that knows which file of a run is called what."""

from __future__ import annotations

import csv
import io
import json
import platform
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any, TextIO

import yaml

from shapepu._version import __version__
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
        """Around a run: ``train.log`` says what ended it, and what never became a run leaves nothing."""
        try:
            yield
        except BaseException as error:
            with suppress(OSError, InputError):
                self.note(f"stopped: {type(error).__name__}: {error}")
            if isinstance(error, KeyboardInterrupt) and self.checkpoint.exists():
                say(f"go on with: shapepu train --resume {self.root}", quiet=self.quiet)
            raise
        finally:
            self.close()
            if not self.config.exists():
                self.log.unlink(missing_ok=True)
                if self._made_here:
                    with suppress(OSError):
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


def versions() -> dict[str, str]:
    """What a figure depends on beside the settings."""
    import numpy
    import torch

    return {
        "shapepu": __version__,
        "torch": str(torch.__version__),
        "numpy": numpy.__version__,
        "python": platform.python_version(),
        "machine": f"{platform.machine()}, {torch.get_num_threads()} threads",
    }
