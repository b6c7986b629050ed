"""Builds the index of one part folder, shard by shard, so that a killed build can be gone on with."""

import io
from collections.abc import Callable, Collection, Mapping, Sequence
from concurrent.futures import Executor, Future, as_completed
from contextlib import ExitStack
from dataclasses import dataclass, replace
from pathlib import Path

import pyarrow as pa

from daft_twinwds.errors import StorageError
from daft_twinwds.query.index_assemble import IndexedShard, settle
from daft_twinwds.query.index_build import index_shard, states_of
from daft_twinwds.shards.dataset import Shard
from daft_twinwds.shards.index_file import IndexFile, open_index
from daft_twinwds.shards.index_format import (
    TEXT,
    WIDTH,
    PartSummary,
    ShardEntry,
    UnusableIndexError,
    field_of,
    file_name,
)
from daft_twinwds.shards.index_write import index_schema, write_index_to
from daft_twinwds.shards.options import StorageOptions
from daft_twinwds.shards.tar_state import TarState
from daft_twinwds.tools.index_report import PartOutcome, ShardOutcome

__all__ = ["PartJob", "holds"]


@dataclass(frozen=True, slots=True, kw_only=True)
class PartJob:
    """One part folder to index; plain values, so that it travels to where it is done."""

    path: str
    """Of its index."""
    shards: Sequence[Shard]
    """In the order that the index is to have."""
    folders: Mapping[str, str]
    """Column -> folder."""
    head: PartSummary
    """What shards are to be read with; without entries."""
    stage: Path
    """Folder for what was read of single shards until the part is whole."""
    options: StorageOptions
    """How the index is accessed."""

    def run(
        self, executor: Executor, on_found: Callable[[Shard, bool], None] = lambda *_: None
    ) -> PartOutcome:
        """Read what has changed, and write the index anew if anything has.

        Args:
            executor: Reads the shards.
            on_found: Called with each shard that is done, and whether its tars were read.

        Raises:
            StorageError: The index cannot be written.
        """
        with ExitStack() as stack:
            build = _PartBuild(job=self, old=self._usable(stack))
            futures = build.start(executor)
            for future in as_completed(futures):
                found = future.result()
                on_found(found.shard, found.is_read)
            return build.finish([future.result() for future in futures], executor)

    def _usable(self, stack: ExitStack) -> IndexFile | None:
        """Open the index that is there, if it was built with the same arguments."""
        try:
            file = stack.enter_context(open_index(self.path, self.options))
        except UnusableIndexError:
            return None
        return file if replace(file.summary, entries={}) == self.head else None


@dataclass(frozen=True, slots=True, kw_only=True)
class _FoundShard:
    """What there is to be said of a shard."""

    shard: Shard
    indexed: IndexedShard | None = None
    """Where its rows are; None if it cannot be read."""
    is_old: bool = False
    """Whether these are those of the index that is there."""
    is_read: bool = False
    """Whether its tars were read for it."""
    unreadable_pictures: int = 0
    """Pictures without a readable header, if its tars were read."""
    failure: str | None = None
    """Why it cannot be read."""


