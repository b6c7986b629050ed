"""The Daft data source: one task per shard pair."""

import asyncio
import os
from collections.abc import AsyncIterator, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import cache
from itertools import takewhile

import daft
import numpy as np
import pyarrow as pa
from daft.expressions import Expression
from daft.io.pushdowns import Pushdowns
from daft.io.source import DataSource, DataSourceTask
from daft.recordbatch import RecordBatch
from daft.schema import Schema
from daft.series import Series
from typing_extensions import override

from daft_twinwds.query._daft import count_column, make_batch, make_schema
from daft_twinwds.query.index_ahead import iter_looked_for
from daft_twinwds.query.pushdown import plan_scan
from daft_twinwds.query.scan import IndexUse, Policy, Scan
from daft_twinwds.query.schema import KEY, URL, Column, InfoColumn
from daft_twinwds.query.shard_filter import ShardFilter
from daft_twinwds.query.shard_scan import count_shard, scan_shard
from daft_twinwds.shards.layout import Dataset, Shard

__all__ = ["TwinCountTask", "TwinShardTask", "TwinWebDatasetSource"]


@dataclass(frozen=True, slots=True, kw_only=True)
class TwinWebDatasetSource(DataSource):
    """Twin shards as a Daft source; plain values only, so that it pickles."""

    dataset: Dataset
    columns: tuple[Column, ...]
    infos: tuple[InfoColumn, ...]
    where: Expression | None
    policy: Policy
    shards: range | tuple[int, ...]
    """Numbers of the shards to read, in order."""
    batch_size: int
    index: IndexUse

    @property
    @override
    def name(self) -> str:
        """Shown in Daft's plans and errors."""
        roots = sorted(leaf.root.split("/") for leaf in self.dataset.leaves)
        same = takewhile(lambda parts: parts[0] == parts[1], zip(roots[0], roots[-1], strict=False))
        return f"TwinWebDataset({'/'.join(part for part, _ in same) or '/'})"

    @property
    @override
    def schema(self) -> Schema:
        """Keys, URLs and modalities, in that order."""
        return make_schema(self.dtypes())

    def dtypes(self) -> dict[str, daft.DataType]:
        """Column -> type."""
        text = daft.DataType.string()
        return {
            KEY: text,
            URL: text,
            **{column.name: column.dtype for column in self.columns},
            **{info.name: info.dtype for info in self.infos},
        }

    @override
    def supports_count_pushdown(self) -> bool:
        """Counting needs headers only."""
        return True

    @override
    async def get_tasks(self, pushdowns: Pushdowns) -> AsyncIterator[DataSourceTask]:
        """Yield one task per shard that can hold wanted rows.

        Manifests' counts are claims about tars that may have changed since, so they are never
        used in place of the tars' headers.
        """
        dtypes = self.dtypes()
        scan = plan_scan(
            pushdowns,
            columns=self.columns,
            infos=self.infos,
            dtypes=dtypes,
            where=self.where,
            policy=self.policy,
            batch_size=self.batch_size,
            index=self.index,
        )
        if pushdowns.aggregation is not None:
            name = count_column(pushdowns.aggregation)
            yield TwinCountTask(scan=scan, shard=None, name=name)
            for shard in self.dataset.iter_shards(self.shards):
                yield TwinCountTask(scan=scan, shard=shard, name=name)
            return
        exact = scan.predicate is None and self.policy.on_error == "raise"
        remaining = scan.limit if exact else None
        output = make_schema(dtypes)
        for shard in self._might_match(ShardFilter(scan, dtypes)):
            if remaining is not None and remaining <= 0:
                return
            yield TwinShardTask(scan=scan, shard=shard, output=output)
            if remaining is not None:
                # Daft would start tasks behind the limit too; the headers tell where it is met.
                remaining -= count_shard(scan, shard, planning=True)

    def _might_match(self, shard_filter: ShardFilter) -> Iterator[Shard]:
        """Yield the shards that have to be read; asks about some of them at the same time."""
        if not shard_filter.excludes_any:
            yield from self.dataset.iter_shards(self.shards)
            return
        pool = _pool(os.getpid())
        for some in iter_looked_for(self.dataset.iter_listed(self.shards), pool):
            shards, listed = zip(*some, strict=True)
            might = pool.map(shard_filter.might_match, shards, listed)
            yield from (shard for shard, keep in zip(shards, might, strict=True) if keep)


@dataclass(frozen=True, slots=True, kw_only=True)
class TwinShardTask(DataSourceTask):
    """Reads one shard pair."""

    scan: Scan
    shard: Shard
    output: Schema

    @property
    @override
    def schema(self) -> Schema:
        """The source's schema, whatever part of it the batches hold."""
        return self.output

    @override
    async def read(self) -> AsyncIterator[RecordBatch]:
        """Yield the shard's wanted rows.

        The reading is done in our own threads: Daft has one event loop for all tasks and for
        the delivery of results, so that a task that blocks it would stop them all.
        """
        loop = asyncio.get_running_loop()
        batches = scan_shard(self.scan, self.shard)
        while (
            batch := await loop.run_in_executor(_pool(os.getpid()), next, batches, None)
        ) is not None:
            yield batch


@dataclass(frozen=True, slots=True, kw_only=True)
class TwinCountTask(DataSourceTask):
    """Counts the rows of one shard pair; Daft adds the counts up."""

    scan: Scan
    shard: Shard | None
    """None counts nothing, so that a count over no shards is 0 and not null."""
    name: str
    """Column that Daft looks for."""

    @property
    @override
    def schema(self) -> Schema:
        """One column of counts."""
        return make_schema({self.name: daft.DataType.uint64()})

    @override
    async def read(self) -> AsyncIterator[RecordBatch]:
        """Yield one row with the count."""
        rows = 0
        if self.shard is not None:
            loop = asyncio.get_running_loop()
            rows = await loop.run_in_executor(
                _pool(os.getpid()), count_shard, self.scan, self.shard
            )
        counts = pa.array(np.array([rows], np.uint64))
        yield make_batch({self.name: Series.from_arrow(counts, self.name)})


@cache
def _pool(process: int) -> ThreadPoolExecutor:
    """Return the reading threads of a process: a forked child has none of its parent's."""
    del process
    threads = min(32, (os.cpu_count() or 1) + 4)
    return ThreadPoolExecutor(threads, thread_name_prefix="daft-twinwds-read")
