"""The feed into PyTorch: `to_torch_iter_dataset`."""

import logging
import os
from collections.abc import Iterator, Mapping
from dataclasses import asdict, replace
from typing import Any, Literal

import daft
from torch.utils.data import IterableDataset, get_worker_info
from typing_extensions import override

from daft_twinwds.partition import Partition
from daft_twinwds.query._daft import engine_is_running
from daft_twinwds.query.io_options import AnyConfig, storage_options
from daft_twinwds.shards.storage import storage_stats
from daft_twinwds.train.batches import Feed, FeedReport, available_cpus
from daft_twinwds.train.decoders import (
    Decoder,
    SampleReader,
    Transform,
    check_transforms,
    decoders_of,
)
from daft_twinwds.train.images import DecodeImage
from daft_twinwds.train.permutation import check_int
from daft_twinwds.train.selection import Selection
from daft_twinwds.train.tensors import ToTensors, number_types

__all__ = ["TwinIterDataset", "to_torch_iter_dataset"]

logger = logging.getLogger("daft_twinwds")

_forked_with_engine = False


def _note_engine() -> None:
    global _forked_with_engine  # the child's copy outlives the fork
    _forked_with_engine = engine_is_running()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(before=_note_engine)


def to_torch_iter_dataset(  # noqa: PLR0913  # the public function holds all defaults
    data: daft.DataFrame | Selection,
    *,
    decode: Mapping[str, Decoder] | None = None,
    transform: Mapping[str, Transform] | None = None,
    batch_size: int | None = None,
    seed: int = 0,
    partition: Partition | None = None,
    num_threads: int | None = None,
    prefetch_batches: int = 2,
    on_error: Literal["raise", "skip"] = "raise",
    io_config: AnyConfig | Mapping[str, AnyConfig] | None = None,
) -> "TwinIterDataset":
    """Stream a DataFrame's rows, pictures decoded, as a PyTorch ``IterableDataset``.

    The query runs now, for references only; bytes are read and decoded while the data set is
    iterated, in threads, with bounded memory: beside the batches that you keep, never more than
    ``prefetch_batches + 2``, counting the one that you work on. What a dropped batch leaves behind
    serves a later one. The rows are split over data-parallel ranks and DataLoader workers; the
    numbers of rows of two readers differ by at most one. Where ranks wait for each other in every
    step, `TwinLoader` is the choice, whose ranks get as many batches; a warning says so here.

    Inside a ``torch.utils.data.DataLoader`` pass ``batch_size=None`` there if a batch size is
    given here. With ``num_workers > 0`` pass ``multiprocessing_context="forkserver"`` or
    ``"spawn"``: a process forked from one in which Daft has run can wait for ever.

    Args:
        data: The rows, with ``__key__``; a `Selection` saves running the query again.
        decode: File column -> `DecodeImage` or a callable of bytes; other media are not read.
            None decodes pictures and gives other media as bytes. A caption's column may have
            `PickCaption`.
        transform: Column -> callable of its decoded value and a ``numpy.random.Generator`` that
            depends on seed and row alone; see `TwinLoader`.
        batch_size: Samples per batch; None yields samples one by one.
        seed: What captions and transforms draw depends on it. The order does not.
        partition: Who reads; `Partition.detect` by default. The DataLoader's worker is found
            when the iteration begins. Pass ``Partition()`` for rows that are one rank's already.
        num_threads: Decoding threads per process; None for as many as it may use CPUs.
        prefetch_batches: Batches made ahead; of single samples, at least one per thread is.
        on_error: A sample that cannot be read or decoded: ``"raise"``, or ``"skip"``: one from
            behind takes its place, so that all batches but the last stay full, and
            `TwinIterDataset.report` counts it. If a reader cannot read a single one, it raises.
        io_config: Credentials and endpoints, as in `read_twin_webdataset`; the rows hold none.

    Returns:
        A data set of dictionaries: ``__key__`` (list of str), pictures (uint8 tensors
        (batch, channels, height, width), channels last in memory), numbers of columns without
        nulls (tensors (batch,)), anything else (lists). Without ``batch_size``: values instead of
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
    columns = selection.table.column_names
    decoders = decoders_of(selection.media, columns, decode)
    return TwinIterDataset(
        selection,
        reader=SampleReader(
            decoders=decoders,
            transforms=check_transforms(transform, selection.media, columns, decoders),
            storage=storage_options(io_config),
            seed=check_int("seed", seed),
        ),
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
        reader: SampleReader,
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
        self._sample_reader = reader
        self._batch_size = batch_size
        self._num_threads = num_threads
        self._prefetch_batches = prefetch_batches
        self._on_error = on_error
        self._stats_before = storage_stats()
        self._report = FeedReport()
        self._to_tensors = ToTensors(
            numbers=number_types([selection]),
            pictures={
                name for name, made in reader.decoders.items() if isinstance(made, DecodeImage)
            },
            transformed=set(reader.transforms),
        )

    @override
    def __iter__(self) -> Iterator[dict[str, Any]]:
        """Yield this reader's batches or samples.

        Leaving early, dropping or closing the iterator stops its threads.

        Raises:
            DecodeError: A picture cannot be decoded, or differs in shape from its batch, or no
                sample at all can be read.
            StorageError: A byte range cannot be read.
            RuntimeError: This is a DataLoader worker that was forked after Daft had run.
        """
        partition = self._reader()
        self._warn_of_unequal_steps(partition)
        threads = self._num_threads or max(1, available_cpus() // partition.num_workers)
        feed = Feed(
            selection=self.selection,
            reader=self._sample_reader,
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
            ``rows`` handed out, ``bytes`` of media read, ``skipped`` rows by reason, and
            ``storage``: the requests, bytes, retries and seconds of all that the process has read
            since this data set was made. DataLoader workers count in their own processes and log
            what they skip.
        """
        report = self._report
        return {
            "rows": report.rows,
            "bytes": report.bytes,
            "skipped": dict(report.skipped),
            "storage": asdict(storage_stats() - self._stats_before),
        }

    def _warn_of_unequal_steps(self, partition: Partition) -> None:
        if partition.rank or partition.worker:
            return  # once over all processes
        most = self._num_steps(partition)
        least = self._num_steps(replace(partition, rank=partition.world_size - 1))
        if most > least:
            logger.warning(
                "rank 0 gets %d batches, rank %d gets %d: where ranks wait for each other in every "
                "step, as in DDP, use TwinLoader, which gives each as many",
                most,
                partition.world_size - 1,
                least,
            )

    def _num_steps(self, partition: Partition) -> int:
        """Return how many batches or samples all workers of a rank give."""
        workers = (replace(partition, worker=worker) for worker in range(partition.num_workers))
        rows = (len(worker.slice_of(len(self.selection))) for worker in workers)
        return sum(-(-number // (self._batch_size or 1)) for number in rows)

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
        item = self._to_tensors(batch)
        return item if self._batch_size else {name: values[0] for name, values in item.items()}
