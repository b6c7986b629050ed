"""One shard -> record batches from its index alone, if that can be done."""

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np
import pyarrow as pa
from daft.recordbatch import RecordBatch
from daft.series import Series
from numpy.typing import NDArray

from daft_twinwds.query import report
from daft_twinwds.query._daft import column_of, filter_batch, make_batch, make_file_series
from daft_twinwds.query.index_rows import IndexRows, select_rows
from daft_twinwds.query.index_text import as_type
from daft_twinwds.query.index_use import Entry
from daft_twinwds.query.predicates import Path
from daft_twinwds.query.scan import Scan
from daft_twinwds.query.schema import KEY, URL, Column, InfoColumn
from daft_twinwds.query.tar_reading import BAD_HEADER, ROW
from daft_twinwds.shards import index_format
from daft_twinwds.shards.dataset import Shard
from daft_twinwds.shards.index_format import POSITION, SIZE, TEXT, field_of

__all__ = ["read_index"]

_WHOLE: frozenset[Path] = frozenset({()})


def read_index(scan: Scan, shard: Shard, entry: Entry) -> list[RecordBatch] | None:
    """Return a shard's rows, filtered and limited, as a scan of its tars would.

    Everything is read before anything is given, so that a damaged index is found in time. A
    filter reads what it looks at; the rest is read only if a row passes.

    Returns:
        Batches of at most ``scan.batch_size`` rows, none of them empty; None if the tars are
        needed.

    Raises:
        UnusableIndexError: The index is damaged.
    """
    if not entry.tells_all(scan):
        return None
    reading = _Reading(scan=scan, shard=shard, entry=entry)
    rows = reading.rows()
    if rows is None:
        return None
    batch = reading.batch(rows) if len(rows) else None
    reading.report()
    if batch is None:
        return []
    return [
        batch.slice(start, min(start + scan.batch_size, len(batch)))
        for start in range(0, len(batch), scan.batch_size)
    ]


def count_index(scan: Scan, shard: Shard, entry: Entry, *, quiet: bool) -> int | None:
    """Return how many rows a scan without a filter gives; None if the tars are needed.

    Args:
        scan: What is wanted.
        shard: Where it is.
        entry: What an index says of it.
        quiet: Whether what becomes no row goes uncounted.

    Raises:
        UnusableIndexError: The index is damaged.
    """
    if not entry.tells_all(scan):
        return None
    reading = _Reading(scan=scan, shard=shard, entry=entry)
    num_rows = reading.count()
    if num_rows is not None and not quiet:
        reading.report()
    return num_rows


