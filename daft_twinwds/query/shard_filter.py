"""Leaves out shards that a filter excludes by what their index says, before any is read.

A shard is left out only while its tars are those that were indexed. On a disk, and on servers that
list nothing, that is looked at when a query is planned. In a bucket the listing has told it, which
is as old as the DataFrame: of a shard that is left out the rows are those that it had then, as
the shards themselves are those that were there then. What is not left out is looked at again where
it is read.
"""

from collections.abc import Mapping
from contextlib import ExitStack
from threading import Lock

import daft
import numpy as np
from numpy.typing import NDArray

from daft_twinwds.query.index_use import NOT_LISTED, Entry, find_entry
from daft_twinwds.query.predicates import Path
from daft_twinwds.query.prune import Pruner
from daft_twinwds.query.scan import Scan
from daft_twinwds.query.schema import KEY, URL
from daft_twinwds.shards import index_format
from daft_twinwds.shards.dataset import Shard
from daft_twinwds.shards.index_format import LeafStats, ShardEntry
from daft_twinwds.shards.urls import join

__all__ = ["ShardFilter"]


class ShardFilter:
    """Says which shards might have rows that a scan keeps.

    Args:
        scan: What is wanted.
        dtypes: All columns of the source.
    """

    def __init__(self, scan: Scan, dtypes: Mapping[str, daft.DataType]) -> None:
        self._scan = scan
        self._infos = {info.name: info for info in scan.infos}
        self._pruner: Pruner | None = None
        if scan.index != "off" and scan.predicate is not None:
            self._pruner = Pruner(scan.predicate, dtypes)
        self._known: dict[object, dict[str, bool]] = {}
        self._evaluating = Lock()

    @property
    def excludes_any(self) -> bool:
        """Whether there is anything to be asked."""
        return self._pruner is not None and self._pruner.excludes_any

    def might_match(self, shard: Shard, listed: Mapping[str, bytes] = NOT_LISTED) -> bool:
        """Say whether a shard has to be read; tars are looked at, but not opened.

        Args:
            shard: Where it is.
            listed: What is known of its tars without a look; see `look_up`.

        Raises:
            LayoutError: An index is required, and there is none that holds.
            StorageError: A tar may not be looked at.
        """
        if not self.excludes_any:
            return True
        with ExitStack() as stack:
            # Tars are looked at only for what is left out: the others are when they are read.
            entry = self._excluding(shard, stack, check_tars=False)
            if entry is None:
                return True
            if entry.is_listed(listed):
                return False
            return self._excluding(shard, stack, check_tars=True, listed=listed) is None

    def _excluding(
        self,
        shard: Shard,
        stack: ExitStack,
        *,
        check_tars: bool,
        listed: Mapping[str, bytes] = NOT_LISTED,
    ) -> Entry | None:
        """Return the entry that says that nothing of a shard matches, None if none does."""
        entry = find_entry(
            self._scan, shard, stack, quiet=True, check_tars=check_tars, listed=listed
        )
        if entry is None or not entry.tells_all(self._scan):
            return None
        early, _ = self._scan.stages()
        if any(entry.count(column) != entry.shard.num_rows for column in early):
            # Twins that disagree about their keys may be an error, match or not.
            return None
        return None if self._part(shard.root, entry)[shard.name] else entry

    def _part(self, root: str, entry: Entry) -> Mapping[str, bool]:
        """Return shard's name -> whether it might match, of all shards of a part folder."""
        part = (entry.file.path, id(entry.file.summary), *sorted(entry.folders.items()))
        # All threads come to a part at the same time.
        with self._evaluating:
            if part not in self._known:
                entries = list(entry.file.summary.entries.values())
                might = self._evaluate(root, entries, entry.folders)
                self._known[part] = dict(
                    zip([one.name for one in entries], might.tolist(), strict=True)
                )
            return self._known[part]

    def _evaluate(
        self, root: str, entries: list[ShardEntry], folders: Mapping[str, str]
    ) -> NDArray[np.bool_]:
        assert self._pruner is not None

        def stats_of(number: int, path: Path) -> LeafStats | None:
            entry = entries[number]
            if path == (URL,):
                url = join(root, entry.name)
                return LeafStats(url, url, 0)
            leaf = self._leaf(path, folders)
            return None if leaf is None else entry.stats.get(leaf)

        return self._pruner.might_match([entry.num_rows for entry in entries], stats_of)

    def _leaf(self, path: Path, folders: Mapping[str, str]) -> Path | None:
        """Return what the index calls a column or field."""
        if path == (KEY,):
            return (index_format.KEY,)
        info = self._infos.get(path[0])
        if info is not None:
            folder = folders.get(info.column)
            return None if folder is None else (folder, info.what)
        folder = folders.get(path[0])
        return None if folder is None else (folder, index_format.TEXT, *path[1:])
