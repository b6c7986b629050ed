"""Which rows are equal to an earlier one: Daft finds equal hashes, so that it is spread as well."""

import re
from dataclasses import dataclass
from typing import Final

import daft
import numpy as np
import pyarrow as pa
from daft import col
from numpy.typing import NDArray

from daft_twinwds.tools.curate_look import Duplicates
from daft_twinwds.tools.curate_notes import HASH, PLACE, ROWS, THUMBNAIL, required_look
from daft_twinwds.tools.curate_place import CurationFolder
from daft_twinwds.tools.picture_hash import THUMBNAIL_SIZE, are_close

__all__ = ["Doubles", "doubles_in"]

_FIRST: Final = "first"
_LAST: Final = "last"
_MOST_THUMBNAILS: int = 1 << 18
"""In memory at a time, if no hash alone has more: 200 MB."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Doubles:
    """Rows that are equal to an earlier one."""

    places: NDArray[np.int64]
    """`PLACE` of each, in order."""
    firsts: NDArray[np.int64]
    """`PLACE` of the row that stays in its stead."""

    @classmethod
    def none(cls) -> "Doubles":
        """Return those of a data set that has none."""
        return cls(places=np.empty(0, np.int64), firsts=np.empty(0, np.int64))

    def __len__(self) -> int:
        """Return how many they are."""
        return len(self.places)

    def of(self, number: int) -> "Doubles":
        """Return those of one shard."""
        start, stop = np.searchsorted(self.places, [number * ROWS, (number + 1) * ROWS])
        return Doubles(places=self.places[start:stop].copy(), firsts=self.firsts[start:stop].copy())


def doubles_in(folder: CurationFolder, duplicates: Duplicates) -> Doubles:
    """Return the rows that are equal to an earlier one.

    Whatever the order of work, of equal rows the first in the data set's order stays. Only the
    places of rows whose hash others have come here, and only their thumbnails are compared.

    Args:
        folder: Where at least one look has been noted.
        duplicates: How it was compared. Equal hashes of ``"bytes"`` are enough; of ``"picture"``
            they make candidates, of which in their order each is compared with those that stay.

    Raises:
        StorageError: A look is gone.
    """
    # Daft takes paths for patterns.
    looks = re.sub(r"([\\*?\[\]{}])", r"\\\1", str(folder.looks))
    rows = daft.read_parquet(f"{looks}/*/*.parquet").select(HASH, PLACE)
    groups = rows.groupby(HASH).agg(col(PLACE).min().alias(_FIRST), col(PLACE).max().alias(_LAST))
    groups = groups.where(col(_FIRST) != col(_LAST)).select(HASH, _FIRST)
    found = rows.join(groups, on=HASH).select(PLACE, _FIRST).to_arrow()
    places, firsts = found.column(PLACE).to_numpy(), found.column(_FIRST).to_numpy()
    if duplicates == "picture":
        firsts = _compared(folder, places, firsts)
    is_double = firsts != places
    places, firsts = places[is_double], firsts[is_double]
    order = np.argsort(places)
    return Doubles(places=places[order], firsts=firsts[order])


def _compared(
    folder: CurationFolder, places: NDArray[np.int64], groups: NDArray[np.int64]
) -> NDArray[np.int64]:
    """Return for each candidate the place of the row that stays in its stead, or its own."""
    firsts = places.copy()
    order = np.lexsort((places, groups))
    stops = np.append(np.flatnonzero(np.diff(groups[order])) + 1, len(order))
    start = 0
    while start < len(order):
        # As many groups as have so many thumbnails together, but at least one.
        last = np.searchsorted(stops, start + _MOST_THUMBNAILS, side="right") - 1
        last = max(last, np.searchsorted(stops, start, side="right"))
        part = order[start : stops[last]]
        thumbnails = _thumbnails(folder, places[part])
        begin = start
        for stop in stops[(stops > start) & (stops <= stops[last])].tolist():
            rest = np.arange(begin - start, stop - start)
            while len(rest) > 1:
                # It is like none of those that stay so far, so it stays as well.
                first, rest = rest[0], rest[1:]
                is_close = are_close(thumbnails[rest], thumbnails[first])
                firsts[part[rest[is_close]]] = places[part[first]]
                rest = rest[~is_close]
            begin = stop
        start = int(stops[last])
    return firsts


def _thumbnails(folder: CurationFolder, places: NDArray[np.int64]) -> NDArray[np.uint8]:
    """Return the thumbnails of some rows; each look is read once."""
    thumbnails = np.empty((len(places), THUMBNAIL_SIZE), np.uint8)
    order = np.argsort(places)
    numbers, starts = np.unique(places[order] // ROWS, return_index=True)
    for number, mine in zip(numbers.tolist(), np.split(order, starts[1:]), strict=True):
        rows = required_look(folder, number).rows
        at = np.searchsorted(rows.column(PLACE).to_numpy(), places[mine])
        pixels = b"".join(rows.column(THUMBNAIL).take(pa.array(at)).to_pylist())
        thumbnails[mine] = np.frombuffer(pixels, np.uint8).reshape(len(mine), THUMBNAIL_SIZE)
    return thumbnails
