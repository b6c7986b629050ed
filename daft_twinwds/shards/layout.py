"""Folders and manifests -> the shards of a twin dataset.

Only folders are listed and manifests parsed; no tar is opened, or even looked at. A dataset may
have been copied since it was written: the folder that a manifest lies in is its leaf's root.
"""

import logging
import os
from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Final, TypeAlias, get_args

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from daft_twinwds.errors import LayoutError
from daft_twinwds.shards.align import OnMissing
from daft_twinwds.shards.dataset import Dataset, Leaf, Shard
from daft_twinwds.shards.leaves import LeafFilter, find_leaf_folders
from daft_twinwds.shards.manifest import MANIFEST_NAME
from daft_twinwds.shards.modalities import requested_columns
from daft_twinwds.shards.open_leaf import OpenLeaf, open_leaves
from daft_twinwds.shards.options import ENVIRONMENT, THE_REST, StorageOptions
from daft_twinwds.shards.unfinished import unfinished

__all__ = [
    "Dataset",
    "Leaf",
    "Shard",
    "find_dataset",
    "read_leaf",
    "require_known_columns",
    "split_options",
]

logger = logging.getLogger(__name__)

_Mask: TypeAlias = npt.NDArray[np.bool_]

_INCOMPLETE: Final = "shards missing in a modality"
_NOWHERE: Final = "shards missing in all modalities"
_UNLISTED: Final = "shards not in the manifest"
_NO_MANIFEST: Final = "folders of tars without a manifest"


