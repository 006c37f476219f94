"""Measures a script in a process of its own: what one measurement leaves behind must not help the next."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Sequence


def figures_of_a_process(script: str, argv: Sequence[str], way: str) -> tuple[float, ...]:
    """The numbers in the last line that ``script`` prints when it is told one ``way`` to measure."""
    command = [sys.executable, script, *argv, "--way", way]
    said = subprocess.run(command, check=True, stdout=subprocess.PIPE, text=True)
    return tuple(map(float, said.stdout.splitlines()[-1].split()))
