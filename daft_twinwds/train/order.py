"""The order of training: (seed, epoch, step) -> the rows of one global batch.

Pure arithmetic: every process computes the same answer without talking to another, any step is
reached at once, and a position is a few integers.
"""

from dataclasses import dataclass, replace
from functools import cached_property
from typing import Final, Literal, Self, get_args

import numpy as np
from numpy.typing import NDArray
from typing_extensions import override

from daft_twinwds.errors import ResumeError
from daft_twinwds.train.buckets import Buckets
from daft_twinwds.train.interleave import Interleaving
from daft_twinwds.train.permutation import check_choice, check_int, derive_key, permute
from daft_twinwds.train.steps import WHOLE, GlobalBatch, Order

__all__ = ["EpochOrder", "Remainder"]

Remainder = Literal["drop", "wrap", "pad"]
"""What becomes of rows that do not fill a global batch.

``"drop"`` leaves them out of this epoch, ``"wrap"`` fills up with rows that were read before,
``"pad"`` does the same and marks what is filled in.
"""

# What a key shuffles; never to be changed, as every order depends on them.
_ROWS: Final = 0
_BATCHES: Final = 1


@dataclass(frozen=True, eq=False, kw_only=True)
class EpochOrder(Order):
    """Each epoch is a permutation of all rows, cut into global batches of one bucket each.

    Laws: with "drop" an epoch reads every row once except the `dropped` ones; with "pad" every
    row once, not counting what is marked; with "wrap" every row, and the `repeated` ones again.
    Which rows are left out or repeated differs from epoch to epoch. Nothing depends on the world
    size or the number of workers.
    """

    buckets: Buckets
    """The rows; `Buckets.whole` where they need not be kept apart."""
    global_batch: int
    """Rows per step over all ranks."""
    seed: int
    """In ``[0, 2**64)``."""
    shuffle: bool
    """False: natural order, one bucket after the other, equal in all epochs."""
    remainder: Remainder
    first_epoch: int = 0
    """Where the order begins."""
    done: tuple[int, ...] = ()
    """Rows of each bucket that were read of ``first_epoch`` before; see `rest`."""

    def __post_init__(self) -> None:
        check_int("global_batch", self.global_batch, least=1, limit=2**62)
        check_int("seed", self.seed)
        check_int("first_epoch", self.first_epoch)
        check_choice("shuffle", self.shuffle, (True, False))
        check_choice("remainder", self.remainder, get_args(Remainder))
        sizes = self.buckets.sizes.tolist()
        if self.done and not _fit(self.done, sizes):
            raise ResumeError(
                f"state: {self.done} rows read of buckets of {sizes} rows; expected as many "
                "numbers and none larger; the selection or its buckets changed"
            )
        if not self.num_steps:
            raise ValueError(
                f"{self.buckets.num_rows} rows in {len(sizes)} bucket(s), the largest of "
                f"{max(sizes, default=0)}, with remainder={self.remainder!r}: not one global "
                f"batch of {self.global_batch} rows; expected at least one; select more rows, "
                "lower the batch size, or pass remainder='wrap' or 'pad'"
            )

    @property
    @override
    def num_steps(self) -> int:
        """Global batches in a whole epoch, the same in each."""
        return self._whole.num_steps

    @property
    @override
    def first_steps(self) -> int:
        """Global batches in what is left of ``first_epoch``; 0 if it fills no batch."""
        return self._begun.num_steps

    @override
    def steps_in(self, epoch: int) -> int:
        """Return the number of global batches of an epoch."""
        return self._cut(epoch).num_steps

    @property
    @override
    def labels(self) -> tuple[str | int, ...]:
        """The label of each bucket."""
        return self.buckets.labels

    @property
    def num_dropped(self) -> int:
        """Rows that a whole epoch leaves out."""
        return int(self._whole.dropped.sum())

    @property
    def num_repeated(self) -> int:
        """Rows that a whole epoch reads again to fill its batches, marked or not."""
        return int(self._whole.repeated.sum())

    @property
    def idle_buckets(self) -> tuple[str | int, ...]:
        """Labels of buckets with too few rows for a single batch, which no epoch reads."""
        idle = (self.buckets.sizes > 0) & (self._whole.steps == 0)
        return tuple(label for label, out in zip(self.labels, idle.tolist(), strict=True) if out)

    @override
    def rows(self, epoch: int, step: int, share: slice = WHOLE) -> GlobalBatch:
        """Return one global batch or a share of it, without computing anything else."""
        rows, pad, buckets = self.batches(epoch, np.array([step]), share)
        epochs = np.full(rows.shape[1], epoch, np.int64)
        return GlobalBatch(rows[0], pad[0], int(buckets[0]), epochs)

    @override
    def some(self, epoch: int, steps: range, share: slice = WHOLE) -> list[GlobalBatch]:
        """Return several global batches of one epoch, faster than one by one."""
        rows, pad, buckets = self.batches(epoch, np.array(steps), share)
        epochs = np.full(rows.shape[1], epoch, np.int64)
        return [
            GlobalBatch(*parts, epochs) for parts in zip(rows, pad, buckets.tolist(), strict=True)
        ]

    def batches(
        self, epoch: int, steps: NDArray[np.int64], share: slice = WHOLE
    ) -> tuple[NDArray[np.int64], NDArray[np.bool_], NDArray[np.int64]]:
        """Return several global batches of one epoch, faster than one by one.

        Args:
            epoch: At least ``first_epoch``.
            steps: Steps in ``[0, steps_in(epoch))``, (steps,).
            share: Which places of each batch are wanted.

        Returns:
            Row numbers (steps, share), which of them are padding (steps, share), and the bucket of
            each batch (steps,).

        Raises:
            ValueError: The epoch has no such step.
        """
        for step in (steps.min(), steps.max()) if len(steps) else ():
            self._check(epoch, step)
        buckets, ordinals = self._turns(epoch).at(steps)
        first = self._cut(epoch).done[buckets] + ordinals * self.global_batch
        places = first[:, None] + np.arange(*share.indices(self.global_batch))
        sizes = self.buckets.sizes[buckets][:, None]
        pad = (places >= sizes) & (self.remainder == "pad")
        rows = np.empty_like(places)
        for bucket in np.unique(buckets).tolist():
            chosen = buckets == bucket
            rows[chosen] = self.take(epoch, bucket, places[chosen])
        return rows, pad, buckets

    def take(self, epoch: int, bucket: int, places: NDArray[np.int64]) -> NDArray[np.int64]:
        """Return the rows at places of a bucket's own order, which goes round for ever.

        Args:
            epoch: Which order.
            bucket: Place in `labels`.
            places: Places in the order from 0 on, of any shape; after its end it starts again.
        """
        size = int(self.buckets.sizes[bucket])
        places = places % size
        if self.shuffle:
            key = derive_key(self.seed, epoch, _ROWS, bucket)
            places = permute(places, size, key=key)
        return self.buckets.rows_at(bucket, places)

    def dropped(self, epoch: int) -> NDArray[np.int64]:
        """Return the rows that an epoch leaves out, as many as `num_dropped` if it is whole."""
        cut = self._cut(epoch)
        return self._ends(epoch, self.buckets.sizes - cut.dropped, cut.dropped)

    def repeated(self, epoch: int) -> NDArray[np.int64]:
        """Return the rows that an epoch reads again, as many as `num_repeated` if it is whole."""
        return self._ends(epoch, self.buckets.sizes, self._cut(epoch).repeated)

    def rest(self, epoch: int, step: int, *, global_batch: int) -> Self:
        """Return the order that goes on at a position in global batches of another size.

        What was read of the epoch is not read again and nothing else is lost, so that a run may
        go on with another number of ranks and the same batch size on each. For the same size
        there is no need: the position stays valid.

        Args:
            epoch: At least ``first_epoch``.
            step: In ``[0, steps_in(epoch)]``.
            global_batch: The new size.

        Raises:
            ResumeError: The order has no such position.
        """
        epoch, step = self.resume(epoch, step)
        read = self._turns(epoch).before(step) * self.global_batch
        done = np.minimum(self._cut(epoch).done + read, self.buckets.sizes)
        return replace(
            self, global_batch=global_batch, first_epoch=epoch, done=tuple(done.tolist())
        )

    @cached_property
    def _whole(self) -> "_Cut":
        return _Cut.of(self, np.zeros_like(self.buckets.sizes))

    @cached_property
    def _begun(self) -> "_Cut":
        return _Cut.of(self, np.array(self.done, np.int64)) if self.done else self._whole

    def _cut(self, epoch: int) -> "_Cut":
        check_int("epoch", epoch, least=self.first_epoch)
        return self._begun if epoch == self.first_epoch else self._whole

    def _turns(self, epoch: int) -> Interleaving:
        """Return which bucket each step of an epoch reads."""
        shuffled = self.shuffle and len(self.buckets) > 1
        key = derive_key(self.seed, epoch, _BATCHES) if shuffled else None
        return Interleaving(tuple(self._cut(epoch).steps.tolist()), key)

    def _ends(
        self, epoch: int, first: NDArray[np.int64], count: NDArray[np.int64]
    ) -> NDArray[np.int64]:
        ends = [
            self.take(epoch, bucket, np.arange(start, start + more))
            for bucket, (start, more) in enumerate(zip(first.tolist(), count.tolist(), strict=True))
            if more
        ]
        return np.concatenate(ends) if ends else np.empty(0, np.int64)


@dataclass(frozen=True, slots=True, kw_only=True)
class _Cut:
    """How the buckets of one epoch are cut into batches; arrays of (buckets,)."""

    done: NDArray[np.int64]
    steps: NDArray[np.int64]
    dropped: NDArray[np.int64]
    repeated: NDArray[np.int64]
    num_steps: int

    @classmethod
    def of(cls, order: EpochOrder, done: NDArray[np.int64]) -> Self:
        left = order.buckets.sizes - done
        steps = left // order.global_batch
        if order.remainder != "drop":
            steps = -(-left // order.global_batch)
        over = steps * order.global_batch - left
        return cls(
            done=done,
            steps=steps,
            dropped=np.maximum(-over, 0),
            repeated=np.maximum(over, 0),
            num_steps=int(steps.sum()),
        )


def _fit(done: tuple[int, ...], sizes: list[int]) -> bool:
    return len(done) == len(sizes) and all(
        0 <= rows <= size for rows, size in zip(done, sizes, strict=True)
    )
