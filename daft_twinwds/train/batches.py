"""Rows -> batches: read and decode in threads, bounded by what was asked for."""

import logging
import os
from collections import Counter, deque
from collections.abc import Callable, Generator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from itertools import islice
from typing import Any

from daft_twinwds.errors import (
    DecodeError,
    MissingDependencyError,
    StorageError,
    TwinWebDatasetError,
)
from daft_twinwds.query.schema import KEY
from daft_twinwds.shards.storage import read_range
from daft_twinwds.train.batch_memory import BatchMemory, Pixels, ShapeMismatchError
from daft_twinwds.train.images import DecodeImage
from daft_twinwds.train.selection import FileRef, Selection

__all__ = ["Decoder", "Feed", "FeedReport", "available_cpus", "decoders_of"]

logger = logging.getLogger("daft_twinwds")

Decoder = DecodeImage | Callable[[bytes], Any]


def available_cpus() -> int:
    """Return the CPUs that this process may use."""
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1


def decoders_of(selection: Selection, decode: Mapping[str, Decoder] | None) -> dict[str, Decoder]:
    """Return which media are read, and how.

    Args:
        selection: What is read.
        decode: Column -> decoder; media that are not named are not read. None decodes pictures
            by `DecodeImage` and gives other media as bytes.

    Raises:
        ValueError: A column that is named holds no media.
        TypeError: A decoder cannot be called.
    """
    if decode is None:
        return {
            name: DecodeImage() if medium == "image" else bytes
            for name, medium in selection.media.items()
        }
    for name, decoder in decode.items():
        if name not in selection.media:
            raise ValueError(
                f"decode: {name!r} is no File column; there are {sorted(selection.media)}"
            )
        if not callable(decoder):
            raise TypeError(f"decode[{name!r}] must be callable, got {decoder!r}")
    return dict(decode)


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


@dataclass(frozen=True, slots=True, kw_only=True)
class Feed:
    """How rows become batches."""

    selection: Selection
    decoders: Mapping[str, Decoder]
    batch_size: int
    num_threads: int
    prefetch_batches: int
    skip_bad: bool

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
        work = _Work(self, places, report)
        try:
            # Unlike a variable of this frame, neither of the two holds on to the batch.
            yield from iter(work.next_batch, None)
        finally:
            work.stop()


class _Work:
    """One pass over the places: threads, and a window of batches in the making."""

    def __init__(self, feed: Feed, places: Sequence[int], report: FeedReport) -> None:
        self._feed = feed
        self._num_places = len(places)
        self._rest = iter(places)
        self._report = report
        self._rows = 0
        self._window: deque[_Batch] = deque()
        self._pool = ThreadPoolExecutor(feed.num_threads, thread_name_prefix="daft-twinwds-decode")
        self._memories = {
            # Beside those ahead, one batch is waited for and one is the caller's.
            name: BatchMemory(limit=feed.prefetch_batches + 2)
            for name, decoder in feed.decoders.items()
            if isinstance(decoder, DecodeImage)
        }

    def stop(self) -> None:
        self._pool.shutdown(wait=False, cancel_futures=True)
        for memory in self._memories.values():
            memory.close()

    def next_batch(self) -> dict[str, Any] | None:
        """Return the next batch that has rows, or None at the end."""
        while True:
            while len(self._window) <= self._feed.prefetch_batches:
                places = list(islice(self._rest, self._feed.batch_size))
                if not places:
                    break
                self._window.append(_Batch(self._feed, places, self._memories, self._pool))
            if not self._window:
                self._check_rows()
                return None
            rows, batch = self._window.popleft().finish(self._spare_place, self._report)
            self._rows += rows
            if rows:
                return batch

    def _spare_place(self) -> int | None:
        """Take a place from behind: one that no batch has yet, else the last batch's last."""
        place = next(self._rest, None)
        if place is None and self._window:
            place = self._window[-1].give_up()
            if not self._window[-1].places:
                self._window.pop()
        return place

    def _check_rows(self) -> None:
        if self._num_places and not self._rows:
            raise DecodeError(
                f"{self._feed.selection!r}: not one of this reader's {self._num_places} rows could "
                f"be read; expected some; the last one: {self._report.last_skipped}"
            )


