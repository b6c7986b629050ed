"""Shards that were read one by one -> the index of their part folder."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import pyarrow as pa

from daft_twinwds.errors import SchemaError
from daft_twinwds.query.index_text import TextNotes, are_values_of, as_type
from daft_twinwds.query.schema import parsed_column
from daft_twinwds.shards.index_file import IndexFile
from daft_twinwds.shards.index_format import TEXT, PartSummary, ShardEntry, field_of
from daft_twinwds.shards.index_write import index_schema, write_index
from daft_twinwds.shards.options import ENVIRONMENT, StorageOptions

__all__ = ["IndexedShard", "Part", "settle"]


@dataclass(frozen=True, slots=True, kw_only=True)
class IndexedShard:
    """A shard whose rows lie in an index already: that of its part, or one of its own."""

    entry: ShardEntry
    """What was found in it."""
    text_types: Mapping[str, pa.DataType]
    """Folder -> type of its texts in the rows, of those that have any."""
    sized: frozenset[str]
    """Folders whose pictures' sizes are in the rows."""
    rows: Callable[[], dict[str, pa.Array]]
    """Reads the rows; only called if there are any."""

    @classmethod
    def of(
        cls, entry: ShardEntry, file: IndexFile, rows: Callable[[], dict[str, pa.Array]]
    ) -> "IndexedShard":
        """Take what is known of a shard from an open index; ``rows`` may open it again."""
        types = {folder: file.text_type(folder) for folder in entry.tars}
        return cls(
            entry=entry,
            text_types={folder: type_ for folder, type_ in types.items() if type_ is not None},
            sized=frozenset(folder for folder in entry.tars if file.has_sizes(folder)),
            rows=rows,
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class Part:
    """The shards of one part folder, brought together."""

    shards: Sequence[IndexedShard]
    """In the order that the index is to have."""
    entries: Mapping[str, ShardEntry]
    """Shard's name -> what is to be said of it."""
    types: Mapping[str, pa.DataType]
    """Folder -> the type that holds the texts of all shards."""
    unfit: frozenset[str]
    """Shards that must be read again: their rows are in a type that may have changed values."""

    def write(self, path: str, head: PartSummary, *, options: StorageOptions = ENVIRONMENT) -> None:
        """Write the index; no tar is looked at.

        Args:
            path: See `index_path`.
            head: What the shards were read with; its entries do not count.
            options: How storage is accessed.

        Raises:
            StorageError: The index cannot be written.
            UnusableIndexError: A shard's rows are damaged.
        """
        shards = {shard.entry.name: shard for shard in self.shards}

        def rows_of(entry: ShardEntry) -> dict[str, pa.Array]:
            rows = shards[entry.name].rows()
            for folder, tar in entry.tars.items():
                name = field_of(folder, TEXT)
                if name in rows and (tar is None or tar.text is None):
                    del rows[name]
                elif name in rows:
                    rows[name] = as_type(rows[name], self.types[folder])
            return rows

        pictures = [
            folder for folder in head.folders if any(folder in shard.sized for shard in self.shards)
        ]
        schema = index_schema(head.folders, pictures=pictures, texts=self.types)
        write_index(path, replace(head, entries=self.entries), schema, rows_of, options=options)


def settle(shards: Sequence[IndexedShard], folders: Mapping[str, str]) -> Part:
    """Find the types that hold the texts of all shards.

    Texts of a shard that contradict those of the shards before it are left out: scans read them
    from its tar.

    Args:
        shards: In the order that the index is to have.
        folders: Column -> folder.
    """
    entries = {shard.entry.name: shard.entry for shard in shards}
    types: dict[str, pa.DataType] = {}
    unfit: set[str] = set()
    for column, folder in folders.items():
        notes = _settle_texts(column, folder, entries)
        if notes is None:
            continue
        types[folder] = notes.type()
        wanted = parsed_column(column, notes.kind, types[folder])
        for shard in shards:
            tar = entries[shard.entry.name].tars[folder]
            if tar is None or tar.text is None:
                continue
            if not are_values_of(tar.text, shard.text_types[folder], wanted):
                unfit.add(shard.entry.name)
    return Part(shards=shards, entries=entries, types=types, unfit=frozenset(unfit))


def _settle_texts(column: str, folder: str, entries: dict[str, ShardEntry]) -> TextNotes | None:
    """Merge the notes on all texts; take out of the entries those that do not go with the rest."""
    merged: TextNotes | None = None
    faults: dict[str, str | None] = {}
    for name, entry in entries.items():
        tar = entry.tars[folder]
        if tar is None or tar.text is None:
            continue
        # Most shards' texts are alike.
        kind = repr(tar.text)
        if kind not in faults:
            try:
                merged = _merged(merged, column, tar.text)
                faults[kind] = None
            except SchemaError as error:
                faults[kind] = f"its texts contradict those of the shards before it: {error}"
        if faults[kind] is not None:
            left = replace(tar, text=None, text_fault=faults[kind])
            entries[name] = replace(entry, tars={**entry.tars, folder: left})
    return merged


def _merged(merged: TextNotes | None, column: str, text: Mapping[str, Any]) -> TextNotes:
    notes = TextNotes(column, text["kind"])
    if merged is not None:
        if merged.kind != notes.kind:
            raise SchemaError(f"{notes.kind} was found, and {merged.kind} before")
        notes.add_plain(merged.to_plain(), where="the shards before it")
    notes.add_plain(text, where="this shard")
    notes.type()
    return notes
