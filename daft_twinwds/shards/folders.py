"""The leaves of a dataset below a root, and the tars in them."""

import os
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Final

from daft_twinwds.errors import LayoutError
from daft_twinwds.shards.manifest import MANIFEST_NAME
from daft_twinwds.shards.trees import Listing, Tars, Tree, is_tar, walk

_PART: Final = "part_"
CLASSES: Final = ("aspect_ratio_", "duration_")


@dataclass(frozen=True, slots=True, kw_only=True)
class FoundLeaves:
    """The leaves of a dataset below one folder."""

    folders: list[str]
    """Folders, sorted by the parts of their path."""
    has_manifest: bool
    """Whether each of them holds a ``wdinfo.json``, or none does."""
    strays: list[str]
    """Folders of tars that lie in no leaf, where others have a manifest."""


def list_tars(tree: Tree, folder: str) -> Tars:
    """Return all tars below ``folder``, folder by folder; one that is not there holds none.

    Raises:
        LayoutError: A tar's name is not Unicode.
        StorageError: A folder cannot be listed.
    """
    try:
        return tree.tars(folder)
    except UnicodeEncodeError as error:
        above, _, name = error.object.rpartition("/")
        raise LayoutError(
            f"{folder}{'/' if above else ''}{above}: the tar name {os.fsencode(name)!r} is not "
            "UTF-8; expected names that are text; rename it"
        ) from error


def modality_folders(tree: Tree, folder: str) -> list[str]:
    """Return the sorted names of the direct sub-folders that hold tars, at any depth.

    Part folders are none: a folder that holds them is itself a modality.

    Raises:
        StorageError: A folder cannot be listed.
    """
    return [
        name
        for name in tree.scan(folder).folders
        if not name.startswith(_PART) and _holds_tars(tree, f"{folder}/{name}")
    ]


def find_leaves(tree: Tree, root: str) -> FoundLeaves:
    """Return the leaves of the dataset at ``root``, which may be ``root`` itself.

    A leaf is a folder with a manifest, or, where there is none anywhere below, a folder whose
    sub-folders hold tars; sub-folders named ``aspect_ratio_*`` or ``duration_*`` are looked
    through instead. Nothing is looked for inside a leaf that has a manifest or in part folders.
    Where folders cannot be listed, ``root`` is taken for a leaf with a manifest.

    Raises:
        LayoutError: A folder holds modalities beside folders of aspect ratios or durations, or
            tars lie directly in one of these.
        StorageError: A folder cannot be listed.
    """
    if not tree.can_list:
        return FoundLeaves(folders=[root], has_manifest=True, strays=[])
    folders: list[str] = []
    strays: list[str] = []
    for folder, listing in walk(tree, root):
        if MANIFEST_NAME in listing.files:
            folders.append(folder)
            listing.folders.clear()
        elif any(name.startswith(_PART) for name in listing.folders) or _tars(listing):
            strays.append(folder)
        listing.folders[:] = [name for name in listing.folders if not name.startswith(_PART)]
    if folders:
        return FoundLeaves(folders=folders, has_manifest=True, strays=strays)
    return FoundLeaves(folders=list(_iter_bare_leaves(tree, root)), has_manifest=False, strays=[])


def explain_no_leaf(tree: Tree, folder: str) -> str:
    """Return what ``folder`` holds in place of a dataset, and what to give instead."""
    listing = tree.scan(folder)
    if _tars(listing) or any(name.startswith(_PART) for name in listing.folders):
        return (
            "tars or part folders lie directly in it, as in one modality's folder; "
            "expected the dataset's root; give the folder above it"
        )
    return (
        f"no {MANIFEST_NAME} and no sub-folder with tars was found; expected a dataset's root, "
        "with tars such as image/part_000000/000000.tar below it; check the path"
    )


def _iter_bare_leaves(tree: Tree, root: str) -> Iterator[str]:
    for folder, listing in walk(tree, root):
        classes = [name for name in listing.folders if name.startswith(CLASSES)]
        modalities = [name for name in modality_folders(tree, folder) if name not in classes]
        split = [name for name in classes if _holds_tars(tree, f"{folder}/{name}")]
        if modalities and split:
            raise LayoutError(
                f"{folder}: both modalities ({', '.join(modalities)}) and folders of other leaves "
                f"({', '.join(split)}) were found, and no {MANIFEST_NAME}; expected one or the "
                "other; move one of them out, or give the folders wanted as a list"
            )
        if modalities:
            yield folder
        elif not split and folder != root:
            raise LayoutError(f"{folder}: {explain_no_leaf(tree, folder)}")
        listing.folders[:] = split


def _tars(listing: Listing) -> list[str]:
    return [name for name in listing.files if is_tar(name)]


def _holds_tars(tree: Tree, folder: str) -> bool:
    return any(_tars(listing) for _, listing in walk(tree, folder))
