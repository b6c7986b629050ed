"""Finds what the index says of a shard, and says how far a scan may believe it."""

import logging
from collections.abc import Callable, Mapping
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from types import MappingProxyType
from typing import Final, NoReturn

from daft_twinwds.errors import LayoutError, StorageError
from daft_twinwds.query import report
from daft_twinwds.query.index_text import are_values_of
from daft_twinwds.query.scan import IndexUse, Scan
from daft_twinwds.query.schema import Column, media_of
from daft_twinwds.shards.dataset import Dataset, Leaf, Shard
from daft_twinwds.shards.index_file import IndexFile, open_index
from daft_twinwds.shards.index_format import (
    INDEX_FOLDER,
    ShardEntry,
    TarEntry,
    UnusableIndexError,
    index_path,
)
from daft_twinwds.shards.modalities import has_own_root
from daft_twinwds.shards.options import ENVIRONMENT, StorageOptions
from daft_twinwds.shards.samples import KeySplit
from daft_twinwds.shards.tar_state import TarState, state_of
from daft_twinwds.shards.urls import is_url, join, local_path, scheme_of, shown

__all__ = [
    "NOT_LISTED",
    "Entry",
    "find_entry",
    "give_up",
    "look_up",
    "open_index_of",
    "settled_use",
]

logger = logging.getLogger("daft_twinwds")

NOT_LISTED: Final[Mapping[str, bytes]] = MappingProxyType({})
"""What a listing tells of a shard that comes without."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Entry:
    """What an index says of a shard, while its tars are those that were indexed."""

    file: IndexFile
    """The open index."""
    shard: ShardEntry
    """Its entry."""
    folders: Mapping[str, str]
    """Column -> folder, of the modalities that were looked for and are there."""

    def tar(self, column: Column) -> TarEntry | None:
        """Return what is known of a modality's tar, None if it lacks the shard."""
        folder = self.folders.get(column.name)
        return None if folder is None else self.shard.tars[folder]

    def count(self, column: Column) -> int:
        """Return how many samples a modality holds."""
        tar = self.tar(column)
        return 0 if tar is None else tar.count

    def is_listed(self, listed: Mapping[str, bytes]) -> bool:
        """Whether a listing has told that the tars are those that were indexed; see `look_up`."""
        tars = {column: self.shard.tars[folder] for column, folder in self.folders.items()}
        return all(tar and _is_listed(tar.state, listed, column) for column, tar in tars.items())

    def tells_all(self, scan: Scan) -> bool:
        """Whether a scan needs nothing of the tars, unless they disagree about the keys."""
        return all(self._tells(scan, column) for stage in scan.stages() for column in stage)

    def _tells(self, scan: Scan, column: Column) -> bool:
        tar = self.tar(column)
        if tar is None or not tar.count:
            return True
        if column.suffixes is not None and not tar.suffixes <= column.suffixes:
            return False
        if scan.infos_of(column) and not self._tells_sizes(column, tar):
            return False
        if column.kind == "file" or not scan.is_parsed(column):
            return True
        stored = self.file.text_type(self.folders[column.name])
        if stored is None or tar.text is None:
            return False
        return are_values_of(tar.text, stored, column)

    def _tells_sizes(self, column: Column, tar: TarEntry) -> bool:
        media = {media_of(suffix) for suffix in tar.suffixes}
        return media == {"image"} and self.file.has_sizes(self.folders[column.name])


def settled_use(dataset: Dataset, use: IndexUse) -> IndexUse:
    """Return ``"off"`` in place of ``"auto"`` where there is no index at all.

    Of a leaf on a server only the first part folder is asked about: each question is a request.
    """
    if use == "auto" and not any(_has_index(leaf) for leaf in dataset.leaves):
        return "off"
    return use


def _has_index(leaf: Leaf) -> bool:
    if not is_url(leaf.root):
        root = local_path(leaf.root) if scheme_of(leaf.root) == "file" else leaf.root
        return any(Path(root, INDEX_FOLDER).glob("*.parquet"))
    if not len(leaf.names):
        return False
    shard = leaf.shard(0)
    try:
        return state_of(index_path(shard.root, shard.name), _options_of(shard)) is not None
    except StorageError as error:
        # Some stores say to those who may not list that what is absent is forbidden.
        logger.info("%s: no index is used: %s", leaf.root, error)
        return False


def find_entry(
    scan: Scan,
    shard: Shard,
    stack: ExitStack,
    *,
    quiet: bool = False,
    check_tars: bool = True,
    listed: Mapping[str, bytes] = NOT_LISTED,
) -> Entry | None:
    """Return what an index says of a shard; None if it has to be read without.

    Args:
        scan: What is wanted. Only the tars that it would open must be those that were indexed.
        shard: Where it is.
        stack: Closes the index.
        quiet: Whether an index that is of no use goes uncounted, as it will be met again.
        check_tars: Whether to look at the tars; else what the entry says may have ceased to hold.
        listed: See `look_up`.

    Raises:
        LayoutError: There is none that holds, although the scan requires one.
        StorageError: A tar may not be looked at.
    """
    if scan.index == "off":
        return None
    columns = [column.name for stage in scan.stages() for column in stage]
    try:
        entry = look_up(
            shard,
            columns,
            key_split=scan.policy.key_split,
            stack=stack,
            check_tars=check_tars,
            listed=listed,
        )
    except UnusableIndexError as error:
        give_up(error, scan.index, shard, quiet=quiet)
        return None
    # A shard that could not be indexed gives the same error, or is skipped, as without an index.
    return entry if entry.shard.fault is None else None


