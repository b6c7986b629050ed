"""The order of training: what each epoch reads, in which steps, and where it can go on."""

import json
import pickle
from collections import Counter
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import assume, given
from hypothesis import strategies as st
from numpy.typing import NDArray

from daft_twinwds.errors import ResumeError
from daft_twinwds.partition import Partition
from daft_twinwds.train.buckets import Buckets
from daft_twinwds.train.order import EpochOrder, Remainder
from daft_twinwds.train.steps import rank_slice

REMAINDERS: list[Remainder] = ["drop", "wrap", "pad"]


def make_order(
    rows: int | list[int],
    global_batch: int,
    *,
    seed: int = 0,
    shuffle: bool = True,
    remainder: Remainder = "drop",
) -> EpochOrder:
    """Make an order over some rows, or over buckets of some rows that lie in each other."""
    if isinstance(rows, int):
        buckets = Buckets.whole(rows)
    else:
        labels = np.repeat(np.arange(len(rows)), rows)
        buckets = Buckets.from_labels(np.random.default_rng(0).permutation(labels))
    return EpochOrder(
        buckets=buckets,
        global_batch=global_batch,
        seed=seed,
        shuffle=shuffle,
        remainder=remainder,
    )


@st.composite
def orders(draw: st.DrawFn, *remainders: Remainder) -> EpochOrder:
    sizes = draw(st.lists(st.integers(0, 60), min_size=1, max_size=5) | st.integers(1, 200))
    global_batch = draw(st.integers(1, 24))
    remainder = draw(st.sampled_from(remainders or REMAINDERS))
    rows = [sizes] if isinstance(sizes, int) else sizes
    assume(max(rows) >= (global_batch if remainder == "drop" else 1))
    return make_order(
        sizes,
        global_batch,
        seed=draw(st.integers(0, 2**64 - 1)),
        shuffle=draw(st.booleans()),
        remainder=remainder,
    )


def epoch_of(
    order: EpochOrder, epoch: int
) -> tuple[NDArray[np.int64], NDArray[np.bool_], NDArray[np.int64]]:
    return order.batches(epoch, np.arange(order.steps_in(epoch)))


epochs = st.integers(0, 1000)


@given(order=orders("drop"), epoch=epochs)
def test_with_drop_every_row_is_read_once_or_counted_as_dropped(
    order: EpochOrder, epoch: int
) -> None:
    rows, pad, _ = epoch_of(order, epoch)
    dropped = order.dropped(epoch)

    assert sorted([*rows.flat, *dropped]) == list(range(order.buckets.num_rows))
    assert order.num_dropped == len(dropped)
    assert order.num_repeated == len(order.repeated(epoch)) == 0
    assert not pad.any()


@given(order=orders("pad"), epoch=epochs)
def test_with_pad_every_row_is_read_once_not_counting_what_is_marked(
    order: EpochOrder, epoch: int
) -> None:
    rows, pad, _ = epoch_of(order, epoch)

    assert sorted(rows[~pad]) == list(range(order.buckets.num_rows))
    assert Counter(rows[pad].tolist()) == Counter(order.repeated(epoch).tolist())
    assert order.num_repeated == pad.sum()
    assert order.num_dropped == len(order.dropped(epoch)) == 0


@given(order=orders("wrap"), epoch=epochs)
def test_with_wrap_every_row_is_read_and_the_repeated_ones_again(
    order: EpochOrder, epoch: int
) -> None:
    rows, pad, _ = epoch_of(order, epoch)
    repeated = order.repeated(epoch)

    assert Counter(rows.ravel().tolist()) == Counter(
        [*range(order.buckets.num_rows), *repeated.tolist()]
    )
    assert order.num_repeated == len(repeated)
    assert order.num_dropped == 0
    assert not pad.any()


@given(order=orders("wrap"), epoch=epochs)
def test_wrap_reads_what_pad_reads(order: EpochOrder, epoch: int) -> None:
    padded = replace(order, remainder="pad")

    assert np.array_equal(epoch_of(order, epoch)[0], epoch_of(padded, epoch)[0])


@given(order=orders(), epoch=epochs)
def test_every_global_batch_is_of_one_bucket(order: EpochOrder, epoch: int) -> None:
    label_of_row = np.empty(order.buckets.num_rows, np.int64)
    for bucket, size in enumerate(order.buckets.sizes.tolist()):
        label_of_row[order.buckets.rows_at(bucket, np.arange(size))] = bucket

    rows, _, buckets = epoch_of(order, epoch)

    assert (label_of_row[rows] == buckets[:, None]).all()


