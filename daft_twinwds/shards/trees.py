"""Folders and what lies in them, wherever that is: on the disk, in a bucket, behind HTTP.

Hidden names are left out everywhere, and with them the temporary files of most copying tools.
"""

import errno
import os
from collections.abc import Hashable, Iterator
from dataclasses import dataclass
from pathlib import Path
from stat import S_ISDIR
from typing import Final, Literal, Protocol

import pyarrow as pa

from daft_twinwds.errors import StorageError
from daft_twinwds.shards.manifest import MANIFEST_NAME

__all__ = ["Kind", "Listing", "LocalTree", "Tars", "Tree", "is_tar", "walk"]

Kind = Literal["folder", "file"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Listing:
    """One folder's visible entries, each list sorted."""

    folders: list[str]
    """Names of folders, and of links to folders; `walk` goes into those that are left in it."""
    files: list[str]
    """Names of files that can be opened; a link to nothing is left out, unless it is a manifest."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Tars:
    """The visible tars below a folder; Arrow, so that a million of them cost no Python objects."""

    names: pa.StringArray
    """Paths relative to the folder."""
    versions: pa.FixedSizeBinaryArray | None = None
    """Each one's `TarState.digest` when it was listed, null where the listing does not tell;
    ``None`` where it tells of none."""


class Tree(Protocol):
    """Folders of one kind of storage; paths are as `Shard` has them."""

    @property
    def can_list(self) -> bool:
        """Whether folders can be looked into; if not, only what a manifest names is known."""

    def kind_of(self, path: str) -> Kind | None:
        """Return what is there, links followed, or ``None`` where nothing is.

        Raises:
            StorageError: It may not be looked at, which is not the same as its being absent.
        """

    def scan(self, folder: str) -> Listing:
        """Return the visible entries of ``folder``; its files are not looked at one by one.

        The listing is the caller's: names may be taken out of it.

        Raises:
            StorageError: The folder cannot be listed.
        """

    def identity(self, path: str) -> Hashable:
        """Return what is equal for two paths exactly when they are one file or folder.

        Raises:
            StorageError: The path is gone or may not be looked at.
        """

    def tars(self, folder: str) -> Tars:
        """Return all tars below ``folder``, folder by folder; one that is not there holds none.

        Raises:
            StorageError: A folder cannot be listed.
            UnicodeEncodeError: A name is not Unicode.
        """


def is_tar(name: str) -> bool:
    """Return whether a file's name is that of a tar."""
    return name.lower().endswith(".tar")


def walk(tree: Tree, root: str) -> Iterator[tuple[str, Listing]]:
    """Yield ``root`` and all folders below it, parents first, in sorted order.

    Take names out of a listing's ``folders`` to keep the walk out of them. Links are followed,
    but never into a folder that the walk is already inside of.

    Raises:
        StorageError: A folder cannot be listed.
    """
    stack: list[tuple[str, frozenset[Hashable]]] = [(root, frozenset())]
    while stack:
        folder, above = stack.pop()
        here = tree.identity(folder)
        if here in above:
            continue
        listing = tree.scan(folder)
        yield folder, listing
        inside = above | {here}
        stack.extend((f"{folder}/{name}", inside) for name in reversed(listing.folders))


class LocalTree:
    """The disk."""

    can_list: Final = True

    def kind_of(self, path: str) -> Kind | None:
        """See `Tree.kind_of`."""
        try:
            mode = Path(path).stat().st_mode
        except (FileNotFoundError, NotADirectoryError):
            return None
        except OSError as error:
            raise _unreadable(path, error) from error
        return "folder" if S_ISDIR(mode) else "file"

    def scan(self, folder: str) -> Listing:
        """See `Tree.scan`."""
        folders: list[str] = []
        files: list[str] = []
        try:
            with os.scandir(folder) as entries:
                for entry in entries:
                    if entry.name.startswith("."):
                        continue
                    if _leads_to(entry, folder=True):
                        folders.append(entry.name)
                    # Manifests may be links into a cache that is not filled; to go on as if there
                    # were none would change which tars are read.
                    elif entry.name == MANIFEST_NAME or _leads_to(entry, folder=False):
                        files.append(entry.name)
        except OSError as error:
            raise _unreadable(folder, error) from error
        return Listing(folders=sorted(folders), files=sorted(files))

    def identity(self, path: str) -> tuple[int, int]:
        """Return device and inode."""
        try:
            status = Path(path).stat()
        except OSError as error:
            raise _unreadable(path, error) from error
        return status.st_dev, status.st_ino

    def tars(self, folder: str) -> Tars:
        """See `Tree.tars`; files are not looked at one by one, so no versions are told."""
        return Tars(names=pa.array(self._iter_tars(folder), pa.string()))

    def _iter_tars(self, folder: str) -> Iterator[str]:
        for below, listing in walk(self, folder) if self.kind_of(folder) == "folder" else ():
            prefix = below[len(folder) + 1 :]
            yield from (
                f"{prefix}/{name}" if prefix else name for name in listing.files if is_tar(name)
            )


def _leads_to(entry: os.DirEntry[str], *, folder: bool) -> bool:
    try:
        return entry.is_dir() if folder else entry.is_file()
    except OSError as error:
        # A link to itself is a link to nothing; anything else is for the caller to report.
        if error.errno == errno.ELOOP:
            return False
        raise


def _unreadable(path: str, error: OSError) -> StorageError:
    return StorageError(
        f"{path}: cannot be listed ({error.strerror}); expected a readable file or folder; check "
        "that it is still there, its permissions and its mount"
    )
