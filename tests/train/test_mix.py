"""Mixes by weight and concatenations: what is read of each part, and when."""

import pickle
from collections import Counter
from dataclasses import replace
from itertools import pairwise
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from numpy.typing import NDArray

from daft_twinwds.errors import ResumeError
from daft_twinwds.partition import Partition
from daft_twinwds.train.buckets import Buckets
from daft_twinwds.train.mix import Concat, Level, MixOrder, Stop
from daft_twinwds.train.order import EpochOrder, Remainder

REMAINDERS: list[Remainder] = ["drop", "wrap", "pad"]
STOPS: list[Stop] = ["first_exhausted", "all_exhausted"]


def make_mix(
    sizes: list[int] | list[list[int]],
    weights: list[float],
    *,
    global_batch: int = 4,
    seed: int = 0,
    shuffle: bool = True,
    remainder: Remainder = "drop",
    level: Level = "sample",
    stop: Stop = "first_exhausted",
) -> MixOrder:
    """Make a mix of parts of some rows, or of parts with buckets of some rows."""
    return MixOrder(
        parts=tuple(
            Buckets.whole(size)
            if isinstance(size, int)
            else Buckets.from_labels(np.repeat(np.arange(len(size)), size))
            for size in sizes
        ),
        weights=tuple(weights),
        global_batch=global_batch,
        seed=seed,
        shuffle=shuffle,
        remainder=remainder,
        level=level,
        stop=stop,
    )


@st.composite
def mixes(draw: st.DrawFn, level: Level = "sample", stops: list[Stop] = STOPS) -> MixOrder:
    num_parts = draw(st.integers(1, 4))
    global_batch = draw(st.integers(1, 9))
    rows = st.integers(global_batch if level == "batch" else 1, 40)
    weight = st.sampled_from([1, 2, 3, 0.5, 0.7, 10])
    return make_mix(
        draw(st.lists(rows, min_size=num_parts, max_size=num_parts)),
        draw(st.lists(weight, min_size=num_parts, max_size=num_parts)),
        global_batch=global_batch,
        seed=draw(st.integers(0, 2**64 - 1)),
        shuffle=draw(st.booleans()),
        # With "drop" a short mix by sample may have no step at all.
        remainder=draw(st.sampled_from(REMAINDERS[1:] if level == "sample" else REMAINDERS)),
        level=level,
        stop=draw(st.sampled_from(stops)),
    )


def rows_of(mix: MixOrder, epoch: int) -> tuple[NDArray[np.int64], NDArray[np.bool_]]:
    steps = mix.steps_in(epoch)
    assert steps is not None
    batches = [mix.rows(epoch, step) for step in range(steps)]
    return np.stack([batch.rows for batch in batches]), np.stack([batch.pad for batch in batches])


@given(mixes(stops=["endless"]))
def test_every_part_has_its_share_of_the_first_n_rows_for_every_n(mix: MixOrder) -> None:
    rows, _ = mix.take(np.arange(300))
    parts, _ = mix.index.locate(rows)

    had = np.cumsum(parts[:, None] == np.arange(len(mix.parts)), axis=0)

    shares = np.array(mix.schedule.weights) / mix.schedule.period
    assert (np.abs(had - np.arange(1, 301)[:, None] * shares) < 1 + 1e-9).all()


