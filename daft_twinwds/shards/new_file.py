"""Files that appear under their names only when they are whole and on the disk.

Readers leave hidden names out, so that the half of a killed writer is never taken for a shard.
"""

import os
import stat
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from typing import BinaryIO

from daft_twinwds.errors import StorageError

__all__ = ["new_file", "sync_folder"]

_BUFFER = 1 << 20
"""Bytes collected before a call to the disk; small members and their headers share one."""


@contextmanager
def new_file(path: str) -> Iterator[BinaryIO]:
    """Yield a file to write, which replaces ``path`` when the block ends without an error.

    The bytes go to a hidden name in the same folder, reach the disk, and are renamed. After an
    error nothing is left; after a kill only the hidden file is, which the next try overwrites.

    Args:
        path: Where the file is to be; missing folders are made. Of a link the target is replaced.

    Raises:
        StorageError: The disk is full or fails, the folder may not be written to, or a folder,
            device or pipe has the name.
        ValueError: The path names no file.
    """
    whole = _target(path)
    folder, name = os.path.split(whole)
    part = os.path.join(folder, f".{name}.tmp")
    try:
        try:
            with _opened(part) as file:
                yield file
                file.flush()
                os.fsync(file.fileno())
            os.replace(part, whole)
        except BaseException:
            with suppress(FileNotFoundError):
                os.unlink(part)
            raise
    except OSError as error:
        raise _unwritable(path, error) from error


def _target(path: str) -> str:
    """Return what is to be replaced: a file, or a name that is free."""
    whole = path.rstrip("/")
    if os.path.basename(whole) in ("", ".", ".."):
        raise ValueError(f"a path must end in the name of a file, got {path!r}")
    try:
        mode = os.lstat(whole).st_mode
        if stat.S_ISLNK(mode):
            whole = os.path.realpath(whole)
            mode = os.stat(whole).st_mode
    except (FileNotFoundError, NotADirectoryError):
        return whole
    except OSError as error:
        raise _unwritable(path, error) from error
    if not stat.S_ISREG(mode):
        raise StorageError(
            f"{path}: cannot be written, as it is no file but a folder, device or pipe; expected a "
            "file to replace, or a new name; choose another"
        )
    return whole


def _opened(path: str) -> BinaryIO:
    """Open a file to write; most folders are there already, so that is tried first."""
    try:
        return open(path, "wb", buffering=_BUFFER)
    except FileNotFoundError:
        os.makedirs(os.path.dirname(path), exist_ok=True)
        return open(path, "wb", buffering=_BUFFER)


def sync_folder(path: str) -> None:
    """Have the names in a folder reach the disk, so that renamed files survive a power cut.

    Raises:
        StorageError: The folder is not there, or the disk fails.
    """
    try:
        descriptor = os.open(path, os.O_RDONLY)
        try:
            os.fsync(descriptor)
        finally:
            os.close(descriptor)
    except OSError as error:
        raise _unwritable(path, error) from error


def _unwritable(path: str, error: OSError) -> StorageError:
    return StorageError(
        f"{path}: cannot be written ({error.strerror}); expected a writable folder with room; "
        "check the disk and the permissions"
    )
