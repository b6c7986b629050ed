"""Whose an output folder is: one packing's at a time, and only one packing's ever."""

from collections.abc import Iterator
from contextlib import AbstractContextManager, ExitStack, contextmanager, suppress
from pathlib import Path
from typing import Final

from daft_twinwds.errors import LayoutError, StorageError
from daft_twinwds.shards.enclosing import require_outside
from daft_twinwds.shards.file_lock import file_lock, new_folders
from daft_twinwds.shards.paths import require_text
from daft_twinwds.shards.unfinished import PLAN_NAME
from daft_twinwds.tools.pack_report import REPORT_NAME

__all__ = ["claimed", "require_apart", "require_unused"]

_LOCK_NAME: Final = ".pack.lock"
_PATIENCE: Final = 2.0
"""Seconds in which the workers of a packing that was killed finish a few small tars and end."""


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
        LayoutError: It holds a data set or other files, is a file, or lies in a data set; or its
            path is not UTF-8.
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
    require_text(str(output))
    require_outside(str(output))


@contextmanager
def claimed(output: Path) -> Iterator[int]:
    """Hold a folder for one packing; it is made, and goes again if nothing was put into it.

    Yields:
        The lock's descriptor, which worker processes hold as well.

    Raises:
        LayoutError: Another packing holds the folder.
        StorageError: The folder cannot be made or locked.
    """
    path = output / _LOCK_NAME
    with new_folders(output), ExitStack() as stack:
        try:
            lock = stack.enter_context(_locked(path, patience=_PATIENCE))
        except OSError as error:
            raise _unusable(output, error) from error
        try:
            yield lock
        finally:
            stack.close()
            # Workers that were not waited for, as two interrupts can bring about, hold it still.
            with suppress(LayoutError, FileNotFoundError), _locked(path, patience=0):
                path.unlink()


def _locked(path: Path, *, patience: float) -> AbstractContextManager[int]:
    return file_lock(
        path,
        where=str(path.parent),
        doing="or one of its workers is packing into this folder",
        cure="wait for it, or pack elsewhere",
        patience=patience,
    )


def _unusable(output: Path, error: OSError) -> StorageError:
    return StorageError(
        f"{output}: cannot be used ({error.strerror}); expected a folder that can be written to "
        "and locked; check its permissions and its file system"
    )
