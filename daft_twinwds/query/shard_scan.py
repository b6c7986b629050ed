"""One shard -> record batches: what a task does, without Daft's engine around it."""

from collections.abc import Iterator
from contextlib import ExitStack

from daft.recordbatch import RecordBatch

from daft_twinwds.query.index_reading import count_index, read_index
from daft_twinwds.query.index_use import find_entry, give_up
from daft_twinwds.query.scan import Scan
from daft_twinwds.query.tar_reading import TarReading
from daft_twinwds.shards.index_format import UnusableIndexError
from daft_twinwds.shards.layout import Shard

__all__ = ["count_shard", "scan_shard"]


def scan_shard(scan: Scan, shard: Shard) -> Iterator[RecordBatch]:
    """Yield a shard's rows, filtered and limited.

    Args:
        scan: What is wanted.
        shard: Where it is.

    Yields:
        Batches of at most ``scan.batch_size`` rows, none of them empty, with the columns
        ``scan.wanted`` (``__key__`` if that is none).

    Raises:
        TwinWebDatasetError: Whatever is wrong with the shard; see the policy.
    """
    with ExitStack() as stack:
        entry = find_entry(scan, shard, stack)
        if entry is not None:
            try:
                batches = read_index(scan, shard, entry)
            except UnusableIndexError as error:
                give_up(error, scan.index, shard)
                batches = entry = None
            if batches is not None:
                yield from batches
                return
        reading = TarReading(scan, shard, stack, entry)
        remaining = scan.limit
        start = 0
        while remaining is None or remaining > 0:
            size = scan.batch_size
            if remaining is not None and scan.predicate is None:
                size = min(size, remaining)
            rows = range(start, min(start + size, len(reading.lead.keys)))
            if not rows:
                break
            start = rows.stop
            batch = reading.batch(rows)
            if batch is None:
                continue
            if remaining is not None:
                batch = batch.head(remaining) if len(batch) > remaining else batch
                remaining -= len(batch)
            yield batch
        reading.report()


def count_shard(scan: Scan, shard: Shard, *, planning: bool = False) -> int:
    """Return how many rows a scan of the shard gives, from headers alone where they suffice.

    What became no row is counted for `scan_report`, except while planning, when a scan follows.
    """
    if scan.predicate is not None:
        return sum(len(batch) for batch in scan_shard(scan, shard))
    must_parse = scan.policy.on_error == "skip"
    with ExitStack() as stack:
        entry = find_entry(scan, shard, stack, quiet=planning or must_parse)
        if entry is not None:
            try:
                rows = count_index(scan, shard, entry, quiet=planning)
            except UnusableIndexError as error:
                give_up(error, scan.index, shard, quiet=planning or must_parse)
                rows = entry = None
            if rows is not None:
                return rows
        if not must_parse:
            reading = TarReading(scan, shard, stack, entry)
            if not planning:
                reading.report()
            return len(reading.lead.keys)
    return sum(len(batch) for batch in scan_shard(scan, shard))
