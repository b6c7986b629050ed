"""Bytes of files, wherever they are: size, a range, many ranges.

Local files are read by ``pread``; ``s3://``, ``gs://``, ``az://`` and HTTP through obstore; all
else through fsspec. All of it is safe from any thread and inside Daft's source tasks, where Daft's
own IO would wait for itself for ever.
"""

from collections.abc import Sequence
from types import TracebackType
from typing import Protocol, Self

from daft_twinwds.errors import StorageError
from daft_twinwds.shards.local import LocalFile
from daft_twinwds.shards.options import ENVIRONMENT, StorageOptions
from daft_twinwds.shards.stats import StorageStats, storage_stats
from daft_twinwds.shards.tar_walk import Bytes
from daft_twinwds.shards.urls import is_url, local_path, shown

__all__ = [
    "ENVIRONMENT",
    "File",
    "LocalFile",
    "MissingObjectError",
    "StorageOptions",
    "StorageStats",
    "open_file",
    "read_range",
    "shown",
    "storage_stats",
]


class MissingObjectError(StorageError):
    """A server says that it has nothing of that name."""


class File(Bytes, Protocol):
    """A file being read, by one thread at a time."""

    path: str
    """Where it is, for messages: holds no secret."""

    def __enter__(self) -> Self: ...
    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
        /,
    ) -> None: ...

    def close(self) -> None:
        """Release what the file holds; closing twice does nothing."""

    def data(self) -> Bytes:
        """Return what is to be sliced for headers: the file itself, or all of its bytes.

        Raises:
            StorageError: As `read`.
        """

    def read(self, position: int, size: int) -> bytes:
        """Return exactly ``size`` bytes from ``position``.

        Raises:
            StorageError: The range ends behind the end of the file, or cannot be read.
        """

    def read_many(self, positions: Sequence[int], sizes: Sequence[int]) -> list[bytes]:
        """Return many ranges in the order asked for; neighbours are read at once.

        Raises:
            StorageError: As `read`.
        """


def open_file(
    path: str,
    options: StorageOptions = ENVIRONMENT,
    *,
    version: tuple[int, str | None] | None = None,
) -> File:
    """Open a local path or URL.

    Of a remote file nothing is asked yet, so that a missing one is found by the first read.

    Args:
        path: An absolute local path, ``file://`` or any other URL. HTTP URLs are percent-encoded
            and may have a query, all others are literal.
        options: Credentials, endpoints, timeouts and retries.
        version: Size and tag that a remote file must have, where they are known; reading another
            version is an error.

    Raises:
        MissingDependencyError: The scheme's package is not installed.
        StorageError: A local file is not there, a scheme is not known, or this process was
            forked from one that had read from servers.
    """
    if is_url(path):
        # Importing the clients takes some hundred milliseconds, which local data need not pay.
        from daft_twinwds.shards.remote import RemoteFile

        return RemoteFile(path, options, version=version)
    return LocalFile(local_path(path))


def read_range(
    path: str, position: int, size: int | None = None, options: StorageOptions = ENVIRONMENT
) -> bytes:
    """Return exactly ``size`` bytes of a file, from ``position`` on; to its end if ``None``.

    Raises:
        StorageError: The file cannot be opened, or the range is not all there.
    """
    with open_file(path, options) as file:
        return file.read(position, len(file) - position if size is None else size)
