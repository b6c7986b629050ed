"""What is asked of a server: covers what is wanted, and costs no more than it must."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from daft_twinwds.shards.options import StorageOptions
from daft_twinwds.shards.read_plans import (
    BLOCK_READ,
    FIRST_READ,
    HEADER_READ,
    PART,
    join_ranges,
    next_read,
    split_range,
)

KIB, MIB = 1 << 10, 1 << 20
REQUEST_COST = StorageOptions().request_cost


@given(
    start=st.integers(0, 10**9),
    length=st.integers(1, 2 * MIB),
    read_to=st.integers(0, 10**9),
    headers=st.integers(0, 10**6),
    rest=st.integers(0, 10**9),
    cost=st.integers(0, 20 * MIB),
)
def test_a_read_covers_the_header_and_stays_in_the_tar(
    start: int, length: int, read_to: int, headers: int, rest: int, cost: int
) -> None:
    wanted = range(start, start + length)

    read = next_read(
        wanted, read_to=read_to, headers=headers, size=wanted.stop + rest, request_cost=cost
    )

    assert read.start <= wanted.start
    assert wanted.stop <= read.stop <= wanted.stop + rest
    assert len(read) <= max(BLOCK_READ, length) + cost


@pytest.mark.parametrize(
    ("apart", "is_block"),
    [
        pytest.param(2 * KIB, True, id="captions"),
        pytest.param(REQUEST_COST - 512, True, id="just-cheaper-in-blocks"),
        pytest.param(REQUEST_COST, False, id="just-dearer-in-blocks"),
        pytest.param(2_500_000, False, id="pictures"),
    ],
)
def test_distance_of_headers_decides_between_blocks_and_single_headers(
    apart: int, is_block: bool
) -> None:
    start = 100 * apart
    wanted = range(start, start + 512)

    read = next_read(
        wanted, read_to=start - 1000, headers=100, size=10**10, request_cost=REQUEST_COST
    )

    expected = (
        range(start - 1000, start - 1000 + BLOCK_READ)
        if is_block
        else range(start, start + HEADER_READ)
    )
    assert read == expected


def test_a_large_member_among_small_ones_is_leapt_over() -> None:
    start = 100 * 2 * KIB + 20 * MIB
    wanted = range(start, start + 512)

    read = next_read(
        wanted, read_to=100 * 2 * KIB, headers=101, size=10**10, request_cost=REQUEST_COST
    )

    assert read == range(start, start + HEADER_READ)


def _cost(gap: int, members: int, cost: int = REQUEST_COST) -> tuple[int, int]:
    """Requests and bytes of a walk over equal members."""
    size = gap * members + 1024
    read = range(min(FIRST_READ, size))
    requests, moved, kept = 1, len(read), read
    for number in range(1, members + 1):
        wanted = range(number * gap, number * gap + 512)
        if wanted.start < kept.start or wanted.stop > kept.stop:
            kept = next_read(
                wanted, read_to=kept.stop, headers=number, size=size, request_cost=cost
            )
            requests, moved = requests + 1, moved + len(kept)
    return requests, moved


@given(
    gap=st.integers(2, 10_000).map(lambda blocks: 512 * blocks),
    members=st.integers(1, 300),
    cost=st.sampled_from([REQUEST_COST, BLOCK_READ, 12 * MIB]),
)
def test_a_walk_costs_at_most_twice_the_cheaper_way(gap: int, members: int, cost: int) -> None:
    requests, moved = _cost(gap, members, cost)

    size, block = gap * members + 1024, max(BLOCK_READ, cost)
    in_blocks = size + cost * -(-size // block)
    one_by_one = (members + 1) * (512 + cost)
    allowance = FIRST_READ + block + 2 * cost
    assert moved + requests * cost <= 2 * min(in_blocks, one_by_one) + allowance


def test_dearer_requests_are_fewer_for_pictures_that_lie_closer() -> None:
    gap = 600 * 1024

    by_headers, _ = _cost(gap, 1000)
    in_blocks, moved = _cost(gap, 1000, 12 * MIB)

    assert by_headers == 1001
    assert in_blocks < 1000 * gap / (12 * MIB) + 2
    assert moved <= 1000 * gap + 1024


def test_a_walk_over_large_pictures_moves_next_to_nothing() -> None:
    requests, moved = _cost(2_500_096, 100)

    assert requests == 101
    assert moved < 2_500_096 * 100 / 100


ranges = st.lists(st.tuples(st.integers(0, 5000), st.integers(0, 300)), max_size=40)


@given(wanted=ranges, max_gap=st.integers(0, 200), max_size=st.integers(0, 2000))
def test_joined_ranges_hold_each_range_once_and_whole(
    wanted: list[tuple[int, int]], max_gap: int, max_size: int
) -> None:
    positions, sizes = [at for at, _ in wanted], [size for _, size in wanted]

    spans = join_ranges(positions, sizes, max_gap=max_gap, max_size=max_size)

    assert sorted(n for span in spans for n in span.members) == list(range(len(wanted)))
    for span in spans:
        for number in span.members:
            assert span.start <= positions[number]
            assert positions[number] + sizes[number] <= span.stop
        assert len(span.members) == 1 or span.stop - span.start <= max_size
    starts = [span.start for span in spans]
    assert starts == sorted(starts)


@given(wanted=ranges, max_gap=st.integers(0, 200))
def test_what_is_read_along_is_no_wider_than_the_gap(
    wanted: list[tuple[int, int]], max_gap: int
) -> None:
    positions, sizes = [at for at, _ in wanted], [size for _, size in wanted]

    for span in join_ranges(positions, sizes, max_gap=max_gap, max_size=10**9):
        covered = sorted((positions[n], positions[n] + sizes[n]) for n in span.members)
        reached = span.start
        for start, stop in covered:
            assert start - reached <= max_gap
            reached = max(reached, stop)


def test_ranges_are_joined_over_a_gap_and_not_over_a_wider_one() -> None:
    spans = join_ranges([0, 20, 200, 31], [10, 10, 5, 0], max_gap=10, max_size=1000)

    assert [(span.start, span.stop, span.members) for span in spans] == [
        (0, 31, [0, 1, 3]),
        (200, 205, [2]),
    ]


@given(start=st.integers(0, 10**6), size=st.integers(0, 10**6), most=st.integers(1, 10**5))
def test_parts_are_consecutive_even_and_small(start: int, size: int, most: int) -> None:
    parts = split_range(start, start + size, most=most)

    assert [part.start for part in parts] == [start, *(part.stop for part in parts)][: len(parts)]
    assert (parts[-1].stop if parts else start) == start + size
    assert all(0 < len(part) <= most for part in parts)
    assert max(map(len, parts), default=0) - min(map(len, parts), default=0) <= 1
    assert len(parts) == -(-size // most)


def test_a_range_of_one_part_is_not_split() -> None:
    assert split_range(3, 3 + PART) == [range(3, 3 + PART)]
