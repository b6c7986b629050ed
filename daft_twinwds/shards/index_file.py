"""Reads the index of a part folder, and trusts no byte of it that does not fit the rest.

Footers are kept by process until the file changes. Every page has a checksum, so that damage is
noticed where it matters: in what is read.
"""

from collections.abc import Sequence
from contextlib import closing
from dataclasses import dataclass
from functools import lru_cache
from threading import Lock
from typing import Final

import pyarrow as pa
import pyarrow.parquet as pq
from typing_extensions import override

from daft_twinwds.errors import StorageError
from daft_twinwds.shards.arrow_file import ArrowFile
from daft_twinwds.shards.closing import Closing
from daft_twinwds.shards.index_footer import read_footer, require_seal
from daft_twinwds.shards.index_format import (
    TEXT,
    WIDTH,
    PartSummary,
    ShardEntry,
    UnusableIndexError,
    field_of,
    require_version,
)
from daft_twinwds.shards.options import ENVIRONMENT, StorageOptions
from daft_twinwds.shards.tar_state import TarState, state_of
from daft_twinwds.shards.urls import is_url

__all__ = ["IndexFile", "open_index"]

_KEPT: Final = 64
"""Footers that a process keeps."""
_HELD: Final = 1 << 20
"""Bytes of a shard's rows that are read in one request, whatever columns are wanted."""
_DAMAGE: Final = (pa.ArrowException, OSError, ValueError, KeyError, TypeError, MemoryError)
"""What Arrow and our own parser raise for bytes that are no index."""


@dataclass(frozen=True, slots=True, kw_only=True)
class _Footer:
    """What a file's end says."""

    path: str
    metadata: pq.FileMetaData
    schema: pa.Schema
    summary: PartSummary


class IndexFile(Closing):
    """The index of a part folder; it is opened when rows are read. Not thread-safe."""

    def __init__(
        self, footer: _Footer, state: TarState, options: StorageOptions, *, is_remembered: bool
    ) -> None:
        self._footer = footer
        self._state = state
        self._options = options
        self._file: ArrowFile | None = None
        self._rows: pq.ParquetFile | None = None
        self.is_remembered = is_remembered
        """Whether another index may be there by now, as the server was not asked again."""

    @override
    def close(self) -> None:
        """Close the file; closing twice does nothing."""
        file, self._file, self._rows = self._file, None, None
        if file is not None:
            file.close()

    @property
    def path(self) -> str:
        """Where it is, for messages."""
        return self._footer.path

    @property
    def summary(self) -> PartSummary:
        """What is known of each shard."""
        return self._footer.summary

    def text_type(self, folder: str) -> pa.DataType | None:
        """Return the type that a modality's texts have in the rows, None if they are not there."""
        return self._type_of(field_of(folder, TEXT))

    def has_sizes(self, folder: str) -> bool:
        """Whether the rows tell the pictures' sizes of a modality."""
        return self._type_of(field_of(folder, WIDTH)) is not None

    def read(self, entry: ShardEntry, columns: Sequence[str]) -> dict[str, pa.Array]:
        """Return columns of a shard's rows.

        Args:
            entry: The shard; it has rows.
            columns: Names; those of a struct's fields are joined by dots, and fields that are not
                there are left out.

        Returns:
            Top-level columns that any of the names begins with; structs hold at least the fields
            that were asked for.

        Raises:
            UnusableIndexError: The file is damaged.
        """
        try:
            rows = self._open()
            self._hold(entry)
            table = rows.read_row_group(entry.group, columns=columns, use_threads=False)
            found = {
                name: column.chunk(0) if column.num_chunks == 1 else column.combine_chunks()
                for name, column in zip(table.column_names, table.columns, strict=True)
            }
            # A table without columns has no length.
            if found and table.num_rows != entry.num_rows:
                raise ValueError(f"{table.num_rows} rows, expected {entry.num_rows}")
        except (*_DAMAGE, StorageError) as error:
            _forget(self.path, self._options)
            raise _damaged(self.path, error) from error
        return found

    def read_all(self, entry: ShardEntry) -> dict[str, pa.Array]:
        """Return all columns of a shard's rows.

        Raises:
            UnusableIndexError: The file is damaged.
        """
        return self.read(entry, self._footer.schema.names)

    def _open(self) -> pq.ParquetFile:
        if self._rows is None:
            # Only if nothing has changed does the footer tell of this file. A server says so
            # with each answer.
            self._file = ArrowFile(self.path, self._options, self._state)
            if not is_url(self.path) and state_of(self.path, self._options) != self._state:
                raise ValueError("it was replaced a moment ago")
            self._rows = pq.ParquetFile(
                self._file.source,
                metadata=self._footer.metadata,
                # Fewer requests; from a disk it costs more than it saves.
                pre_buffer=is_url(self.path),
                page_checksum_verification=True,
            )
        return self._rows

    def _hold(self, entry: ShardEntry) -> None:
        """Read all of a shard's rows at once if that costs less than a second request."""
        if not is_url(self.path):
            return
        assert self._file is not None
        group = self._footer.metadata.row_group(entry.group)
        chunks = [group.column(number) for number in range(group.num_columns)]
        start = min(chunk.dictionary_page_offset or chunk.data_page_offset for chunk in chunks)
        stop = max(
            (chunk.dictionary_page_offset or chunk.data_page_offset) + chunk.total_compressed_size
            for chunk in chunks
        )
        if stop - start <= _HELD:
            self._file.hold(start, stop)

    def _type_of(self, name: str) -> pa.DataType | None:
        place = self._footer.schema.get_field_index(name)
        return None if place < 0 else self._footer.schema.field(place).type


