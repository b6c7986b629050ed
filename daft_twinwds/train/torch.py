"""The feed into PyTorch: `to_torch_iter_dataset`."""

import os
from collections.abc import Iterator, Mapping
from dataclasses import replace
from typing import Any, Literal

import daft
import numpy as np
import pyarrow as pa
import torch
from torch.utils.data import IterableDataset, get_worker_info
from typing_extensions import override

from daft_twinwds.partition import Partition
from daft_twinwds.query._daft import engine_is_running
from daft_twinwds.train.batches import Decoder, Feed, FeedReport, available_cpus, decoders_of
from daft_twinwds.train.selection import Selection

__all__ = ["TwinIterDataset", "to_torch_iter_dataset"]

NUMPY_TYPES: Mapping[pa.DataType, type[np.generic]] = {
    pa.bool_(): np.bool_,
    pa.uint8(): np.uint8,
    pa.uint16(): np.uint16,
    pa.uint32(): np.uint32,
    pa.uint64(): np.uint64,
    pa.int8(): np.int8,
    pa.int16(): np.int16,
    pa.int32(): np.int32,
    pa.int64(): np.int64,
    pa.float32(): np.float32,
    pa.float64(): np.float64,
}
"""Arrow types whose columns become tensors."""

_forked_with_engine = False


def _note_engine() -> None:
    global _forked_with_engine  # the child's copy outlives the fork
    _forked_with_engine = engine_is_running()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(before=_note_engine)


def to_torch_iter_dataset(
    data: daft.DataFrame | Selection,
    *,
    decode: Mapping[str, Decoder] | None = None,
    batch_size: int | None = None,
    partition: Partition | None = None,
    num_threads: int | None = None,
    prefetch_batches: int = 2,
    on_error: Literal["raise", "skip"] = "raise",
) -> "TwinIterDataset":
    """Stream a DataFrame's rows, pictures decoded, as a PyTorch ``IterableDataset``.

    The query runs now, for references only; bytes are read and decoded while the data set is
    iterated, in threads, with bounded memory: at most ``prefetch_batches + 2`` batches live at
    once. The rows are split over data-parallel ranks and DataLoader workers; the numbers of rows
    of two readers differ by at most one.

    Inside a ``torch.utils.data.DataLoader`` pass ``batch_size=None`` there if a batch size is
    given here. With ``num_workers > 0`` pass ``multiprocessing_context="forkserver"`` or
    ``"spawn"``: a process forked from one in which Daft has run can wait for ever.

    Args:
        data: The rows, with ``__key__``; a `Selection` saves running the query again.
        decode: File column -> `DecodeImage` or a callable of bytes; other media are not read.
            None decodes pictures and gives other media as bytes.
        batch_size: Samples per batch; None yields samples one by one.
        partition: Who reads; `Partition.detect` by default. The DataLoader's worker is found
            when the iteration begins.
        num_threads: Decoding threads per process; None for as many as it may use CPUs.
        prefetch_batches: Batches made ahead.
        on_error: A sample that cannot be read or decoded: ``"raise"``, or ``"skip"``: another
            takes its place and `TwinIterDataset.report` counts it.

    Returns:
        A data set of dictionaries: ``__key__`` (list of str), pictures (uint8 tensors
        (batch, channels, height, width), channels last in memory), numbers without nulls
        (tensors (batch,)), anything else (lists). Without ``batch_size``: values instead of
        lists, and no batch axis.

    Raises:
        ValueError: An argument cannot be, or ``__key__`` is missing.
    """
    if batch_size is not None and batch_size < 1:
        raise ValueError(f"batch_size must be None or at least 1, got {batch_size}")
    if num_threads is not None and num_threads < 1:
        raise ValueError(f"num_threads must be None or at least 1, got {num_threads}")
    if prefetch_batches < 0:
        raise ValueError(f"prefetch_batches must be at least 0, got {prefetch_batches}")
    if on_error not in ("raise", "skip"):
        raise ValueError(f"on_error must be 'raise' or 'skip', got {on_error!r}")
    selection = data if isinstance(data, Selection) else Selection.from_dataframe(data)
    return TwinIterDataset(
        selection,
        decoders=decoders_of(selection, decode),
        batch_size=batch_size,
        partition=partition or Partition.detect(),
        num_threads=num_threads,
        prefetch_batches=prefetch_batches,
        on_error=on_error,
    )


