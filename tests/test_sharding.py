"""Shards divide a list: everything once, whoever asks and whenever."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from shapepu.errors import InputError
from shapepu.sharding import Shard, gpu_of_process, parse_shard, shard_of_process


@given(st.lists(st.integers(), max_size=30), st.integers(1, 8))
def test_shards_cover_each_item_exactly_once(items, count):
    parts = [parse_shard(f"{number}/{count}").of(items) for number in range(1, count + 1)]
    assert sorted(item for part in parts for item in part) == sorted(items)


@given(st.integers(0, 30), st.integers(1, 8))
def test_shards_differ_by_at_most_one_item(length, count):
    sizes = [len(Shard(number, count).of(range(length))) for number in range(1, count + 1)]
    assert max(sizes) - min(sizes) <= 1


def test_neighbours_in_the_list_go_to_different_shards():
    assert Shard(2, 3).of("abcdefgh") == ["b", "e", "h"]


@pytest.mark.parametrize("text", ["0/4", "5/4", "1/0", "1", "a/b", "-1/4", "1/4/4", "1.5/4", "²/4", " 1/4"])
def test_a_shard_that_does_not_exist_is_refused_in_one_line(text):
    with pytest.raises(InputError, match="--shard") as refusal:
        parse_shard(text)
    assert "\n" not in str(refusal.value)


@pytest.mark.parametrize(
    "environment",
    [
        {"RANK": "1", "WORLD_SIZE": "4"},
        {"SLURM_PROCID": "1", "SLURM_STEP_NUM_TASKS": "4", "SLURM_NTASKS": "4"},
        {"OMPI_COMM_WORLD_RANK": "1", "OMPI_COMM_WORLD_SIZE": "4"},
    ],
)
def test_the_ranks_of_launchers_count_from_zero(environment):
    assert shard_of_process("", environment).of("abcdef") == ["b", "f"]


def test_the_option_wins_over_the_launcher():
    shard = shard_of_process("1/2", {"RANK": "3", "WORLD_SIZE": "4"})
    assert (shard.number, shard.count, shard.origin) == (1, 2, "--shard")


def test_torchrun_within_srun_counts_by_torchrun():
    environment = {"SLURM_PROCID": "0", "SLURM_STEP_NUM_TASKS": "2", "RANK": "1", "WORLD_SIZE": "8"}
    assert shard_of_process("", environment).origin == "RANK"


def test_one_process_in_a_slurm_batch_script_does_everything():
    # sbatch --ntasks=4 without srun: one process runs, and a quarter of the work would go unnoticed.
    shard = shard_of_process("", {"SLURM_PROCID": "0", "SLURM_NTASKS": "4"})
    assert shard.of("abcd") == list("abcd")


@pytest.mark.parametrize("environment", [{}, {"RANK": "0", "WORLD_SIZE": "1"}, {"RANK": "2"}])
def test_a_lone_process_does_everything(environment):
    assert shard_of_process("", environment) == Shard()


@pytest.mark.parametrize(("rank", "size"), [("4", "4"), ("-1", "4"), ("x", "4"), ("0", "")])
def test_ranks_that_make_no_sense_are_refused(rank, size):
    with pytest.raises(InputError, match="WORLD_SIZE"):
        shard_of_process("", {"RANK": rank, "WORLD_SIZE": size})


@pytest.mark.parametrize("name", ["LOCAL_RANK", "OMPI_COMM_WORLD_LOCAL_RANK", "SLURM_LOCALID"])
def test_processes_of_a_launcher_take_the_gpus_of_their_machine_in_turn(name):
    assert [gpu_of_process(2, {name: str(rank)}) for rank in range(4)] == [0, 1, 0, 1]


def test_a_process_without_a_launcher_takes_the_first_gpu():
    assert gpu_of_process(4, {}) == 0
