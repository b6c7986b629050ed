"""Which rows of an index a scan gives, and in which order: what `align` does for tars."""

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from daft_twinwds.query.index_use import Entry
from daft_twinwds.query.scan import Scan
from daft_twinwds.query.schema import Column
from daft_twinwds.shards.align import MISSING, UNLISTED
from daft_twinwds.shards.index_format import KEY, PLACE, field_of

__all__ = ["IndexRows", "select_rows"]

Places = NDArray[np.int64]


@dataclass(frozen=True, slots=True, kw_only=True)
class IndexRows:
    """Rows of one shard."""

    places: Places | None
    """Which rows of the index, in order; None for all of them as they come."""
    num_rows: int
    """How many these are."""
    dropped: Mapping[str, int]
    """Reason -> keys that became no row."""

    def numbers(self) -> Places:
        """Return the rows' numbers in the index."""
        return np.arange(self.num_rows) if self.places is None else self.places

    def take(self, values: pa.Array) -> pa.Array:
        """Return one value per row, of one per row of the index."""
        return values if self.places is None else values.take(pa.array(self.places))


def select_rows(
    scan: Scan, entry: Entry, opened: Sequence[Column], order_by: Sequence[Column]
) -> IndexRows | None:
    """Return the rows that modalities make under a scan's policy.

    Args:
        scan: What is wanted.
        entry: What the index says.
        opened: Modalities that decide which keys become rows.
        order_by: The first of these, in whose order the rows come; none if order does not count.

    Returns:
        The rows; None if the modalities disagree on the keys although they must not.

    Raises:
        UnusableIndexError: The index is damaged.
    """
    num_rows = entry.shard.num_rows
    if not num_rows:
        return IndexRows(places=None, num_rows=0, dropped={})
    is_complete = all(entry.count(column) == num_rows for column in opened)
    is_in_order = entry.shard.in_step or not order_by
    if is_complete and is_in_order and scan.policy.sample_keys is None:
        return IndexRows(places=None, num_rows=num_rows, dropped={})
    places = _places(entry, opened)
    present = np.stack([places[column.name] >= 0 for column in opened])
    union, whole = present.any(axis=0), present.all(axis=0)
    if scan.policy.on_missing == "error" and not np.array_equal(union, whole):
        return None
    dropped: Counter[str] = Counter()
    ranks = _ranks(scan, entry)
    if ranks is not None:
        dropped[UNLISTED] = int((union & (ranks < 0)).sum())
        union, whole = union & (ranks >= 0), whole & (ranks >= 0)
    kept = union if scan.policy.on_missing == "null" else whole
    dropped[MISSING] = int((union & ~kept).sum())
    rows = np.flatnonzero(kept)
    if not order_by:
        return IndexRows(places=rows, num_rows=len(rows), dropped=+dropped)
    keys = [ranks] if ranks is not None else _order_keys([places[c.name] for c in order_by])
    # The last key counts most.
    order = np.lexsort([key[rows] for key in reversed(keys)])
    return IndexRows(places=rows[order], num_rows=len(rows), dropped=+dropped)


def _places(entry: Entry, columns: Sequence[Column]) -> dict[str, Places]:
    """Return each row's place among the samples of some modalities, -1 where it is missing."""
    names = {
        column.name: field_of(entry.folders[column.name], PLACE)
        for column in columns
        if column.name in entry.folders
    }
    read = entry.file.read(entry.shard, [KEY, *names.values()])
    missing = np.full(entry.shard.num_rows, -1, np.int64)
    return {
        column.name: (
            read[names[column.name]].cast(pa.int64()).fill_null(-1).to_numpy()
            if column.name in names
            else missing
        )
        for column in columns
    }


def _ranks(scan: Scan, entry: Entry) -> Places | None:
    """Return each row's rank among the keys that are listed, -1 where it is not."""
    if scan.policy.sample_keys is None:
        return None
    ranks = scan.policy.sample_keys.ranks()
    keys = entry.file.read(entry.shard, [KEY])[KEY].to_pylist()
    return np.fromiter((ranks.get(key, -1) for key in keys), np.int64, len(keys))


def _order_keys(places: Sequence[Places]) -> list[Places]:
    """Return what rows are sorted by: the first modality that has them, and the place there."""
    first = np.full(len(places[0]), -1, np.int64)
    place = first.copy()
    for number, of_modality in enumerate(places):
        new = (first < 0) & (of_modality >= 0)
        first[new], place[new] = number, of_modality[new]
    return [first, place]
