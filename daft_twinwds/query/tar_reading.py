"""One shard being read from its tars: open files, their samples, their alignment, values of rows."""

from collections import Counter
from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from dataclasses import replace

import numpy as np
import pyarrow as pa
from daft.recordbatch import RecordBatch
from daft.series import Series
from numpy.typing import NDArray

from daft_twinwds.errors import SchemaError
from daft_twinwds.query import report
from daft_twinwds.query._daft import column_of, filter_batch, make_batch, make_file_series
from daft_twinwds.query.index_use import Entry, give_up
from daft_twinwds.query.picture_info import PictureInfos, read_infos
from daft_twinwds.query.scan import Scan
from daft_twinwds.query.schema import KEY, URL, Column, InfoColumn
from daft_twinwds.query.suffixes import odd_places, odd_suffix_message
from daft_twinwds.query.text import MAX_TEXT_BYTES, parse_texts, read_texts
from daft_twinwds.shards import index_format
from daft_twinwds.shards.align import Alignment, align
from daft_twinwds.shards.index_format import UnusableIndexError, field_of
from daft_twinwds.shards.index_rows import SAMPLE_FIELDS, samples_of, spread
from daft_twinwds.shards.layout import Shard
from daft_twinwds.shards.samples import BadKey, Samples, read_samples
from daft_twinwds.shards.storage import File, shown

__all__ = ["BAD_HEADER", "ROW", "TarReading"]

ODD_SUFFIX = "suffix that does not fit its column"
LARGE_TEXT = "text larger than MAX_TEXT_BYTES"
BAD_TEXT = "text that could not be parsed"
DAMAGED_TAR = "damaged tar"
BAD_HEADER = "picture header that could not be read"

ROW = "__row__"
"""Helper column that tells which rows a filter kept."""


