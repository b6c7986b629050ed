"""A column of files -> their bytes, a piece at a time and never decoded.

They are read by this package's own storage, as everything else is: what is short is an error there,
what fails on the way is asked for again, and messages hold no secrets.
"""

import os
from collections.abc import Iterator, Mapping
from functools import lru_cache
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import daft
import pyarrow as pa
from daft.series import Series

from daft_twinwds.errors import LayoutError, SchemaError
from daft_twinwds.pictures.image_format import looks_like
from daft_twinwds.query._daft import file_storage, io_config_of
from daft_twinwds.query.io_options import storage_options
from daft_twinwds.query.sink_columns import SUFFIX, OutColumn
from daft_twinwds.query.sink_encode import Payload
from daft_twinwds.query.sink_suffix import BYTES, HEAD, suffix_of_bytes
from daft_twinwds.shards.options import StorageOptions, options_of
from daft_twinwds.shards.samples import split_name
from daft_twinwds.shards.storage import File, open_file, shown
from daft_twinwds.shards.tar import read_members
from daft_twinwds.shards.trees import is_tar
from daft_twinwds.shards.urls import Url, is_url, local_path

if TYPE_CHECKING:
    from concurrent.futures import Future

__all__ = ["PIECE", "FilePayloads", "is_below"]

PIECE: Final = 1 << 20
"""Bytes of a file that are in memory at a time."""
AHEAD: Final = 8
"""Files of a server whose first pieces are asked for at a time, as each answer takes its time."""
_AT_ONCE: Final = 1024
_SAME_SCHEME: Final = {"s3a": "s3", "s3n": "s3", "gcs": "gs"}


class FilePayloads:
    """A column of files or byte ranges.

    Args:
        column: How it is written.
        values: The rows.
        options: How files are accessed that come without an ``io_config`` of their own.
        forbidden: Folder from which nothing may be read, as it is to be replaced.
    """

    def __init__(
        self,
        column: OutColumn,
        values: Series,
        *,
        options: StorageOptions | Mapping[str, StorageOptions],
        forbidden: str | None,
    ) -> None:
        self._column = column
        # The struct behind a File column: url, io_config, position, size.
        self._storage = file_storage(pa.chunked_array([values.to_arrow()]))
        self._is_plain = values.datatype() == daft.DataType.file()
        self._options = options_of(options, column.name)
        self._forbidden = forbidden
        self._start = 0
        self._chunk: list[dict[str, Any] | None] = []
        self._open: tuple[tuple[str, bytes | None], File] | None = None
        self._ahead: dict[int, Future[tuple[File, tuple[int, bytes]]]] = {}
        self._names: tuple[str, dict[tuple[int, int], str]] = ("", {})

    def payload(self, row: int) -> Payload | None:
        """See `Payloads.payload`."""
        ref = self._ref(row)
        if ref is None:
            return None
        if is_url(ref["url"]):
            size, first = self._begun_ahead(row, ref)
        else:
            size, first = _begin(self._file(ref), ref)
        return Payload(
            suffix=self._suffix(ref, first),
            size=size,
            pieces=(first,) if len(first) == size else self._pieces(ref, size, first),
        )

    def close(self) -> None:
        """Close the file that was read last, and ask for no more."""
        for begun in self._ahead.values():
            begun.cancel()
        self._ahead.clear()
        self._close_open()

    def _ref(self, row: int) -> dict[str, Any] | None:
        if not self._start <= row < self._start + len(self._chunk):
            self._start = row
            self._chunk = self._storage.slice(row, _AT_ONCE).to_pylist()
        ref = self._chunk[row - self._start]
        return None if ref is None or ref["url"] is None else ref

    def _begun_ahead(self, row: int, ref: Mapping[str, Any]) -> tuple[int, bytes]:
        """Return a row's size and first piece; servers are asked for the next rows meanwhile."""
        # Importing the clients takes some hundred milliseconds, which local data need not pay.
        from daft_twinwds.shards.clients import request_pool

        for later in range(row, min(row + AHEAD, self._start + len(self._chunk))):
            coming = self._ref(later)
            if coming is not None and is_url(coming["url"]) and later not in self._ahead:
                options = self._options_of(coming)
                self._ahead[later] = request_pool(options).submit(_begin_alone, coming, options)
        file, begun = self._ahead.pop(row).result()
        # What follows must be of the same version, which only this one knows.
        self._close_open()
        self._open = _place_of(ref), file
        return begun

    def _pieces(self, ref: Mapping[str, Any], size: int, first: bytes) -> Iterator[bytes]:
        yield first
        file, position = self._file(ref), ref["position"] or 0
        for start in range(len(first), size, PIECE):
            yield file.read(position + start, min(PIECE, size - start))

    def _file(self, ref: Mapping[str, Any]) -> File:
        wanted = _place_of(ref)
        if self._open is None or self._open[0] != wanted:
            self._close_open()
            self._open = wanted, open_file(ref["url"], self._options_of(ref))
        return self._open[1]

    def _close_open(self) -> None:
        if self._open is not None:
            self._open[1].close()
            self._open = None

    def _options_of(self, ref: Mapping[str, Any]) -> StorageOptions:
        """Return how a file is accessed, unless it must not be."""
        if self._forbidden is not None and is_below(ref["url"], self._forbidden):
            raise LayoutError(
                f"{shown(ref['url'])}: lies in {self._forbidden}, which is to be overwritten; "
                "expected data from elsewhere; write to another folder"
            )
        # Daft's functions leave no bytes where its objects leave null.
        return _own_options(ref["io_config"]) if ref["io_config"] else self._options

    def _suffix(self, ref: Mapping[str, Any], first: bytes) -> str:
        if self._column.suffix is not None:
            return self._column.suffix
        if ref["position"] is None and ref["size"] is None:
            suffix = _suffix_of_name(_path_of(ref["url"]))
            if suffix is not None:
                return suffix
        suffix = suffix_of_bytes(first[:HEAD]) or self._suffix_in_tar(ref)
        if suffix is None:
            if self._is_plain:
                return BYTES
            raise SchemaError(
                f"{looks_like(first)} found, which tell no suffix; expected a picture, a sound, a "
                f"film or a file with a name; pass suffixes={{{self._column.name!r}: ...}}"
            )
        return suffix

    def _suffix_in_tar(self, ref: Mapping[str, Any]) -> str | None:
        """Return the suffix of the member that a range is, from the headers of its tar."""
        if not is_tar(_path_of(ref["url"])):
            return None
        if self._names[0] != ref["url"]:
            file = self._file(ref)
            members = read_members(file.data(), path=file.path, strict=False)
            places = zip(members.positions.tolist(), members.sizes.tolist(), strict=True)
            self._names = ref["url"], dict(zip(places, members.names, strict=True))
        name = self._names[1].get((ref["position"], ref["size"]))
        return None if name is None else _suffix_of_name(name)