def find_dataset(
    path: str | os.PathLike[str] | Sequence[str | os.PathLike[str]],
    *,
    modalities: Sequence[str] | Mapping[str, str] | None = None,
    include: str | Sequence[str] | None = None,
    exclude: str | Sequence[str] | None = None,
    aspect_ratios: str | Sequence[str] | None = None,
    on_missing: OnMissing = "error",
    options: StorageOptions | Mapping[str, StorageOptions] | None = None,
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
            ``file://`` URLs are percent-decoded. URLs of object stores (``s3://``, ``gs://``,
            ``az://``) and of fsspec's file systems (``hf://``) are the same but for ``~``. An
            HTTP server lists nothing: there the folder must have a manifest, which is believed,
            and of patterns only ``{a,b}`` is understood. A query of its URL goes with every file.
        modalities: Folders to read, or a mapping of column to folder; ``None`` reads all that
            are there, in the manifest's order, else sorted. A folder's column has ``_`` for
            ``/``. In a mapping a folder may be an absolute path or a URL: a root of its own,
            whose leaves lie below it as the dataset's lie below ``path``.
        include: Word or words; a leaf is kept if its path below the item of ``path`` (below the
            start of a pattern) holds any of them. No words keep all.
        exclude: Word or words; a leaf is kept if its path there holds none of them.
        aspect_ratios: Ratios such as ``"16,9"`` or ``"16:9"``; a leaf is kept if a part of its
            path is ``aspect_ratio_16_9``, for any of them. No ratios keep all.
        on_missing: What to do with a shard that some modality lacks: ``"error"``, ``"skip"``
            it, or keep it with a ``"null"`` path. What the manifest lists and no modality has
            is an error, or skipped; a modality without its whole folder is always an error.
        options: How storage is accessed; a mapping of column to options gives some modalities
            their own, and ``"*"`` in it stands for the root and the rest.

    Returns:
        The shards. Leaves come in the order of ``path``, sorted within each item of it; shards
        in the manifest's order, else sorted by code point. What was left out is counted.

    Raises:
        LayoutError: Nothing is there, a manifest is wrong, a modality or shard is missing,
            leaves differ in their modalities, or a leaf is reached twice.
        StorageError: A scheme is not known, or a folder or manifest cannot be read.
        TypeError, ValueError: An argument is not of the forms above.
    """
    if on_missing not in get_args(OnMissing):
        raise ValueError(f"on_missing must be one of {get_args(OnMissing)}, got {on_missing!r}")
    wanted = requested_columns(modalities)
    by_column, rest = split_options(options)
    leaf_filter = LeafFilter.from_arguments(include, exclude, aspect_ratios)
    leaf_folders, strays = find_leaf_folders(path, leaf_filter, rest)
    skipped: Counter[str] = Counter()
    if strays:
        logger.warning("%s: tars without a %s are not read", ", ".join(strays), MANIFEST_NAME)
        skipped[_NO_MANIFEST] = len(strays)
    opened = open_leaves(leaf_folders, wanted, by_column)
    for file, text in unfinished(leaf.root for leaf in opened if leaf.manifest is None):
        logger.warning("%s: %s; what is there is read", file, text)
    columns = tuple(opened[0].modalities)
    for leaf in opened[1:]:
        _require_same_columns(leaf, opened[0])
    require_known_columns(by_column, columns)
    return Dataset(
        leaves=tuple(read_leaf(leaf, columns, on_missing, skipped) for leaf in opened),
        modalities=columns,
        skipped=dict(skipped),
    )


def split_options(
    options: StorageOptions | Mapping[str, StorageOptions] | None,
) -> tuple[dict[str, StorageOptions], StorageOptions]:
    """Return options by column, and those of everything else."""
    if options is None or isinstance(options, StorageOptions):
        return {}, options or ENVIRONMENT
    by_column = dict(options)
    return by_column, by_column.pop(THE_REST, ENVIRONMENT)


def require_known_columns(options: Mapping[str, StorageOptions], columns: Sequence[str]) -> None:
    """Raise ``ValueError`` where options are given for a column that is not there."""
    if unknown := options.keys() - set(columns):
        raise ValueError(
            f"options are given for {min(unknown)!r}; the columns are {list(columns)}, and "
            f"{THE_REST!r} stands for the rest"
        )


def _require_same_columns(leaf: OpenLeaf, first: OpenLeaf) -> None:
    if set(leaf.modalities) != set(first.modalities):
        raise LayoutError(
            f"{leaf.root}: modalities {', '.join(leaf.modalities)} were found; expected "
            f"{', '.join(first.modalities)}, as in {first.root}; name those wanted of both in "
            "modalities="
        )


def read_leaf(
    leaf: OpenLeaf, columns: Sequence[str], on_missing: OnMissing, skipped: Counter[str]
) -> Leaf:
    """Return the shards of one leaf.

    Args:
        leaf: What is in it.
        columns: Those of its modalities that are read, in order.
        on_missing: See `find_dataset`.
        skipped: Counts what is left out.

    Raises:
        LayoutError: A shard is missing in a modality, and ``on_missing="error"``.
    """
    modalities = {column: leaf.modalities[column] for column in columns}
    folders = {column: modality.folder for column, modality in modalities.items()}
    # Of folders that cannot be listed nothing is known, so they are taken to have every tar.
    listings = [modality.tars for modality in modalities.values()]
    known = [listing for listing in listings if listing is not None]
    if leaf.manifest is None:
        names, counts = pa.concat_arrays(known).unique(), None
        names = names.take(pc.sort_indices(names))
    else:
        names, counts = leaf.manifest.names, leaf.manifest.counts
        if len(known) == len(listings):
            _count_unlisted(leaf.root, names, known, skipped)
    present = np.stack(
        [
            np.ones(len(names), np.bool_) if listing is None else _is_in(names, listing)
            for listing in listings
        ],
        axis=1,
    )
    if on_missing == "error" and not present.all():
        raise _missing_tars(leaf.root, list(folders.values()), names, present)
    somewhere: _Mask = np.logical_or.reduce(present, axis=1)
    kept = np.logical_and.reduce(present, axis=1) if on_missing == "skip" else somewhere
    _count_skipped(leaf.root, _NOWHERE, ~somewhere, names, skipped)
    _count_skipped(leaf.root, _INCOMPLETE, somewhere & ~kept, names, skipped)
    absent = {
        column: frozenset(names.filter(pa.array(kept & ~present[:, position])).to_pylist())
        for position, column in enumerate(columns)
    }
    if not kept.all():
        names = names.filter(pa.array(kept))
        counts = None if counts is None else counts.filter(pa.array(kept))
    return Leaf(
        root=leaf.root,
        folders=folders,
        names=names,
        counts=counts,
        absent=absent,
        options={
            column: modality.place.options
            for column, modality in modalities.items()
            if modality.place.options != ENVIRONMENT
        },
        versions={
            column: modality.versions.take(pc.index_in(names, value_set=modality.tars))
            for column, modality in modalities.items()
            if modality.versions is not None
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
