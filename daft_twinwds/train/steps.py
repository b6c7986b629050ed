"""Steps and positions: what every training order has in common."""

from abc import ABC, abstractmethod
from typing import Final, NamedTuple

import numpy as np
from numpy.typing import NDArray

from daft_twinwds.errors import ResumeError
from daft_twinwds.partition import Partition
from daft_twinwds.train.permutation import check_int

__all__ = ["WHOLE", "GlobalBatch", "Order", "rank_slice"]

_MAX_STEPS: Final = 2**62
WHOLE: Final = slice(None)
"""All places of a global batch."""


class GlobalBatch(NamedTuple):
    """What all ranks read together in one step, or the share of it that was asked for."""

    rows: NDArray[np.int64]
    """Row numbers, (share,)."""
    pad: NDArray[np.bool_]
    """True where a row only fills up the batch, (share,)."""
    bucket: int
    """The bucket that all rows are of, a place in the order's ``labels``."""
    epochs: NDArray[np.int64]
    """Which pass over its data each row is read in, (share,)."""


class Order(ABC):
    """A sequence of global batches, cut into epochs; the same for all ranks.

    A position is a pair (epoch, step): the global batch that comes next. It is all that a saved
    state needs.
    """

    global_batch: int
    first_epoch: int

    @property
    @abstractmethod
    def num_steps(self) -> int | None:
        """Global batches in a whole epoch; None if the first epoch never ends."""

    @property
    @abstractmethod
    def first_steps(self) -> int | None:
        """Global batches in ``first_epoch``, of which a part may have been read before."""

    @property
    @abstractmethod
    def labels(self) -> tuple[str | int, ...]:
        """The label of each bucket that a batch may be of."""

    @abstractmethod
    def rows(self, epoch: int, step: int, share: slice = WHOLE) -> GlobalBatch:
        """Return one global batch, without computing any other.

        Args:
            epoch: At least ``first_epoch``.
            step: In ``[0, steps_in(epoch))``.
            share: Which places of it are wanted, such as `slice_for` a rank; no others are
                computed.

        Raises:
            ValueError: The order has no such position.
        """

    def some(self, epoch: int, steps: range, share: slice = WHOLE) -> list[GlobalBatch]:
        """Return several global batches of one epoch, or the same share of each."""
        return [self.rows(epoch, step, share) for step in steps]

    def slice_for(self, partition: Partition) -> slice:
        """Return what a rank reads of each global batch; see `rank_slice`."""
        return rank_slice(self.global_batch, partition)

    @property
    def first(self) -> tuple[int, int]:
        """The position of the first batch."""
        return self._normal(self.first_epoch, 0)

    def steps_in(self, epoch: int) -> int | None:
        """Return the number of global batches of an epoch; None if it never ends."""
        return self.first_steps if epoch == self.first_epoch else self.num_steps

    def advance(self, epoch: int, step: int) -> tuple[int, int]:
        """Return the position after (epoch, step)."""
        self._check(epoch, step)
        return self._normal(epoch, step + 1)

    def global_step(self, epoch: int, step: int) -> int:
        """Return how many batches this order has before a position."""
        self._check(epoch, step)
        if epoch == self.first_epoch or self.first_steps is None or self.num_steps is None:
            return step
        return self.first_steps + (epoch - self.first_epoch - 1) * self.num_steps + step

    def locate(self, global_step: int) -> tuple[int, int]:
        """Return the position before which this order has ``global_step`` batches."""
        step = check_int("global_step", global_step, limit=_MAX_STEPS)
        if self.first_steps is None or self.num_steps is None or step < self.first_steps:
            return self.first_epoch, step
        epochs, step = divmod(step - self.first_steps, self.num_steps)
        return self.first_epoch + 1 + epochs, step

    def resume(self, epoch: int, step: int) -> tuple[int, int]:
        """Return a saved position, as one of this order; the end of an epoch is the next one.

        Raises:
            ResumeError: The order has no such position.
        """
        try:
            check_int("epoch", epoch, least=self.first_epoch)
            if check_int("step", step) == self.steps_in(epoch):
                return self._normal(epoch, step)
            self._check(epoch, step)
        except (TypeError, ValueError) as error:
            raise ResumeError(
                f"state: position (epoch {epoch!r}, step {step!r}): {error}; build the loader "
                "with the selection, batch size and remainder that it was saved with, or start "
                "anew"
            ) from error
        return epoch, step

    def _normal(self, epoch: int, step: int) -> tuple[int, int]:
        return (epoch, step) if step != self.steps_in(epoch) else (epoch + 1, 0)

    def _check(self, epoch: int, step: int) -> None:
        check_int("epoch", epoch, least=self.first_epoch)
        steps = self.steps_in(epoch)
        if steps is None:
            check_int("step", step, limit=_MAX_STEPS)
        elif check_int("step", step) >= steps:
            raise ValueError(f"step must be below {steps}, the steps of epoch {epoch}, got {step}")
        if self.num_steps is None and epoch != self.first_epoch:
            raise ValueError(f"epoch must be {self.first_epoch}, which never ends, got {epoch}")


def rank_slice(global_batch: int, partition: Partition) -> slice:
    """Return the places of a global batch that a rank reads.

    Over the ranks the slices are a partition, each of ``global_batch // world_size`` places.
    Workers do not count. Ranks take turns, so that padding at the end of a batch is spread
    evenly.

    Raises:
        ValueError: The ranks cannot share the batch evenly.
    """
    size, ranks = global_batch, partition.world_size
    if size % ranks:
        fewer = max(count for count in range(1, ranks) if size % count == 0)
        more = next((count for count in range(ranks + 1, size + 1) if size % count == 0), None)
        sizes = [number for number in (size // ranks * ranks, -(-size // ranks) * ranks) if number]
        raise ValueError(
            f"a global batch of {size} rows cannot be shared evenly by {ranks} ranks; expected a "
            f"multiple; use {fewer}{f' or {more}' if more else ''} ranks, or a global batch of "
            f"{' or '.join(map(str, sizes))} rows"
        )
    return slice(partition.rank, None, ranks)
