"""Rows -> batches: read and decode in threads, bounded by what was asked for."""

import logging
import os
from collections import Counter, deque
from collections.abc import Callable, Generator, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from typing import Any

from daft_twinwds.errors import DecodeError, MissingDependencyError, TwinWebDatasetError
from daft_twinwds.train.batch_memory import (
    Allocate,
    BatchMemory,
    Pixels,
    ShapeMismatchError,
    plain_memory,
)
from daft_twinwds.train.decoders import Decoder, SampleReader
from daft_twinwds.train.images import DecodeImage
from daft_twinwds.train.supply import BatchPlan, Row, Rows, Stream

__all__ = ["PAD", "Feed", "FeedReport", "Work", "available_cpus"]

logger = logging.getLogger("daft_twinwds")

PAD = "__pad__"
"""Column that marks rows which only fill up a batch."""


def available_cpus() -> int:
    """Return the CPUs that this process may use."""
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1


@dataclass(slots=True)
class FeedReport:
    """What was read so far."""

    rows: int = 0
    """Rows handed out."""
    bytes: int = 0
    """Bytes of media read."""
    skipped: Counter[str] = field(default_factory=Counter)
    """Reason -> rows left out."""
    last_skipped: str = ""
    """What was wrong with the row that was left out last."""
    repeated: int = 0
    """Rows of the same global batch that took the places of such."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Feed:
    """How rows become batches."""

    selection: Rows
    reader: SampleReader
    batch_size: int
    num_threads: int
    prefetch_batches: int
    skip_bad: bool
    allocate: Allocate = plain_memory
    """Where the pictures of a batch are put."""

    def batches(self, places: Sequence[int], report: FeedReport) -> Generator[dict[str, Any]]:
        """Yield batches in the order of ``places``.

        While the caller works on a batch, the next ``prefetch_batches`` are made, never more.
        Pictures are decoded into the batch's own memory, which goes, or serves a later batch, when
        the caller drops it. Closing the iterator stops the threads after the pictures that they
        are at.

        Args:
            places: Row numbers.
            report: Counts are added here.

        Yields:
            Column -> values: pictures as uint8 (batch, height, width, channels), all else as
            lists. Only the last batch may be smaller than ``batch_size``: with ``skip_bad``, rows
            from behind take the places of bad ones.

        Raises:
            DecodeError: A picture cannot be decoded, or differs in shape from its batch; or, with
                ``skip_bad``, there are places but not one of them can be read.
            StorageError: A byte range cannot be read.
        """
        work = Work(self, Stream(self.selection, places, self.batch_size), report)
        try:
            # Unlike a variable of this frame, neither of the two holds on to the batch.
            yield from iter(work.next_batch, None)
        finally:
            work.stop()


class Work:
    """One pass over some plans: threads, and a window of batches in the making.

    Whoever made it has to `stop` it.
    """

    def __init__(self, feed: Feed, plans: Iterator[BatchPlan], report: FeedReport) -> None:
        self._feed = feed
        self._plans = plans
        self._planned = 0
        self._report = report
        self._rows = 0
        self._window: deque[_Batch] = deque()
        self._pool = ThreadPoolExecutor(feed.num_threads, thread_name_prefix="daft-twinwds-decode")
        self._memories = {
            # Beside those ahead, one batch is waited for and one is the caller's.
            name: BatchMemory(limit=feed.prefetch_batches + 2, allocate=feed.allocate)
            for name in feed.reader.in_place
        }

    def stop(self, *, wait: bool = False) -> None:
        """End the threads after the samples that they are at; with ``wait``, see them end."""
        self._pool.shutdown(wait=wait, cancel_futures=True)
        for memory in self._memories.values():
            memory.close()

    def next_batch(self) -> dict[str, Any] | None:
        """Return the next batch that has rows, or None at the end; see `Feed.batches`."""
        while True:
            while len(self._window) <= self._feed.prefetch_batches:
                plan = next(self._plans, None)
                if plan is None:
                    break
                self._planned += len(plan.rows)
                self._window.append(_Batch(self._feed, plan, self._memories, self._pool))
            if not self._window:
                self._check_rows()
                return None
            rows, batch = self._window.popleft().finish(self._spare, self._report)
            self._rows += rows
            if rows:
                return batch

    def _spare(self, plan: BatchPlan, slot: int, attempt: int) -> Row | None:
        """Take a spare row; of a stream one that no batch has yet, else the last batch's last."""
        row = plan.spare(slot, attempt)
        if plan.fixed:
            return row
        if row is not None:
            self._planned += 1
        elif self._window:
            row = self._window[-1].give_up()
            if not self._window[-1].rows:
                self._window.pop()
        return row

    def _check_rows(self) -> None:
        if self._planned and not self._rows:
            raise DecodeError(
                f"{self._feed.selection!r}: not one of this reader's {self._planned} rows could "
                f"be read; expected some; the last one: {self._report.last_skipped}"
            )


