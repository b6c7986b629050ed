"""The folder that an index is put into: one build at a time, and nothing left of gone shards."""

import os
import tempfile
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path

from daft_twinwds.errors import StorageError
from daft_twinwds.shards.file_lock import file_lock
from daft_twinwds.shards.index_format import INDEX_FOLDER
from daft_twinwds.shards.urls import is_url, local_path

__all__ = ["absolute", "index_folder", "remove_others"]

_STAGE = ".stage"
_LOCK = ".lock"


def absolute(path: str | os.PathLike[str]) -> str:
    """Return a path or URL that means the same in every folder."""
    text = os.fspath(path)
    if is_url(text):
        return text
    return str(Path(local_path(text)).absolute())


@contextmanager
def index_folder(root: str) -> Iterator[tuple[Path | None, Path]]:
    """Yield the index's folder, held for one build, and a folder to put shards aside in.

    Object stores have no folders to hold: there the same index is written twice at worst.

    Raises:
        LayoutError: Another build holds the folder.
        StorageError: It cannot be made.
    """
    if is_url(root):
        with tempfile.TemporaryDirectory() as temporary:
            yield None, Path(temporary)
        return
    folder = Path(local_path(root)) / INDEX_FOLDER
    stage = folder / _STAGE
    with ExitStack() as stack:
        try:
            stack.enter_context(
                file_lock(
                    folder / _LOCK,
                    where=root,
                    doing="is indexing this data set",
                    cure="wait for it",
                )
            )
            # Not before: a build that ends removes it.
            stage.mkdir(exist_ok=True)
        except OSError as error:
            raise StorageError(
                f"{folder}: cannot be written ({error.strerror}); expected a folder beside the "
                "modalities that an index can be put into; check its permissions"
            ) from error
        yield folder, stage
        # What tasks of a build that was killed put there meanwhile is the next build's to remove.
        with suppress(OSError):
            stage.rmdir()


def remove_others(folder: Path, names: set[str]) -> None:
    """Remove the indexes of part folders that are gone, and what was put aside of gone shards."""
    for path in folder.glob("*.parquet"):
        if path.name not in names:
            path.unlink()
    for path in (folder / _STAGE).iterdir():
        path.unlink()
