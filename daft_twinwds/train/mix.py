"""Several parts as one: by weight (`MixOrder`), or one after the other (`Concat`)."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from fractions import Fraction
from functools import cached_property
from typing import Final, Literal, Self, get_args

import numpy as np
from numpy.typing import NDArray
from typing_extensions import override

from daft_twinwds.errors import ResumeError
from daft_twinwds.train.buckets import Buckets
from daft_twinwds.train.order import EpochOrder, Remainder
from daft_twinwds.train.permutation import check_choice, check_int, derive_key
from daft_twinwds.train.schedule import Schedule
from daft_twinwds.train.steps import WHOLE, GlobalBatch, Order

__all__ = ["Concat", "Level", "MixOrder", "Stop"]

Level = Literal["sample", "batch"]
"""What is mixed: rows inside each global batch, or whole global batches of one part each."""
Stop = Literal["first_exhausted", "all_exhausted", "endless"]
"""When an epoch of the mix ends.

``"first_exhausted"``: before any part would begin its second pass. ``"all_exhausted"``: when
every part has ended its first pass. ``"endless"``: never.
"""

# What a key shuffles, other than an epoch's; never to be changed, as every mix depends on it.
_PART: Final = 2


@dataclass(frozen=True, slots=True)
class Concat:
    """The rows of several parts as one index space, part after part.

    A part that is listed k times is there k times: each listing has row numbers of its own.
    """

    sizes: tuple[int, ...]
    """Rows of each listing."""

    def __post_init__(self) -> None:
        for place, size in enumerate(self.sizes):
            check_int(f"sizes[{place}]", size, limit=2**62)

    @property
    def num_rows(self) -> int:
        """Rows of all listings."""
        return sum(self.sizes)

    @property
    def offsets(self) -> NDArray[np.int64]:
        """The first row number of each listing, (listings,)."""
        sizes = np.array(self.sizes, np.int64)
        return np.cumsum(sizes) - sizes

    def locate(self, rows: NDArray[np.int64]) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
        """Return which listing each row is of, and its row number there.

        Args:
            rows: Row numbers in ``[0, num_rows)``, of any shape.

        Raises:
            ValueError: A row number is out of range.
        """
        if rows.size and not (rows.min() >= 0 and rows.max() < self.num_rows):
            raise ValueError(
                f"rows must be in [0, {self.num_rows}), got values from {rows.min()} to "
                f"{rows.max()}"
            )
        # Empty listings share their offset with the next one, which is the one that has the row.
        parts = np.searchsorted(self.offsets, rows, side="right") - 1
        return parts, rows - self.offsets[parts]


@dataclass(frozen=True, eq=False, kw_only=True)
class MixOrder(Order):
    """Several parts in one stream, each with passes and shuffles of its own.

    Laws: among the first n rows (by batch: global batches) of the stream, for every n, each part
    has its share by weight, rounded up or down. What the stream reads of a part is that part's
    passes, one after the other, each a permutation of it. An epoch of the mix is a length of the
    stream: the next one goes on where a part was left, so that all its rows get their turn.

    Row numbers are those of `Concat` over the parts, in their order.
    """

    parts: tuple[Buckets, ...]
    """The rows of each part."""
    weights: tuple[int | float | Fraction, ...]
    """Relative weights, one per part: rows per row, or batches per batch."""
    global_batch: int
    """Rows per step over all ranks."""
    seed: int
    """In ``[0, 2**64)``; each part is shuffled by a seed made of it."""
    shuffle: bool
    """False: every part in its natural order. Whose turn it is never is left to chance."""
    remainder: Remainder
    """By batch, as in `EpochOrder` for each pass over a part. By sample, for an epoch of the mix:
    its last batch is filled up with the rows that the stream has next."""
    level: Level
    stop: Stop
    first_epoch: int = 0
    """Where the order begins."""
    done: int = 0
    """Rows (by batch: global batches) of ``first_epoch`` that were read before; see `rest`."""

    def __post_init__(self) -> None:
        check_int("global_batch", self.global_batch, least=1, limit=2**62)
        check_int("seed", self.seed)
        check_int("first_epoch", self.first_epoch)
        check_int("done", self.done, limit=2**62)
        check_choice("shuffle", self.shuffle, (True, False))
        check_choice("remainder", self.remainder, get_args(Remainder))
        check_choice("level", self.level, get_args(Level))
        check_choice("stop", self.stop, get_args(Stop))
        if len(self.parts) != len(self.schedule.weights):
            raise ValueError(
                f"{len(self.parts)} parts and {len(self.weights)} weights; expected one weight "
                "for each part"
            )
        for place, order in enumerate(self.orders):
            if self.level == "sample" and len(order.labels) > 1:
                raise ValueError(
                    f"parts[{place}]: the buckets {_few(order.labels)}, which a mix by sample "
                    "would put into one batch; expected one bucket; pass level='batch' or no "
                    "buckets"
                )
        if self.length is not None and self.done > self.length:
            raise ResumeError(
                f"state: {self.done} rows or batches read of an epoch of {self.length}; expected "
                "no more than that; the parts or their weights changed"
            )
        if self.num_steps == 0:
            raise ValueError(
                f"a mix that stops at {self.length} rows or batches: not one global batch of "
                f"{self.global_batch} rows; expected at least one; lower the batch size, or pass "
                "remainder='wrap' or 'pad', or another stop rule"
            )

    @property
    @override
    def num_steps(self) -> int | None:
        """Global batches in a whole epoch; None if ``stop`` is ``"endless"``."""
        return self._steps(self.length)

    @property
    @override
    def first_steps(self) -> int | None:
        """Global batches in what is left of ``first_epoch``."""
        return self._steps(None if self.length is None else self.length - self.done)

    @property
    @override
    def labels(self) -> tuple[str | int, ...]:
        """The labels of the parts' buckets, part after part; by sample, one for all."""
        if self.level == "sample":
            return ("",)
        return tuple(label for part in self.parts for label in part.labels)

    @cached_property
    def length(self) -> int | None:
        """Rows (by batch: global batches) in an epoch, remainder included; None if endless."""
        passes = self._passes
        if self.stop == "first_exhausted":
            return min(self.schedule.turn_of(part, turns) for part, turns in enumerate(passes))
        if self.stop == "all_exhausted":
            ends = (self.schedule.turn_of(part, turns - 1) for part, turns in enumerate(passes))
            return max(ends) + 1
        return None

    @cached_property
    def schedule(self) -> Schedule:
        """Whose turn it is."""
        return Schedule.of(self.weights)

    @cached_property
    def index(self) -> Concat:
        """The row numbers of all parts."""
        return Concat(tuple(part.num_rows for part in self.parts))

    @cached_property
    def orders(self) -> tuple[EpochOrder, ...]:
        """The passes over each part, whose ``dropped`` and ``repeated`` count if by batch."""
        return tuple(self._order(place, part) for place, part in enumerate(self.parts))

    @override
    def rows(self, epoch: int, step: int, share: slice = WHOLE) -> GlobalBatch:
        """Return one global batch or a share of it, without computing anything else."""
        self._check(epoch, step)
        start = epoch * (self.length or 0) + (self.done if epoch == self.first_epoch else 0)
        if self.level == "batch":
            return self._batch(start + step, share)
        turns = start + step * self.global_batch + np.arange(*share.indices(self.global_batch))
        rows, epochs = self.take(turns)
        pad = np.zeros(len(turns), np.bool_)
        if self.length is not None and self.remainder == "pad":
            pad = turns >= (epoch + 1) * self.length
        return GlobalBatch(rows, pad, 0, epochs)

    def take(self, turns: NDArray[np.int64]) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
        """Return what the stream of rows holds at some places, if mixed by sample.

        Args:
            turns: Places from 0 on, (turns,).

        Returns:
            Row numbers (turns,), and which pass over its part each is of (turns,).
        """
        parts, ordinals = self.schedule.at(turns)
        passes, places = np.divmod(ordinals, np.array(self.index.sizes)[parts])
        rows = np.empty_like(turns)
        for part, number in np.unique(np.stack([parts, passes]), axis=1).T.tolist():
            chosen = (parts == part) & (passes == number)
            rows[chosen] = self.orders[part].take(number, 0, places[chosen])
        return rows + self.index.offsets[parts], passes

    def rest(self, epoch: int, step: int, *, global_batch: int) -> Self:
        """Return the order that goes on at a position in global batches of another size.

        Args:
            epoch: At least ``first_epoch``.
            step: In ``[0, steps_in(epoch)]``.
            global_batch: The new size.

        Raises:
            ResumeError: The order has no such position, or mixes by batch, where the size of a
                batch decides how much of each part was read.
        """
        epoch, step = self.resume(epoch, step)
        if self.level == "batch" and global_batch != self.global_batch:
            raise ResumeError(
                f"state: saved with global batches of {self.global_batch} rows, mixed by batch; "
                f"cannot go on with {global_batch}; expected the same; use a batch size of "
                f"{self.global_batch} divided by the number of ranks, or start anew"
            )
        read = step if self.level == "batch" else step * self.global_batch
        done = read + (self.done if epoch == self.first_epoch else 0)
        if self.length is not None:
            done = min(done, self.length)
        return replace(self, global_batch=global_batch, first_epoch=epoch, done=done)

    def _order(self, place: int, part: Buckets) -> EpochOrder:
        try:
            return EpochOrder(
                buckets=part,
                # By sample a pass is of rows, and has no remainder.
                global_batch=self.global_batch if self.level == "batch" else 1,
                seed=derive_key(self.seed, place, _PART),
                shuffle=self.shuffle,
                remainder=self.remainder,
            )
        except ValueError as error:
            raise ValueError(f"parts[{place}]: {error}") from error

    @cached_property
    def _passes(self) -> tuple[int, ...]:
        """Turns that a pass over each part takes."""
        if self.level == "batch":
            return tuple(order.num_steps for order in self.orders)
        return self.index.sizes

    def _steps(self, length: int | None) -> int | None:
        if length is None or self.level == "batch":
            return length
        more = self.remainder != "drop" and length % self.global_batch > 0
        return length // self.global_batch + more

    def _batch(self, turn: int, share: slice) -> GlobalBatch:
        parts, ordinals = self.schedule.at(np.array([turn]))
        part = int(parts[0])
        order = self.orders[part]
        batch = order.rows(*order.locate(int(ordinals[0])), share)
        return batch._replace(
            rows=batch.rows + self.index.offsets[part],
            bucket=batch.bucket + sum(len(earlier) for earlier in self.parts[:part]),
        )


def _few(labels: Sequence[str | int]) -> str:
    shown = ", ".join(map(repr, labels[:4]))
    return shown if len(labels) <= 4 else f"{shown} and {len(labels) - 4} more"