def open_index(
    path: str, options: StorageOptions = ENVIRONMENT, *, may_remember: bool = False
) -> IndexFile:
    """Open the index of a part folder.

    Args:
        path: See `index_path`.
        options: How storage is accessed.
        may_remember: Whether a server need not be asked again for an index that this process has
            met: it may have been replaced since, which reading its rows notices.

    Raises:
        StorageError: It may not be read, which is not the same as its being absent.
        UnusableIndexError: It is not there, of another version, or damaged.
    """
    state = _met.get((path, options)) if may_remember else None
    is_remembered = state is not None
    if state is None:
        state = state_of(path, options)
    if state is None:
        raise UnusableIndexError("not in its index", f"{path}: is not there")
    # A state that may hide a change is no reason to keep anything.
    read = _kept_footer if state.is_telling else _read_footer
    footer = read(path, options, state)
    if is_url(path) and state.is_telling:
        _remember(path, options, state)
    return IndexFile(footer, state, options, is_remembered=is_remembered)


_met: dict[tuple[str, StorageOptions], TarState] = {}
"""Remote indexes that this process has opened, the latest last."""


_met_lock = Lock()
"""Held to change `_met`: the oldest cannot be looked for while another thread adds one."""


def _remember(path: str, options: StorageOptions, state: TarState) -> None:
    with _met_lock:
        _met.pop((path, options), None)
        _met[path, options] = state
        while len(_met) > _KEPT:
            del _met[next(iter(_met))]


def _forget(path: str, options: StorageOptions) -> None:
    with _met_lock:
        _met.pop((path, options), None)


def _read_footer(path: str, options: StorageOptions, state: TarState) -> _Footer:
    try:
        with closing(ArrowFile(path, options, state)) as file:
            metadata, footer = read_footer(file.source)
        pairs = metadata.metadata or {}
        require_version(pairs, path=path)
        require_seal(footer)
        return _Footer(
            path=path,
            metadata=metadata,
            schema=metadata.schema.to_arrow_schema(),
            summary=PartSummary.from_metadata(pairs),
        )
    except _DAMAGE as error:
        _forget(path, options)
        raise _damaged(path, error) from error


_kept_footer = lru_cache(maxsize=_KEPT)(_read_footer)


def _damaged(path: str, error: BaseException) -> UnusableIndexError:
    reason = " ".join(str(error).split())  # Arrow's may take several lines
    return UnusableIndexError("in an unreadable index", f"{path}: cannot be read ({reason})")
