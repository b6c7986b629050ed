"""A folder that a data set is written into: on the disk, or (`write_remote`) in a bucket."""

import errno
import shutil
import time
from collections.abc import Iterable, Iterator, Mapping
from contextlib import AbstractContextManager, ExitStack, contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path, PurePosixPath
from typing import Protocol

from daft_twinwds.errors import LayoutError, StorageError
from daft_twinwds.shards.file_lock import file_lock, new_folders
from daft_twinwds.shards.manifest import MANIFEST_NAME
from daft_twinwds.shards.new_file import new_file, sync_folder
from daft_twinwds.shards.options import ENVIRONMENT, StorageOptions
from daft_twinwds.shards.tar_write import Writable

__all__ = ["LOCK", "LocalFolder", "WriteFolder"]

LOCK = ".lock"
"""File of a staging folder that is there as long as what is staged is still wanted; hidden, as no
modality beside it is."""


_WRITER = ".write.lock"
"""File that one writer at a time has locked."""
_TRIES = 20
_PAUSE = 0.05
"""Seconds between them."""


class WriteFolder(Protocol):
    """The target; names are relative to it and hold ``/`` between their parts. It pickles."""

    @property
    def path(self) -> str:
        """Absolute path, or a URL without secrets; no slash at the end."""

    @property
    def options(self) -> StorageOptions:
        """How it is accessed."""

    @property
    def keeps_others_out(self) -> bool:
        """Whether one writer at a time is here; if not, names must differ between writers."""

    def children(self) -> list[str]:
        """Return the names in the folder, hidden ones included; none if it is not there."""

    def exists(self, name: str) -> bool:
        """Return whether a file is there."""

    def create(self, name: str) -> AbstractContextManager[Writable]:
        """Return what appears under a name as a whole when the block ends without an error."""

    def require_free(self, names: Iterable[str]) -> None:
        """Refuse names that something has.

        Raises:
            LayoutError: One is taken.
        """

    def move(self, names: Mapping[str, str]) -> None:
        """Give whole files other names, which nothing has yet; they survive a power cut then."""

    def remove(self, names: Iterable[str]) -> None:
        """Remove files, and the folders that are empty after that; those not there are passed."""

    def version(self) -> str | None:
        """Return what changes with the manifest; None where there is none."""

    def write_manifest(self, content: bytes, replaces: str | None) -> None:
        """Replace the manifest of a version by another, at once.

        Raises:
            LayoutError: Another writer has done so meanwhile.
        """

    def hold(self, staging: str) -> AbstractContextManager[None]:
        """Make a staging folder with its `LOCK`; hold it as long as the block runs."""

    def is_left(self, staging: str) -> bool:
        """Return whether nobody writes into a staging folder any more.

        Raises:
            LayoutError: Somebody does, and must not be disturbed.
        """

    def drop(self, staging: str) -> None:
        """Remove a staging folder with all that is in it, its `LOCK` first."""


@dataclass(frozen=True, slots=True, kw_only=True)
class LocalFolder:
    """A folder on the disk. One writer at a time, which a file lock watches over."""

    path: str

    @property
    def options(self) -> StorageOptions:
        """Nothing is needed."""
        return ENVIRONMENT

    @property
    def keeps_others_out(self) -> bool:
        """True: see `hold`."""
        return True

    def children(self) -> list[str]:
        """See `WriteFolder.children`."""
        try:
            return sorted(entry.name for entry in Path(self.path).iterdir())
        except FileNotFoundError:
            return []
        except NotADirectoryError as error:
            raise LayoutError(f"{self.path}: a file; expected a folder, or nothing") from error
        except OSError as error:
            raise self._unusable(error) from error

    def exists(self, name: str) -> bool:
        """See `WriteFolder.exists`."""
        return self._at(name).is_file()

    def create(self, name: str) -> AbstractContextManager[Writable]:
        """See `WriteFolder.create` and `new_file`."""
        return new_file(f"{self.path}/{name}")

    def require_free(self, names: Iterable[str]) -> None:
        """See `WriteFolder.require_free`."""
        for name in names:
            if self._at(name).exists():
                raise LayoutError(
                    f"{self._at(name)}: is there already, though the manifest does not name it; "
                    "expected a free name; move that file away and write again"
                )

    def move(self, names: Mapping[str, str]) -> None:
        """See `WriteFolder.move`."""
        folders: set[Path] = set()
        try:
            for old, new in names.items():
                target = self._at(new)
                target.parent.mkdir(parents=True, exist_ok=True)
                self._at(old).rename(target)
                relative = PurePosixPath(new)
                folders.update(self._at(str(parent)) for parent in relative.parents)
        except OSError as error:
            raise self._unusable(error) from error
        for folder in sorted(folders):
            sync_folder(str(folder))

    def remove(self, names: Iterable[str]) -> None:
        """See `WriteFolder.remove`."""
        folders: set[PurePosixPath] = set()
        try:
            for name in names:
                self._at(name).unlink(missing_ok=True)
                folders.update(PurePosixPath(name).parents[:-1])
            # The deepest first, so that the folders above may be empty then.
            for folder in sorted(folders, key=lambda folder: -len(folder.parts)):
                path = self._at(str(folder))
                if path.is_dir() and not any(path.iterdir()):
                    path.rmdir()
        except OSError as error:
            raise self._unusable(error) from error

    def version(self) -> str | None:
        """See `WriteFolder.version`; the lock makes a look at the content needless."""
        return "there" if self.exists(MANIFEST_NAME) else None

    def write_manifest(self, content: bytes, replaces: str | None) -> None:
        """See `WriteFolder.write_manifest`."""
        del replaces
        with new_file(f"{self.path}/{MANIFEST_NAME}") as file:
            file.write(content)
        sync_folder(self.path)

    @contextmanager
    def hold(self, staging: str) -> Iterator[None]:
        """See `WriteFolder.hold`; a folder that nothing was written to goes again."""
        path, lock = self._at(staging), self._at(_WRITER)
        with new_folders(Path(self.path)), ExitStack() as stack:
            try:
                stack.enter_context(
                    file_lock(
                        lock,
                        where=self.path,
                        doing="is writing a data set into this folder",
                        cure="wait for it, or write elsewhere",
                    )
                )
                path.mkdir()
                (path / LOCK).touch()
            except OSError as error:
                raise self._unusable(error) from error
            try:
                yield
            finally:
                with suppress(OSError):  # a lock file that stays is in nobody's way
                    lock.unlink()

    def is_left(self, staging: str) -> bool:
        """See `WriteFolder.is_left`; it is asked while the folder is held, which no other can be."""
        del staging
        return True

    def drop(self, staging: str) -> None:
        """See `WriteFolder.drop`."""
        path = self._at(staging)
        try:
            (path / LOCK).unlink(missing_ok=True)
            if path.is_dir() and not path.is_symlink():
                _remove_tree(path)
        except OSError as error:
            raise self._unusable(error) from error

    def _at(self, name: str) -> Path:
        return Path(self.path) / name

    def _unusable(self, error: OSError) -> StorageError:
        return StorageError(
            f"{self.path}: cannot be written ({error.strerror}); expected a folder that can be "
            "written to and locked; check its permissions and its file system"
        )


def _remove_tree(path: Path) -> None:
    """Remove a folder to which tasks that have not noticed their end may still be writing."""
    for tries_left in reversed(range(_TRIES)):
        try:
            shutil.rmtree(path)
        except OSError as error:
            if not tries_left or error.errno not in (errno.ENOENT, errno.ENOTEMPTY):
                raise
        if not path.exists():
            return
        time.sleep(_PAUSE)
