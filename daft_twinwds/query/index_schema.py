"""The columns of a data set by its index, which has seen all of its members."""

from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack

from daft_twinwds.errors import SchemaError
from daft_twinwds.query.index_ahead import iter_looked_for
from daft_twinwds.query.index_text import TextNotes
from daft_twinwds.query.index_use import give_up, look_up
from daft_twinwds.query.scan import IndexUse
from daft_twinwds.query.schema import (
    CAPTION,
    Column,
    Kind,
    file_column,
    kind_of,
    parsed_column,
)
from daft_twinwds.shards.dataset import Dataset, Shard
from daft_twinwds.shards.index_format import TarEntry, UnusableIndexError
from daft_twinwds.shards.samples import KeySplit
from daft_twinwds.shards.urls import is_url

__all__ = ["indexed_columns"]

_REQUESTS = 16
"""Tars on servers that are asked about at the same time."""


def indexed_columns(
    dataset: Dataset, names: Sequence[str], *, key_split: KeySplit, use: IndexUse
) -> dict[str, Column]:
    """Return the columns that an index tells, if it holds for all shards.

    Of a data set in a bucket the listing has told which tars are there, so that no tar is asked
    about unless its index seems not to hold; see `look_up`. The columns are those of the tars as
    they were listed. What a tar holds that came later is found where it is read.

    Args:
        dataset: Where the tars are.
        names: Columns that are wanted.
        key_split: See `split_name`.
        use: What to do with an index.

    Returns:
        Column by name. Those whose members the index could not make a column of are missing, and
        all are if a shard's entry does not hold.

    Raises:
        LayoutError: An index is required, and does not hold for a shard.
        StorageError: A tar may not be looked at.
    """
    if use == "off" or not names:
        return {}
    members: dict[str, _Members] = {name: _Members(name) for name in names}
    for shard, found in _look_up(dataset, names, key_split):
        if isinstance(found, UnusableIndexError):
            give_up(found, use, shard, quiet=True)
        if not isinstance(found, dict):
            return {}
        for name, tar in found.items():
            members[name].add(tar)
    columns = {name: seen.column() for name, seen in members.items()}
    return {name: column for name, column in columns.items() if column is not None}


def _look_up(
    dataset: Dataset, names: Sequence[str], key_split: KeySplit
) -> Iterator[tuple[Shard, dict[str, TarEntry] | UnusableIndexError | None]]:
    """Yield what the index says of each shard's tars.

    It says nothing (None) of those that could not be indexed, and cannot be asked at all (an
    error) where it does not hold.
    """

    def look(
        shard: Shard, listed: Mapping[str, bytes]
    ) -> dict[str, TarEntry] | UnusableIndexError | None:
        with ExitStack() as stack:
            try:
                entry = look_up(shard, list(names), key_split=key_split, stack=stack, listed=listed)
            except UnusableIndexError as error:
                return error
            if entry.shard.fault is not None:
                return None
            tars = {name: entry.shard.tars[folder] for name, folder in entry.folders.items()}
            return {name: tar for name, tar in tars.items() if tar is not None}

    with ThreadPoolExecutor(_REQUESTS) as pool:
        for some in iter_looked_for(dataset.iter_listed(), pool):
            shards, listed = zip(*some, strict=True)
            # Threads help those that wait for servers, and nobody else.
            run = pool.map if any(is_url(shard.root) for shard in shards) else map
            yield from zip(shards, run(look, shards, listed), strict=True)


class _Members:
    """What the tars of one modality hold."""

    def __init__(self, name: str) -> None:
        self._name = name
        self._suffixes: set[str] = set()
        self._texts: dict[str, TarEntry] = {}
        self._lacks_texts = False

    def add(self, tar: TarEntry) -> None:
        self._suffixes |= tar.suffixes
        if tar.text is not None:
            # Most shards' texts are alike.
            self._texts.setdefault(repr(tar.text), tar)
        elif tar.count:
            self._lacks_texts = True

    def column(self) -> Column | None:
        kinds: set[Kind] = {kind_of(suffix) for suffix in self._suffixes}
        if len(kinds) > 1 or (self._lacks_texts and kinds != {"file"}):
            return None
        fallback: Kind = "json" if self._name == CAPTION else "file"
        kind = next(iter(kinds), fallback)
        if kind == "file":
            return file_column(self._name, self._suffixes)
        notes = TextNotes(self._name, kind)
        for tar in self._texts.values():
            assert tar.text is not None
            if tar.text["kind"] != kind or (tar.text.get("bare") and self._name != CAPTION):
                return None
            notes.add_plain(tar.text, where=self._name)
        try:
            return parsed_column(self._name, kind, notes.type())
        except SchemaError:
            # Reading the documents gives the same error, and names two of them.
            return None
