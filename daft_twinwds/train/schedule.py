"""Whose turn it is: weights made exact, and the schedule that keeps to them at every moment."""

import heapq
import math
from collections.abc import Hashable, Mapping, Sequence
from dataclasses import dataclass
from fractions import Fraction
from typing import Any, Final, Self, TypeVar

import numpy as np
from numpy.typing import NDArray

__all__ = ["MAX_PERIOD", "Schedule", "integer_weights"]

Name = TypeVar("Name", bound=Hashable)

MAX_PERIOD: Final = 2**20
"""Turns after which a schedule must repeat: its table is held in memory."""


def integer_weights(weights: Mapping[Name, int | float | Fraction]) -> dict[Name, int]:
    """Return the smallest integers in the same proportion.

    A float counts as the decimal number that it is written as: ``0.1`` is one tenth.

    Args:
        weights: Name -> weight, positive and finite; only their proportion counts.

    Raises:
        TypeError: A weight is no number.
        ValueError: A weight is not positive or not finite, or there are none.
    """
    if not weights:
        raise ValueError("no weights; expected at least one")
    exact = {name: _fraction(name, weight) for name, weight in weights.items()}
    scale = math.lcm(*(weight.denominator for weight in exact.values()))
    common = math.gcd(*(int(weight * scale) for weight in exact.values()))
    return {name: int(weight * scale) // common for name, weight in exact.items()}


@dataclass(frozen=True, eq=False, kw_only=True)
class Schedule:
    """Turns shared out by weight, in an order that repeats after ``sum(weights)`` turns.

    Law (quota): among the first n turns, for every n, part i has its share
    ``n * weights[i] / sum(weights)`` rounded up or down; it is never a whole turn ahead or
    behind.
    """

    weights: tuple[int, ...]
    """Turns of each part in a period, without a common factor."""
    parts: NDArray[np.int32]
    """Whose turn it is, (period,)."""
    ordinals: NDArray[np.int32]
    """How many turns that part had in this period before, (period,)."""

    @classmethod
    def of(cls, weights: Sequence[int | float | Fraction]) -> Self:
        """Make the schedule of some relative weights.

        At each turn, of the parts that would not get ahead by it, the one comes next whose
        following turn is due first; the first of these if they are due together.

        Raises:
            TypeError: A weight is no number.
            ValueError: A weight is not positive, or the period is longer than `MAX_PERIOD`.

        Source:
            The quota method of Balinski and Young ("The Quota Method of Apportionment", 1975),
            as a table.
        """
        whole = tuple(integer_weights(dict(enumerate(weights))).values())
        period = sum(whole)
        if period > MAX_PERIOD:
            rounded = [max(1, round(1000 * weight / period)) for weight in whole]
            raise ValueError(
                f"weights {list(weights)}: their order repeats after {period} turns only; expected "
                f"at most {MAX_PERIOD}; round them, for example to {rounded}"
            )
        parts = np.array(_turns(whole, period), np.int32)
        ordinals = np.empty(period, np.int32)
        ordinals[np.argsort(parts, kind="stable")] = np.concatenate([np.arange(n) for n in whole])
        return cls(weights=whole, parts=parts, ordinals=ordinals)

    @property
    def period(self) -> int:
        """Turns after which the order repeats."""
        return len(self.parts)

    def at(self, turns: NDArray[np.int64]) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
        """Return whose turns these are, and how many turns each of these parts had before.

        Args:
            turns: Turns from 0 on, (turns,).

        Returns:
            Parts (turns,) and ordinals (turns,).
        """
        periods, places = np.divmod(turns, self.period)
        parts = self.parts[places].astype(np.int64)
        return parts, periods * np.array(self.weights)[parts] + self.ordinals[places]

    def turn_of(self, part: int, ordinal: int) -> int:
        """Return the turn at which a part has had ``ordinal`` turns and has the next."""
        periods, left = divmod(ordinal, self.weights[part])
        return periods * self.period + int(np.flatnonzero(self.parts == part)[left])

    def counts(self, num_turns: int) -> NDArray[np.int64]:
        """Return how many of the first ``num_turns`` turns each part has, (parts,)."""
        periods, left = divmod(num_turns, self.period)
        some = np.bincount(self.parts[:left], minlength=len(self.weights))
        counts: NDArray[np.int64] = periods * np.array(self.weights) + some
        return counts


def _turns(weights: Sequence[int], period: int) -> list[int]:
    """Return whose turn it is, for one period."""
    # Turn number `ordinal` of a part is due at (ordinal + 1) * period / weight; times this
    # scale / period, that is an integer.
    scale = math.lcm(*weights)
    due = [scale // weight for weight in weights]
    had = [0] * len(weights)
    ready = [(due[part], part) for part in range(len(weights))]
    heapq.heapify(ready)
    waiting: list[tuple[int, int]] = []
    turns = []
    for turn in range(period):
        while waiting and waiting[0][0] <= turn:
            part = heapq.heappop(waiting)[1]
            heapq.heappush(ready, ((had[part] + 1) * due[part], part))
        part = heapq.heappop(ready)[1]
        turns.append(part)
        had[part] += 1
        # The first turn at which one more does not put the part ahead of its share.
        heapq.heappush(waiting, (had[part] * period // weights[part], part))
    return turns


def _fraction(name: Hashable, weight: Any) -> Fraction:
    if isinstance(weight, bool) or not isinstance(weight, int | float | Fraction):
        raise TypeError(f"weights[{name!r}] must be a number, got {weight!r}")
    if not math.isfinite(weight) or weight <= 0:
        raise ValueError(f"weights[{name!r}] must be positive and finite, got {weight!r}")
    return Fraction(str(weight))
