"""Looks at the rows of one shard: which may stay, what they are compared by, where they are."""

import hashlib
import logging
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field, replace
from typing import Any, Final, Literal, NamedTuple

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from daft_twinwds.errors import AlignmentError, DecodeError, StorageError
from daft_twinwds.query._daft import column_of
from daft_twinwds.query.index_build import states_of
from daft_twinwds.query.scan import Scan
from daft_twinwds.query.schema import KEY
from daft_twinwds.query.shard_scan import count_shard, scan_shard
from daft_twinwds.shards.align import Alignment, align
from daft_twinwds.shards.dataset import Shard
from daft_twinwds.shards.options import ENVIRONMENT
from daft_twinwds.shards.samples import Samples, read_samples
from daft_twinwds.shards.storage import File
from daft_twinwds.shards.tar_state import TarState, settled_state_of
from daft_twinwds.shards.tar_write import name_fault
from daft_twinwds.tools.curate_notes import (
    HASH,
    PLACE,
    ROWS,
    THUMBNAIL,
    Gone,
    LookOutcome,
    ShardLook,
    read_look,
    write_look,
)
from daft_twinwds.tools.curate_place import CurationFolder
from daft_twinwds.tools.curate_report import FAULTS, TOO_SMALL, UNDECODABLE, UNFIT_NAME, WHERE
from daft_twinwds.tools.picture_hash import difference_hash, thumbnail

__all__ = ["Duplicates", "Look", "require_unchanged"]

logger = logging.getLogger("daft_twinwds")

Duplicates = Literal["picture", "bytes"]
"""What makes two pictures the same: what they show, or every byte."""

_UNREADABLE: Final = "sample that could not be read"


@dataclass(frozen=True, slots=True, kw_only=True)
class Look:
    """Looks at shards. It pickles."""

    scan: Scan
    """Rows to look at, with the sizes of their pictures if those are bounded."""
    sizes: tuple[tuple[str, int], ...]
    """Columns of the scan, and the least that they may hold."""
    picture: str | None
    """Column of the pictures that are compared."""
    duplicates: Duplicates | None
    """How they are compared."""
    folder: CurationFolder

    def __call__(self, item: tuple[int, Shard]) -> LookOutcome:
        """Look at a shard, unless an earlier run has and its tars have not changed since.

        Args:
            item: Number and shard.

        Raises:
            TwinWebDatasetError: What is wrong with the shard, or its note cannot be written.
        """
        number, shard = item
        states = {
            column: _required(settled_state_of(path, shard.options.get(column, ENVIRONMENT)), path)
            for column, path in shard.paths.items()
            if path is not None
        }
        old = read_look(self.folder, number)
        if old is not None and old.states == states:
            return replace(old.outcome, is_taken_over=True)
        look = _Looking(self, number, shard).run(states)
        require_unchanged(shard, states)
        write_look(self.folder, look)
        return look.outcome


def require_unchanged(shard: Shard, states: Mapping[str, TarState]) -> None:
    """Refuse tars that are not what was looked at any more.

    Raises:
        StorageError: They are not, or cannot be asked about.
    """
    if states_of(shard) != states:
        raise StorageError(
            f"{shard.url}: its tars were replaced while they were read; expected tars that stay as "
            "they are; curate again"
        )


def _required(state: TarState | None, path: str) -> TarState:
    if state is None:
        raise StorageError(
            f"{path}: not found; expected the tar that was there when the data set was listed; "
            "curate again"
        )
    return state