@given(mixes(stops=["endless"]))
def test_each_pass_over_a_part_is_a_permutation_of_it(mix: MixOrder) -> None:
    rows, passes = mix.take(np.arange(300))
    parts, own = mix.index.locate(rows)

    for part, size in enumerate(mix.index.sizes):
        read, numbers = own[parts == part], passes[parts == part]
        assert (np.diff(numbers) >= 0).all()
        for start in range(0, len(read) - size + 1, size):
            assert sorted(read[start : start + size]) == list(range(size))
            assert set(numbers[start : start + size]) == {start // size}


@given(mixes(), st.integers(0, 3))
def test_a_step_is_its_piece_of_the_stream(mix: MixOrder, epoch: int) -> None:
    assert mix.length is not None
    assert mix.num_steps is not None
    assert mix.labels == ("",)

    for step in range(mix.num_steps):
        batch = mix.rows(epoch, step)

        turns = epoch * mix.length + step * mix.global_batch + np.arange(mix.global_batch)
        rows, passes = mix.take(turns)
        assert np.array_equal(batch.rows, rows)
        assert np.array_equal(batch.epochs, passes)
        assert batch.bucket == 0


@given(mixes() | mixes(level="batch"), st.integers(0, 3), st.slices(24), st.data())
def test_a_share_is_that_of_the_whole_batch(
    mix: MixOrder, epoch: int, share: slice, data: st.DataObject
) -> None:
    assert mix.num_steps is not None
    step = data.draw(st.integers(0, mix.num_steps - 1))

    whole, part = mix.rows(epoch, step), mix.rows(epoch, step, share)

    assert part.bucket == whole.bucket
    for name in ("rows", "pad", "epochs"):
        np.testing.assert_array_equal(getattr(part, name), getattr(whole, name)[share])


@given(mixes(stops=["first_exhausted"]))
def test_a_mix_that_stops_at_the_first_end_reads_no_row_twice(mix: MixOrder) -> None:
    assert mix.length is not None
    _, passes = mix.take(np.arange(mix.length + 1))

    assert not passes[:-1].any()
    assert passes[-1] == 1


@given(mixes(stops=["all_exhausted"]))
def test_a_mix_that_stops_at_the_last_end_reads_every_row(mix: MixOrder) -> None:
    assert mix.length is not None
    rows, _ = mix.take(np.arange(mix.length))

    assert set(rows) == set(range(mix.index.num_rows))
    assert set(rows[:-1]) != set(range(mix.index.num_rows))


def test_an_endless_mix_has_no_last_step() -> None:
    mix = make_mix([10, 5], [1, 1], stop="endless")

    assert mix.num_steps is mix.steps_in(0) is mix.length is None
    assert mix.rows(0, 10**12).rows.shape == (4,)
    assert mix.advance(0, 10**12) == (0, 10**12 + 1)
    assert mix.locate(10**12) == (0, 10**12)
    assert mix.global_step(0, 10**12) == 10**12
    with pytest.raises(ValueError, match="epoch must be 0, which never ends, got 1"):
        mix.rows(1, 0)


@given(mixes())
def test_padding_marks_what_is_beyond_the_epoch(mix: MixOrder) -> None:
    padded = replace(mix, remainder="pad")
    assert mix.length is not None
    assert padded.num_steps is not None

    for epoch in range(3):
        rows, pad = rows_of(padded, epoch)

        assert (~pad).sum() == mix.length
        assert np.array_equal(np.sort(pad.ravel()), pad.ravel())
        expected, _ = mix.take(epoch * mix.length + np.arange(mix.length))
        assert np.array_equal(rows[~pad], expected)


def test_the_next_epoch_goes_on_where_a_part_was_left() -> None:
    mix = make_mix([4, 100], [1, 1], global_batch=8)

    read = [set(rows_of(mix, epoch)[0].ravel()) - set(range(4)) for epoch in range(25)]

    assert mix.length == 8
    assert all(not earlier & later for earlier, later in pairwise(read))
    assert set.union(*read) == set(range(4, 104))


@given(mixes("batch"), st.integers(0, 2))
def test_by_batch_each_global_batch_is_the_next_one_of_a_single_part(
    mix: MixOrder, epoch: int
) -> None:
    assert mix.length is not None
    had: Counter[int] = Counter()
    for turn in range((epoch + 1) * mix.length):
        batch = mix.rows(*divmod(turn, mix.length))
        (part,) = set(mix.index.locate(batch.rows)[0].tolist())

        order = mix.orders[part]
        expected = order.rows(*order.locate(had[part]))
        assert np.array_equal(batch.rows - mix.index.offsets[part], expected.rows)
        assert np.array_equal(batch.pad, expected.pad)
        assert np.array_equal(batch.epochs, expected.epochs)
        had[part] += 1

        shares = np.array(mix.schedule.weights) / mix.schedule.period * (turn + 1)
        assert all(abs(had[part] - share) < 1 + 1e-9 for part, share in enumerate(shares))


def test_by_batch_parts_keep_their_buckets() -> None:
    mix = make_mix([[9, 8], [12], [8, 8, 8]], [1, 1, 2], level="batch", stop="all_exhausted")
    assert mix.labels == (0, 1, 0, 0, 1, 2)
    label_of_row = np.repeat(np.arange(6), [9, 8, 12, 8, 8, 8])

    for step in range(mix.num_steps or 0):
        batch = mix.rows(0, step)

        assert set(label_of_row[batch.rows]) == {batch.bucket}


def test_by_batch_each_part_counts_what_it_leaves_out() -> None:
    mix = make_mix([[9, 8], [13]], [1, 1], level="batch")

    assert [order.num_dropped for order in mix.orders] == [1, 1]


def test_a_part_listed_twice_is_shuffled_twice() -> None:
    mix = make_mix([50, 50], [1, 1])

    rows, _ = mix.take(np.arange(100))

    assert rows[rows < 50].tolist() != (rows[rows >= 50] - 50).tolist()


def test_without_shuffling_parts_come_in_their_natural_order() -> None:
    rows, _ = make_mix([3, 10], [1, 2], shuffle=False).take(np.arange(12))

    assert rows[rows < 3].tolist() == [0, 1, 2, 0]
    assert rows[rows >= 3].tolist() == list(range(3, 11))


def test_ranks_of_any_world_size_read_the_same_together() -> None:
    mix = make_mix([50, 30], [2, 1], global_batch=12)
    whole, _ = rows_of(mix, 1)

    for world_size in (1, 2, 3, 4, 6, 12):
        parts = [
            mix.slice_for(Partition(rank=rank, world_size=world_size)) for rank in range(world_size)
        ]
        together = np.concatenate([whole[:, part] for part in parts], axis=1)
        assert np.array_equal(np.sort(together), np.sort(whole))


@pytest.mark.parametrize("seed", [1, 2**63])
def test_other_seeds_mix_other_rows(seed: int) -> None:
    rows, _ = rows_of(make_mix([50, 50], [1, 1]), 0)

    assert not np.array_equal(rows_of(make_mix([50, 50], [1, 1], seed=seed), 0)[0], rows)


@given(mixes(), st.integers(1, 9), st.integers(0, 2), st.data())
def test_an_epoch_goes_on_in_batches_of_another_size(
    mix: MixOrder, global_batch: int, epoch: int, data: st.DataObject
) -> None:
    mix = replace(mix, remainder="pad")
    assert mix.length is not None
    step = data.draw(st.integers(0, (mix.num_steps or 1) - 1))

    rest = mix.rest(epoch, step, global_batch=global_batch)
    assert rest.first == (epoch, 0)
    again = rest.rest(epoch, 0, global_batch=mix.global_batch)

    for order in (rest, again):
        rows, pad = rows_of(order, epoch)
        start = epoch * mix.length + step * mix.global_batch
        expected, _ = mix.take(np.arange(start, (epoch + 1) * mix.length))
        assert np.array_equal(rows[~pad], expected)
    other = rows_of(replace(mix, global_batch=global_batch), epoch + 1)
    assert np.array_equal(rows_of(rest, epoch + 1)[0], other[0])


def test_an_endless_mix_goes_on_in_batches_of_another_size() -> None:
    mix = make_mix([10, 5], [1, 1], stop="endless")

    rest = mix.rest(0, 25, global_batch=10).rest(0, 3, global_batch=2)

    assert np.array_equal(rest.rows(0, 1).rows, mix.take(np.array([132, 133]))[0])


def test_by_batch_an_epoch_goes_on_in_batches_of_its_size_only() -> None:
    mix = make_mix([20, 20], [1, 1], level="batch")

    rest = mix.rest(1, 3, global_batch=4)

    assert np.array_equal(rest.rows(*rest.first).rows, mix.rows(1, 3).rows)
    assert rest.steps_in(1) == (mix.num_steps or 0) - 3
    message = "global batches of 4 rows, mixed by batch; cannot go on with 8; expected the same"
    with pytest.raises(ResumeError, match=message):
        mix.rest(1, 3, global_batch=8)


def test_a_state_of_a_longer_epoch_is_refused() -> None:
    with pytest.raises(ResumeError, match=r"^state: 41 rows or batches read of an epoch of 40"):
        replace(make_mix([20, 20], [1, 1]), done=41)


def test_a_mix_travels_to_other_processes() -> None:
    mix = make_mix([20, 20], [1, 3])

    copy = pickle.loads(pickle.dumps(mix))

    assert np.array_equal(rows_of(copy, 1)[0], rows_of(mix, 1)[0])


def test_a_step_of_huge_parts_costs_no_more_than_its_own() -> None:
    mix = make_mix([10**9, 10**10], [1, 3], global_batch=64)

    assert mix.num_steps == 4 * 10**9 // 64
    assert len(np.unique(mix.rows(5, mix.num_steps - 1).rows)) == 64


@pytest.mark.parametrize(
    ("changes", "error", "message"),
    [
        ({"weights": (1,)}, ValueError, "2 parts and 1 weights; expected one weight for each"),
        ({"weights": (1, -1)}, ValueError, r"weights\[1\] must be positive and finite, got -1"),
        ({"weights": (1, 2**20)}, ValueError, "repeats after 1048577 turns only"),
        ({"parts": (), "weights": ()}, ValueError, "no weights; expected at least one"),
        ({"parts": (Buckets.whole(0),) * 2}, ValueError, r"parts\[0\]: 0 rows in 1 bucket"),
        (
            {"parts": (Buckets.whole(9), Buckets.from_labels("abcde"))},
            ValueError,
            r"parts\[1\]: the buckets 'a', 'b', 'c', 'd' and 1 more, .* level='batch' or no buck",
        ),
        ({"level": "row"}, ValueError, "level must be one of 'sample', 'batch', got 'row'"),
        ({"stop": "never"}, ValueError, "stop must be one of 'first_exhausted', 'all_exhausted'"),
        ({"remainder": "keep"}, ValueError, "remainder must be one of"),
        ({"shuffle": None}, ValueError, "shuffle must be one of True, False, got None"),
        ({"seed": 0.5}, TypeError, "seed must be an int, got 0.5"),
        ({"global_batch": 0}, ValueError, "global_batch must be at least 1"),
        (
            {"global_batch": 100},
            ValueError,
            "stops at 40 rows or batches: not one global batch of 100 rows; .*'wrap' or 'pad'",
        ),
        (
            {"global_batch": 21, "level": "batch"},
            ValueError,
            r"parts\[0\]: 20 rows in 1 bucket\(s\).* not one global batch of 21 rows",
        ),
    ],
    ids=str,
)
def test_mixes_that_cannot_be_are_refused(
    changes: dict[str, Any], error: type[Exception], message: str
) -> None:
    with pytest.raises(error, match=message):
        replace(make_mix([20, 20], [1, 1]), **changes)


@pytest.mark.parametrize(
    "changes",
    [
        {"weights": (1, 0)},
        {"parts": (Buckets.whole(9), Buckets.from_labels("ab"))},
        {"global_batch": 21, "level": "batch"},
    ],
    ids=str,
)
def test_endless_mixes_that_cannot_be_are_refused_at_once(changes: dict[str, Any]) -> None:
    with pytest.raises(ValueError, match=r"(weights|parts)\["):
        replace(make_mix([20, 20], [1, 1], stop="endless"), **changes)


def test_mixes_are_the_same_for_ever() -> None:
    mix = make_mix([6, 9], [1, 2], seed=1)

    assert mix.take(np.arange(12))[0].tolist() == [12, 0, 10, 11, 1, 9, 14, 2, 6, 8, 3, 13]


@given(st.lists(st.integers(0, 20), min_size=1).filter(any))
def test_a_concatenation_holds_every_row_of_every_listing(sizes: list[int]) -> None:
    concat = Concat(tuple(sizes))

    parts, rows = concat.locate(np.arange(concat.num_rows))

    assert list(zip(parts.tolist(), rows.tolist(), strict=True)) == [
        (part, row) for part, size in enumerate(sizes) for row in range(size)
    ]


def test_a_part_listed_k_times_is_read_k_times_an_epoch() -> None:
    concat = Concat((5, 5, 3))
    order = EpochOrder(
        buckets=Buckets.whole(concat.num_rows),
        global_batch=13,
        seed=0,
        shuffle=True,
        remainder="drop",
    )

    parts, rows = concat.locate(order.rows(0, 0).rows)

    assert Counter(rows[parts < 2].tolist()) == dict.fromkeys(range(5), 2)
    assert sorted(rows[parts == 2]) == [0, 1, 2]


@pytest.mark.parametrize("row", [-1, 8])
def test_rows_beyond_a_concatenation_are_refused(row: int) -> None:
    with pytest.raises(ValueError, match=r"rows must be in \[0, 8\), got values from"):
        Concat((5, 3)).locate(np.array([0, row]))


def test_sizes_that_are_none_are_refused() -> None:
    with pytest.raises(ValueError, match=r"sizes\[1\] must be at least 0, got -1"):
        Concat((5, -1))
