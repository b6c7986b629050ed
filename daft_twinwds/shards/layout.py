"""Folders and manifests -> the shards of a twin dataset.

Only folders are listed and manifests parsed; no tar is opened, or even looked at. A dataset may
have been copied since it was written: the folder that a manifest lies in is its leaf's root.
"""

import logging
import operator
import os
from bisect import bisect_right
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import accumulate
from typing import Final, Literal, TypeAlias, get_args

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from daft_twinwds.errors import LayoutError
from daft_twinwds.shards.folders import kind_of, list_tars, modality_folders
from daft_twinwds.shards.leaves import LeafFilter, LeafFolder, find_leaf_folders
from daft_twinwds.shards.manifest import MANIFEST_NAME, Manifest, read_manifest
from daft_twinwds.shards.modalities import columns_of, requested_columns

__all__ = ["Dataset", "Leaf", "OnMissing", "Shard", "find_dataset"]

logger = logging.getLogger(__name__)

OnMissing: TypeAlias = Literal["error", "skip", "null"]
_Mask: TypeAlias = npt.NDArray[np.bool_]

_INCOMPLETE: Final = "shards missing in a modality"
_NOWHERE: Final = "shards missing in all modalities"
_UNLISTED: Final = "shards not in the manifest"
_NO_MANIFEST: Final = "folders of tars without a manifest"


@dataclass(frozen=True, slots=True, kw_only=True)
class Shard:
    """The twin tars of one name."""

    root: str
    """Absolute folder of the leaf, without a trailing slash."""
    name: str
    """Path of each twin relative to its modality's folder, ``part_000000/000000.tar``."""
    paths: Mapping[str, str | None]
    """Column -> absolute path of its tar; ``None`` where that modality lacks the shard."""

    @property
    def url(self) -> str:
        """What the twins have in common: the path without the modality."""
        return f"{self.root}/{self.name}"


@dataclass(frozen=True, slots=True, kw_only=True)
class Leaf:
    """One folder of twin modalities, and the shards in it that are read."""

    root: str
    """Absolute folder, without a trailing slash."""
    folders: Mapping[str, str]
    """Column -> folder below `root`, which may contain ``/``."""
    names: pa.StringArray
    """Names of the shards; Arrow, so that a million of them cost no Python objects."""
    counts: pa.Int64Array | None
    """Samples per shard as the manifest claims: a hint, never to be trusted."""
    absent: Mapping[str, frozenset[str]]
    """Column -> names that this modality lacks; empty sets unless missing twins become null."""

    def shard(self, index: int) -> Shard:
        """Return the shard at ``index`` in `names`."""
        name: str = self.names[index].as_py()
        paths = {
            column: None if name in self.absent[column] else f"{self.root}/{folder}/{name}"
            for column, folder in self.folders.items()
        }
        return Shard(root=self.root, name=name, paths=paths)


@dataclass(frozen=True, slots=True, kw_only=True)
class Dataset:
    """The shards of one or more leaves, numbered through from 0."""

    leaves: tuple[Leaf, ...]
    """Leaves in the order in which they are read."""
    modalities: tuple[str, ...]
    """Columns, in order; the same in every leaf."""
    skipped: Mapping[str, int]
    """What is left out, counted by reason; reasons that did not occur are not there."""
    _ends: tuple[int, ...] = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        ends = tuple(accumulate(len(leaf.names) for leaf in self.leaves))
        object.__setattr__(self, "_ends", ends)

    def __len__(self) -> int:
        """Return the number of shards."""
        return self._ends[-1] if self._ends else 0

    def shard(self, index: int) -> Shard:
        """Return the shard of a global number; the work is logarithmic in the leaves.

        Args:
            index: Number in ``[0, len(self))``.

        Raises:
            IndexError: There is no shard of this number.
        """
        number = operator.index(index)
        if not 0 <= number < len(self):
            raise IndexError(f"shard number must be in [0, {len(self)}), got {number}")
        position = bisect_right(self._ends, number)
        leaf = self.leaves[position]
        return leaf.shard(number - self._ends[position] + len(leaf.names))

    def iter_shards(self, indices: Iterable[int] | None = None) -> Iterator[Shard]:
        """Yield the shards of the given numbers, or all, in order.

        Raises:
            IndexError: There is no shard of a number; raised when it is reached.
        """
        for index in range(len(self)) if indices is None else indices:
            yield self.shard(index)


