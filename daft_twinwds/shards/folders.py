"""What lies on the disk: folders, tars, and the leaves of a dataset below a root.

Hidden names are left out everywhere, and with them the temporary files of most copying tools.
Links are followed, but never into a folder that the walk is already inside of.
"""

import errno
import os
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from stat import S_ISDIR
from typing import Final

import pyarrow as pa

from daft_twinwds.errors import LayoutError, StorageError
from daft_twinwds.shards.manifest import MANIFEST_NAME

_PART: Final = "part_"
_CLASSES: Final = ("aspect_ratio_", "duration_")


@dataclass(frozen=True, slots=True, kw_only=True)
class Listing:
    """One folder's visible entries, each list sorted."""

    folders: list[str]
    """Names of folders, and of links to folders; `walk` goes into those that are left in it."""
    files: list[str]
    """Names of files that can be opened; a link to nothing is left out, unless it is a manifest."""


@dataclass(frozen=True, slots=True, kw_only=True)
class FoundLeaves:
    """The leaves of a dataset below one folder."""

    folders: list[str]
    """Absolute folders, sorted by the parts of their path."""
    has_manifest: bool
    """Whether each of them holds a ``wdinfo.json``, or none does."""
    strays: list[str]
    """Folders of tars that lie in no leaf, where others have a manifest."""


def file_id(path: str) -> tuple[int, int]:
    """Return device and inode: equal for two paths exactly when they are one file or folder.

    Raises:
        StorageError: The path is gone or may not be looked at.
    """
    try:
        status = Path(path).stat()
    except OSError as error:
        raise _unreadable(path, error) from error
    return status.st_dev, status.st_ino


def kind_of(path: str) -> str | None:
    """Return ``"folder"`` or ``"file"``, links followed, or ``None`` where nothing is.

    Raises:
        StorageError: The path may not be looked at, which is not the same as its being absent.
    """
    try:
        mode = Path(path).stat().st_mode
    except (FileNotFoundError, NotADirectoryError):
        return None
    except OSError as error:
        raise _unreadable(path, error) from error
    return "folder" if S_ISDIR(mode) else "file"


def scan(folder: str) -> Listing:
    """Return the visible entries of ``folder``; its files are not looked at one by one.

    Raises:
        StorageError: The folder cannot be listed.
    """
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


def walk(root: str) -> Iterator[tuple[str, Listing]]:
    """Yield ``root`` and all folders below it, parents first, in sorted order.

    Take names out of a listing's ``folders`` to keep the walk out of them.

    Raises:
        StorageError: A folder cannot be listed.
    """
    stack: list[tuple[str, frozenset[tuple[int, int]]]] = [(root, frozenset())]
    while stack:
        folder, above = stack.pop()
        here = file_id(folder)
        if here in above:
            continue
        listing = scan(folder)
        yield folder, listing
        inside = above | {here}
        stack.extend((f"{folder}/{name}", inside) for name in reversed(listing.folders))


def list_tars(folder: str) -> pa.StringArray:
    """Return the paths of all tars below ``folder``, relative to it, folder by folder.

    A folder that is not there holds none.

    Raises:
        LayoutError: A tar's name is not Unicode.
        StorageError: A folder cannot be listed.
    """
    parts: list[pa.StringArray] = [pa.array([], pa.string())]
    for below, listing in walk(folder) if kind_of(folder) == "folder" else ():
        prefix = below[len(folder) + 1 :]
        names = [f"{prefix}/{name}" if prefix else name for name in _tars(listing)]
        try:
            parts.append(pa.array(names, pa.string()))
        except UnicodeEncodeError as error:
            raise LayoutError(
                f"{below}: the tar name {os.fsencode(error.object)!r} is not UTF-8; expected names "
                "that are text; rename it"
            ) from error
    return pa.concat_arrays(parts)


def modality_folders(folder: str) -> list[str]:
    """Return the sorted names of the direct sub-folders that hold tars, at any depth.

    Part folders are none: a folder that holds them is itself a modality.

    Raises:
        StorageError: A folder cannot be listed.
    """
    return [
        name
        for name in scan(folder).folders
        if not name.startswith(_PART) and _holds_tars(f"{folder}/{name}")
    ]


def find_leaves(root: str) -> FoundLeaves:
    """Return the leaves of the dataset at ``root``, which may be ``root`` itself.

    A leaf is a folder with a manifest, or, where there is none anywhere below, a folder whose
    sub-folders hold tars; sub-folders named ``aspect_ratio_*`` or ``duration_*`` are looked
    through instead. Nothing is looked for inside a leaf that has a manifest or in part folders.

    Raises:
        LayoutError: A folder holds modalities beside folders of aspect ratios or durations, or
            tars lie directly in one of these.
        StorageError: A folder cannot be listed.
    """
    folders: list[str] = []
    strays: list[str] = []
    for folder, listing in walk(root):
        if MANIFEST_NAME in listing.files:
            folders.append(folder)
            listing.folders.clear()
        elif any(name.startswith(_PART) for name in listing.folders) or _tars(listing):
            strays.append(folder)
        listing.folders[:] = [name for name in listing.folders if not name.startswith(_PART)]
    if folders:
        return FoundLeaves(folders=folders, has_manifest=True, strays=strays)
    return FoundLeaves(folders=list(_iter_bare_leaves(root)), has_manifest=False, strays=[])


def explain_no_leaf(folder: str) -> str:
    """Return what ``folder`` holds in place of a dataset, and what to give instead."""
    listing = scan(folder)
    if _tars(listing) or any(name.startswith(_PART) for name in listing.folders):
        return (
            "tars or part folders lie directly in it, as in one modality's folder; "
            "expected the dataset's root; give the folder above it"
        )
    return (
        f"no {MANIFEST_NAME} and no sub-folder with tars was found; expected a dataset's root, "
        "with tars such as image/part_000000/000000.tar below it; check the path"
    )


def _iter_bare_leaves(root: str) -> Iterator[str]:
    for folder, listing in walk(root):
        classes = [name for name in listing.folders if name.startswith(_CLASSES)]
        modalities = [name for name in modality_folders(folder) if name not in classes]
        split = [name for name in classes if _holds_tars(f"{folder}/{name}")]
        if modalities and split:
            raise LayoutError(
                f"{folder}: both modalities ({', '.join(modalities)}) and folders of other leaves "
                f"({', '.join(split)}) were found, and no {MANIFEST_NAME}; expected one or the "
                "other; move one of them out, or give the folders wanted as a list"
            )
        if modalities:
            yield folder
        elif not split and folder != root:
            raise LayoutError(f"{folder}: {explain_no_leaf(folder)}")
        listing.folders[:] = split


def _tars(listing: Listing) -> list[str]:
    return [name for name in listing.files if name.lower().endswith(".tar")]


def _holds_tars(folder: str) -> bool:
    return any(_tars(listing) for _, listing in walk(folder))


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
