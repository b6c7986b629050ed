"""A prefix of a bucket that a data set is written into."""

import logging
from collections.abc import Callable, Iterable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from functools import partial
from typing import Any, Final, TypeVar

import obstore

from daft_twinwds.shards.clients import object_store
from daft_twinwds.shards.fetch import retried
from daft_twinwds.shards.manifest import MANIFEST_NAME
from daft_twinwds.shards.new_object import copy_object, new_object, put_object, version_of
from daft_twinwds.shards.options import StorageOptions
from daft_twinwds.shards.tar_write import Writable
from daft_twinwds.shards.urls import Url, join
from daft_twinwds.shards.write_folder import LOCK

__all__ = ["RemoteFolder"]

logger = logging.getLogger(__name__)

_Result = TypeVar("_Result")

LEFT_AFTER: Final = timedelta(hours=24)
"""Time without a new object after which a staging folder is nobody's: stores have no locks."""
_PAGE: Final = 1000
_SIDE_BY_SIDE: Final = 16
"""Copies that a store makes at a time."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RemoteFolder:
    """A prefix in an object store.

    Nothing keeps two writers out, so that names hold a token of the writer, and of two that
    replace the same manifest the second one fails.
    """

    path: str
    options: StorageOptions = field(repr=False)

    @property
    def keeps_others_out(self) -> bool:
        """False: stores have no locks."""
        return False

    def children(self) -> list[str]:
        """See `WriteFolder.children`."""
        store, prefix = self._store("")

        def ask() -> list[str]:
            found = obstore.list_with_delimiter(store, prefix or None)
            paths = [*found["common_prefixes"], *(meta["path"] for meta in found["objects"])]
            return sorted({str(path).rstrip("/").rpartition("/")[2] for path in paths})

        return self._run("listing", ask)

    def exists(self, name: str) -> bool:
        """See `WriteFolder.exists`."""
        return version_of(self._url(name), self.options) is not None

    def create(self, name: str) -> AbstractContextManager[Writable]:
        """See `WriteFolder.create` and `new_object`."""
        return new_object(self._url(name), self.options)

    def require_free(self, names: Iterable[str]) -> None:
        """Do nothing: a name with a writer's token is nobody else's."""

    def move(self, names: Mapping[str, str]) -> None:
        """See `WriteFolder.move`; the originals go with their staging folder."""
        # Threads of their own: those for requests may be needed by the copies themselves.
        with ThreadPoolExecutor(_SIDE_BY_SIDE, thread_name_prefix="daft-twinwds-copy") as pool:
            copies = [
                pool.submit(copy_object, self._url(old), self._url(new), self.options)
                for old, new in names.items()
            ]
            try:
                for copy in copies:
                    copy.result()
            finally:
                # None may still be under way when the others are taken back.
                pool.shutdown(cancel_futures=True)

    def remove(self, names: Iterable[str]) -> None:
        """See `WriteFolder.remove`."""
        listed = list(names)
        store, _ = self._store("")
        for start in range(0, len(listed), _PAGE):
            paths = [self._store(name)[1] for name in listed[start : start + _PAGE]]
            self._run("removing objects", partial(_delete, store, paths))

    def version(self) -> str | None:
        """See `WriteFolder.version`."""
        return version_of(self._url(MANIFEST_NAME), self.options)

    def write_manifest(self, content: bytes, replaces: str | None) -> None:
        """See `WriteFolder.write_manifest`."""
        put_object(self._url(MANIFEST_NAME), content, self.options, replaces=replaces)

    @contextmanager
    def hold(self, staging: str) -> Iterator[None]:
        """See `WriteFolder.hold`."""
        put_object(self._url(f"{staging}/{LOCK}"), b"", self.options, replaces=None)
        yield

    def is_left(self, staging: str) -> bool:
        """See `WriteFolder.is_left`."""
        newest = max((at for _, at in self._below(staging)), default=None)
        if newest is None or datetime.now(UTC) - newest > LEFT_AFTER:
            return True
        logger.info("%s/%s: left alone, as it may still be written to", self.path, staging)
        return False

    def drop(self, staging: str) -> None:
        """See `WriteFolder.drop`."""
        self.remove([f"{staging}/{LOCK}"])
        start = len(self._store("")[1]) + 1 if self._store("")[1] else 0
        self.remove([path[start:] for path, _ in self._below(staging)])

    def _below(self, name: str) -> list[tuple[str, datetime]]:
        store, prefix = self._store(name)
        return self._run(
            f"listing {name}",
            lambda: [
                (meta["path"], meta["last_modified"])
                for page in obstore.list(store, prefix, chunk_size=_PAGE)
                for meta in page
            ],
        )

    def _run(self, what: str, action: Callable[[], _Result]) -> _Result:
        url = Url.parse(self.path)
        return retried(action, where=f"{url}: {what}", url=url, options=self.options)

    def _url(self, name: str) -> str:
        return join(self.path, name)

    def _store(self, name: str) -> tuple[Any, str]:
        return object_store(Url.parse(self._url(name)), self.options)


def _delete(store: Any, paths: list[str]) -> None:
    try:
        obstore.delete(store, paths)
    except FileNotFoundError:
        # One was gone; stores that delete one by one stop there.
        for path in paths:
            try:
                obstore.delete(store, path)
            except FileNotFoundError:
                continue
