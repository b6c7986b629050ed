"""A column of files -> their bytes, a piece at a time and never decoded.

They are read by this package's own storage, as everything else is: what is short is an error there,
what fails on the way is asked for again, and messages hold no secrets.
"""

import os
from collections.abc import Iterator, Mapping
from functools import lru_cache
from pathlib import Path
from typing import Any, Final

from daft.series import Series

from daft_twinwds.errors import LayoutError, SchemaError
from daft_twinwds.pictures.image_format import looks_like
from daft_twinwds.query._daft import io_config_of
from daft_twinwds.query.io_options import storage_options
from daft_twinwds.query.sink_columns import SUFFIX, OutColumn
from daft_twinwds.query.sink_encode import Payload
from daft_twinwds.query.sink_suffix import HEAD, suffix_of_bytes
from daft_twinwds.shards.options import StorageOptions, options_of
from daft_twinwds.shards.samples import split_name
from daft_twinwds.shards.storage import File, open_file, shown
from daft_twinwds.shards.urls import Url, is_url, local_path, scheme_of

__all__ = ["PIECE", "FilePayloads", "is_below"]

PIECE: Final = 1 << 20
"""Bytes of a file that are in memory at a time."""
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
        self._storage: Any = getattr(values.to_arrow(), "storage", values.to_arrow())
        self._options = options_of(options, column.name)
        self._forbidden = forbidden
        self._start = 0
        self._chunk: list[dict[str, Any] | None] = []
        self._open: tuple[tuple[str, bytes | None], File] | None = None

    def payload(self, row: int) -> Payload | None:
        """See `Payloads.payload`."""
        if not self._start <= row < self._start + len(self._chunk):
            self._start = row
            self._chunk = self._storage.slice(row, _AT_ONCE).to_pylist()
        ref = self._chunk[row - self._start]
        if ref is None or ref["url"] is None:
            return None
        file = self._file(ref["url"], ref["io_config"])
        position = ref["position"] or 0
        size = len(file) - position if ref["size"] is None else ref["size"]
        first = file.read(position, min(size, PIECE)) if size else b""
        return Payload(
            suffix=self._suffix(ref, first),
            size=size,
            pieces=_pieces(file, position, size, first),
        )

    def close(self) -> None:
        """Close the file that was read last."""
        if self._open is not None:
            self._open[1].close()
            self._open = None

    def _file(self, url: str, io_config: bytes | None) -> File:
        wanted = (url, io_config)
        if self._open is None or self._open[0] != wanted:
            self.close()
            if self._forbidden is not None and is_below(url, self._forbidden):
                raise LayoutError(
                    f"{shown(url)}: lies in {self._forbidden}, which is to be overwritten; expected "
                    "data from elsewhere; write to another folder"
                )
            options = self._options if io_config is None else _own_options(io_config)
            self._open = wanted, open_file(url, options)
        return self._open[1]

    def _suffix(self, ref: Mapping[str, Any], first: bytes) -> str:
        if self._column.suffix is not None:
            return self._column.suffix
        if ref["position"] is None and ref["size"] is None:
            suffix = _suffix_of_name(ref["url"])
            if suffix is not None:
                return suffix
        suffix = suffix_of_bytes(first[:HEAD])
        if suffix is None:
            raise SchemaError(
                f"{looks_like(first)} found, which tell no suffix; expected a picture, a sound, a "
                f"film or a file with a name; pass suffixes={{{self._column.name!r}: ...}}"
            )
        return suffix


@lru_cache(maxsize=64)
def _own_options(io_config: bytes) -> StorageOptions:
    options = storage_options(io_config_of(io_config))
    assert isinstance(options, StorageOptions)
    return options


def _pieces(file: File, position: int, size: int, first: bytes) -> Iterator[bytes]:
    yield first
    for start in range(len(first), size, PIECE):
        yield file.read(position + start, min(PIECE, size - start))


def _suffix_of_name(url: str) -> str | None:
    path = Url.parse(url).path if is_url(url) else url
    suffix = split_name(path.rpartition("/")[2], "last")[1]
    return suffix if SUFFIX.fullmatch(suffix) else None


def is_below(path: str, folder: str) -> bool:
    """Return whether a file lies in a folder, both local paths or URLs; links are followed."""
    if is_url(path) != is_url(folder):
        return False
    if is_url(path):
        return _plain(path).startswith(f"{_plain(folder)}/")
    if scheme_of(path) == "file":
        path = local_path(path)
    return Path(os.path.realpath(path)).is_relative_to(os.path.realpath(folder))


def _plain(url: str) -> str:
    parsed = Url.parse(url)
    scheme = _SAME_SCHEME.get(parsed.scheme, parsed.scheme)
    return f"{scheme}://{parsed.authority}/{parsed.path}".rstrip("/")
