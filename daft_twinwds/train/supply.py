"""What batches are made of: rows, and the plans that say which of them go together."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import islice
from typing import Any, NamedTuple, Protocol

from typing_extensions import override

__all__ = ["BatchPlan", "Row", "Rows", "Stream"]


class Rows(Protocol):
    """A space of rows: a `Selection`, or several of them."""

    def __len__(self) -> int:
        """Number of rows."""

    @property
    def media(self) -> Mapping[str, str]:
        """File column -> medium."""

    def rows(self, places: Any) -> list[dict[str, Any]]:
        """Return some rows; see `Selection.rows`."""


class Row(NamedTuple):
    """One sample to be read."""

    values: dict[str, Any]
    """Column -> value, media as `FileRef`; they are read into it."""
    number: int
    """Its place among all rows; with the epoch it decides what is drawn by chance."""
    epoch: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class BatchPlan:
    """Rows that become one batch."""

    rows: list[Row]
    spare: Callable[[int, int], Row | None]
    """(slot, attempt from 1 on) -> a row for the place of a bad one; None if there are no more."""
    fixed: bool
    """Whether the batch keeps its size: spare rows are then such as are read elsewhere as well.
    Else they are rows from behind, and the last batch gets smaller."""
    pad: list[bool] | None = None
    """Which rows only fill up the batch; None if this is not to be told."""
    aspect: str | None = None
    """The aspect class of all pictures; None if each has its own."""


class Stream(Iterator[BatchPlan]):
    """Rows one after the other; whatever cannot be read, the next ones move up."""

    def __init__(self, rows: Rows, places: Sequence[int], batch_size: int) -> None:
        self._rows = rows
        self._rest = iter(places)
        self._batch_size = batch_size

    @override
    def __next__(self) -> BatchPlan:
        places = list(islice(self._rest, self._batch_size))
        if not places:
            raise StopIteration
        return BatchPlan(rows=self._read(places), spare=self._spare, fixed=False)

    def _spare(self, slot: int, attempt: int) -> Row | None:  # noqa: ARG002  # whichever is next
        rows = self._read(list(islice(self._rest, 1)))
        return rows[0] if rows else None

    def _read(self, places: list[int]) -> list[Row]:
        if not places:
            return []
        return [Row(*pair) for pair in zip(self._rows.rows(places), places, strict=True)]