class _Batch:
    """One batch in the making."""

    def __init__(
        self,
        feed: Feed,
        plan: BatchPlan,
        memories: Mapping[str, BatchMemory],
        pool: ThreadPoolExecutor,
    ) -> None:
        self.rows: list[Row | None] = list(plan.rows)
        self._feed = feed
        self._plan = plan
        self._bad: set[int] = set()
        self._pixels = {name: Pixels(memory, len(plan.rows)) for name, memory in memories.items()}
        self._decoders = _of_class(feed.reader.decoders, plan.aspect)
        self._jobs = deque(
            pool.submit(feed.reader.read, row, self._pixels, slot, self._decoders)
            for slot, row in enumerate(plan.rows)
        )

    def give_up(self) -> Row | None:
        """Leave the last row to another batch."""
        row = self.rows.pop()
        # A job that has begun goes on: it reads into this batch, not into the other one.
        assert row is not None
        if not self._jobs.pop().cancel():
            (values,) = self._feed.selection.rows([row.number])
            row = row._replace(values=values)
        return row

    def finish(
        self, spare: Callable[[BatchPlan, int, int], Row | None], report: FeedReport
    ) -> tuple[int, dict[str, Any]]:
        """Wait for all samples; put spare ones in the place of bad ones.

        Returns:
            How many rows there are, and the batch; without rows it has no columns.
        """
        for slot in range(len(self.rows)):
            try:
                # An error holds on to the frames that it passed, and so to the batch's memory: if
                # this frame held the job, and so the error, both would wait for the collector.
                report.bytes += self._jobs.popleft().result()
            except TwinWebDatasetError as error:
                if not self._may_skip(error):
                    raise
                bad = self.rows[slot]
                assert bad is not None
                self._bad.add(bad.number)
                _count(error, report)
                self.rows[slot] = self._spare_row(slot, spare, report)
        slots = [slot for slot, row in enumerate(self.rows) if row is not None]
        rows = [row.values for row in self.rows if row is not None]
        if not rows:
            return 0, {}
        report.rows += len(rows)
        media, decoders = self._feed.selection.media, self._decoders
        names = [name for name in rows[0] if name not in media or name in decoders]
        batch = {
            name: self._pixels[name].of(slots)
            if name in self._pixels
            else [row[name] for row in rows]
            for name in names
        }
        if self._plan.pad is not None:
            batch[PAD] = list(self._plan.pad)
        return len(rows), batch

    def _spare_row(
        self,
        slot: int,
        spare: Callable[[BatchPlan, int, int], Row | None],
        report: FeedReport,
    ) -> Row | None:
        attempt = 0
        while (row := spare(self._plan, slot, attempt := attempt + 1)) is not None:
            if row.number in self._bad:
                continue
            try:
                report.bytes += self._feed.reader.read(row, self._pixels, slot, self._decoders)
            except TwinWebDatasetError as error:
                if not self._may_skip(error):
                    raise
                self._bad.add(row.number)
                if not self._plan.fixed:  # else it is counted at its own place
                    _count(error, report)
            else:
                report.repeated += self._plan.fixed
                return row
        if self._plan.fixed:
            raise DecodeError(
                f"{self._feed.selection!r}: not one row of a global batch could be read; expected "
                f"some; the last one: {report.last_skipped}; pass a larger batch_size, or select no "
                "such rows: daft-twinwds validate --decode names them"
            )
        return None

    def _may_skip(self, error: TwinWebDatasetError) -> bool:
        # The two say nothing about the sample.
        others = (ShapeMismatchError, MissingDependencyError)
        return self._feed.skip_bad and not isinstance(error, others)


def _of_class(decoders: Mapping[str, Decoder], aspect: str | None) -> Mapping[str, Decoder]:
    if aspect is None:
        return decoders
    return {
        name: decoder.of_class(aspect) if isinstance(decoder, DecodeImage) else decoder
        for name, decoder in decoders.items()
    }


def _count(error: TwinWebDatasetError, report: FeedReport) -> None:
    report.skipped[type(error).__name__] += 1
    # As text: what keeps log records must not keep the batch's memory.
    report.last_skipped = str(error)
    logger.warning("skipped: %s", report.last_skipped)
