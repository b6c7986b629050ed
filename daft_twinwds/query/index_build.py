"""Reads one shard for its index: what `read_twin_webdataset` would otherwise read again and again."""

from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from daft_twinwds.errors import AlignmentError, SchemaError, StorageError, TarFormatError
from daft_twinwds.query.index_stats import iter_stats
from daft_twinwds.query.index_text import TextNotes
from daft_twinwds.query.json_types import load_json
from daft_twinwds.query.picture_info import read_infos
from daft_twinwds.query.schema import Kind, kind_of, media_of, parsed_column
from daft_twinwds.query.text import parse_texts, read_texts
from daft_twinwds.shards.dataset import Shard
from daft_twinwds.shards.index_format import (
    FORMAT,
    HEIGHT,
    KEY,
    PLACE,
    TEXT,
    WIDTH,
    ShardEntry,
    TarEntry,
    field_of,
)
from daft_twinwds.shards.index_rows import rows_of, spread
from daft_twinwds.shards.options import ENVIRONMENT
from daft_twinwds.shards.samples import KeySplit, Samples, read_samples
from daft_twinwds.shards.tar_state import TarState, settled_state_of, state_of

if TYPE_CHECKING:
    from daft_twinwds.shards.storage import File

__all__ = ["ShardRows", "index_shard", "states_of"]


@dataclass(frozen=True, slots=True, kw_only=True)
class ShardRows:
    """One shard, read for its index."""

    entry: ShardEntry
    """What was found."""
    columns: Mapping[str, pa.Array]
    """Rows; texts in a type that holds those of this shard."""
    unreadable_pictures: int
    """Pictures whose header cannot be read."""


def index_shard(
    shard: Shard,
    folders: Mapping[str, str],
    *,
    key_split: KeySplit,
    texts: bool,
    to_be_kept: bool = True,
) -> ShardRows:
    """Read a shard's headers, texts and the pictures' first bytes.

    Only what a scan would read without a word is kept. A tar that is damaged or holds a key twice
    gives no rows: scans read that shard themselves, and raise or skip as they are told. The same
    goes for the texts of a modality that do not make a column.

    Args:
        shard: Its tars.
        folders: Column -> folder, as the index calls it.
        key_split: See `split_name`.
        texts: Whether to read texts.
        to_be_kept: Whether what is read will be believed later, for which versions of the tars
            must be told apart.

    Raises:
        StorageError: A tar cannot be read, changed meanwhile, or lies on a server that does not
            tell versions apart.
    """
    states = {
        column: settled_state_of(path, shard.options.get(column, ENVIRONMENT))
        for column, path in shard.paths.items()
        if path is not None
    }
    for column, state in states.items():
        if to_be_kept and state is not None and not state.is_telling:
            raise StorageError(
                f"{shard.paths[column]}: the server gives neither a tag nor a time; expected an "
                "ETag, without which an index could not tell that a tar has changed; read this "
                "data set without an index"
            )
    with ExitStack() as stack:
        reading = _Reading(shard, folders, states, key_split, stack)
        rows = reading.run(texts=texts)
    if states_of(shard) != states:
        raise StorageError(
            f"{shard.url}: its tars were replaced while they were read; expected tars that stay as "
            "they are; build the index again"
        )
    return rows


def states_of(shard: Shard) -> dict[str, TarState | None]:
    """Return column -> version of its tar, of those that are there.

    Raises:
        StorageError: A tar may not be looked at.
    """
    return {
        column: state_of(path, shard.options.get(column, ENVIRONMENT))
        for column, path in shard.paths.items()
        if path is not None
    }


