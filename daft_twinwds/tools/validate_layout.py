"""What is wrong with a data set's folders and manifests, before any tar is opened."""

import os
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from pathlib import Path

import pyarrow as pa
import pyarrow.compute as pc

from daft_twinwds.errors import LayoutError, StorageError
from daft_twinwds.shards.dataset import Dataset, Leaf
from daft_twinwds.shards.layout import read_leaf, require_known_columns, split_options
from daft_twinwds.shards.leaves import LeafFilter, LeafFolder, find_leaf_folders
from daft_twinwds.shards.manifest import MANIFEST_NAME, Manifest
from daft_twinwds.shards.modalities import requested_columns
from daft_twinwds.shards.open_leaf import OpenLeaf, open_leaves
from daft_twinwds.shards.options import StorageOptions
from daft_twinwds.shards.unfinished import unfinished
from daft_twinwds.shards.urls import is_url, join, shown
from daft_twinwds.tools.validate_report import Fault, Findings

__all__ = ["FoundLeaf", "Layout", "find_layout"]

PathLike = str | os.PathLike[str]


@dataclass(frozen=True, slots=True, kw_only=True)
class FoundLeaf:
    """A leaf, and what is claimed of it."""

    leaf: Leaf
    """The shards that are there. It has all columns of the data set: what it lacks is absent."""
    manifest: Manifest | None
    own: frozenset[str]
    """Columns that it should have, and not only other leaves."""

    def claimed(self, index: int) -> int | None:
        """Return how many samples the manifest says that a shard has, None if it does not."""
        if self.leaf.counts is None:
            return None
        count: int = self.leaf.counts[index].as_py()
        return count


@dataclass(frozen=True, slots=True, kw_only=True)
class Layout:
    """The leaves of a data set."""

    leaves: tuple[FoundLeaf, ...]
    columns: tuple[str, ...]
    """Of all leaves, in order of appearance."""

    def of_column(self, column: str) -> Dataset:
        """Return the data set as one that has a single modality."""
        leaves = tuple(found.leaf for found in self.leaves)
        return Dataset(leaves=leaves, modalities=(column,), skipped={})


def find_layout(
    path: PathLike | Sequence[PathLike],
    *,
    modalities: Sequence[str] | Mapping[str, str] | None,
    leaf_filter: LeafFilter,
    options: StorageOptions | Mapping[str, StorageOptions],
    findings: Findings,
    executor: ThreadPoolExecutor,
) -> Layout:
    """Find the leaves below a path, and go on with those that can be looked into.

    Args:
        path: See `find_dataset`.
        modalities: See `find_dataset`.
        leaf_filter: Which leaves are wanted.
        options: How storage is accessed.
        findings: Takes what is wrong.
        executor: Looks into leaves on servers side by side.

    Raises:
        LayoutError: There is no leaf.
        StorageError: The path cannot be listed.
        TypeError, ValueError: An argument is none of those that it can be.
    """
    wanted = requested_columns(modalities)
    by_column, rest = split_options(options)
    folders, strays = find_leaf_folders(path, leaf_filter, rest)
    for stray in strays:
        text = (
            f"tars without a {MANIFEST_NAME}, which others beside it have; expected one, as "
            "nothing here is read; write it, or remove the tars"
        )
        findings.add(Fault(kind="no manifest", path=stray, text=text))

    def open_one(folder: LeafFolder) -> OpenLeaf | Exception:
        try:
            (leaf,) = open_leaves(
                [folder], wanted, by_column, require_folders=False, with_counts=True
            )
            return leaf
        except (LayoutError, StorageError) as error:
            return error

    opened = []
    for folder, outcome in zip(folders, executor.map(open_one, folders), strict=True):
        if isinstance(outcome, OpenLeaf):
            opened.append(outcome)
        else:
            findings.add(_layout_fault(folder, outcome))
    columns = tuple(dict.fromkeys(column for leaf in opened for column in leaf.modalities))
    if opened:
        require_known_columns(by_column, columns)
    for file, text in unfinished(leaf.root for leaf in opened if leaf.manifest is None):
        findings.add(Fault(kind="unfinished", path=file, text=text))
    for leaf in opened:
        for fault in _faults_of(leaf, opened[0]):
            findings.add(fault)
    return Layout(leaves=tuple(_found(leaf, columns) for leaf in opened), columns=columns)