@lru_cache(maxsize=64)
def _own_options(io_config: bytes) -> StorageOptions:
    options = storage_options(io_config_of(io_config))
    assert isinstance(options, StorageOptions)
    return options


def _place_of(ref: Mapping[str, Any]) -> tuple[str, bytes | None]:
    return ref["url"], ref["io_config"]


def _begin(file: File, ref: Mapping[str, Any]) -> tuple[int, bytes]:
    position = ref["position"] or 0
    size = len(file) - position if ref["size"] is None else ref["size"]
    return size, file.read(position, min(size, PIECE)) if size else b""


def _begin_alone(ref: Mapping[str, Any], options: StorageOptions) -> tuple[File, tuple[int, bytes]]:
    # A server's file holds nothing that must be closed if nobody asks for it.
    file = open_file(ref["url"], options)
    return file, _begin(file, ref)


def _path_of(url: str) -> str:
    return Url.parse(url).path if is_url(url) else url


def _suffix_of_name(path: str) -> str | None:
    suffix = split_name(path.rpartition("/")[2], "last")[1]
    return suffix if SUFFIX.fullmatch(suffix) else None


def is_below(path: str, folder: str) -> bool:
    """Return whether a file lies in a folder, both local paths or URLs; links are followed."""
    if is_url(path) != is_url(folder):
        return False
    if is_url(path):
        return _plain(path).startswith(f"{_plain(folder)}/")
    return Path(os.path.realpath(local_path(path))).is_relative_to(os.path.realpath(folder))


def _plain(url: str) -> str:
    parsed = Url.parse(url)
    scheme = _SAME_SCHEME.get(parsed.scheme, parsed.scheme)
    return f"{scheme}://{parsed.authority}/{parsed.path}".rstrip("/")
