"""One leaf of a dataset, looked into: its manifest, its modalities and the tars that are there."""

import logging
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from typing import Final

import pyarrow as pa

from daft_twinwds.errors import LayoutError
from daft_twinwds.shards.folders import list_tars, modality_folders
from daft_twinwds.shards.leaves import LeafFolder
from daft_twinwds.shards.manifest import MANIFEST_NAME, Manifest, read_manifest
from daft_twinwds.shards.modalities import columns_of, has_own_root
from daft_twinwds.shards.options import StorageOptions
from daft_twinwds.shards.paths import Place
from daft_twinwds.shards.storage import MissingObjectError
from daft_twinwds.shards.urls import join

__all__ = ["Modality", "OpenLeaf", "open_leaves"]

logger = logging.getLogger(__name__)

SIDE_BY_SIDE: Final = 8
"""Leaves on servers that are looked into at once."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Modality:
    """One modality's folder in one leaf."""

    folder: str
    """Below the leaf's root, or absolute where it has a root of its own."""
    place: Place
    tars: pa.StringArray | None
    """Paths of the tars in it, relative to it; ``None`` where folders cannot be listed."""
    versions: pa.FixedSizeBinaryArray | None = None
    """What the listing told of each of them; see `Tars`."""
    is_missing: bool = False
    """Whether its folder is not there although it should be."""


@dataclass(frozen=True, slots=True, kw_only=True)
class OpenLeaf:
    """A leaf and what is in it."""

    root: str
    manifest: Manifest | None
    modalities: Mapping[str, Modality]
    """By column, in the manifest's order or the caller's."""


def open_leaves(
    leaves: Sequence[LeafFolder],
    wanted: Mapping[str, str] | None,
    options: Mapping[str, StorageOptions],
    *,
    require_folders: bool = True,
    with_counts: bool = False,
) -> list[OpenLeaf]:
    """Look into leaves.

    Args:
        leaves: Where they are.
        wanted: Column -> folder; ``None`` for all that a leaf has.
        options: Column -> how its modality is accessed, where not as the rest is.
        require_folders: Whether a modality that is not there is an error; else it is marked.
        with_counts: Whether to read the counts that manifests state.

    Raises:
        LayoutError: A manifest is wrong, or a modality is not there.
        StorageError: Something cannot be read or listed.
    """

    def look_into(leaf: LeafFolder) -> OpenLeaf:
        manifest = _manifest_of(leaf, with_counts=with_counts) if leaf.has_manifest else None
        return _open_leaf(leaf, manifest, wanted, options, require_folders=require_folders)

    if len(leaves) < 2 or leaves[0].place.path.startswith("/"):
        return [look_into(leaf) for leaf in leaves]
    # Servers take their time over each answer.
    with ThreadPoolExecutor(SIDE_BY_SIDE, thread_name_prefix="daft-twinwds-leaf") as pool:
        return list(pool.map(look_into, leaves))


def _open_leaf(
    leaf: LeafFolder,
    manifest: Manifest | None,
    wanted: Mapping[str, str] | None,
    options: Mapping[str, StorageOptions],
    *,
    require_folders: bool,
) -> OpenLeaf:
    root, tree = leaf.root, leaf.place.tree
    if manifest and manifest.root and manifest.root.rstrip("/") != root:
        logger.info("%s: root %r is stale, %r is read", manifest.path, manifest.root, root)
    folders = wanted
    if folders is None:
        names = manifest.modalities if manifest else modality_folders(tree, root)
        folders = columns_of(names, where=manifest.path if manifest else root)
    modalities: dict[str, Modality] = {}
    for column, folder in folders.items():
        place = _place_of(leaf, folder, options.get(column))
        is_declared = manifest is not None and folder in manifest.modalities
        is_empty = manifest is not None and len(manifest.names) == 0
        can_lack = not place.tree.can_list or (is_declared and is_empty)
        is_missing = not can_lack and place.tree.kind_of(place.path) != "folder"
        if is_missing and require_folders:
            raise _missing_modality(leaf, folder, place)
        tars = list_tars(place.tree, place.path) if place.tree.can_list else None
        modalities[column] = Modality(
            folder=place.path if has_own_root(folder) else folder,
            place=place,
            tars=None if tars is None else tars.names,
            versions=None if tars is None else tars.versions,
            is_missing=is_missing,
        )
    return OpenLeaf(root=root, manifest=manifest, modalities=modalities)


def _manifest_of(leaf: LeafFolder, *, with_counts: bool) -> Manifest:
    try:
        path = join(leaf.root, MANIFEST_NAME)
        return read_manifest(path, leaf.place.options, with_counts=with_counts)
    except MissingObjectError as error:
        if leaf.place.tree.can_list:
            raise
        raise LayoutError(
            f"{leaf.root}: no {MANIFEST_NAME} was found in it; expected one, as an HTTP server "
            "lists no folders; give the URL of a leaf's folder or manifest, or give the bucket by "
            "s3://, gs:// or az://"
        ) from error


def _place_of(leaf: LeafFolder, folder: str, options: StorageOptions | None) -> Place:
    if has_own_root(folder):
        place = Place.of(folder, leaf.place.options if options is None else options)
        # Its leaves lie below its root as the others lie below theirs.
        return replace(place, path=join(place.path, leaf.below))
    path = join(leaf.root, folder)
    if options is None:
        return replace(leaf.place, path=path)
    return Place.of(leaf.place.options.reference(path), options)


def _missing_modality(leaf: LeafFolder, folder: str, place: Place) -> LayoutError:
    if has_own_root(folder) or not leaf.place.tree.can_list:
        return LayoutError(
            f"{place.path}: a modality's folder that is not there; expected one with the tars of "
            f"{leaf.root}; check the path given in modalities="
        )
    there = ", ".join(modality_folders(leaf.place.tree, leaf.root)) or "no folder with tars"
    return LayoutError(
        f"{leaf.root}: modality {folder!r} is not there; found {there}; copy its folder, or "
        "name those wanted in modalities="
    )