def _layout_fault(folder: LeafFolder, error: Exception) -> Fault:
    text, manifest = str(error), join(folder.root, MANIFEST_NAME)
    path = manifest if text.startswith(f"{manifest}: ") else folder.root
    return Fault(kind="bad layout", path=path, text=text.removeprefix(f"{path}: "))


def _found(leaf: OpenLeaf, columns: tuple[str, ...]) -> FoundLeaf:
    """Return a leaf with all columns of the data set, so that leaves are alike."""
    read = read_leaf(leaf, tuple(leaf.modalities), "null", Counter())
    lacking = dict.fromkeys(column for column in columns if column not in leaf.modalities)
    everything = frozenset(read.names.to_pylist()) if lacking else frozenset()
    return FoundLeaf(
        leaf=replace(
            read,
            folders={**read.folders, **{column: column for column in lacking}},
            absent={**read.absent, **dict.fromkeys(lacking, everything)},
        ),
        manifest=leaf.manifest,
        own=frozenset(leaf.modalities),
    )


def _faults_of(leaf: OpenLeaf, first: OpenLeaf) -> Iterator[Fault]:
    if set(leaf.modalities) != set(first.modalities):
        text = (
            f"modalities {', '.join(leaf.modalities)} were found; expected "
            f"{', '.join(first.modalities)}, as in {first.root}; name those wanted of both in "
            "modalities="
        )
        yield Fault(kind="different modalities", path=leaf.root, text=text)
    manifest = leaf.manifest
    if manifest is not None and _is_stale(manifest, leaf.root):
        text = (
            f"root is {manifest.root!r}, but the data set lies in {leaf.root!r}; that is where "
            "this package reads it, but PiD's loader goes by the root; correct it by "
            "daft-twinwds validate --fix-manifest"
        )
        yield Fault(kind="stale root", path=manifest.path, text=text)
    for column, modality in leaf.modalities.items():
        if modality.is_missing:
            text = (
                f"the folder of modality {column!r} is not there; expected the tars of "
                f"{leaf.root} in it; copy it, or name those wanted in modalities="
            )
            path = modality.place.path
            yield Fault(kind="missing modality", path=path, modality=column, text=text)
    listings = {
        column: modality.tars
        for column, modality in leaf.modalities.items()
        if modality.tars is not None and not modality.is_missing
    }
    names = _all_of(list(listings.values())) if manifest is None else manifest.names
    for column, tars in listings.items():
        folder = leaf.modalities[column].place.path
        yield from _missing_tars(column, folder, _minus(names, tars), listings)
        if manifest is not None:
            text = (
                f"{manifest.path} does not list it, so that it is not read; expected every tar in "
                "data_list; list it, or remove it"
            )
            for name in _minus(tars, names).to_pylist():
                path = shown(join(folder, name))
                yield Fault(kind="unlisted tar", path=path, modality=column, shard=name, text=text)


def _missing_tars(
    column: str, folder: str, names: pa.StringArray, listings: Mapping[str, pa.StringArray]
) -> Iterator[Fault]:
    has_it = {
        other: pc.is_in(names, value_set=tars).to_pylist()
        for other, tars in listings.items()
        if other != column
    }
    for number, name in enumerate(names.to_pylist()):
        holders = [other for other, has in has_it.items() if has[number]]
        found = f"{', '.join(holders)} has it" if holders else "and no modality has it"
        text = (
            f"this tar is not there, {found}; expected every shard in all modalities; copy or "
            "pack it again"
        )
        path = shown(join(folder, name))
        yield Fault(kind="missing tar", path=path, modality=column, shard=name, text=text)


def _is_stale(manifest: Manifest, root: str) -> bool:
    if manifest.root is None:
        return False
    claimed = manifest.root.rstrip("/")
    if claimed in (".", root):
        return False
    # Two names of one folder are no reason to warn.
    return is_url(root) or is_url(claimed) or Path(claimed).resolve() != Path(root).resolve()


def _all_of(listings: Sequence[pa.StringArray]) -> pa.StringArray:
    if not listings:
        return pa.array([], pa.string())
    names = pa.concat_arrays(listings).unique()
    return names.take(pc.sort_indices(names))


def _minus(names: pa.StringArray, others: pa.StringArray) -> pa.StringArray:
    return names.filter(pc.invert(pc.is_in(names, value_set=others)))
