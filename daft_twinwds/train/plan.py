"""What a loader reads: an order over selections, as batches of one rank."""

import hashlib
import json
import zlib
from collections import deque
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property, partial
from typing import Any, Final

import numpy as np
from typing_extensions import override

from daft_twinwds.partition import Partition
from daft_twinwds.train.buckets import ASPECT_CLASSES, Buckets
from daft_twinwds.train.labels import ASPECT_RATIO, Labeller
from daft_twinwds.train.mix import MixOrder
from daft_twinwds.train.order import EpochOrder, Remainder
from daft_twinwds.train.parts import Mix, Parts
from daft_twinwds.train.schedule import integer_weights
from daft_twinwds.train.selection import Selection
from daft_twinwds.train.steps import GlobalBatch
from daft_twinwds.train.supply import BatchPlan, Row

__all__ = ["LoaderOrder", "LoaderPlan", "RankBatches"]

LoaderOrder = EpochOrder | MixOrder

_ROWS_AT_ONCE: Final = 256
"""Rows whose references are looked up together: one by one that takes ten times as long."""


@dataclass(frozen=True, kw_only=True)
class LoaderPlan:
    """Which rows are read in which order, but for the sizes of batches."""

    parts: Parts
    buckets: tuple[Buckets, ...]
    """Of all rows together; of a mix, those of each part."""
    mix: Mix | None
    bucket_by: str | None
    seed: int
    shuffle: bool
    remainder: Remainder

    @classmethod
    def of(
        cls,
        data: Selection | Mix | Sequence[Selection],
        labeller: Labeller,
        *,
        parts: Parts,
        seed: int,
        shuffle: bool,
        remainder: Remainder,
    ) -> "LoaderPlan":
        """Divide the rows into buckets."""
        mix = data if isinstance(data, Mix) else None
        if mix:
            buckets = tuple(map(labeller.buckets_of, mix.selections))
        else:
            buckets = (labeller.buckets_of_all(parts.selections),)
        return cls(
            parts=parts,
            buckets=buckets,
            mix=mix,
            bucket_by=labeller.bucket_by,
            seed=seed,
            shuffle=shuffle,
            remainder=remainder,
        )

    def order(self, global_batch: int, begun: Sequence[int] = ()) -> LoaderOrder:
        """Return the order in global batches of some size.

        Args:
            global_batch: Rows per step over all ranks.
            begun: The epoch that was begun in batches of another size, and what was read of it.
        """
        epoch = begun[0] if begun else 0
        if self.mix is None:
            return EpochOrder(
                buckets=self.buckets[0],
                global_batch=global_batch,
                seed=self.seed,
                shuffle=self.shuffle,
                remainder=self.remainder,
                first_epoch=epoch,
                done=tuple(begun[1:]),
            )
        return MixOrder(
            parts=self.buckets,
            weights=self.mix.weights,
            global_batch=global_batch,
            seed=self.seed,
            shuffle=self.shuffle,
            remainder=self.remainder,
            level=self.mix.level,
            stop=self.mix.stop,
            first_epoch=epoch,
            done=begun[1] if begun else 0,
        )

    @cached_property
    def text(self) -> str:
        """What decides the order, but for the seed: readable, and closed by a hash of it all."""
        mix: Any = None
        how = ""
        if self.mix:
            weights = integer_weights(dict(enumerate(self.mix.weights)))
            mix = [self.mix.level, self.mix.stop, list(weights.values())]
            how = f", mixed by {self.mix.level} until {self.mix.stop}"
        settings = [
            self.shuffle,
            self.remainder,
            mix,
            [[list(part.labels), part.sizes.tolist(), _checksum(part)] for part in self.buckets],
        ]
        digest = hashlib.sha256(json.dumps(settings).encode()).hexdigest()[:12]
        return (
            f"shuffle={self.shuffle}, remainder={self.remainder}, bucket_by={self.bucket_by}"
            f"{how}, {digest}"
        )

    def aspect(self, label: str | int) -> str | None:
        """Return the aspect class that a bucket's pictures have, if it is made by that."""
        if self.bucket_by == ASPECT_RATIO and label in ASPECT_CLASSES:
            return str(label)
        return None


class RankBatches(Iterator[BatchPlan]):
    """One rank's share of an order's global batches, from a position on."""

    def __init__(
        self,
        plan: LoaderPlan,
        order: LoaderOrder,
        partition: Partition,
        *,
        start: tuple[int, int],
        end: int | None,
    ) -> None:
        """Nothing is read before `start`, and nothing of epoch ``end``."""
        self._plan = plan
        self._order = order
        self._slice = order.slice_for(partition)
        self._position = start
        self._end = end
        self._ready: deque[BatchPlan] = deque()
        self._aspects = [plan.aspect(label) for label in order.labels]

    @override
    def __next__(self) -> BatchPlan:
        if not self._ready:
            self._look_up()
        return self._ready.popleft()

    def _look_up(self) -> None:
        epoch, step = self._position
        if self._end is not None and epoch >= self._end:
            raise StopIteration
        order = self._order
        own = len(range(order.global_batch)[self._slice])
        last = step + max(1, _ROWS_AT_ONCE // own)
        steps = order.steps_in(epoch)
        if steps is not None:
            last = min(last, steps)
        batches = order.some(epoch, range(step, last), self._slice)
        self._position = order.advance(epoch, last - 1)
        numbers = np.concatenate([batch.rows for batch in batches])
        values = self._plan.parts.rows(numbers.tolist())
        for place, batch in enumerate(batches):
            position = (epoch, step + place)
            self._ready.append(self._plan_of(batch, values[place * own :][:own], position))

    def _plan_of(
        self, share: GlobalBatch, values: list[dict[str, Any]], position: tuple[int, int]
    ) -> BatchPlan:
        return BatchPlan(
            rows=list(map(Row, values, share.rows.tolist(), share.epochs.tolist())),
            spare=partial(self._spare, position),
            fixed=True,
            pad=share.pad.tolist() if self._plan.remainder == "pad" else None,
            aspect=self._aspects[share.bucket],
        )

    def _spare(self, position: tuple[int, int], slot: int, attempt: int) -> Row | None:
        """Take the row that stands so many places behind the bad one in the global batch."""
        size = self._order.global_batch
        if attempt >= size:
            return None
        place = (self._slice.start + slot * self._slice.step + attempt) % size
        found = self._order.rows(*position, slice(place, place + 1))
        number = int(found.rows[0])
        (values,) = self._plan.parts.rows([number])
        return Row(values, number, int(found.epochs[0]))


def _checksum(buckets: Buckets) -> int:
    return 0 if buckets.rows is None else zlib.crc32(np.ascontiguousarray(buckets.rows).data)
