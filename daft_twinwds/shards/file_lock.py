"""One process at a time: a lock on a file, which the system drops when its holder dies."""

import fcntl
import os
import socket
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Final

from daft_twinwds.errors import LayoutError

__all__ = ["file_lock", "new_folders"]

_PAUSE: Final = 0.02
_TRIES: Final = 20
"""How often a folder is made that others take away."""
_LAST_STANDARD: Final = 2
"""Descriptor of the standard error."""


@contextmanager
def file_lock(
    path: Path, *, where: str, doing: str, cure: str, patience: float = 0.0
) -> Iterator[int]:
    """Hold a file's lock; its holders may remove the file at the end, and the folder with it.

    Args:
        path: The file, which is made if it is not there, as are the folders above it.
        where: What is held, for the message.
        doing: What its holder is doing, ``is packing into this folder``.
        cure: What to do about it.
        patience: Seconds to wait for its holder.

    Yields:
        The descriptor. A child process that inherits it holds the lock, too.

    Raises:
        LayoutError: Another process holds it.
        OSError: The file or its folder cannot be made, or the file not be locked.
    """
    give_up = time.monotonic() + patience
    while (descriptor := _held(path)) is None:
        if time.monotonic() > give_up:
            raise LayoutError(f"{where}: {_holder(path)} {doing}; expected one at a time; {cure}")
        time.sleep(_PAUSE)
    try:
        yield descriptor
    finally:
        os.close(descriptor)


@contextmanager
def new_folders(folder: Path) -> Iterator[None]:
    """Remove a folder and those above it at the end that were not there before and are empty."""
    new = [above for above in (folder, *folder.parents) if not above.exists()]
    try:
        yield
    finally:
        with suppress(OSError):  # those that hold something stay
            for above in new:
                above.rmdir()


def _held(path: Path) -> int | None:
    """Return a descriptor that holds the lock, or None while another process does."""
    while True:
        descriptor = _opened(path)
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
            # Whoever held it may have taken the file away: that would be a lock on nothing.
            if _is_at(descriptor, path):
                os.ftruncate(descriptor, 0)
                os.write(descriptor, f"process {os.getpid()} on {socket.gethostname()}".encode())
                return descriptor
        except BlockingIOError:
            os.close(descriptor)
            return None
        except BaseException:
            os.close(descriptor)
            raise
        os.close(descriptor)


def _opened(path: Path) -> int:
    """Return a descriptor that is none of the three that a child has for its own use."""
    descriptor = _made(path)
    if descriptor > _LAST_STANDARD:
        return descriptor
    try:
        return fcntl.fcntl(descriptor, fcntl.F_DUPFD_CLOEXEC, _LAST_STANDARD + 1)
    finally:
        os.close(descriptor)


def _made(path: Path) -> int:
    """Open the file, in a folder that whoever held it may be taking away meanwhile."""
    for tries_left in reversed(range(_TRIES)):
        try:
            return os.open(path, os.O_RDWR | os.O_CREAT, 0o644)
        except FileNotFoundError:
            if not tries_left:
                raise
            # The folder, or one above it, can go while `mkdir` looks at it: opening tells.
            with suppress(FileExistsError, FileNotFoundError):
                path.parent.mkdir(parents=True, exist_ok=True)
    raise AssertionError("the last try returns or raises")


def _holder(path: Path) -> str:
    with suppress(FileNotFoundError), path.open("rb") as file:
        return file.read(200).decode(errors="replace") or "another process"
    return "another process"


def _is_at(descriptor: int, path: Path) -> bool:
    try:
        return os.path.samestat(os.fstat(descriptor), path.stat())
    except FileNotFoundError:
        return False
