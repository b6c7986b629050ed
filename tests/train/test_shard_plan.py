"""Shard-level plans: recorded plans of PiD's distributors are met exactly."""

import json
import logging
import random
from collections import Counter
from itertools import chain
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from daft_twinwds.partition import Partition
from daft_twinwds.train.shard_plan import multi_aspect_plan, shard_plan

RECORDED = Path(__file__).parents[3] / "shared" / "golden" / "shard_plan.json"

sizes = st.integers(1, 6)

# (shards, rank, world size, worker, workers, samples seen, chunk size, equalize, shuffle): plan.
BASIC: dict[tuple[int, int, int, int, int, int, int, bool, bool], list[int]] = {
    (3, 4, 8, 0, 1, 20, 20, True, True): [],
    (5, 0, 1, 3, 4, 163, 20, True, True): [],
    (17, 2, 3, 0, 2, 0, 10, True, True): [14, 8, 2],
    (31, 2, 3, 0, 1, 0, 1, True, True): [23, 1, 11, 14, 8, 26, 20, 17, 29, 5, 2],
    (1, 3, 4, 0, 2, 0, 100, False, True): [],
    (31, 0, 2, 2, 3, 12, 4, False, False): [10, 16, 22, 28],
    (257, 3, 8, 2, 4, 83, 10, True, False): [83, 115, 147, 179, 211, 243, 18],
    (2, 0, 1, 0, 1, 10, 10, True, False): [1],
    (5, 3, 8, 6, 8, 0, 100, True, False): [1],
    (64, 0, 4, 0, 3, 0, 4, True, False): [0, 12, 24, 36, 48, 60],
    (17, 2, 3, 0, 8, 55, 20, True, True): [2],
    (2, 1, 3, 0, 1, 55, 100, True, True): [1],
    (31, 0, 2, 3, 4, 83, 10, False, True): [22, 14],
    (64, 3, 4, 1, 2, 20, 10, False, True): [63, 23, 39, 7, 31, 15, 47],
    # By data-parallel group: the group is the rank, the number of groups the world size.
    (17, 2, 4, 1, 2, 41, 1, True, True): [],
    (31, 2, 3, 1, 2, 20, 10, True, True): [5, 23, 4, 17, 29],
    (17, 0, 1, 0, 4, 40, 10, True, True): [4, 0, 16, 12],
    (31, 3, 4, 3, 4, 0, 1, True, True): [0, 15],
    (8, 0, 1, 0, 2, 0, 10, True, True): [4, 0, 2, 6],
    (8, 1, 2, 0, 4, 0, 20, True, False): [1],
    (8, 1, 3, 0, 1, 20, 20, True, False): [4, 7],
}

# (shards per ratio, rank, world size, worker, workers): ratio and plan.
MULTI_ASPECT: list[tuple[dict[str, int], int, int, int, int, tuple[str, list[int]]]] = [
    ({"16,9": 1, "9,16": 1, "4,3": 3}, 1, 2, 3, 4, ("4,3", [0])),
    ({"4,3": 8, "3,4": 1, "16,9": 3}, 0, 2, 0, 2, ("4,3", [0, 4, 2])),
    ({"1,1": 3, "4,3": 3, "16,9": 20}, 0, 1, 3, 4, ("16,9", [1, 5, 7, 13, 11, 9, 3])),
    ({"9,16": 1}, 1, 4, 1, 4, ("9,16", [0])),
    ({"16,9": 5}, 0, 4, 1, 2, ("16,9", [4])),
    ({"3,4": 3}, 0, 1, 1, 2, ("3,4", [0, 1])),
    ({"9,16": 20, "3,4": 5}, 0, 4, 0, 2, ("9,16", [12, 0, 6, 18])),
    ({"4,3": 20, "9,16": 20}, 0, 4, 0, 1, ("4,3", [14, 16, 2, 10, 6, 8, 4, 0, 18, 12])),
    ({"1,1": 1, "9,16": 8, "4,3": 1}, 1, 2, 1, 2, ("4,3", [0, 0, 0])),
    ({"16,9": 20, "4,3": 5}, 0, 2, 0, 1, ("16,9", [1, 10, 9, 5, 11, 2, 3, 7, 8, 4, 0, 12, 6])),
]


@pytest.mark.parametrize("case", BASIC, ids=str)
def test_recorded_plans_are_met(case: tuple[int, int, int, int, int, int, int, bool, bool]) -> None:
    num_shards, rank, world_size, worker, num_workers, seen, chunk, equalize, shuffle = case

    plan = shard_plan(
        num_shards,
        Partition(rank=rank, world_size=world_size, worker=worker, num_workers=num_workers),
        equalize=equalize,
        shuffle=shuffle,
        samples_seen=seen,
        chunk_size=chunk,
    )

    assert plan == BASIC[case]


@pytest.mark.parametrize(
    ("shards", "rank", "world_size", "worker", "num_workers", "expected"), MULTI_ASPECT, ids=str
)
def test_recorded_plans_by_aspect_ratio_are_met(
    shards: dict[str, int],
    rank: int,
    world_size: int,
    worker: int,
    num_workers: int,
    expected: tuple[str, list[int]],
) -> None:
    partition = Partition(rank=rank, world_size=world_size, worker=worker, num_workers=num_workers)

    assert multi_aspect_plan(shards, partition) == expected


def test_all_recorded_plans_are_met() -> None:
    if not RECORDED.exists():
        pytest.skip(
            f"the full record of PiD's plans, {RECORDED.name}, is not beside the repository"
        )

    for case in json.loads(RECORDED.read_text())["cases"]:
        assert planned(case) == case["shards"], case