@dataclass(frozen=True, slots=True, kw_only=True)
class _OpenLeaf:
    root: str
    manifest: Manifest | None
    folders: Mapping[str, str]


def find_dataset(
    path: str | os.PathLike[str] | Sequence[str | os.PathLike[str]],
    *,
    modalities: Sequence[str] | Mapping[str, str] | None = None,
    include: str | Sequence[str] | None = None,
    exclude: str | Sequence[str] | None = None,
    aspect_ratios: str | Sequence[str] | None = None,
    on_missing: OnMissing = "error",
) -> Dataset:
    """Find the twin tars below one or more paths.

    A leaf is a folder with a ``wdinfo.json``, at any depth below a path. Where there is no
    manifest anywhere below a path, a leaf is a folder whose sub-folders, the modalities, hold
    tars; folders named ``aspect_ratio_*`` and ``duration_*`` are looked through. Hidden files
    and folders are never read.

    Args:
        path: A dataset's root, a ``wdinfo.json``, a pattern of either, or a list of these. What
            exists under its literal name is never a pattern. ``*``, ``?``, ``[...]``, ``**``
            (a whole part of the path) and ``{a,b}`` are understood, ``~`` is expanded, and
            ``file://`` URLs are percent-decoded.
        modalities: Folders to read, or a mapping of column to folder; ``None`` reads all that
            are there, in the manifest's order, else sorted. A folder's column has ``_`` for
            ``/``.
        include: Word or words; a leaf is kept if its path below the item of ``path`` (below the
            start of a pattern) holds any of them. No words keep all.
        exclude: Word or words; a leaf is kept if its path there holds none of them.
        aspect_ratios: Ratios such as ``"16,9"`` or ``"16:9"``; a leaf is kept if a part of its
            path is ``aspect_ratio_16_9``, for any of them. No ratios keep all.
        on_missing: What to do with a shard that some modality lacks: ``"error"``, ``"skip"``
            it, or keep it with a ``"null"`` path. What the manifest lists and no modality has
            is an error, or skipped; a modality without its whole folder is always an error.

    Returns:
        The shards. Leaves come in the order of ``path``, sorted within each item of it; shards
        in the manifest's order, else sorted by code point. What was left out is counted.

    Raises:
        LayoutError: Nothing is there, a manifest is wrong, a modality or shard is missing,
            leaves differ in their modalities, or a leaf is reached twice.
        StorageError: A path is not local, or a folder or manifest cannot be read.
        TypeError, ValueError: An argument is not of the forms above.
    """
    if on_missing not in get_args(OnMissing):
        raise ValueError(f"on_missing must be one of {get_args(OnMissing)}, got {on_missing!r}")
    wanted = requested_columns(modalities)
    leaf_filter = LeafFilter.from_arguments(include, exclude, aspect_ratios)
    leaf_folders, strays = find_leaf_folders(path, leaf_filter)
    skipped: Counter[str] = Counter()
    if strays:
        logger.warning("%s: tars without a %s are not read", ", ".join(strays), MANIFEST_NAME)
        skipped[_NO_MANIFEST] = len(strays)
    opened = [_open_leaf(leaf_folder, wanted) for leaf_folder in leaf_folders]
    columns = tuple(opened[0].folders)
    for leaf in opened[1:]:
        _require_same_columns(leaf, opened[0])
    return Dataset(
        leaves=tuple(_read_leaf(leaf, columns, on_missing, skipped) for leaf in opened),
        modalities=columns,
        skipped=dict(skipped),
    )


