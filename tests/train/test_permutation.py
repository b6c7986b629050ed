"""Permutations that are evaluated, not stored: a bijection, stable, and without a pattern."""

import math
from collections import Counter
from itertools import permutations
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from daft_twinwds.train.permutation import check_choice, check_int, derive_key, permute

keys = st.integers(0, 2**64 - 1)


def shuffled(num_items: int, key: int) -> list[int]:
    order: list[int] = permute(np.arange(num_items), num_items, key=key).tolist()
    return order


def test_every_length_up_to_2000_is_permuted() -> None:
    for num_items in range(2001):
        assert sorted(shuffled(num_items, num_items)) == list(range(num_items)), num_items


@given(num_items=st.integers(0, 70_000), key=keys)
def test_all_items_come_exactly_once(num_items: int, key: int) -> None:
    items = permute(np.arange(num_items), num_items, key=key)

    assert (np.bincount(items, minlength=num_items) == 1).all()


@given(num_items=st.integers(2**31, 2**62), key=keys, start=st.integers(0, 2**30))
def test_of_a_huge_sequence_different_positions_hold_different_items(
    num_items: int, key: int, start: int
) -> None:
    items = permute(np.arange(start, start + 5000), num_items, key=key)

    assert len(np.unique(items)) == 5000
    assert items.min() >= 0
    assert items.max() < num_items


def test_a_million_positions_of_a_billion_hold_different_items() -> None:
    positions = np.arange(1_000_000) * 1000

    items = permute(positions, 10**9, key=11)

    assert len(np.unique(items)) == len(positions)
    assert items.min() >= 0
    assert items.max() < 10**9


@given(num_items=st.integers(1, 500), key=keys, data=st.data())
def test_a_position_does_not_depend_on_which_others_are_asked_for(
    num_items: int, key: int, data: st.DataObject
) -> None:
    positions = data.draw(st.lists(st.integers(0, num_items - 1), min_size=1, max_size=20))
    order = shuffled(num_items, key)

    items = permute(np.array(positions), num_items, key=key)

    assert items.tolist() == [order[position] for position in positions]


def test_more_positions_than_fit_one_pass_are_permuted_alike() -> None:
    order = permute(np.arange(100_000), 100_000, key=4)

    pieces = [permute(np.arange(n, n + 10_000), 100_000, key=4) for n in range(0, 100_000, 10_000)]

    assert np.array_equal(np.concatenate(pieces), order)


def test_the_shape_of_the_positions_is_kept() -> None:
    positions = np.arange(12).reshape(3, 4)

    assert permute(positions, 12, key=1).shape == (3, 4)
    assert permute(np.empty((0, 4), np.int64), 12, key=1).shape == (0, 4)


def test_the_positions_themselves_stay_as_they_are() -> None:
    positions = np.arange(5)

    permute(positions, 5, key=1)

    assert positions.tolist() == [0, 1, 2, 3, 4]


def test_unsigned_and_small_integers_are_positions_too() -> None:
    for dtype in (np.uint64, np.int8):
        assert permute(np.arange(9).astype(dtype), 9, key=2).tolist() == shuffled(9, 2)


def test_other_keys_give_other_orders() -> None:
    orders = {tuple(shuffled(100, key)) for key in range(1000)}

    assert len(orders) == 1000


@pytest.mark.parametrize("num_items", [2, 3, 4, 5, 6])
def test_every_order_of_a_few_items_comes_equally_often(num_items: int) -> None:
    num_keys, num_orders = 4800, math.factorial(num_items)
    found = Counter(tuple(shuffled(num_items, derive_key(1, key))) for key in range(num_keys))

    expected = num_keys / num_orders
    chi_square = sum(
        (found[order] - expected) ** 2 / expected for order in permutations(range(num_items))
    )

    # Five standard deviations of a chi-square of this many degrees of freedom.
    assert chi_square < num_orders - 1 + 5 * math.sqrt(2 * (num_orders - 1))


@pytest.mark.parametrize("num_items", [16, 17, 64])
def test_every_item_comes_to_every_position_equally_often(num_items: int) -> None:
    num_keys = 2000
    found = np.zeros((num_items, num_items))
    for key in range(num_keys):
        found[np.arange(num_items), shuffled(num_items, derive_key(2, key))] += 1

    expected = num_keys / num_items
    chi_square = ((found - expected) ** 2 / expected).sum()

    freedom = (num_items - 1) ** 2
    assert chi_square < freedom + 5 * math.sqrt(2 * freedom)