class _Batch:
    """One batch in the making."""

    def __init__(
        self,
        feed: Feed,
        places: list[int],
        memories: Mapping[str, BatchMemory],
        pool: ThreadPoolExecutor,
    ) -> None:
        self.places = places
        self._feed = feed
        self._rows: list[dict[str, Any] | None] = list(feed.selection.rows(places))
        self._pixels = {name: Pixels(memory, len(places)) for name, memory in memories.items()}
        self._jobs = deque(
            pool.submit(_fill, row, feed.decoders, self._pixels, slot)
            for slot, row in enumerate(self._rows)
            if row is not None
        )

    def give_up(self) -> int:
        """Leave the last place to another batch."""
        self._jobs.pop().cancel()
        self._rows.pop()
        return self.places.pop()

    def finish(
        self, spare_place: Callable[[], int | None], report: FeedReport
    ) -> tuple[int, dict[str, Any]]:
        """Wait for all samples; put spare ones in the place of bad ones.

        Returns:
            How many rows there are, and the batch; without rows it has no columns.
        """
        for slot in range(len(self.places)):
            try:
                # An error holds on to the frames that it passed, and so to the batch's memory: if
                # this frame held the job, and so the error, both would wait for the collector.
                report.bytes += self._jobs.popleft().result()
            except TwinWebDatasetError as error:
                if not self._may_skip(error):
                    raise
                _count(error, report)
                self._rows[slot] = self._spare_row(slot, spare_place, report)
        slots = [slot for slot, row in enumerate(self._rows) if row is not None]
        rows = [row for row in self._rows if row is not None]
        if not rows:
            return 0, {}
        report.rows += len(rows)
        media, decoders = self._feed.selection.media, self._feed.decoders
        names = [name for name in rows[0] if name not in media or name in decoders]
        return len(rows), {
            name: self._pixels[name].of(slots)
            if name in self._pixels
            else [row[name] for row in rows]
            for name in names
        }

    def _spare_row(
        self, slot: int, spare_place: Callable[[], int | None], report: FeedReport
    ) -> dict[str, Any] | None:
        while (place := spare_place()) is not None:
            (row,) = self._feed.selection.rows([place])
            try:
                report.bytes += _fill(row, self._feed.decoders, self._pixels, slot)
            except TwinWebDatasetError as error:
                if not self._may_skip(error):
                    raise
                _count(error, report)
            else:
                return row
        return None

    def _may_skip(self, error: TwinWebDatasetError) -> bool:
        # The two say nothing about the sample.
        others = (ShapeMismatchError, MissingDependencyError)
        return self._feed.skip_bad and not isinstance(error, others)


def _count(error: TwinWebDatasetError, report: FeedReport) -> None:
    report.skipped[type(error).__name__] += 1
    # As text: what keeps log records must not keep the batch's memory.
    report.last_skipped = str(error)
    logger.warning("skipped: %s", report.last_skipped)


def _fill(
    row: dict[str, Any],
    decoders: Mapping[str, Decoder],
    pixels: Mapping[str, Pixels],
    slot: int,
) -> int:
    """Read and decode one sample's media into its place; return the bytes read."""
    size = 0
    for name, decoder in decoders.items():
        ref: FileRef | None = row[name]
        if ref is None:
            raise DecodeError(
                f"{row[KEY]!r}: {name} is null; expected a file; drop such rows by "
                f"where(col({name!r}).not_null())"
            )
        # Daft takes what follows literally, without percent-decoding.
        path = ref.path.removeprefix("file://")
        try:
            data = read_range(path, ref.position, ref.size)
            size += len(data)
            if isinstance(decoder, DecodeImage):
                decoder.into(data, pixels[name].slot(slot, decoder.shape(data)))
            else:
                row[name] = decoder(data)
        except (MemoryError, MissingDependencyError):
            raise
        except Exception as error:
            # Decoders are the caller's too: whatever they raise is told with its place.
            known = (StorageError, ShapeMismatchError)
            kind = next((kind for kind in known if isinstance(error, kind)), DecodeError)
            reason = str(error).removeprefix(f"{path}: ")
            if not isinstance(error, TwinWebDatasetError):
                reason = f"{type(error).__name__}: {reason}"
            raise kind(
                f"{ref.path}: {row[KEY]!r} ({name}, byte {ref.position}): {reason}"
            ) from error
    return size