@dataclass(frozen=True, slots=True, kw_only=True)
class _PartBuild:
    """The work on one part folder."""

    job: PartJob
    old: IndexFile | None
    """The index that is there, if it was built in the same way."""

    def start(self, executor: Executor) -> list[Future[_FoundShard]]:
        """Have all shards looked at."""
        return [executor.submit(self._find, shard) for shard in self.job.shards]

    def finish(self, found: Sequence[_FoundShard], executor: Executor) -> PartOutcome:
        """Write the index if anything has changed, and remove what was put aside.

        Args:
            found: What `start` found, in the same order.
            executor: Reads shards whose rows turn out to be of no use.

        Raises:
            StorageError: The index cannot be written.
        """
        if self.old is not None and self._is_unchanged(found):
            return _outcome(found, self.old.summary.entries, is_written=False)
        # What contradicted other shards then may go with those that are there now.
        found = self._read_again(found, _with_left_out_texts(found), executor)
        try:
            found, entries = self._write(found, executor)
        except UnusableIndexError:
            unread = {item.shard.name for item in found if not item.is_read}
            found = self._read_again(found, unread, executor)
            try:
                found, entries = self._write(found, executor)
            except UnusableIndexError as error:
                raise StorageError(
                    f"{error}; expected the bytes that were written there a moment ago; check the "
                    "disk"
                ) from error
        for shard in self.job.shards:
            self._staged_path(shard.name).unlink(missing_ok=True)
        return _outcome(found, entries, is_written=True)

    def _find(self, shard: Shard) -> _FoundShard:
        """Return rows of a shard that hold, or else those that its tars give."""
        try:
            states = states_of(shard)
            old = None if self.old is None else self.old.summary.entries.get(shard.name)
            if self.old is not None and old is not None and holds(old, self.job.folders, states):
                return _FoundShard(shard=shard, indexed=self._old_rows(self.old, old), is_old=True)
            staged = self._staged_rows(shard.name)
            if staged is not None and holds(staged.entry, self.job.folders, states):
                return _FoundShard(shard=shard, indexed=staged)
        except StorageError as error:
            return _FoundShard(shard=shard, failure=str(error))
        return self._read(shard)

    def _read(self, shard: Shard) -> _FoundShard:
        """Read a shard's tars and put what they give aside."""
        try:
            rows = index_shard(
                shard,
                self.job.folders,
                key_split=self.job.head.key_split,
                texts=self.job.head.has_texts,
            )
        except StorageError as error:
            return _FoundShard(shard=shard, failure=str(error), is_read=True)
        self._put_aside(rows.entry, rows.columns)
        indexed = self._staged_rows(shard.name)
        assert indexed is not None
        return _FoundShard(
            shard=shard,
            indexed=indexed,
            is_read=True,
            unreadable_pictures=rows.unreadable_pictures,
        )

    def _put_aside(self, entry: ShardEntry, columns: Mapping[str, pa.Array]) -> None:
        folders = self.job.head.folders
        schema = index_schema(
            folders,
            pictures=[folder for folder in folders if field_of(folder, WIDTH) in columns],
            texts={
                folder: columns[name].type
                for folder in folders
                if (name := field_of(folder, TEXT)) in columns
            },
        )
        buffer = io.BytesIO()
        summary = replace(self.job.head, entries={entry.name: entry})
        write_index_to(buffer, summary, schema, lambda _: columns)
        path = self._staged_path(entry.name)
        part = path.with_suffix(".tmp")
        # Not forced to the disk, as that takes longer than to read most shards; what a power cut
        # leaves of it fails its checksums, and is read again.
        try:
            # What one machine made for a bucket's index is not there on a cluster's other nodes.
            part.parent.mkdir(parents=True, exist_ok=True)
            part.write_bytes(buffer.getvalue())
            part.replace(path)
        except OSError as error:
            part.unlink(missing_ok=True)
            raise StorageError(
                f"{path}: cannot be written ({error.strerror}); expected room for what is read of "
                "a shard; make room, or choose another place by output"
            ) from error

    def _staged_path(self, name: str) -> Path:
        return self.job.stage / file_name(name)

    def _staged_rows(self, name: str) -> IndexedShard | None:
        path = str(self._staged_path(name))
        try:
            with open_index(path) as file:
                entry = file.summary.entries.get(name)
                if entry is None or not _is_alike(file.summary, self.job.head):
                    return None

                def rows(entry: ShardEntry = entry) -> dict[str, pa.Array]:
                    with open_index(path) as again:
                        return again.read_all(entry)

                return IndexedShard.of(entry, file, rows)
        except UnusableIndexError:
            return None

    def _old_rows(self, old: IndexFile, entry: ShardEntry) -> IndexedShard:
        return IndexedShard.of(entry, old, lambda: old.read_all(entry))

    def _is_unchanged(self, found: Sequence[_FoundShard]) -> bool:
        assert self.old is not None
        names = [item.shard.name for item in found]
        return names == list(self.old.summary.entries) and all(item.is_old for item in found)

    def _read_again(
        self, found: Sequence[_FoundShard], names: Collection[str], executor: Executor
    ) -> list[_FoundShard]:
        """Replace what was found of some shards by what their tars give."""
        shards = [item.shard for item in found if item.shard.name in names]
        read = {item.shard.name: item for item in executor.map(self._read, shards)}
        return [read.get(item.shard.name, item) for item in found]

    def _write(
        self, found: Sequence[_FoundShard], executor: Executor
    ) -> tuple[Sequence[_FoundShard], Mapping[str, ShardEntry]]:
        while True:
            indexed = [item.indexed for item in found if item.indexed is not None]
            part = settle(indexed, self.job.folders)
            if not part.unfit:
                break
            found = self._read_again(found, part.unfit, executor)
        part.write(self.job.path, self.job.head, options=self.job.options)
        return found, part.entries


def _outcome(
    found: Sequence[_FoundShard], entries: Mapping[str, ShardEntry], *, is_written: bool
) -> PartOutcome:
    outcomes = []
    for item in found:
        entry = None if item.failure is not None else entries[item.shard.name]
        outcomes.append(
            ShardOutcome(
                url=item.shard.url,
                is_read=item.is_read,
                num_rows=0 if entry is None else entry.num_rows,
                unreadable_pictures=item.unreadable_pictures,
                failure=item.failure,
                not_indexed=None if entry is None else entry.fault,
                text_left_out=None if entry is None else entry.text_fault,
            )
        )
    return PartOutcome(shards=outcomes, is_written=is_written)


def holds(
    entry: ShardEntry, folders: Mapping[str, str], states: Mapping[str, TarState | None]
) -> bool:
    """Say whether an entry tells of the tars that are there.

    Args:
        entry: What was found once.
        folders: Column -> folder.
        states: Column -> version of its tar, of those that are there.
    """
    known = {
        column: tar.state
        for column, folder in folders.items()
        if (tar := entry.tars[folder]) is not None
    }
    return known == states


def _is_alike(summary: PartSummary, head: PartSummary) -> bool:
    return replace(summary, entries={}) == replace(head, entries={})


def _with_left_out_texts(found: Sequence[_FoundShard]) -> set[str]:
    return {
        item.shard.name
        for item in found
        if item.indexed is not None
        and not item.is_read
        and any(tar is not None and tar.text_fault for tar in item.indexed.entry.tars.values())
    }
