"""Weights made exact, and the schedule that keeps to them at every turn."""

import math
from fractions import Fraction
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from daft_twinwds.train.schedule import MAX_PERIOD, Schedule, integer_weights

weights = st.lists(st.integers(1, 60) | st.integers(1, 60).map(lambda n: n / 10), min_size=1).map(
    lambda drawn: drawn[:7]
)


@given(weights)
def test_every_part_has_its_share_of_any_number_of_turns(drawn: list[float]) -> None:
    schedule = Schedule.of(drawn)
    shares = [Fraction(str(weight)) for weight in drawn]
    total = sum(shares)
    had = np.cumsum(schedule.parts[:, None] == np.arange(len(drawn)), axis=0)

    # In whole numbers, as the law is strict: |had - n * weight / total| < 1.
    turns = np.arange(1, schedule.period + 1)[:, None]
    ahead = had * schedule.period - turns * np.array(schedule.weights)
    assert (np.abs(ahead) < schedule.period).all()
    assert (had[-1] == schedule.weights).all()
    assert [weight * total for weight in schedule.weights] == [
        share * schedule.period for share in shares
    ]


@given(weights, st.integers(0, 10**6))
def test_turns_are_found_and_counted_wherever_they_are(drawn: list[float], start: int) -> None:
    schedule = Schedule.of(drawn)
    parts, ordinals = schedule.at(np.arange(start, start + 100))

    had = schedule.counts(start).tolist()
    for turn, (part, ordinal) in enumerate(zip(parts.tolist(), ordinals.tolist(), strict=True)):
        assert ordinal == had[part]
        assert schedule.turn_of(part, ordinal) == start + turn
        had[part] += 1
    assert schedule.counts(start + 100).tolist() == had


@pytest.mark.parametrize(
    ("drawn", "expected"),
    [
        ([1], [0]),
        ([1, 1, 1], [0, 1, 2]),
        ([3, 1], [0, 0, 0, 1]),
        ([0.7, 0.2, 0.1], [0, 0, 0, 1, 0, 0, 1, 0, 0, 2]),
    ],
    ids=str,
)
def test_schedules_are_the_same_for_ever(drawn: list[float], expected: list[int]) -> None:
    assert Schedule.of(drawn).parts.tolist() == expected


@pytest.mark.parametrize(
    ("given", "expected"),
    [
        ([0.1, 0.2, 0.3], [1, 2, 3]),
        ([10, 20], [1, 2]),
        ([1, 0.001], [1000, 1]),
        ([Fraction(1, 3), Fraction(1, 2)], [2, 3]),
        ([1e-300, 2e-300], [1, 2]),
        ([7], [1]),
        ([np.float64(0.5), 1], [1, 2]),
    ],
    ids=str,
)
def test_weights_count_as_they_are_written(given: list[Any], expected: list[int]) -> None:
    assert list(integer_weights(dict(enumerate(given))).values()) == expected


@pytest.mark.parametrize(
    ("given", "error", "message"),
    [
        ([], ValueError, "no weights; expected at least one"),
        ([1, 0], ValueError, r"weights\[1\] must be positive and finite, got 0"),
        ([-0.5], ValueError, r"weights\[0\] must be positive and finite, got -0.5"),
        ([math.nan], ValueError, r"weights\[0\] must be positive and finite, got nan"),
        ([math.inf], ValueError, r"weights\[0\] must be positive and finite, got inf"),
        ([True], TypeError, r"weights\[0\] must be a number, got True"),
        (["1"], TypeError, r"weights\[0\] must be a number, got '1'"),
    ],
    ids=str,
)
def test_weights_that_are_none_are_refused(
    given: list[Any], error: type[Exception], message: str
) -> None:
    with pytest.raises(error, match=message):
        Schedule.of(given)


def test_the_longest_period_is_kept_to() -> None:
    schedule = Schedule.of([MAX_PERIOD - 1, 1])

    assert schedule.period == MAX_PERIOD
    assert schedule.counts(MAX_PERIOD).tolist() == [MAX_PERIOD - 1, 1]


def test_a_longer_period_is_refused_with_weights_that_are_near() -> None:
    message = (
        rf"their order repeats after {MAX_PERIOD + 1} turns only; expected at most {MAX_PERIOD}; "
        r"round them, for example to \[1000, 1\]"
    )
    with pytest.raises(ValueError, match=message):
        Schedule.of([MAX_PERIOD, 1])
