"""Whose an output folder is: one packing's at a time, and only one packing's ever."""

import fcntl
import os
import socket
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Final

from daft_twinwds.errors import LayoutError, StorageError
from daft_twinwds.tools.pack_plan import PLAN_NAME
from daft_twinwds.tools.pack_report import REPORT_NAME

__all__ = ["claimed", "require_apart", "require_unused"]

_LOCK_NAME: Final = ".pack.lock"


def require_apart(source: Path, output: Path) -> None:
    """Refuse to pack a folder into itself.

    Raises:
        LayoutError: The output lies in the input.
    """
    if output.is_relative_to(source):
        raise LayoutError(
            f"{output}: lies in the input folder {source}; expected an output folder of its own, "
            "or the next packing would take it for a modality"
        )


def require_unused(output: Path, *, resume: bool) -> None:
    """Refuse a folder that holds something already, which readers would mix with what is packed.

    Hidden files do not count, nor does the report of a packing that was killed before it had made
    its plan.

    Raises:
        LayoutError: It holds a data set or other files, or is a file.
        StorageError: It cannot be listed.
    """
    try:
        names = sorted(entry.name for entry in output.iterdir()) if output.exists() else []
    except NotADirectoryError as error:
        raise LayoutError(f"{output}: a file; expected a folder, or nothing") from error
    except OSError as error:
        raise _unusable(output, error) from error
    if PLAN_NAME in names:
        if not resume:
            raise LayoutError(
                f"{output}: a packing was begun here, or is done; expected a new or empty folder; "
                "pass resume=True (--resume) to finish it, or pack elsewhere"
            )
        return
    visible = [name for name in names if not name.startswith(".") and name != REPORT_NAME]
    if visible:
        more = f" and {len(visible) - 5} more" if len(visible) > 5 else ""
        raise LayoutError(
            f"{output}: {', '.join(visible[:5])}{more} were found; expected a new or empty folder"
            + (f", or one with a {PLAN_NAME} to resume" if resume else "")
            + "; pack elsewhere"
        )


@contextmanager
def claimed(output: Path) -> Iterator[None]:
    """Hold a folder for one packing; it is made, and goes again if nothing was put into it.

    The system drops the lock of a process that dies, however it dies.

    Raises:
        LayoutError: Another packing holds the folder.
        StorageError: The folder cannot be made or locked.
    """
    made = _make(output)
    try:
        descriptor = _lock(output)
        try:
            yield
        finally:
            (output / _LOCK_NAME).unlink()
            os.close(descriptor)
    finally:
        _remove_if_empty(made)


def _make(output: Path) -> list[Path]:
    """Make a folder and those above it; return the new ones, the deepest first."""
    missing = [folder for folder in (output, *output.parents) if not folder.exists()]
    try:
        output.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise _unusable(output, error) from error
    return missing


def _remove_if_empty(folders: list[Path]) -> None:
    for folder in folders:
        if any(folder.iterdir()):
            return
        folder.rmdir()


def _lock(output: Path) -> int:
    path = output / _LOCK_NAME
    try:
        while True:
            descriptor = os.open(path, os.O_RDWR | os.O_CREAT, 0o644)
            _take(descriptor, output)
            if _is_at(descriptor, path):
                break
            # Its holder took the file away before it let go: this was a lock on nothing.
            os.close(descriptor)
        os.ftruncate(descriptor, 0)
        os.write(descriptor, f"process {os.getpid()} on {socket.gethostname()}".encode())
    except OSError as error:
        raise _unusable(output, error) from error
    return descriptor


def _take(descriptor: int, output: Path) -> None:
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError as error:
        holder = os.read(descriptor, 200).decode(errors="replace") or "another process"
        os.close(descriptor)
        raise LayoutError(
            f"{output}: {holder} is packing into this folder; expected one packing at a time; "
            "wait for it, or pack elsewhere"
        ) from error
    except OSError:
        os.close(descriptor)
        raise


def _is_at(descriptor: int, path: Path) -> bool:
    try:
        return os.path.samestat(os.fstat(descriptor), path.stat())
    except FileNotFoundError:
        return False


def _unusable(output: Path, error: OSError) -> StorageError:
    return StorageError(
        f"{output}: cannot be used ({error.strerror}); expected a folder that can be written to "
        "and locked; check its permissions and its file system"
    )