class TarReading:
    """One shard being read.

    Args:
        scan: What is wanted.
        shard: Where it is.
        stack: Closes the tars.
        entry: What an index says of the headers, so that these need not be read.
    """

    def __init__(self, scan: Scan, shard: Shard, stack: ExitStack, entry: Entry | None) -> None:
        self._scan = scan
        self._shard = shard
        self._stack = stack
        self._entry = entry
        self._files: dict[str, File] = {}
        self._samples: dict[str, Samples] = {}
        self._counts: Counter[str] = Counter()
        self._early, self._late = scan.stages()
        self.lead = self._align(self._early)
        self._whole = None if self._late else self.lead
        self._place_of_key: dict[str, int] | None = None

    def report(self) -> None:
        """Count what became no row, once per shard."""
        for samples in self._samples.values():
            self._counts.update(samples.notes)
            if samples.fault is not None:
                report.count({DAMAGED_TAR: 1}, where=str(samples.fault))
            for bad in samples.bad.values():
                report.logger.warning("%s", bad.message)
        self._counts.update((self._whole or self.lead).dropped)
        report.count(self._counts, where=self._shard.url)

    def batch(self, rows: range) -> RecordBatch | None:
        """Return the wanted columns of those lead rows that pass; None if none do."""
        places = np.arange(rows.start, rows.stop, dtype=np.int64)
        columns, good = self._make(self._early, self.lead, places)
        columns = self._with_names(columns, rows)
        columns, places = _select(columns, good), places[good]
        if self._scan.predicate is not None and len(places):
            kept = self._passing(columns, len(places))
            columns, places = _select(columns, kept), places[kept]
        if not len(places):
            return None
        if self._late:
            found, whole_places = self._find(places)
            late, good = self._make(self._late, self._open_late(), whole_places)
            columns = _select({**_select(columns, found), **late}, good)
        wanted = self._scan.wanted or frozenset({KEY})
        batch = make_batch({name: columns[name] for name in sorted(wanted)})
        return batch if len(batch) else None

    def _with_names(self, columns: dict[str, Series], rows: range) -> dict[str, Series]:
        keys = self.lead.keys[rows.start : rows.stop]
        urls = pa.repeat(pa.scalar(self._shard.url, pa.large_string()), len(keys))
        return {
            KEY: Series.from_arrow(pa.array(keys, pa.large_string()), KEY),
            URL: Series.from_arrow(urls, URL),
            **columns,
        }

    def _passing(self, columns: Mapping[str, Series], size: int) -> NDArray[np.int64]:
        """Rows, out of ``size``, for which the predicate is true."""
        predicate = self._scan.predicate
        assert predicate is not None
        row = Series.from_arrow(pa.array(np.arange(size)), ROW)
        looked_at = {name: columns[name] for name in self._scan.filter_columns}
        kept = filter_batch(make_batch({**looked_at, ROW: row}), predicate)
        rows: NDArray[np.int64] = column_of(kept, ROW).to_arrow().to_numpy()
        return rows

    def _find(self, places: NDArray[np.int64]) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
        """Lead rows that the whole alignment has too, and where it has them."""
        whole = self._open_late()
        if whole.keys == self.lead.keys:
            return np.arange(len(places)), places
        if self._place_of_key is None:
            self._place_of_key = {key: place for place, key in enumerate(whole.keys)}
        of_lead = (self._place_of_key.get(self.lead.keys[place], -1) for place in places)
        whole_places = np.fromiter(of_lead, np.int64, len(places))
        found = np.flatnonzero(whole_places >= 0)
        return found, whole_places[found]

    def _open_late(self) -> Alignment:
        if self._whole is None:
            self._whole = self._align((*self._early, *self._late))
        return self._whole

    def _align(self, columns: Sequence[Column]) -> Alignment:
        policy = self._scan.policy
        for column in columns:
            if column.name not in self._samples:
                self._samples[column.name] = self._read(column)
        wanted = None if policy.sample_keys is None else policy.sample_keys.ranks()
        twins = {column.name: self._samples[column.name] for column in columns}
        return align(twins, on_missing=policy.on_missing, wanted=wanted)

    def _read(self, column: Column) -> Samples:
        path = self._shard.paths[column.name]
        if path is None:
            return Samples.none(f"{self._shard.root}/{column.name}/{self._shard.name}")
        samples = self._indexed(column, shown(path))
        if samples is None:
            policy = self._scan.policy
            strict = policy.on_error == "raise"
            samples = read_samples(self._file(column), key_split=policy.key_split, strict=strict)
        return self._check_suffixes(column, samples)

    def _indexed(self, column: Column, path: str) -> Samples | None:
        """Return what reading a tar's headers would give, if an index tells."""
        if self._entry is None:
            return None
        folder, shard = self._entry.folders[column.name], self._entry.shard
        tar = shard.tars[folder]
        assert tar is not None
        if not shard.num_rows:
            return replace(Samples.none(path), notes=tar.notes)
        names = [index_format.KEY, *(field_of(folder, what) for what in SAMPLE_FIELDS)]
        try:
            return samples_of(self._entry.file.read(shard, names), folder, tar, path=path)
        except UnusableIndexError as error:
            give_up(error, self._scan.index, self._shard)
            self._entry = None
            return None

    def _file(self, column: Column) -> File:
        if column.name not in self._files:
            file = self._stack.enter_context(self._shard.open(column.name))
            self._files[column.name] = file
        return self._files[column.name]

    def _check_suffixes(self, column: Column, samples: Samples) -> Samples:
        """Refuse, or drop and count, members that do not fit their column."""
        odd = odd_places(column, samples)
        if not odd:
            return samples
        message = odd_suffix_message(column, samples, odd[0])
        if self._scan.policy.on_error == "raise":
            raise SchemaError(message)
        bad = BadKey(ODD_SUFFIX, message)
        return samples.without(set(odd), bad={samples.keys[place]: bad for place in odd})

    def _make(
        self, columns: Sequence[Column], alignment: Alignment, places: NDArray[np.int64]
    ) -> tuple[dict[str, Series], NDArray[np.int64]]:
        """Build columns for some rows; also tell which of these rows are good."""
        made = {}
        good = np.ones(len(places), np.bool_)
        for column in columns:
            own = alignment.rows[column.name][places]
            for info, values in self._infos_of(column, own).items():
                made[info.name] = Series.from_arrow(values, info.name)
            if not self._scan.is_parsed(column):
                continue
            if column.kind == "file":
                made[column.name] = self._files_of(column, own)
            else:
                made[column.name], bad = self._texts_of(column, own)
                good[bad] = False
        return made, np.flatnonzero(good)

    def _files_of(self, column: Column, own: NDArray[np.int64]) -> Series:
        samples = self._samples[column.name]
        valid = own >= 0
        positions, sizes = samples.positions, samples.sizes
        if not len(positions):
            positions = sizes = np.zeros(1, np.int64)  # what -1, for null, then points at
        return make_file_series(
            column.name,
            column.dtype,
            self._shard.reference(column.name) or samples.path,
            positions[own],
            sizes[own],
            None if valid.all() else valid,
        )

    def _infos_of(self, column: Column, own: NDArray[np.int64]) -> dict[InfoColumn, pa.Array]:
        wanted = self._scan.infos_of(column)
        if not wanted:
            return {}
        samples, held = self._samples[column.name], own[own >= 0]
        infos = PictureInfos.of([])
        if len(held):
            positions, sizes = samples.positions[held].tolist(), samples.sizes[held].tolist()
            infos = read_infos(self._file(column), positions, sizes)
        self._counts[BAD_HEADER] += infos.widths.null_count
        places = np.full(len(own), -1, np.int64)
        places[own >= 0] = np.arange(len(held))
        return {
            info: spread(infos.values(info.what), places).cast(info.dtype.to_arrow_dtype())
            for info in wanted
        }

    def _texts_of(self, column: Column, own: NDArray[np.int64]) -> tuple[Series, list[int]]:
        samples = self._samples[column.name]
        present = np.flatnonzero(own >= 0)
        skipped: list[int] = []
        if self._scan.policy.on_error == "skip":
            is_large = samples.sizes[own[present]] > MAX_TEXT_BYTES
            skipped, present = present[is_large].tolist(), present[~is_large]
            for row in skipped:
                place = f"{samples.path}: {samples.names[own[row]]!r}"
                report.count({LARGE_TEXT: 1}, where=place)
        held = own[present].tolist()
        documents = (
            read_texts(self._file(column), samples, held, column=column.name) if held else []
        )
        parsed = parse_texts(
            documents,
            column,
            where=lambda row: (
                f"{samples.path}: {samples.names[held[row]]!r} "
                f"at byte {samples.positions[held[row]]}"
            ),
            extra_fields=self._scan.policy.extra_fields,
            on_error=self._scan.policy.on_error,
        )
        for reason, number in parsed.ignored.items():
            self._counts[f"extra field {column.name}.{reason}"] += number
        for message in parsed.bad.values():
            report.count({BAD_TEXT: 1}, where=message)
        values = parsed.values
        if len(present) != len(own):
            places = np.full(len(own), -1, np.int64)
            places[present] = np.arange(len(present))
            values = values.take(pa.array(places, mask=places < 0))
        skipped += present[list(parsed.bad)].tolist()
        return Series.from_arrow(values, column.name).cast(column.dtype), skipped


def _select(columns: dict[str, Series], rows: NDArray[np.int64]) -> dict[str, Series]:
    """Return these rows of all columns; the columns themselves where that is all of them."""
    first = next(iter(columns.values()), None)
    if first is None or len(first) == len(rows):
        return columns
    indices = Series.from_arrow(pa.array(rows, pa.uint64()), ROW)
    return {name: series.take(indices) for name, series in columns.items()}
