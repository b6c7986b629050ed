"""Rows -> batches: read and decode in threads, bounded by what was asked for."""

import logging
import os
from collections import Counter, deque
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from itertools import islice
from threading import Lock
from typing import Any

import numpy as np
from numpy.typing import NDArray

from daft_twinwds.errors import DecodeError, TwinWebDatasetError
from daft_twinwds.query.schema import KEY
from daft_twinwds.shards.storage import LocalFile
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


@dataclass(frozen=True, slots=True, kw_only=True)
class Feed:
    """How rows become batches."""

    selection: Selection
    decoders: Mapping[str, Decoder]
    batch_size: int
    num_threads: int
    prefetch_batches: int
    skip_bad: bool

    def batches(self, places: Sequence[int], report: FeedReport) -> Iterator[dict[str, Any]]:
        """Yield batches in the order of ``places``.

        While the caller works on a batch, the next ``prefetch_batches`` are made, never more.
        Pictures are decoded into the batch's own memory. Closing the iterator stops the threads
        after the pictures that they are at.

        Args:
            places: Row numbers.
            report: Counts are added here.

        Yields:
            Column -> values: pictures as uint8 (batch, height, width, channels), all else as
            lists. Only the last batch may be smaller than ``batch_size``.

        Raises:
            DecodeError: A picture cannot be decoded, or differs in shape from its batch.
            StorageError: A byte range cannot be read.
        """
        rest = iter(places)
        pool = ThreadPoolExecutor(self.num_threads, thread_name_prefix="daft-twinwds-decode")
        window: deque[_Batch] = deque()
        try:
            while True:
                while len(window) <= self.prefetch_batches:
                    chosen = list(islice(rest, self.batch_size))
                    if not chosen:
                        break
                    window.append(_Batch(self, pool, chosen))
                if not window:
                    break
                batch = window.popleft().finish(rest, report)
                if batch is not None:
                    yield batch
                    # The caller decides how long a batch lives.
                    del batch
        finally:
            pool.shutdown(wait=False, cancel_futures=True)
        if report.skipped and not report.rows:
            reasons = ", ".join(f"{reason}: {n}" for reason, n in report.skipped.items())
            raise DecodeError(
                f"{self.selection!r}: not one row of {len(places)} could be read ({reasons}); "
                "expected some; pass on_error='raise' to see the first reason"
            )


class _Batch:
    """One batch in the making."""

    def __init__(self, feed: Feed, pool: ThreadPoolExecutor, places: list[int]) -> None:
        self._feed = feed
        self._rows: list[dict[str, Any] | None] = list(feed.selection.rows(places))
        self._pixels = {
            name: _Pixels(len(places))
            for name, decoder in feed.decoders.items()
            if isinstance(decoder, DecodeImage)
        }
        self._jobs = [
            pool.submit(self._fill, slot, row) for slot, row in enumerate(self._rows) if row
        ]

    def finish(self, rest: Iterator[int], report: FeedReport) -> dict[str, Any] | None:
        """Wait for all samples; put others from ``rest`` in the place of bad ones."""
        for slot, job in enumerate(self._jobs):
            try:
                report.bytes += job.result()
            except TwinWebDatasetError as error:
                self._replace(slot, error, rest, report)
        slots = [slot for slot, row in enumerate(self._rows) if row is not None]
        report.rows += len(slots)
        if not slots:
            return None
        rows = [row for row in self._rows if row is not None]
        media = self._feed.selection.media
        names = [name for name in rows[0] if name not in media or name in self._feed.decoders]
        return {
            name: self._pixels[name].of(slots)
            if name in self._pixels
            else [row[name] for row in rows]
            for name in names
        }

    def _replace(
        self, slot: int, error: TwinWebDatasetError, rest: Iterator[int], report: FeedReport
    ) -> None:
        while True:
            if not self._feed.skip_bad or isinstance(error, ShapeMismatchError):
                for job in self._jobs:
                    job.cancel()
                raise error
            report.skipped[type(error).__name__] += 1
            logger.warning("skipped: %s", error)
            self._rows[slot] = None
            place = next(rest, None)
            if place is None:
                return
            (row,) = self._feed.selection.rows([place])
            try:
                report.bytes += self._fill(slot, row)
            except TwinWebDatasetError as next_error:
                error = next_error
            else:
                self._rows[slot] = row
                return

    def _fill(self, slot: int, row: dict[str, Any]) -> int:
        """Read and decode one sample's media into its place; return the bytes read."""
        size = 0
        for name, decoder in self._feed.decoders.items():
            ref: FileRef | None = row[name]
            if ref is None:
                raise DecodeError(
                    f"{row[KEY]!r}: {name} is null; expected a file; drop such rows by "
                    f"where(col({name!r}).not_null())"
                )
            data = _read(ref)
            size += len(data)
            try:
                if name in self._pixels:
                    assert isinstance(decoder, DecodeImage)
                    shape = decoder.shape(data)
                    decoder.into(data, self._pixels[name].slot(slot, shape))
                else:
                    row[name] = decoder(data)
            except ShapeMismatchError:
                raise
            except Exception as error:
                # Decoders are the caller's too: whatever they raise is told with its place.
                kind = "" if isinstance(error, TwinWebDatasetError) else f"{type(error).__name__}: "
                raise DecodeError(
                    f"{ref.path}: {row[KEY]!r} ({name}, {len(data)} bytes at byte "
                    f"{ref.position}): {kind}{error}"
                ) from error
        return size


class ShapeMismatchError(DecodeError):
    """Pictures of one batch differ in shape: a matter of the batch, not of a bad sample."""


class _Pixels:
    """The memory of a batch's pictures, made when the first shape is known."""

    def __init__(self, rows: int) -> None:
        self._rows = rows
        self._pixels: NDArray[np.uint8] | None = None
        self._lock = Lock()

    def slot(self, slot: int, shape: tuple[int, int, int]) -> NDArray[np.uint8]:
        """Return the memory of one picture."""
        with self._lock:
            if self._pixels is None:
                self._pixels = np.empty((self._rows, *shape), np.uint8)
        if self._pixels.shape[1:] != shape:
            raise ShapeMismatchError(
                f"pictures of {self._pixels.shape[1:]} and {shape} (height, width, channels) in "
                "one batch; expected one shape; pass decode={...: DecodeImage(size=(height, "
                "width))}, or batch_size=None to get samples one by one"
            )
        memory: NDArray[np.uint8] = self._pixels[slot]
        return memory

    def of(self, slots: list[int]) -> NDArray[np.uint8]:
        """Return the pictures of these slots; all of them without a copy."""
        assert self._pixels is not None
        return self._pixels if len(slots) == self._rows else self._pixels[slots]


def _read(ref: FileRef) -> bytes:
    with LocalFile(ref.path) as file:
        size = len(file) - ref.position if ref.size is None else ref.size
        return file.read(ref.position, size)
