"""What a query wants of each shard: plain values that travel to where the shard is read."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal

from daft.expressions import Expression

from daft_twinwds.query.predicates import Path
from daft_twinwds.query.schema import Column, InfoColumn
from daft_twinwds.query.text import ExtraFields, OnError
from daft_twinwds.shards.align import OnMissing
from daft_twinwds.shards.sample_keys import SampleKeys
from daft_twinwds.shards.samples import KeySplit

__all__ = ["IndexUse", "Policy", "Scan"]

IndexUse = Literal["auto", "require", "off"]
"""Use it where it holds; refuse to read without; do not look for it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Policy:
    """Which members make a row, and what happens to those that do not."""

    on_missing: OnMissing
    on_error: OnError
    extra_fields: ExtraFields
    key_split: KeySplit
    sample_keys: SampleKeys | None

    @property
    def needs_all(self) -> bool:
        """Whether every modality decides which rows exist, so that none may be left unread."""
        return self.on_missing != "error" or self.on_error == "skip"


@dataclass(frozen=True, slots=True, kw_only=True)
class Scan:
    """What is wanted of each shard; plain values that travel to where the shard is read."""

    columns: tuple[Column, ...]
    """All modalities, in order."""
    infos: tuple[InfoColumn, ...]
    """What can be told of their pictures."""
    wanted: frozenset[str]
    """Columns of the batches: those asked for and those that Daft filters by."""
    whole: frozenset[str]
    """Those of them that were asked for; of the others only what the filter looks at counts."""
    predicate: Expression | None
    """Rows to keep; None for all."""
    filter_fields: Mapping[str, frozenset[Path]]
    """Columns that the predicate looks at -> fields in them, see `needed_fields`."""
    limit: int | None
    """Rows to give at most, after the filter."""
    policy: Policy
    batch_size: int
    """Rows per record batch at most."""
    index: IndexUse
    """What to do with an index."""

    @property
    def filter_columns(self) -> frozenset[str]:
        """Columns that the predicate looks at."""
        return frozenset(self.filter_fields)

    def stages(self) -> tuple[tuple[Column, ...], tuple[Column, ...]]:
        """Modalities to open first, and those to open once a row has passed the filter.

        A filter looks at captions, which are small; pictures' tars are opened only for shards
        that have a match. Under ``on_missing="null"`` every modality can add rows, so all come
        first.
        """
        filtered = self._modalities(self.filter_columns)
        if self.policy.needs_all:
            opened = self.columns
        else:
            needed = self._modalities(self.wanted) | filtered
            opened = tuple(c for c in self.columns if c.name in needed) or (self.carrier,)
        if self.predicate is None or self.policy.on_missing == "null":
            return opened, ()
        early = tuple(c for c in opened if c.name in filtered) or opened[:1]
        return early, tuple(c for c in opened if c not in early)

    @property
    def carrier(self) -> Column:
        """The modality that tells the keys where no modality's column is needed."""
        return next((column for column in self.columns if column.is_text), self.columns[0])

    def is_parsed(self, column: Column) -> bool:
        """Whether a column's values are made: wanted, or needed to know which rows are bad."""
        needed = self.wanted | self.filter_columns
        return column.name in needed or (self.policy.on_error == "skip" and column.is_text)

    def infos_of(self, column: Column) -> tuple[InfoColumn, ...]:
        """What is to be told of the pictures of a column."""
        needed = self.wanted | self.filter_columns
        return tuple(i for i in self.infos if i.column == column.name and i.name in needed)

    def _modalities(self, names: frozenset[str]) -> set[str]:
        """The modalities that columns are made from."""
        pictures = {info.name: info.column for info in self.infos}
        return {pictures.get(name, name) for name in names}
