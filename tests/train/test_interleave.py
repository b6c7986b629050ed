"""Which bucket each step reads: exactly its turns, found without the steps before."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from daft_twinwds.train.interleave import Interleaving

keys = st.none() | st.integers(0, 2**64 - 1)
counts = st.lists(st.integers(0, 50), min_size=1, max_size=6).filter(any)
# Enough for several blocks, with rare and frequent buckets.
many = st.lists(st.sampled_from([0, 1, 2, 700, 1024, 3000]), min_size=1, max_size=5).filter(any)


@given(counts=counts | many, key=keys)
def test_every_bucket_has_its_turns_one_after_the_other(counts: list[int], key: int | None) -> None:
    turns = Interleaving(tuple(counts), key)

    buckets, ordinals = turns.at(np.arange(sum(counts)))

    for bucket, count in enumerate(counts):
        assert ordinals[buckets == bucket].tolist() == list(range(count))


@given(counts=counts | many, key=keys, data=st.data())
def test_steps_are_found_without_those_before(
    counts: list[int], key: int | None, data: st.DataObject
) -> None:
    turns = Interleaving(tuple(counts), key)
    steps = np.array(data.draw(st.lists(st.integers(0, sum(counts) - 1), max_size=10)), np.int64)
    buckets, ordinals = turns.at(np.arange(sum(counts)))

    found = turns.at(steps)

    assert np.array_equal(found[0], buckets[steps])
    assert np.array_equal(found[1], ordinals[steps])


@given(counts=counts | many, key=keys, data=st.data())
def test_the_turns_before_a_step_are_counted(
    counts: list[int], key: int | None, data: st.DataObject
) -> None:
    turns = Interleaving(tuple(counts), key)
    step = data.draw(st.integers(0, sum(counts)) | st.just(sum(counts)))
    buckets, _ = turns.at(np.arange(step))

    assert turns.before(step).tolist() == np.bincount(buckets, minlength=len(counts)).tolist()


@pytest.mark.parametrize("key", range(20))
def test_many_rare_buckets_have_their_turns_too(key: int) -> None:
    turns = Interleaving((3,) * 1500, key)
    buckets, _ = turns.at(np.arange(4500))

    assert (np.bincount(buckets) == 3).all()
    assert [turns.at(np.array([step]))[0][0] for step in range(0, 4500, 50)] == [*buckets[::50]]


def test_without_a_key_buckets_come_one_after_the_other() -> None:
    buckets, ordinals = Interleaving((2, 0, 1), None).at(np.arange(3))

    assert (buckets.tolist(), ordinals.tolist()) == ([0, 0, 2], [0, 1, 0])


def test_every_key_has_its_own_order() -> None:
    orders = {Interleaving((5, 5, 5), key).at(np.arange(15))[0].tobytes() for key in range(50)}

    assert len(orders) > 45


@pytest.mark.parametrize("count", [1, 2])
def test_a_rare_bucket_comes_anywhere_in_the_epoch(count: int) -> None:
    counts = (8000 - count, count)

    places = np.concatenate(
        [np.flatnonzero(Interleaving(counts, key).at(np.arange(8000))[0]) for key in range(100)]
    )

    quarters = np.bincount(places // 2000, minlength=4)
    # Five standard deviations of that many draws with a chance of a quarter.
    assert np.abs(quarters - 25 * count).max() < 5 * (100 * count * 3 / 16) ** 0.5


def test_long_epochs_hold_each_bucket_in_proportion_throughout() -> None:
    buckets, _ = Interleaving((30_000, 10_000), 7).at(np.arange(40_000))

    share = np.cumsum(buckets == 1) - np.arange(40_000) / 4

    # Inside a block of a thousand steps chance rules, but it does not add up.
    assert np.abs(share).max() < 100


def test_a_step_among_a_trillion_is_found() -> None:
    turns = Interleaving((10**12, 10**6, 1), 3)
    last = sum(turns.counts) - 1

    buckets, ordinals = turns.at(np.array([last]))

    assert ordinals[0] == turns.counts[buckets[0]] - 1
    assert turns.before(last).sum() == last