def _open_leaf(leaf: LeafFolder, wanted: Mapping[str, str] | None) -> _OpenLeaf:
    root = leaf.root
    manifest = read_manifest(f"{root}/{MANIFEST_NAME}") if leaf.has_manifest else None
    if manifest and manifest.root and manifest.root.rstrip("/") != root:
        logger.info("%s: root %r is stale, %r is read", manifest.path, manifest.root, root)
    folders = wanted
    if folders is None:
        names = manifest.modalities if manifest else modality_folders(root)
        folders = columns_of(names, where=manifest.path if manifest else root)
    for folder in folders.values():
        is_declared = manifest is not None and folder in manifest.modalities
        is_empty = manifest is not None and len(manifest.names) == 0
        if kind_of(f"{root}/{folder}") != "folder" and not (is_declared and is_empty):
            there = ", ".join(modality_folders(root)) or "no folder with tars"
            raise LayoutError(
                f"{root}: modality {folder!r} is not there; found {there}; copy its folder, or "
                "name those wanted in modalities="
            )
    return _OpenLeaf(root=root, manifest=manifest, folders=folders)


def _require_same_columns(leaf: _OpenLeaf, first: _OpenLeaf) -> None:
    if set(leaf.folders) != set(first.folders):
        raise LayoutError(
            f"{leaf.root}: modalities {', '.join(leaf.folders)} were found; expected "
            f"{', '.join(first.folders)}, as in {first.root}; name those wanted of both in "
            "modalities="
        )


def _read_leaf(
    leaf: _OpenLeaf, columns: tuple[str, ...], on_missing: OnMissing, skipped: Counter[str]
) -> Leaf:
    folders = {column: leaf.folders[column] for column in columns}
    listings = [list_tars(f"{leaf.root}/{folder}") for folder in folders.values()]
    if leaf.manifest is None:
        names, counts = pa.concat_arrays(listings).unique(), None
        names = names.take(pc.sort_indices(names))
    else:
        names, counts = leaf.manifest.names, leaf.manifest.counts
        _count_unlisted(leaf.root, names, listings, skipped)
    present = np.stack([_is_in(names, listing) for listing in listings], axis=1)
    if on_missing == "error" and not present.all():
        raise _missing_tars(leaf.root, list(folders.values()), names, present)
    somewhere: _Mask = np.logical_or.reduce(present, axis=1)
    kept = np.logical_and.reduce(present, axis=1) if on_missing == "skip" else somewhere
    _count_skipped(leaf.root, _NOWHERE, ~somewhere, names, skipped)
    _count_skipped(leaf.root, _INCOMPLETE, somewhere & ~kept, names, skipped)
    return Leaf(
        root=leaf.root,
        folders=folders,
        names=names.filter(pa.array(kept)),
        counts=None if counts is None else counts.filter(pa.array(kept)),
        absent={
            column: frozenset(names.filter(pa.array(kept & ~present[:, position])).to_pylist())
            for position, column in enumerate(columns)
        },
    )


def _is_in(names: pa.StringArray, listing: pa.StringArray) -> _Mask:
    return np.asarray(pc.is_in(names, value_set=listing), dtype=np.bool_)


def _count_unlisted(
    root: str, names: pa.StringArray, listings: Sequence[pa.StringArray], skipped: Counter[str]
) -> None:
    unlisted = ~_is_in(listings[0], names)
    for listing in listings[1:]:
        unlisted &= _is_in(listings[0], listing)
    _count_skipped(root, _UNLISTED, unlisted, listings[0], skipped)


def _count_skipped(
    root: str, reason: str, mask: _Mask, names: pa.StringArray, skipped: Counter[str]
) -> None:
    where = np.flatnonzero(mask)
    if len(where):
        skipped[reason] += len(where)
        logger.warning(
            "%s: %d %s are not read, first %s", root, len(where), reason, names[where[0]].as_py()
        )


def _missing_tars(
    root: str, folders: Sequence[str], names: pa.StringArray, present: _Mask
) -> LayoutError:
    missing = np.argwhere(~present)
    first = [f"{folders[column]}/{names[row].as_py()}" for row, column in missing[:5].tolist()]
    more = f" and {len(missing) - 5} more" if len(missing) > 5 else ""
    return LayoutError(
        f"{root}: missing tars ({len(missing)}): {', '.join(first)}{more}; expected every shard "
        "in all of the modalities; copy or pack them again, or read with on_missing='skip' or "
        "'null'"
    )