@given(order=orders(), epoch=epochs)
def test_a_step_alone_is_that_of_the_whole_epoch(order: EpochOrder, epoch: int) -> None:
    rows, pad, buckets = epoch_of(order, epoch)

    for step in range(order.num_steps):
        batch = order.rows(epoch, step)

        assert np.array_equal(batch.rows, rows[step])
        assert np.array_equal(batch.pad, pad[step])
        assert batch.bucket == buckets[step]
        assert batch.epochs.tolist() == [epoch] * order.global_batch


@pytest.mark.parametrize("world_size", range(1, 17))
def test_ranks_share_each_batch_exactly_and_evenly(world_size: int) -> None:
    global_batch = 720720  # which 1 to 16 divide
    places = np.arange(global_batch)

    parts = [
        places[rank_slice(global_batch, Partition(rank=rank, world_size=world_size))]
        for rank in range(world_size)
    ]

    assert {len(part) for part in parts} == {global_batch // world_size}
    assert np.array_equal(np.sort(np.concatenate(parts)), places)


@given(
    per_rank=st.integers(1, 4),
    world_size=st.integers(1, 16),
    other=st.integers(1, 16),
    sizes=st.lists(st.integers(0, 200), min_size=1, max_size=4),
    remainder=st.sampled_from(REMAINDERS),
    num_workers=st.integers(1, 5),
)
def test_what_all_ranks_read_together_depends_on_neither_world_size_nor_workers(
    per_rank: int,
    world_size: int,
    other: int,
    sizes: list[int],
    remainder: Remainder,
    num_workers: int,
) -> None:
    global_batch = per_rank * int(np.lcm(world_size, other))
    assume(max(sizes) >= (global_batch if remainder == "drop" else 1))
    order = make_order(sizes, global_batch, remainder=remainder)

    def read_by(world_size: int, num_workers: int) -> list[list[int]]:
        slices = [
            order.slice_for(
                Partition(
                    rank=rank,
                    world_size=world_size,
                    worker=num_workers - 1,
                    num_workers=num_workers,
                )
            )
            for rank in range(world_size)
        ]
        rows, _, _ = epoch_of(order, 3)
        return [sorted(np.concatenate([batch[part] for part in slices])) for batch in rows]

    assert read_by(world_size, 1) == read_by(other, num_workers)


def test_padding_is_spread_over_the_ranks() -> None:
    batch = make_order(12, 8, remainder="pad").rows(0, 1)

    marked = [batch.pad[rank_slice(8, Partition(rank=n, world_size=4))].sum() for n in range(4)]

    assert marked == [1, 1, 1, 1]


@pytest.mark.parametrize(
    ("global_batch", "world_size", "cure"),
    [
        (8, 3, r"use 2 or 4 ranks, or a global batch of 6 or 9 rows"),
        (4, 8, r"use 4 ranks, or a global batch of 8 rows"),
        (7, 2, r"use 1 or 7 ranks, or a global batch of 6 or 8 rows"),
    ],
)
def test_a_batch_that_ranks_cannot_share_is_refused_with_sizes_that_work(
    global_batch: int, world_size: int, cure: str
) -> None:
    with pytest.raises(
        ValueError, match=f"batch of {global_batch} rows .* {world_size} ranks.*{cure}"
    ):
        rank_slice(global_batch, Partition(world_size=world_size))


@pytest.mark.parametrize("rows", [100, [60, 40]], ids=["no-buckets", "buckets"])
def test_each_epoch_has_its_own_order(rows: int | list[int]) -> None:
    order = make_order(rows, 4)

    seen = {epoch_of(order, epoch)[0].tobytes() for epoch in range(50)}

    assert len(seen) == 50


def test_each_seed_has_its_own_order() -> None:
    assert len({make_order(100, 4, seed=n).rows(0, 0).rows.tobytes() for n in range(50)}) == 50


def test_the_order_of_the_buckets_batches_is_shuffled_anew_each_epoch() -> None:
    order = make_order([40, 40, 40], 4)

    seen = {epoch_of(order, epoch)[2].tobytes() for epoch in range(20)}

    assert len(seen) == 20


@pytest.mark.parametrize("rows", [20, [11, 9]], ids=["no-buckets", "buckets"])
def test_no_row_is_left_out_of_all_epochs(rows: int | list[int]) -> None:
    order = make_order(rows, 8)

    always = set.intersection(*(set(order.dropped(epoch).tolist()) for epoch in range(30)))

    assert not always


def test_without_shuffling_rows_come_in_their_natural_order() -> None:
    order = make_order(10, 4, shuffle=False, remainder="wrap")

    rows, _, _ = epoch_of(order, 5)

    assert rows.tolist() == [[0, 1, 2, 3], [4, 5, 6, 7], [8, 9, 0, 1]]


def test_without_shuffling_buckets_come_one_after_the_other() -> None:
    buckets = Buckets.from_labels(["b", "a", "b", "a", "a", "b"])
    order = EpochOrder(buckets=buckets, global_batch=2, seed=0, shuffle=False, remainder="pad")

    rows, pad, numbers = epoch_of(order, 0)

    assert [order.labels[number] for number in numbers] == ["a", "a", "b", "b"]
    assert rows.tolist() == [[1, 3], [4, 1], [0, 2], [5, 0]]
    assert pad.tolist() == [[False, False], [False, True], [False, False], [False, True]]


@given(num_rows=st.integers(1, 100), remainder=st.sampled_from(REMAINDERS))
def test_one_bucket_is_read_as_none(num_rows: int, remainder: Remainder) -> None:
    plain = make_order(num_rows, 1, remainder=remainder)
    bucketed = make_order([num_rows], 1, remainder=remainder)

    assert np.array_equal(epoch_of(plain, 2)[0], epoch_of(bucketed, 2)[0])


def test_a_batch_larger_than_all_rows_repeats_them_as_often_as_needed() -> None:
    batch = make_order(3, 8, remainder="pad").rows(0, 0)

    assert sorted(Counter(batch.rows.tolist()).values()) == [2, 3, 3]
    assert batch.pad.tolist() == [False] * 3 + [True] * 5


def test_buckets_too_small_for_a_batch_are_named_and_counted() -> None:
    order = make_order([3, 10, 0], 4)

    assert order.idle_buckets == (0,)
    assert order.num_dropped == 3 + 2
    assert make_order([3, 10, 0], 4, remainder="pad").idle_buckets == ()


@pytest.mark.parametrize(
    ("rows", "message"),
    [
        pytest.param(5, r"5 rows in 1 bucket\(s\), the largest of 5", id="no-buckets"),
        pytest.param([5, 3], r"8 rows in 2 bucket\(s\), the largest of 5", id="buckets"),
        pytest.param(0, r"0 rows in 1 bucket\(s\), the largest of 0", id="no-rows"),
    ],
)
def test_too_few_rows_for_a_single_step_are_refused_with_the_cures(
    rows: int | list[int], message: str
) -> None:
    cure = "select more rows, lower the batch size, or pass remainder='wrap' or 'pad'"
    with pytest.raises(ValueError, match=f"{message}.*not one global batch of 6 rows.*{cure}"):
        make_order(rows, 6)


@pytest.mark.parametrize("remainder", REMAINDERS)
@pytest.mark.parametrize("labels", [[], [0]], ids=["no-buckets", "an-empty-bucket"])
def test_no_rows_at_all_are_refused(remainder: Remainder, labels: list[int]) -> None:
    with pytest.raises(ValueError, match=r"^0 rows in \d bucket.* not one global batch of 1 rows"):
        make_order(labels, 1, remainder=remainder)


@pytest.mark.parametrize(
    ("changes", "error", "message"),
    [
        ({"global_batch": 0}, ValueError, "global_batch must be at least 1, got 0"),
        ({"global_batch": 2.0}, TypeError, "global_batch must be an int, got 2.0"),
        ({"seed": True}, TypeError, "seed must be an int, got True"),
        ({"seed": 1.0}, TypeError, "seed must be an int, got 1.0"),
        ({"seed": -1}, ValueError, "seed must be at least 0, got -1"),
        ({"shuffle": 1}, ValueError, "shuffle must be one of True, False, got 1"),
        ({"remainder": "keep"}, ValueError, "remainder must be one of 'drop', 'wrap', 'pad'"),
    ],
    ids=str,
)
def test_wrong_arguments_are_refused(
    changes: dict[str, Any], error: type[Exception], message: str
) -> None:
    with pytest.raises(error, match=message):
        replace(make_order(10, 2), **changes)


@pytest.mark.parametrize(("epoch", "step"), [(0, 5), (0, -1), (-1, 0)])
def test_positions_that_are_not_there_are_refused(epoch: int, step: int) -> None:
    order = make_order(10, 2)

    with pytest.raises(ValueError, match=r"(epoch|step) must be"):
        order.rows(epoch, step)
    with pytest.raises(ValueError, match=r"(epoch|step) must be"):
        order.advance(epoch, step)


@pytest.mark.parametrize(
    ("epoch", "step", "message"),
    [
        (0, 6, "step must be below 5, the steps of epoch 0, got 6"),
        (0, -1, "step must be at least 0, got -1"),
        (-1, 0, "epoch must be at least 0, got -1"),
        (0, 1.0, "step must be an int, got 1.0"),
        ("0", 1, "epoch must be an int, got '0'"),
    ],
)
def test_a_saved_position_that_is_not_there_is_refused(epoch: Any, step: Any, message: str) -> None:
    expected = rf"^state: position \(epoch {epoch!r}, step {step!r}\): {message}; build .* anew"
    with pytest.raises(ResumeError, match=expected):
        make_order(10, 2).resume(epoch, step)


@given(order=orders())
def test_advancing_visits_every_position_in_turn(order: EpochOrder) -> None:
    position = order.first

    for global_step in range(3 * order.num_steps):
        assert order.locate(global_step) == position == divmod(global_step, order.num_steps)
        assert order.global_step(*position) == global_step
        assert order.resume(*position) == position
        position = order.advance(*position)


def test_the_end_of_an_epoch_is_the_beginning_of_the_next() -> None:
    assert make_order(10, 2).resume(3, 5) == (4, 0)


@given(
    order=orders("drop", "pad"),
    stops=st.lists(st.tuples(st.floats(0, 1), st.integers(1, 24)), max_size=3),
)
def test_an_epoch_goes_on_in_batches_of_another_size_without_loss_or_repetition(
    order: EpochOrder, stops: list[tuple[float, int]]
) -> None:
    epoch = 2
    read: list[int] = []
    current = order
    for place, global_batch in stops:
        if order.remainder == "drop":
            assume(int(order.buckets.sizes.max()) >= global_batch)
        step = int(place * current.steps_in(epoch))
        if step == current.steps_in(epoch):
            break
        rows, pad, _ = current.batches(epoch, np.arange(step))
        read += rows[~pad].tolist()
        current = current.rest(epoch, step, global_batch=global_batch)
        assert current.first_epoch == epoch
    rows, pad, _ = epoch_of(current, epoch)
    read += rows[~pad].tolist()

    assert sorted([*read, *current.dropped(epoch)]) == list(range(order.buckets.num_rows))


@given(
    num_rows=st.integers(1, 100),
    sizes=st.tuples(st.integers(1, 20), st.integers(1, 20)),
    data=st.data(),
)
def test_without_buckets_the_stream_of_rows_does_not_notice_another_batch_size(
    num_rows: int, sizes: tuple[int, int], data: st.DataObject
) -> None:
    order = make_order(num_rows, sizes[0], remainder="pad")
    step = data.draw(st.integers(0, order.num_steps - 1))
    whole = epoch_of(order, 1)[0].ravel()[:num_rows].tolist()

    rest = order.rest(1, step, global_batch=sizes[1])

    rows, pad, _ = epoch_of(rest, 1)
    assert rows[~pad].tolist() == whole[step * sizes[0] :]
    assert np.array_equal(
        epoch_of(rest, 2)[0], epoch_of(replace(order, global_batch=sizes[1]), 2)[0]
    )


def test_a_rest_goes_through_a_state_of_integers() -> None:
    order = make_order([50, 30, 7], 8, seed=5)
    rest = order.rest(1, 4, global_batch=6)

    state = json.loads(json.dumps({"epoch": rest.first_epoch, "done": rest.done}))
    again = replace(order, global_batch=6, first_epoch=state["epoch"], done=tuple(state["done"]))

    assert np.array_equal(epoch_of(again, 1)[0], epoch_of(rest, 1)[0])


def test_positions_of_a_rest_are_counted_from_where_it_begins() -> None:
    rest = make_order(10, 2).rest(3, 2, global_batch=3)  # 6 rows are left: 2 steps, then 3 each

    assert [rest.steps_in(epoch) for epoch in (3, 4, 5)] == [2, 3, 3]
    assert rest.first == (3, 0)
    assert [rest.locate(n) for n in range(6)] == [(3, 0), (3, 1), (4, 0), (4, 1), (4, 2), (5, 0)]
    assert [rest.global_step(*rest.locate(n)) for n in range(20)] == list(range(20))
    with pytest.raises(ResumeError, match="epoch must be at least 3, got 2"):
        rest.resume(2, 3)


def test_a_rest_too_short_for_a_batch_begins_with_the_next_epoch() -> None:
    rest = make_order(10, 2).rest(3, 4, global_batch=5)

    assert rest.steps_in(3) == 0
    assert rest.first == rest.locate(0) == rest.resume(3, 0) == (4, 0)
    assert len(rest.dropped(3)) == 2


def test_the_rest_at_the_end_of_an_epoch_is_the_next_one() -> None:
    rest = make_order(10, 2).rest(3, 5, global_batch=4)

    assert (rest.first, rest.done) == ((4, 0), (0,))


@pytest.mark.parametrize("done", [(1,), (1, 2, 3), (6, 0), (-1, 0)], ids=str)
def test_a_state_of_other_buckets_is_refused(done: tuple[int, ...]) -> None:
    with pytest.raises(ResumeError, match=r"rows read of buckets of \[5, 4\] rows"):
        replace(make_order([5, 4], 2), done=done)


def test_an_order_travels_to_other_processes() -> None:
    order = make_order([30, 20], 4)

    copy = pickle.loads(pickle.dumps(order))

    assert np.array_equal(epoch_of(copy, 1)[0], epoch_of(order, 1)[0])


def test_a_step_of_a_billion_rows_costs_no_more_than_its_own() -> None:
    order = make_order(10**9, 64)

    batch = order.rows(7, order.num_steps - 1)

    assert len(np.unique(batch.rows)) == 64
    assert order.num_dropped == 10**9 % 64


def test_the_order_is_the_same_for_ever() -> None:
    golden = json.loads((Path(__file__).parent / "golden_order.json").read_text())
    order = make_order(golden["num_rows"], golden["global_batch"], seed=golden["seed"])

    for epoch, expected in enumerate(golden["epochs"]):
        rows, _, _ = order.batches(epoch, np.arange(8))

        assert rows.ravel().tolist() == expected


def test_the_order_of_buckets_is_the_same_for_ever() -> None:
    buckets = Buckets.from_labels(np.repeat([0, 1, 2], [5, 9, 4]))
    order = EpochOrder(buckets=buckets, global_batch=4, seed=3, shuffle=True, remainder="pad")

    rows, _, numbers = epoch_of(order, 2)

    assert numbers.tolist() == [2, 1, 0, 0, 1, 1]
    assert rows.tolist() == [
        [15, 14, 17, 16],
        [12, 11, 13, 6],
        [0, 1, 2, 3],
        [4, 0, 1, 2],
        [7, 5, 10, 9],
        [8, 12, 11, 13],
    ]


@given(order=orders(), epoch=epochs, share=st.slices(24), data=st.data())
def test_a_share_is_that_of_the_whole_batch(
    order: EpochOrder, epoch: int, share: slice, data: st.DataObject
) -> None:
    step = data.draw(st.integers(0, order.num_steps - 1))

    whole, part = order.rows(epoch, step), order.rows(epoch, step, share)

    assert part.bucket == whole.bucket
    for name in ("rows", "pad", "epochs"):
        np.testing.assert_array_equal(getattr(part, name), getattr(whole, name)[share])


def test_several_batches_are_the_same_as_one_by_one() -> None:
    buckets = Buckets.from_labels([row % 3 for row in range(50)])
    order = EpochOrder(buckets=buckets, global_batch=4, seed=1, shuffle=True, remainder="pad")

    some = order.some(2, range(3, 11))

    for step, batch in zip(range(3, 11), some, strict=True):
        alone = order.rows(2, step)
        assert batch.bucket == alone.bucket
        for name in ("rows", "pad", "epochs"):
            np.testing.assert_array_equal(getattr(batch, name), getattr(alone, name))
