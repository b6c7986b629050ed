"""One process at a time: a lock on a file, which the system drops when its holder dies."""

import fcntl
import os
import socket
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from daft_twinwds.errors import LayoutError

__all__ = ["file_lock"]


@contextmanager
def file_lock(path: Path, *, where: str, doing: str, cure: str) -> Iterator[None]:
    """Hold a file's lock; the file is made if it is not there, and may be removed meanwhile.

    Args:
        path: The file, in a folder that is there.
        where: What is held, for the message.
        doing: What its holder is doing, ``is packing into this folder``.
        cure: What to do about it.

    Raises:
        LayoutError: Another process holds it.
        OSError: The file cannot be made or locked.
    """
    descriptor = _opened(path, where=where, doing=doing, cure=cure)
    try:
        yield
    finally:
        os.close(descriptor)


def _opened(path: Path, *, where: str, doing: str, cure: str) -> int:
    while True:
        descriptor = os.open(path, os.O_RDWR | os.O_CREAT, 0o644)
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
            # Whoever held it may have taken the file away: that would be a lock on nothing.
            if _is_at(descriptor, path):
                os.ftruncate(descriptor, 0)
                os.write(descriptor, f"process {os.getpid()} on {socket.gethostname()}".encode())
                return descriptor
        except BlockingIOError as error:
            holder = os.read(descriptor, 200).decode(errors="replace") or "another process"
            os.close(descriptor)
            raise LayoutError(
                f"{where}: {holder} {doing}; expected one at a time; {cure}"
            ) from error
        except BaseException:
            os.close(descriptor)
            raise
        os.close(descriptor)


def _is_at(descriptor: int, path: Path) -> bool:
    try:
        return os.path.samestat(os.fstat(descriptor), path.stat())
    except FileNotFoundError:
        return False