@dataclass(slots=True, kw_only=True)
class _Reading:
    scan: Scan
    shard: Shard
    entry: Entry
    _counts: Counter[str] = field(default_factory=Counter)
    _told: set[str] = field(default_factory=set)
    """Columns of pictures whose unreadable headers were counted."""

    def count(self) -> int | None:
        """Return how many rows there are; None if the tars are needed."""
        opened, _ = self.scan.stages()
        rows = select_rows(self.scan, self.entry, opened, ())
        if rows is None:
            return None
        self._note(opened, rows)
        return rows.num_rows

    def rows(self) -> NDArray[np.int64] | None:
        """Return which rows of the index pass, in order; None if the tars are needed."""
        early, late = self.scan.stages()
        lead = select_rows(self.scan, self.entry, early, early)
        if lead is None:
            return None
        passing = lead.numbers()
        if self.scan.predicate is not None:
            passing = passing[self._passing(lead)]
        if not len(passing):
            self._note(early, lead)
            return passing
        if late:
            whole = select_rows(self.scan, self.entry, (*early, *late), early)
            if whole is None:
                return None
            self._note((*early, *late), whole)
            if whole.places is not None:
                passing = passing[np.isin(passing, whole.places)]
        else:
            self._note(early, lead)
        return passing[: self.scan.limit]

    def report(self) -> None:
        """Count what became no row."""
        report.count(self._counts, where=self.shard.url)

    def batch(self, rows: NDArray[np.int64]) -> RecordBatch:
        """Return the wanted columns of these rows of the index."""
        wanted = self.scan.wanted or frozenset({KEY})
        fields = {
            name: _WHOLE if name in self.scan.whole else self.scan.filter_fields.get(name, _WHOLE)
            for name in wanted
        }
        is_all = len(rows) == self.entry.shard.num_rows and bool((np.diff(rows) == 1).all())
        places = None if is_all else rows
        columns = self._columns(fields, IndexRows(places=places, num_rows=len(rows), dropped={}))
        return make_batch({name: columns[name] for name in sorted(wanted)})

    def _note(self, opened: Sequence[Column], rows: IndexRows) -> None:
        for column in opened:
            tar = self.entry.tar(column)
            if tar is not None:
                self._counts.update(tar.notes)
        self._counts.update(rows.dropped)

    def _passing(self, rows: IndexRows) -> NDArray[np.int64]:
        """Return the places, among some rows, of those for which the filter is true."""
        assert self.scan.predicate is not None
        if not rows.num_rows:
            return np.empty(0, np.int64)
        columns = self._columns(self.scan.filter_fields, rows)
        columns[ROW] = Series.from_arrow(pa.array(np.arange(rows.num_rows)), ROW)
        kept = filter_batch(make_batch(columns), self.scan.predicate)
        numbers: NDArray[np.int64] = column_of(kept, ROW).to_arrow().to_numpy()
        return numbers

    def _columns(self, fields: Mapping[str, frozenset[Path]], rows: IndexRows) -> dict[str, Series]:
        """Return columns of some rows; of structs the fields that are asked for."""
        infos = {info.name: info for info in self.scan.infos}
        columns = {column.name: column for column in self.scan.columns}
        names: set[str] = set()
        for name, paths in fields.items():
            if name in infos:
                names.update(self._info_fields(infos[name]))
            elif name in columns:
                names.update(self._member_fields(columns[name], paths))
            elif name == KEY:
                names.add(index_format.KEY)
        read = self.entry.file.read(self.entry.shard, sorted(names))
        made = {}
        for name in fields:
            if name in infos:
                made[name] = self._info(infos[name], read, rows)
            elif name in columns and columns[name].kind == "file":
                made[name] = self._files(columns[name], read, rows)
            elif name in columns:
                made[name] = self._texts(columns[name], read, rows)
            elif name == KEY:
                made[name] = Series.from_arrow(rows.take(read[index_format.KEY]), KEY)
            else:
                urls = pa.repeat(pa.scalar(self.shard.url, pa.large_string()), rows.num_rows)
                made[URL] = Series.from_arrow(urls, URL)
        return made

    def _info_fields(self, info: InfoColumn) -> list[str]:
        folder = self.entry.folders.get(info.column)
        # The size of the file tells a picture that cannot be read from one that is missing.
        return [] if folder is None else [field_of(folder, what) for what in (info.what, SIZE)]

    def _member_fields(self, column: Column, paths: frozenset[Path]) -> list[str]:
        folder = self.entry.folders.get(column.name)
        if folder is None:
            return []
        if column.kind == "file":
            return [field_of(folder, POSITION), field_of(folder, SIZE)]
        return [".".join((field_of(folder, TEXT), *path)) for path in sorted(paths)]

    def _info(self, info: InfoColumn, read: Mapping[str, pa.Array], rows: IndexRows) -> Series:
        folder = self.entry.folders.get(info.column)
        type_ = info.dtype.to_arrow_dtype()
        values = None if folder is None else read.get(field_of(folder, info.what))
        if folder is None or values is None:
            return Series.from_arrow(pa.nulls(rows.num_rows, type_), info.name)
        values = rows.take(values)
        if info.column not in self._told:
            self._told.add(info.column)
            sizes = rows.take(read[field_of(folder, SIZE)])
            self._counts[BAD_HEADER] += values.null_count - sizes.null_count
        return Series.from_arrow(values.cast(type_), info.name)

    def _files(self, column: Column, read: Mapping[str, pa.Array], rows: IndexRows) -> Series:
        folder = self.entry.folders.get(column.name)
        if folder is None:
            positions = sizes = pa.nulls(rows.num_rows, pa.int64())
        else:
            positions = rows.take(read[field_of(folder, POSITION)])
            sizes = rows.take(read[field_of(folder, SIZE)])
        valid = positions.is_valid() if positions.null_count else None
        return make_file_series(
            column.name,
            column.dtype,
            self.shard.reference(column.name) or self.shard.url,
            positions.fill_null(0).to_numpy(),
            sizes.fill_null(0).to_numpy(),
            None if valid is None else valid.to_numpy(zero_copy_only=False),
        )

    def _texts(self, column: Column, read: Mapping[str, pa.Array], rows: IndexRows) -> Series:
        folder = self.entry.folders.get(column.name)
        values = None if folder is None else read.get(field_of(folder, TEXT))
        if values is None:
            # Nobody asks for more than for fields that no text of this shard has.
            made = pa.nulls(rows.num_rows, column.arrow_type)
        else:
            made = as_type(rows.take(values), column.arrow_type)
        return Series.from_arrow(made, column.name).cast(column.dtype)