def look_up(
    shard: Shard,
    columns: list[str],
    *,
    key_split: KeySplit,
    stack: ExitStack,
    check_tars: bool = True,
    listed: Mapping[str, bytes] = NOT_LISTED,
) -> Entry:
    """Return what the index says of a shard.

    A tar is asked about, by a request where it is on a server, unless its folder's listing has
    told that it is the one that was indexed. A tar that has been replaced since it was listed is
    then treated as one that is replaced right after it was asked about. What was listed is no
    reason to disbelieve an entry: it may be older than the index, and some servers' listings have
    other tags than their files.

    Args:
        shard: Where it is.
        columns: Modalities whose tars must be those that were indexed.
        key_split: What they must have been read with.
        stack: Closes the index.
        check_tars: Whether to look at the tars; else what the entry says may have ceased to hold.
        listed: Column -> `TarState.digest` of its tar, of those that were listed on a server.

    Raises:
        StorageError: A tar may not be looked at.
        UnusableIndexError: There is no index that holds.
    """

    def is_same(column: str, tar: str, known: TarState) -> bool:
        if not check_tars or _is_listed(known, listed, column):
            return True
        return state_of(tar, shard.options.get(column, ENVIRONMENT)) == known

    file = open_index_of(shard, stack, may_remember=True)
    try:
        return _entry_of(file, shard, columns, key_split=key_split, is_same=is_same)
    except UnusableIndexError:
        if not file.is_remembered:
            raise
    # It may have been built again since it was met.
    file = open_index_of(shard, stack, may_remember=False)
    return _entry_of(file, shard, columns, key_split=key_split, is_same=is_same)


def open_index_of(shard: Shard, stack: ExitStack, *, may_remember: bool) -> IndexFile:
    """Open the index that tells of a shard; see `open_index`.

    Raises:
        UnusableIndexError: There is none, or it cannot be read.
    """
    path = index_path(shard.root, shard.name)
    try:
        return stack.enter_context(open_index(path, _options_of(shard), may_remember=may_remember))
    except StorageError as error:
        raise UnusableIndexError("in an unreadable index", str(error)) from error


def _entry_of(
    file: IndexFile,
    shard: Shard,
    columns: list[str],
    *,
    key_split: KeySplit,
    is_same: Callable[[str, str, TarState], bool],
) -> Entry:
    if file.summary.key_split != key_split:
        raise UnusableIndexError(
            "in an index of another key_split",
            f"{file.path}: was built with key_split={file.summary.key_split!r}, wanted "
            f"{key_split!r}",
        )
    entry = file.summary.entries.get(shard.name)
    if entry is None:
        raise UnusableIndexError("not in its index", f"{file.path}: does not tell of {shard.name}")
    folders = {}
    for column in columns:
        tar = shard.paths[column]
        # What is not there any more, or not yet, has no samples, whatever was indexed.
        if tar is None:
            continue
        folders[column] = _folder_of(tar, shard, file)
        known = entry.tars[folders[column]]
        if known is None or not is_same(column, tar, known.state):
            raise UnusableIndexError(
                "changed since its index was built", f"{file.path}: {shown(tar)} has changed since"
            )
    return Entry(file=file, shard=entry, folders=folders)


def _is_listed(known: TarState, listed: Mapping[str, bytes], column: str) -> bool:
    return column in listed and listed[column] == known.digest


def give_up(error: UnusableIndexError, use: IndexUse, shard: Shard, *, quiet: bool = False) -> None:
    """Go on without an index if that is allowed, and count it.

    Raises:
        LayoutError: It is not.
    """
    if use == "require":
        _refuse(error, shard)
    if not quiet:
        report.count({f"shard {error.fault}": 1}, where=f"{shard.url} ({error})")


def _options_of(shard: Shard) -> StorageOptions:
    """Return how the leaf's own folder is accessed: as the modalities in it are."""
    for column, path in shard.paths.items():
        if path is not None and path.startswith(f"{shard.root}/"):
            return shard.options.get(column, ENVIRONMENT)
    return ENVIRONMENT


def _refuse(error: UnusableIndexError, shard: Shard) -> NoReturn:
    raise LayoutError(
        f"{shard.url}: {error}; expected an index that holds, because of index='require'; bring it "
        f"up to date by daft-twinwds index {shard.root}, or pass index='auto'"
    ) from error


def _folder_of(path: str, shard: Shard, file: IndexFile) -> str:
    """Return the folder, as the index calls it, that a tar lies in."""
    for folder in file.summary.folders:
        if has_own_root(folder):
            found = join(folder, shard.name)
        else:
            found = join(shard.root, folder, shard.name)
        if found == path:
            return folder
    raise UnusableIndexError(
        "in an index of other modalities",
        f"{file.path}: does not tell of {shown(path)}, only of {', '.join(file.summary.folders)}",
    )