class TwinIterDataset(IterableDataset[dict[str, Any]]):
    """What `to_torch_iter_dataset` returns; picklable, iterable any number of times."""

    def __init__(
        self,
        selection: Selection,
        *,
        decoders: Mapping[str, Decoder],
        batch_size: int | None,
        partition: Partition,
        num_threads: int | None,
        prefetch_batches: int,
        on_error: Literal["raise", "skip"],
    ) -> None:
        super().__init__()
        self.selection = selection
        """The rows, over all ranks and workers."""
        self.partition = partition
        """Who reads, the DataLoader's worker aside."""
        self._decoders = dict(decoders)
        self._batch_size = batch_size
        self._num_threads = num_threads
        self._prefetch_batches = prefetch_batches
        self._on_error = on_error
        self._report = FeedReport()
        self._numbers = {
            field.name: NUMPY_TYPES[field.type]
            for field in selection.table.schema
            if field.type in NUMPY_TYPES and not selection.table.column(field.name).null_count
        }

    @override
    def __iter__(self) -> Iterator[dict[str, Any]]:
        """Yield this reader's batches or samples.

        Raises:
            RuntimeError: This is a DataLoader worker that was forked after Daft had run.
        """
        partition = self._reader()
        threads = self._num_threads or max(1, available_cpus() // partition.num_workers)
        feed = Feed(
            selection=self.selection,
            decoders=self._decoders,
            batch_size=self._batch_size or 1,
            num_threads=threads,
            # Single samples are batches of one here: fewer than threads would leave some idle.
            prefetch_batches=max(self._prefetch_batches, 0 if self._batch_size else threads),
            skip_bad=self._on_error == "skip",
        )
        # The consumer decides how long a batch lives: no variable of this frame holds on to it.
        places = partition.slice_of(len(self.selection))
        yield from map(self._to_item, feed.batches(places, self._report))

    def report(self) -> dict[str, Any]:
        """Return what this process has read so far.

        Returns:
            ``rows`` handed out, ``bytes`` of media read, ``skipped`` rows by reason. DataLoader
            workers count in their own processes and log what they skip.
        """
        report = self._report
        return {"rows": report.rows, "bytes": report.bytes, "skipped": dict(report.skipped)}

    def _reader(self) -> Partition:
        info = get_worker_info()
        if info is None:
            return self.partition
        if _forked_with_engine:
            raise RuntimeError(
                "this DataLoader worker was forked from a process in which Daft has run, where "
                "it may wait for ever on locks of Daft's threads; pass "
                "multiprocessing_context='forkserver' or 'spawn' to DataLoader, or num_workers=0 "
                "(the pictures are decoded in threads anyway)"
            )
        return replace(self.partition, worker=info.id, num_workers=info.num_workers)

    def _to_item(self, batch: dict[str, Any]) -> dict[str, Any]:
        item = {name: self._to_torch(name, values) for name, values in batch.items()}
        return item if self._batch_size else {name: values[0] for name, values in item.items()}

    def _to_torch(self, name: str, values: Any) -> Any:
        if isinstance(values, np.ndarray):
            # (batch, height, width, channels) seen as (batch, channels, height, width): a view,
            # which torch knows as channels_last.
            return torch.from_numpy(values).permute(0, 3, 1, 2)
        if name in self._numbers:
            return torch.from_numpy(np.array(values, self._numbers[name]))
        return values
