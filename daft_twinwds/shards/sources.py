"""One remote object, asked for by range: through obstore or through fsspec."""

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any, Protocol

import obstore
from fsspec.asyn import AsyncFileSystem
from fsspec.spec import AbstractFileSystem
from obstore.exceptions import NotSupportedError
from obstore.store import ObjectStore

from daft_twinwds.errors import StorageError
from daft_twinwds.shards.clients import OBJECT_SCHEMES, file_system, object_store
from daft_twinwds.shards.options import StorageOptions
from daft_twinwds.shards.urls import Url

__all__ = ["MAX_WHOLE", "Answer", "Source", "source_of", "strong_tag"]

MAX_WHOLE = 1 << 23
"""Largest file that is read whole from a server that cannot send a range of it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Answer:
    """What a server sends for a range; its bytes may still be under way."""

    start: int
    """First byte that comes: the one asked for, or 0 where the server sends everything."""
    stop: int
    """Behind the last byte that should come."""
    size: int
    """Bytes of the whole object."""
    tag: str | None
    """Changes with the object's content, where the server tells."""
    chunks: Iterable[bytes]
    """The bytes, in pieces as they come."""
    requests: int = 1
    """Requests that it took."""


class Source(Protocol):
    """One object. Safe to use from several threads."""

    def get(self, start: int, stop: int) -> Answer:
        """Ask for bytes; fewer come where the object ends. It may raise anything.

        Raises:
            StorageError: The server cannot send a range, and the object is too large to do without.
        """


def source_of(url: Url, options: StorageOptions) -> Source:
    """Return how to ask for an object; nothing is sent yet.

    Raises:
        MissingDependencyError: The scheme's package is not installed.
        StorageError: The scheme is not known, or the process must not read from servers.
    """
    if url.scheme in OBJECT_SCHEMES:
        store, name = object_store(url, options)
        return _Object(store=store, name=name, url=url)
    system, path = file_system(url, options)
    return _File(system, path)


def strong_tag(tag: str | None) -> str | None:
    """Return a server's tag if it surely changes with the content, else ``None``."""
    # Weak tags may differ between the servers of one host.
    return None if tag is None or tag.startswith("W/") else tag


@dataclass(frozen=True, slots=True, kw_only=True)
class _Object:
    store: ObjectStore
    name: str
    url: Url

    def get(self, start: int, stop: int) -> Answer:
        requests = 1
        try:
            result = obstore.get(self.store, self.name, options={"range": (start, stop)})
        except NotSupportedError:
            requests, result = 2, self._get_whole()
        start, stop = result.range
        return Answer(
            start=start,
            stop=stop,
            size=result.meta["size"],
            tag=strong_tag(result.meta["e_tag"]),
            # As small as they come: only between two pieces can a slow answer be given up.
            chunks=result.stream(min_chunk_size=1),
            requests=requests,
        )

    def _get_whole(self) -> "obstore.GetResult":
        result = obstore.get(self.store, self.name)
        size = result.meta["size"]
        if size > MAX_WHOLE:
            raise StorageError(
                f"{self.url}: the server sends all {size} bytes where a range was asked for; "
                "expected one that understands the Range header (answer 206); put the dataset on "
                "another server, or copy it"
            )
        return result


class _File:
    def __init__(self, system: AbstractFileSystem, path: str) -> None:
        self._system = system
        self._path = path
        self._info: dict[str, Any] | None = None

    def get(self, start: int, stop: int) -> Answer:
        size = self._size()
        stop = min(stop, size)
        data = self._read(start, stop) if start < stop else b""
        return Answer(start=start, stop=stop, size=size, tag=None, chunks=[data])

    def _size(self) -> int:
        if self._info is None:
            self._info = self._system.info(self._path)
        return int(self._info["size"])

    def _read(self, start: int, stop: int) -> bytes:
        own = type(self._system).cat_file is not AbstractFileSystem.cat_file
        if own or isinstance(self._system, AsyncFileSystem):
            return bytes(self._system.cat_file(self._path, start=start, end=stop))
        # The default cache would read megabytes ahead of every header.
        size = self._size()
        with self._system.open(self._path, "rb", cache_type="none", size=size) as file:
            file.seek(start)
            return bytes(file.read(stop - start))
