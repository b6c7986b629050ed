"""Writes which rows a curation dropped: ``curate_report.jsonl``."""

import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from daft_twinwds.query.schema import KEY
from daft_twinwds.shards.new_file import new_file
from daft_twinwds.tools.curate_doubles import Doubles
from daft_twinwds.tools.curate_notes import PLACE, ROWS, ShardLook, required_look
from daft_twinwds.tools.curate_place import CurationFolder
from daft_twinwds.tools.curate_report import DUPLICATE

__all__ = ["REPORT_NAME", "DroppedRows"]

REPORT_NAME: Final = "curate_report.jsonl"

_AT_ONCE: int = 100_000
"""Doubles whose keys are in memory."""


@dataclass(frozen=True, slots=True, kw_only=True)
class DroppedRows:
    """The rows that were dropped for another reason than a filter, and what stays in their stead.

    They come from what the looks have noted, so that they are the same however it was made.
    """

    folder: CurationFolder
    doubles: Doubles
    with_faults: NDArray[np.int64]
    """Numbers of the shards that have rows with a fault, in order."""

    def write(self, shards: Iterable[str]) -> None:
        """Write one JSON object per line, in the data set's order.

        Args:
            shards: Name of each shard, its leaf's folder included.

        Raises:
            StorageError: A look cannot be read, or the file cannot be written.
        """
        names = pa.array(shards, pa.string())
        with new_file(f"{self.folder.path}/{REPORT_NAME}") as file:
            for numbers in self._batches():
                for line in self._lines(numbers, names):
                    # All but ASCII is escaped: no character of a key ends a line.
                    file.write(json.dumps(line).encode() + b"\n")

    def _batches(self) -> Iterator[list[int]]:
        """Yield numbers of shards, in order, as many as have some doubles together."""
        with_doubles = np.unique(self.doubles.places // ROWS)
        batch: list[int] = []
        num_doubles = 0
        for number in np.union1d(with_doubles, self.with_faults).tolist():
            batch.append(number)
            num_doubles += len(self.doubles.of(number))
            if num_doubles >= _AT_ONCE:
                yield batch
                batch, num_doubles = [], 0
        yield batch

    def _lines(self, numbers: Sequence[int], names: pa.StringArray) -> Iterator[dict[str, Any]]:
        doubles = {number: self.doubles.of(number) for number in numbers}
        firsts = [Doubles.none().firsts, *(mine.firsts for mine in doubles.values())]
        key_of_first = self._keys(np.unique(np.concatenate(firsts)))
        for number, mine in doubles.items():
            look = required_look(self.folder, number)
            key_of = _keys_in(look, mine.places)
            # A place has one reason, so that no more than it is compared.
            found: list[tuple[int, str, str, int | None]] = [
                (place, key_of[place], DUPLICATE, first)
                for place, first in zip(mine.places.tolist(), mine.firsts.tolist(), strict=True)
            ]
            found += [(gone.place, gone.key, gone.reason, None) for gone in look.gone]
            for _, key, reason, first in sorted(found):
                yield {
                    "key": key,
                    "shard": names[number].as_py(),
                    "reason": reason,
                    "kept_key": None if first is None else key_of_first[first],
                    "kept_shard": None if first is None else names[first // ROWS].as_py(),
                }

    def _keys(self, places: NDArray[np.int64]) -> dict[int, str]:
        """Return the keys of rows that stay; each look is read once."""
        keys: dict[int, str] = {}
        for number in np.unique(places // ROWS).tolist():
            start, stop = np.searchsorted(places, [number * ROWS, (number + 1) * ROWS])
            keys.update(_keys_in(required_look(self.folder, number), places[start:stop]))
        return keys


def _keys_in(look: ShardLook, places: NDArray[np.int64]) -> Mapping[int, str]:
    """Return place -> key, for some rows of one shard, in order."""
    rows = np.searchsorted(look.rows.column(PLACE).to_numpy(), places)
    keys = look.rows.column(KEY).take(pa.array(rows)).to_pylist()
    return dict(zip(places.tolist(), keys, strict=True))