def test_neighbours_are_as_rare_as_by_chance() -> None:
    items = permute(np.arange(200_000), 200_000, key=3)

    # By chance two such pairs are expected, Poisson distributed.
    assert (np.abs(np.diff(items)) == 1).sum() < 15


def test_orders_are_the_same_for_ever() -> None:
    assert shuffled(10, 0) == [2, 8, 3, 6, 7, 5, 4, 1, 0, 9]
    assert shuffled(10, 1) == [0, 7, 6, 3, 4, 1, 8, 9, 5, 2]
    assert permute(np.array([0, 1, 999_999_999]), 10**9, key=7).tolist() == [
        338222209,
        746576703,
        447815327,
    ]
    assert permute(np.array([0, 2**62 - 1]), 2**62, key=derive_key(5)).tolist() == [
        1622625460992440110,
        2434387772289577257,
    ]


def test_keys_are_the_same_for_ever() -> None:
    assert derive_key(0) == 10451216379200822465
    assert derive_key(1) == 10905525725756348110
    assert derive_key(0, 0) == 7235116703822611636
    assert derive_key(1, 2, 3) == 2711551329624082386
    assert derive_key(2**64 - 1) == 2748217288011717306


@given(parts=st.lists(keys, min_size=1, max_size=5), other=keys, data=st.data())
def test_keys_of_arguments_that_differ_in_one_place_differ(
    parts: list[int], other: int, data: st.DataObject
) -> None:
    place = data.draw(st.integers(0, len(parts) - 1))
    changed = [*parts[:place], other, *parts[place + 1 :]]

    assert (derive_key(*parts) == derive_key(*changed)) == (parts == changed)


def test_keys_depend_on_the_order_and_the_number_of_their_parts() -> None:
    assert len({derive_key(*parts) for parts in [(1, 2), (2, 1), (1,), (1, 0), (0, 1), ()]}) == 6


def test_numpy_integers_make_the_same_keys() -> None:
    assert derive_key(np.int64(3), np.uint8(4)) == derive_key(3, 4)  # type: ignore[arg-type]


@pytest.mark.parametrize("part", [1.0, True, "1", None, np.float64(2), np.bool_(True)], ids=repr)
def test_keys_are_made_of_integers_only(part: Any) -> None:
    with pytest.raises(TypeError, match="key part must be an int, got"):
        derive_key(0, part)


@pytest.mark.parametrize(
    ("part", "message"),
    [
        pytest.param(-1, "key part must be at least 0, got -1", id="negative"),
        pytest.param(2**64, f"key part must be below {2**64}, got {2**64}", id="too-large"),
    ],
)
def test_key_parts_out_of_range_are_refused(part: int, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        derive_key(part)


@pytest.mark.parametrize(
    ("positions", "message"),
    [
        pytest.param([0, 5], r"positions must be in \[0, 5\), got values from 0 to 5", id="high"),
        pytest.param([-1], r"positions must be in \[0, 5\), got values from -1 to -1", id="low"),
    ],
)
def test_positions_out_of_range_are_refused(positions: list[int], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        permute(np.array(positions), 5, key=0)


@pytest.mark.parametrize("dtype", [np.float64, np.bool_])
def test_positions_that_are_no_integers_are_refused(dtype: Any) -> None:
    with pytest.raises(TypeError, match="positions must be integers, got"):
        permute(np.zeros(3, dtype), 5, key=0)


def test_more_items_than_2_to_62_are_refused() -> None:
    with pytest.raises(ValueError, match="num_items must be below"):
        permute(np.array([0]), 2**62 + 1, key=0)


def test_a_checked_int_comes_back() -> None:
    assert check_int("n", np.int32(7), least=7, limit=8) == 7


def test_a_choice_is_compared_with_its_type() -> None:
    check_choice("shuffle", True, (True, False))

    with pytest.raises(ValueError, match="shuffle must be one of True, False, got 1"):
        check_choice("shuffle", 1, (True, False))