@dataclass(slots=True)
class _Looking:
    """One shard being looked at."""

    look: Look
    number: int
    shard: Shard
    dropped: Counter[str] = field(default_factory=Counter)
    left_out: Counter[str] = field(default_factory=Counter)
    gone: list[Gone] = field(default_factory=list)

    def run(self, states: Mapping[str, TarState]) -> ShardLook:
        passing = list(self._passing())
        num_rows = len(passing)
        scan = self.look.scan
        if scan.predicate is not None:
            key = frozenset({KEY})
            every = replace(scan, wanted=key, whole=key, predicate=None, filter_fields={})
            num_rows = count_shard(every, self.shard, planning=True)
            self.dropped[WHERE] += num_rows - len(passing)
        with ExitStack() as stack:
            # Where nothing can be left out in silence, the headers of the rest do not matter.
            if passing or scan.policy.needs_all:
                members = _Members.of(self.shard, scan, stack)
                self._count_left_out(members, num_rows)
                rows = self._rows(passing, members)
            else:
                rows = self._table({}, {column.name: ([], [], []) for column in scan.columns})
        return ShardLook(
            outcome=LookOutcome(
                number=self.number,
                num_rows=num_rows,
                num_staying=len(rows),
                dropped=dict(+self.dropped),
                left_out=dict(+self.left_out),
            ),
            states=states,
            rows=rows,
            gone=tuple(sorted(self.gone)),
        )

    def _passing(self) -> Iterator[tuple[Any, ...]]:
        """Yield key and sizes of the rows that the filter keeps."""
        names = [KEY, *(name for name, _ in self.look.sizes)]
        for batch in scan_shard(self.look.scan, self.shard):
            yield from zip(*(column_of(batch, name).to_pylist() for name in names), strict=True)

    def _count_left_out(self, members: "_Members", num_rows: int) -> None:
        for samples in members.samples.values():
            self.left_out.update(samples.notes)
            if samples.fault is not None:
                self.left_out["damaged tar"] += 1
        self.left_out.update(members.alignment.dropped)
        # Texts that cannot be parsed are found by scans alone.
        self.left_out[_UNREADABLE] += max(0, len(members.alignment.keys) - num_rows)

    def _rows(self, passing: Sequence[tuple[Any, ...]], members: "_Members") -> pa.Table:
        row_of = {key: row for row, key in enumerate(members.alignment.keys)}
        staying: dict[int, _Staying] = {}
        for key, *sizes in passing:
            row = row_of.get(key)
            if row is None:
                raise StorageError(
                    f"{self.shard.url}: {key!r} is gone, which was there a moment ago; expected "
                    "tars that stay as they are; curate again"
                )
            found = self._judge(key, sizes, row, members)
            if isinstance(found, _Staying):
                staying[row] = found
                continue
            self.dropped[found] += 1
            if found in FAULTS:
                self.gone.append(Gone(self._place(row), key, found))
        rows = sorted(staying)
        taken = {column: members.at(column, rows) for column in members.samples}
        return self._table({self._place(row): staying[row] for row in rows}, taken)

    def _place(self, row: int) -> int:
        return self.number * ROWS + row

    def _judge(
        self, key: str, sizes: Sequence[int | None], row: int, members: "_Members"
    ) -> "str | _Staying":
        """Return why a row is dropped, or what is noted of it."""
        for column in members.samples:
            name = members.name(column, row)
            fault = name_fault(name)
            if fault is None:
                continue
            message = (
                f"{members.samples[column].path}: member {name!r} ({fault}); expected a relative "
                "path that can name a member; pack it again, or pass on_error='skip'"
            )
            if self.look.scan.policy.on_error == "raise":
                raise AlignmentError(message)
            logger.warning("%s", message)
            return UNFIT_NAME
        for size, (name, least) in zip(sizes, self.look.sizes, strict=True):
            if size is None:
                logger.warning("%s: %r has no readable %s", self.shard.url, key, name)
                return UNDECODABLE
            if size < least:
                return TOO_SMALL
        if self.look.duplicates is None or self.look.picture is None:
            return _Staying(key)
        data = members.read(self.look.picture, row)
        if self.look.duplicates == "bytes":
            return _Staying(key, hashlib.sha256(data).hexdigest())
        try:
            return _Staying(key, difference_hash(data), thumbnail(data))
        except DecodeError as error:
            logger.warning("%s: %r: %s", self.shard.url, key, error)
            return UNDECODABLE

    def _table(
        self,
        staying: Mapping[int, "_Staying"],
        members: Mapping[str, tuple[Iterable[str], Iterable[int], Iterable[int]]],
    ) -> pa.Table:
        columns = {
            PLACE: pa.array(staying, pa.int64()),
            KEY: pa.array([row.key for row in staying.values()], pa.string()),
            HASH: pa.array([row.hash for row in staying.values()], pa.string()),
        }
        if self.look.duplicates == "picture":
            thumbnails = [row.thumbnail for row in staying.values()]
            columns[THUMBNAIL] = pa.array(thumbnails, pa.binary())
        for number, (names, positions, sizes) in enumerate(members.values()):
            columns[f"name_{number}"] = pa.array(names, pa.string())
            columns[f"position_{number}"] = pa.array(positions, pa.int64())
            columns[f"size_{number}"] = pa.array(sizes, pa.int64())
        return pa.table(columns)


class _Staying(NamedTuple):
    """A row that may stay."""

    key: str
    hash: str = ""
    thumbnail: bytes = b""


@dataclass(frozen=True, slots=True, kw_only=True)
class _Members:
    """All members of one shard's rows."""

    files: Mapping[str, File]
    samples: Mapping[str, Samples]
    alignment: Alignment

    @classmethod
    def of(cls, shard: Shard, scan: Scan, stack: ExitStack) -> "_Members":
        policy = scan.policy
        files = {
            column.name: stack.enter_context(shard.open(column.name)) for column in scan.columns
        }
        strict = policy.on_error == "raise"
        samples = {
            column: read_samples(file, key_split=policy.key_split, strict=strict)
            for column, file in files.items()
        }
        return cls(
            files=files, samples=samples, alignment=align(samples, on_missing=policy.on_missing)
        )

    def name(self, column: str, row: int) -> str:
        place = int(self.alignment.rows[column][row])
        return self.samples[column].names[place]

    def read(self, column: str, row: int) -> bytes:
        samples, place = self.samples[column], self.alignment.rows[column][row]
        return self.files[column].read(int(samples.positions[place]), int(samples.sizes[place]))

    def at(
        self, column: str, rows: Sequence[int]
    ) -> tuple[list[str], NDArray[np.int64], NDArray[np.int64]]:
        """Return names, positions and sizes of some rows."""
        samples = self.samples[column]
        places = self.alignment.rows[column][np.asarray(rows, np.int64)]
        names = [samples.names[place] for place in places]
        return names, samples.positions[places], samples.sizes[places]