class _Reading:
    """One shard being read."""

    def __init__(
        self,
        shard: Shard,
        folders: Mapping[str, str],
        states: Mapping[str, TarState | None],
        key_split: KeySplit,
        stack: ExitStack,
    ) -> None:
        self._shard = shard
        self._folders = folders
        self._states = states
        self._key_split = key_split
        self._stack = stack
        self._files: dict[str, File] = {}
        self._unreadable = 0

    def run(self, *, texts: bool) -> ShardRows:
        twins: dict[str, Samples | None] = {}
        try:
            for column in self._folders:
                twins[column] = self._samples(column)
        except (TarFormatError, AlignmentError) as error:
            tars = {folder: self._tar(column, None) for column, folder in self._folders.items()}
            entry = ShardEntry(name=self._shard.name, tars=tars, fault=str(error))
            return ShardRows(entry=entry, columns={}, unreadable_pictures=0)
        folders = self._folders
        rows, in_step = rows_of({folders[column]: samples for column, samples in twins.items()})
        columns, stats = dict(rows), dict(iter_stats(rows[KEY], (KEY,)))
        tars = {}
        for column, samples in twins.items():
            made, text, fault = self._values(column, samples, texts=texts)
            for what, values in made.items():
                name = field_of(folders[column], what)
                columns[name] = spread(values, _places(rows, folders[column]))
                stats |= iter_stats(columns[name], (folders[column], what))
            tars[folders[column]] = self._tar(column, samples, text, fault)
        entry = ShardEntry(
            name=self._shard.name,
            tars=tars,
            num_rows=len(rows[KEY]),
            in_step=in_step,
            stats=stats,
        )
        return ShardRows(entry=entry, columns=columns, unreadable_pictures=self._unreadable)

    def _samples(self, column: str) -> Samples | None:
        if self._shard.paths[column] is None:
            return None
        file = self._files[column] = self._stack.enter_context(self._shard.open(column))
        return read_samples(file, key_split=self._key_split, strict=True)

    def _tar(
        self,
        column: str,
        samples: Samples | None,
        text: Mapping[str, Any] | None = None,
        text_fault: str | None = None,
    ) -> TarEntry | None:
        state = self._states.get(column)
        if state is None:
            return None
        if samples is None:
            return TarEntry(state=state)
        return TarEntry(
            state=state,
            count=len(samples.keys),
            suffixes=samples.suffixes,
            notes=samples.notes,
            text=text,
            text_fault=text_fault,
        )

    def _values(
        self, column: str, samples: Samples | None, *, texts: bool
    ) -> tuple[dict[str, pa.Array], Mapping[str, Any] | None, str | None]:
        """Return what the members of a tar hold, in archive order, with notes on it."""
        if samples is None or not samples.keys:
            return {}, None, None
        if {media_of(suffix) for suffix in samples.suffixes} == {"image"}:
            return self._pictures(column, samples), None, None
        kinds = {kind_of(suffix) for suffix in samples.suffixes}
        if not texts or kinds == {"file"}:
            return {}, None, None
        if len(kinds) > 1:
            return {}, None, f"{samples.path}: holds members of the kinds {sorted(kinds)}"
        try:
            values, text = self._texts(column, samples, kinds.pop())
        except SchemaError as error:
            return {}, None, str(error)
        return {TEXT: values}, text, None

    def _pictures(self, column: str, samples: Samples) -> dict[str, pa.Array]:
        file = self._files[column]
        infos = read_infos(file, samples.positions.tolist(), samples.sizes.tolist())
        self._unreadable += infos.widths.null_count
        return {WIDTH: infos.widths, HEIGHT: infos.heights, FORMAT: infos.formats}

    def _texts(
        self, column: str, samples: Samples, kind: Kind
    ) -> tuple[pa.Array, Mapping[str, Any]]:
        places = range(len(samples.keys))
        documents = read_texts(self._files[column], samples, places, column=column)
        notes = TextNotes(column, kind)
        if kind == "json":
            _note(notes, documents, samples)
        parsed = parse_texts(
            documents,
            parsed_column(column, kind, notes.type()),
            where=lambda place: _where(samples, place),
            extra_fields="error",
            on_error="raise",
        )
        return parsed.values, notes.to_plain()


def _note(notes: TextNotes, documents: Sequence[bytes], samples: Samples) -> None:
    for place, document in enumerate(documents):
        try:
            value = load_json(document)
        except SchemaError as error:
            raise SchemaError(f"{_where(samples, place)}: {error}") from error
        notes.add(value, where=_where(samples, place))


def _where(samples: Samples, place: int) -> str:
    return f"{samples.path}: {samples.names[place]!r} at byte {samples.positions[place]}"


def _places(rows: Mapping[str, pa.Array], folder: str) -> NDArray[np.int64]:
    places = rows[field_of(folder, PLACE)].fill_null(-1)
    numbers: NDArray[np.int64] = places.cast(pa.int64()).to_numpy()
    return numbers