def planned(case: dict[str, Any]) -> list[int] | list[str]:
    rank, world_size = case["rank"], case["world_size"]
    if case["kind"] == "parallel_sync":
        rank, world_size = case["group_id"], world_size // case["group_size"]
    partition = Partition(
        rank=rank,
        world_size=world_size,
        worker=case["worker_id"],
        num_workers=case["num_workers"],
    )
    if case["kind"] == "multi_aspect":
        ratio, shards = multi_aspect_plan(case["shards_per_ratio"], partition)
        folder = f"aspect_ratio_{ratio.replace(',', '_')}/part_000000"
        return [f"{folder}/{shard:06d}.tar" for shard in shards]
    options = {name: case[name] for name in ("equalize", "shuffle", "samples_seen", "chunk_size")}
    return shard_plan(case["num_shards"], partition, **options)


def readers(world_size: int, num_workers: int) -> list[Partition]:
    return [
        Partition(rank=rank, world_size=world_size, worker=worker, num_workers=num_workers)
        for rank in range(world_size)
        for worker in range(num_workers)
    ]


@given(num_shards=st.integers(1, 80), world_size=sizes, num_workers=sizes, shuffle=st.booleans())
def test_equalized_plans_are_equally_long_and_hold_every_shard(
    num_shards: int, world_size: int, num_workers: int, shuffle: bool
) -> None:
    plans = [
        shard_plan(num_shards, reader, shuffle=shuffle)
        for reader in readers(world_size, num_workers)
    ]

    assert len({len(plan) for plan in plans}) == 1
    counts = Counter(chain.from_iterable(plans))
    assert set(counts) == set(range(num_shards))
    assert max(counts.values()) - min(counts.values()) <= 1


@given(num_shards=st.integers(1, 80), world_size=sizes, num_workers=sizes)
def test_plans_that_are_not_equalized_hold_every_shard_once(
    num_shards: int, world_size: int, num_workers: int
) -> None:
    plans = [
        shard_plan(num_shards, reader, equalize=False)
        for reader in readers(world_size, num_workers)
    ]

    assert sorted(chain.from_iterable(plans)) == list(range(num_shards))


@given(seen=st.integers(0, 500), chunk_size=st.integers(1, 20), num_workers=sizes)
def test_a_plan_goes_on_after_the_shards_that_were_read(
    seen: int, chunk_size: int, num_workers: int
) -> None:
    partition = Partition(num_workers=num_workers)
    whole = shard_plan(40, partition)

    rest = shard_plan(40, partition, samples_seen=seen, chunk_size=chunk_size)

    assert rest == whole[seen // chunk_size // num_workers :]


def test_planning_leaves_pythons_generator_alone() -> None:
    random.seed(5)
    expected = random.getstate()

    shard_plan(40, Partition())
    multi_aspect_plan({"1,1": 4}, Partition())

    assert random.getstate() == expected


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"num_shards": 0}, "num_shards must be at least 1, got 0"),
        ({"samples_seen": -1}, "samples_seen must be at least 0, got -1"),
        ({"chunk_size": 0}, "chunk_size must be at least 1, got 0"),
    ],
    ids=str,
)
def test_numbers_out_of_range_are_refused(arguments: dict[str, int], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        shard_plan(**{"num_shards": 3, "partition": Partition(), **arguments})  # type: ignore[arg-type]


ratios = st.dictionaries(
    st.sampled_from(["16,9", "4,3", "1,1", "3,4", "9,16"]), st.integers(1, 30), min_size=1
)


@given(shards=ratios, world_size=sizes, num_workers=sizes)
def test_readers_have_one_ratio_each_and_equally_many_shards(
    shards: dict[str, int], world_size: int, num_workers: int
) -> None:
    try:
        plans = [multi_aspect_plan(shards, reader) for reader in readers(world_size, num_workers)]
    except ValueError:
        # That it is right to refuse is tested below.
        assert world_size * num_workers < sum(shards.values())
        return

    assert {len(plan) for _, plan in plans} == {
        -(-sum(shards.values()) // (world_size * num_workers))
    }
    assert all(set(plan) <= set(range(shards[ratio])) for ratio, plan in plans)


def test_with_readers_enough_every_shard_of_every_ratio_is_read() -> None:
    shards = {"16,9": 6, "1,1": 3, "9,16": 3}

    plans = [multi_aspect_plan(shards, reader) for reader in readers(2, 2)]

    read = {(ratio, shard) for ratio, plan in plans for shard in plan}
    assert read == {(ratio, shard) for ratio, count in shards.items() for shard in range(count)}


def test_the_largest_ratio_without_a_reader_is_told(caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.WARNING, "daft_twinwds"):
        plan = multi_aspect_plan({"1,1": 3, "16,9": 3, "3,4": 5}, Partition(world_size=4))

    assert plan == ("1,1", [0, 1, 2])
    assert "no reader for the 5 shards of '3,4', the largest aspect ratio" in caplog.text


def test_more_ratios_than_readers_are_refused() -> None:
    message = "3 aspect ratios for 1 readers: the ratios other than '1,1' need 2 readers; expected"
    with pytest.raises(ValueError, match=message):
        multi_aspect_plan({"1,1": 5, "4,3": 1, "3,4": 1}, Partition())


@pytest.mark.parametrize(
    ("shards", "message"),
    [
        ({}, "shards_per_ratio: no ratios; expected at least one"),
        ({"1,1": 0}, r"shards_per_ratio\['1,1'\] must be at least 1, got 0"),
    ],
    ids=str,
)
def test_ratios_without_shards_are_refused(shards: dict[str, int], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        multi_aspect_plan(shards, Partition())
