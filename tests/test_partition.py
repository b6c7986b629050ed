"""Who reads: the law of the shares, and how a process finds out which one it is."""

import operator
import pickle
import sys
from itertools import chain
from pathlib import Path
from typing import Any

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch.utils.data import DataLoader

from daft_twinwds.partition import Partition

sizes = st.integers(1, 9)
counts = st.integers(0, 300)


@pytest.fixture(autouse=True)
def _no_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("RANK", "WORLD_SIZE"):
        monkeypatch.delenv(name, raising=False)


def readers_of(world_size: int, num_workers: int) -> list[Partition]:
    return [
        Partition(rank=rank, world_size=world_size, worker=worker, num_workers=num_workers)
        for rank in range(world_size)
        for worker in range(num_workers)
    ]


@given(world_size=sizes, num_workers=sizes, num_items=counts)
def test_readers_share_every_item_exactly_once(
    world_size: int, num_workers: int, num_items: int
) -> None:
    shares = [reader.slice_of(num_items) for reader in readers_of(world_size, num_workers)]

    assert sorted(chain.from_iterable(shares)) == list(range(num_items))


@given(world_size=sizes, num_workers=sizes, num_items=counts)
def test_shares_differ_by_one_item_at_most(
    world_size: int, num_workers: int, num_items: int
) -> None:
    lengths = [len(reader.slice_of(num_items)) for reader in readers_of(world_size, num_workers)]

    assert max(lengths) - min(lengths) <= 1


@given(world_size=sizes, num_workers=sizes, num_items=counts)
def test_adding_workers_moves_no_item_between_ranks(
    world_size: int, num_workers: int, num_items: int
) -> None:
    for reader in readers_of(world_size, num_workers):
        alone = Partition(rank=reader.rank, world_size=world_size)

        assert set(reader.slice_of(num_items)) <= set(alone.slice_of(num_items))


@given(world_size=sizes, num_workers=sizes, num_items=counts)
def test_adding_items_moves_no_item_between_readers(
    world_size: int, num_workers: int, num_items: int
) -> None:
    for reader in readers_of(world_size, num_workers):
        before, after = reader.slice_of(num_items), reader.slice_of(num_items + 1)

        assert list(after)[: len(before)] == list(before)


@given(world_size=sizes, num_workers=sizes)
def test_there_are_as_many_readers_as_said(world_size: int, num_workers: int) -> None:
    readers = readers_of(world_size, num_workers)

    assert {reader.num_readers for reader in readers} == {len(set(readers))}


def test_one_reader_reads_everything_in_order() -> None:
    assert Partition().slice_of(5) == range(5)


def test_a_partition_travels_to_other_processes() -> None:
    partition = Partition(rank=1, world_size=2, worker=3, num_workers=4)

    assert pickle.loads(pickle.dumps(partition)) == partition


@pytest.mark.parametrize(
    ("place", "message"),
    [
        pytest.param({"rank": 1}, r"rank must be in \[0, 1\), got 1", id="rank-too-high"),
        pytest.param({"rank": -1}, r"rank must be in \[0, 1\), got -1", id="rank-negative"),
        pytest.param({"world_size": 0}, "world_size must be at least 1, got 0", id="no-ranks"),
        pytest.param(
            {"worker": 2, "num_workers": 2}, r"worker must be in \[0, 2\), got 2", id="worker"
        ),
        pytest.param({"num_workers": 0}, "num_workers must be at least 1, got 0", id="no-workers"),
    ],
)
def test_places_outside_their_range_are_refused(place: dict[str, int], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        Partition(**place)


@pytest.mark.parametrize("value", [1.0, "1", None, True], ids=repr)
@pytest.mark.parametrize("name", ["rank", "world_size", "worker", "num_workers"])
def test_places_that_are_no_ints_are_refused(name: str, value: Any) -> None:
    with pytest.raises(TypeError, match=f"{name} must be an int, got {value!r}"):
        Partition(**{name: value})


def test_a_lone_process_detects_that_it_reads_everything() -> None:
    assert Partition.detect() == Partition()


def test_detecting_imports_no_torch(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("torch", "torch.distributed", "torch.utils.data"):
        monkeypatch.delitem(sys.modules, name)

    assert Partition.detect() == Partition()
    assert not {"torch", "torch.distributed", "torch.utils.data"} & sys.modules.keys()


def test_the_rank_is_detected_from_the_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("RANK", "2")
    monkeypatch.setenv("WORLD_SIZE", "3")

    assert Partition.detect() == Partition(rank=2, world_size=3)


@pytest.mark.parametrize(
    ("environment", "found"),
    [
        pytest.param({"RANK": "1"}, "RANK='1', WORLD_SIZE=None", id="rank-alone"),
        pytest.param({"WORLD_SIZE": "2"}, "RANK=None, WORLD_SIZE='2'", id="world-size-alone"),
        pytest.param(
            {"RANK": "one", "WORLD_SIZE": "2"}, "RANK='one', WORLD_SIZE='2'", id="no-integer"
        ),
        pytest.param({"RANK": "", "WORLD_SIZE": "2"}, "RANK='', WORLD_SIZE='2'", id="empty"),
        pytest.param(
            {"RANK": "4", "WORLD_SIZE": "4"}, "RANK='4', WORLD_SIZE='4'", id="rank-too-high"
        ),
        pytest.param({"RANK": "0", "WORLD_SIZE": "0"}, "RANK='0', WORLD_SIZE='0'", id="no-ranks"),
    ],
)
def test_a_contradictory_environment_is_refused(
    monkeypatch: pytest.MonkeyPatch, environment: dict[str, str], found: str
) -> None:
    for name, value in environment.items():
        monkeypatch.setenv(name, value)

    with pytest.raises(ValueError, match=f"environment: {found}; expected .* or pass partition="):
        Partition.detect()


def test_a_process_group_wins_over_the_environment(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("RANK", "2")
    monkeypatch.setenv("WORLD_SIZE", "3")

    torch.distributed.init_process_group(
        "gloo", init_method=f"file://{tmp_path}/store", rank=0, world_size=1
    )
    try:
        detected = Partition.detect()
    finally:
        torch.distributed.destroy_process_group()

    assert detected == Partition(rank=0, world_size=1)
    assert Partition.detect() == Partition(rank=2, world_size=3)


@pytest.mark.slow  # each worker imports torch anew
def test_loader_workers_are_detected(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("RANK", "1")
    monkeypatch.setenv("WORLD_SIZE", "3")
    # Each item is the class itself, which the worker that fetches it asks to detect its place.
    loader: DataLoader[Any] = DataLoader(
        [Partition] * 4,  # type: ignore[arg-type]  # a list serves as a data set
        batch_size=None,
        collate_fn=operator.methodcaller("detect"),
        num_workers=2,
        multiprocessing_context="spawn",
    )

    detected = list(loader)

    first, second = (
        Partition(rank=1, world_size=3, worker=worker, num_workers=2) for worker in (0, 1)
    )
    assert detected == [first, second, first, second]
