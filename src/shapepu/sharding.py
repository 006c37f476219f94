"""Several processes, one list of work: each takes every n-th item, and none is taken twice.

The items of a shard depend on the whole list alone, never on what is finished already, so that processes
which start at different times still agree.
"""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TypeVar

from shapepu.errors import InputError

Item = TypeVar("Item")

LAUNCHERS = (
    # torchrun and mpirun may have been started by srun: the innermost numbering is the one that differs.
    ("RANK", "WORLD_SIZE"),
    ("OMPI_COMM_WORLD_RANK", "OMPI_COMM_WORLD_SIZE"),
    # Slurm sets SLURM_PROCID and SLURM_NTASKS in a batch script too, where only one process runs; only what
    # srun started knows the number of tasks of its step.
    ("SLURM_PROCID", "SLURM_STEP_NUM_TASKS"),
)
"""Variables in which torchrun, mpirun and srun tell a process its rank, and how many processes there are."""


LOCAL_RANKS = ("LOCAL_RANK", "OMPI_COMM_WORLD_LOCAL_RANK", "SLURM_LOCALID")
"""Variables in which they tell it which of the processes on its machine it is, from 0."""


@dataclass(frozen=True)
class Shard:
    """The part of a list that one of ``count`` processes works on.

    Args:
        number: counted from 1.
        count: how many processes share the list.
        origin: what said so, for the person reading the log.
    """

    number: int = 1
    count: int = 1
    origin: str = ""

    def of(self, items: Sequence[Item]) -> list[Item]:
        """Every ``count``-th item, so that shards of a sorted list finish at about the same time."""
        return list(items[self.number - 1 :: self.count])

    def __str__(self) -> str:
        return f"shard {self.number}/{self.count}"


def parse_shard(text: str) -> Shard:
    """``2/4`` is the second of four."""
    number, slash, count = text.partition("/")
    if not (slash and number.isascii() and number.isdigit() and count.isascii() and count.isdigit()):
        raise InputError(f"--shard: expected i/n, such as 1/4 for the first of four processes, got {text!r}.")
    if not 1 <= int(number) <= int(count):
        raise InputError(
            f"--shard: {text}: the first number counts from 1 up to the second; 1/{count} is the first."
        )
    return Shard(int(number), int(count), "--shard")


def shard_of_process(text: str, environment: Mapping[str, str] | None = None) -> Shard:
    """The shard that ``--shard`` or, without it, the launcher gives to this process; else everything."""
    if text:
        return parse_shard(text)
    environment = os.environ if environment is None else environment
    for rank_name, size_name in LAUNCHERS:
        rank, size = environment.get(rank_name), environment.get(size_name)
        if rank is None or size is None:
            continue
        if not (rank.isdigit() and size.isdigit() and int(rank) < int(size)):
            raise InputError(
                f"{rank_name}={rank} and {size_name}={size} do not number a process from 0; give --shard i/n."
            )
        if int(size) > 1:
            return Shard(int(rank) + 1, int(size), rank_name)
    return Shard()


def gpu_of_process(gpus: int, environment: Mapping[str, str] | None = None) -> int:
    """The number of the GPU, of those that a machine shows, which this process of a launcher takes.

    Without it, all processes of a machine would crowd on the first.
    """
    environment = os.environ if environment is None else environment
    ranks = [environment[name] for name in LOCAL_RANKS if environment.get(name, "").isdigit()]
    return int(ranks[0]) % gpus if ranks else 0
