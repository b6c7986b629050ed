"""Objects that appear in a bucket under their names only when they are whole.

The counterpart of `new_file` for ``s3://``, ``gs://`` and ``az://``: parts that have been sent
belong to no object until the last call, and are taken back after an error.
"""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, Final

import obstore
from obstore.exceptions import AlreadyExistsError, PreconditionError
from obstore.store import ObjectStore

from daft_twinwds.errors import LayoutError, TwinWebDatasetError
from daft_twinwds.shards.clients import AZURE, GCS, S3, object_store
from daft_twinwds.shards.failures import Failure, failure_of, to_error
from daft_twinwds.shards.fetch import retried
from daft_twinwds.shards.options import StorageOptions
from daft_twinwds.shards.storage import open_file
from daft_twinwds.shards.tar_write import Writable
from daft_twinwds.shards.urls import Url

__all__ = ["WRITABLE", "copy_object", "new_object", "put_object", "version_of"]

WRITABLE: Final = S3 | GCS | AZURE
"""Schemes of stores that objects can be written to."""

_BUFFER: Final = 1 << 20
"""Bytes collected before they are handed over; small members and their headers share one."""
_PART: Final = 1 << 23
"""Bytes of a part; S3 takes 10,000 of them."""
_PARTS_AT_ONCE: Final = 2
"""Parts of one object that are under way at a time, which is what they cost in memory."""
_LARGEST_COPY: Final = 5 * 2**30
"""Bytes that S3 copies in one request."""


@contextmanager
def new_object(url: str, options: StorageOptions) -> Iterator[Writable]:
    """Yield something to write to, which becomes the object when the block ends without an error.

    Memory is bounded by three parts of 8 MiB. After an error no object is there that was not
    there before; what a killed process had sent stays invisible and costs storage until the
    bucket's lifecycle rule for incomplete uploads removes it.

    Args:
        url: Of the object, in a store of a `WRITABLE` scheme.
        options: Credentials, endpoints and retries.

    Raises:
        StorageError: The store cannot be written to.
    """
    parsed = Url.parse(url)
    store, name = object_store(parsed, options, repeats=True)
    writer = obstore.open_writer(store, name, buffer_size=_PART, max_concurrency=_PARTS_AT_ONCE)
    upload = _Upload(writer, parsed, options)
    # Leaving the client's own block with an error takes the parts back.
    with _told(parsed, options, "writing"), writer:
        yield upload
        upload.flush()


class _Upload:
    """Collects small pieces, and turns the client's errors into ours."""

    def __init__(self, writer: Any, url: Url, options: StorageOptions) -> None:
        self._writer = writer
        self._url = url
        self._options = options
        self._waiting = bytearray()

    def write(self, data: bytes, /) -> int:
        """Take bytes."""
        self._waiting += data
        if len(self._waiting) >= _BUFFER:
            self.flush()
        return len(data)

    def flush(self) -> None:
        """Hand over what has been taken."""
        with _told(self._url, self._options, "writing"):
            self._writer.write(bytes(self._waiting))
        self._waiting.clear()


@contextmanager
def _told(url: Url, options: StorageOptions, what: str) -> Iterator[None]:
    failure: Failure | None = None
    try:
        yield
    except TwinWebDatasetError:
        raise
    except _CLIENT_ERRORS as error:
        failure = failure_of(error)
    if failure is not None:
        raise to_error(failure, where=f"{url}: {what}", url=url, options=options, tries=1)


_CLIENT_ERRORS: Final = (obstore.exceptions.BaseError, OSError)


def copy_object(source: str, url: str, options: StorageOptions) -> None:
    """Copy an object within its store, by the store itself where it is not too large for that.

    Raises:
        StorageError: It cannot be read or written.
    """
    here, there = Url.parse(source), Url.parse(url)
    store, name = object_store(here, options)
    where = f"{there}: copying {here}"

    def run(action: Any) -> Any:
        return retried(action, where=where, url=there, options=options)

    if run(lambda: obstore.head(store, name))["size"] > _LARGEST_COPY:
        _send_copy(source, url, options)
        return
    run(lambda: obstore.copy(store, name, there.path, overwrite=True))


def _send_copy(source: str, url: str, options: StorageOptions) -> None:
    with open_file(source, options) as file, new_object(url, options) as copy:
        for position in range(0, len(file), _PART):
            copy.write(file.read(position, min(_PART, len(file) - position)))


def version_of(url: str, options: StorageOptions) -> str | None:
    """Return the tag of an object as it is now, or None where there is none.

    Raises:
        StorageError: It may not be looked at.
    """
    parsed = Url.parse(url)
    store, name = object_store(parsed, options)

    def ask() -> str | None:
        try:
            return obstore.head(store, name)["e_tag"]
        except FileNotFoundError:
            return None

    return retried(ask, where=f"{parsed}: looking", url=parsed, options=options)


def put_object(url: str, data: bytes, options: StorageOptions, *, replaces: str | None) -> None:
    """Write a small object in place of the one of a version, or where none was.

    Args:
        url: Of the object.
        data: Its bytes.
        options: Credentials, endpoints and retries.
        replaces: What `version_of` returned.

    Raises:
        LayoutError: Another process has written it meanwhile.
        StorageError: The store cannot be written to.
    """
    parsed = Url.parse(url)
    store, name = object_store(parsed, options)

    def put() -> bool:
        try:
            mode: Any = "create" if replaces is None else {"e_tag": replaces}
            obstore.put(store, name, data, mode=mode)
        except (AlreadyExistsError, PreconditionError):
            # What a first try has written whose answer was lost.
            return _holds(store, name, data)
        return True

    if not retried(put, where=f"{parsed}: writing", url=parsed, options=options):
        raise LayoutError(
            f"{parsed}: was written by another process meanwhile; expected one writer at a time; "
            "write again when that one is done"
        )


def _holds(store: ObjectStore, name: str, data: bytes) -> bool:
    return bytes(obstore.get(store, name).bytes()) == data
