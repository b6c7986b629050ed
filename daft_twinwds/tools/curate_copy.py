"""Copies what stays of one shard into new twin tars, byte range by byte range."""

import hashlib
import io
import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from daft_twinwds.errors import StorageError
from daft_twinwds.query.sink_files import PIECE
from daft_twinwds.shards.dataset import Shard
from daft_twinwds.shards.storage import File
from daft_twinwds.shards.tar_write import TarWriter
from daft_twinwds.tools.curate_look import require_unchanged
from daft_twinwds.tools.curate_notes import PLACE, ShardLook, required_look
from daft_twinwds.tools.curate_place import CurationFolder

__all__ = ["Copy", "CopyItem", "CopyOutcome"]


@dataclass(frozen=True, slots=True, kw_only=True)
class CopyItem:
    """One shard to copy from."""

    number: int
    shard: Shard
    prefix: str
    """Where its leaf is in the new data set: empty, or ending with a slash."""
    doubles: NDArray[np.int64]
    """`PLACE` of the rows that do not stay."""


@dataclass(frozen=True, slots=True, kw_only=True)
class CopyOutcome:
    """What was written of a shard."""

    number: int
    num_rows: int
    num_bytes: int
    is_taken_over: bool = False
    """Whether an earlier run had written it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Copy:
    """Copies shards. It pickles."""

    folders: Mapping[str, str]
    """Column -> folder in the new data set."""
    folder: CurationFolder

    def __call__(self, item: CopyItem) -> CopyOutcome:
        """Write the tars of a shard, unless an earlier run has; leave none if no row stays.

        Raises:
            StorageError: Something cannot be read or written, or has changed.
        """
        look = required_look(self.folder, item.number)
        rows = look.rows
        if len(item.doubles):
            is_double = pc.is_in(rows.column(PLACE), value_set=pa.array(item.doubles, pa.int64()))
            rows = rows.filter(pc.invert(is_double))
        targets = {
            column: f"{item.prefix}{folder}/{item.shard.name}"
            for column, folder in self.folders.items()
        }
        digest = _digest(look, rows)
        sizes = self._sizes_of(item.number, digest, targets)
        is_taken_over = sizes is not None
        if sizes is None:
            sizes = self._write(item.shard, rows, targets)
            require_unchanged(item.shard, look.states)
            note = {"digest": digest, "sizes": sizes}
            self.folder.put(self.folder.copy(item.number), json.dumps(note).encode())
        return CopyOutcome(
            number=item.number,
            num_rows=len(rows),
            num_bytes=sum(sizes),
            is_taken_over=is_taken_over,
        )

    def _sizes_of(self, number: int, digest: str, targets: Mapping[str, str]) -> list[int] | None:
        """Return the sizes of the tars that an earlier run has written, if they are these."""
        try:
            note: dict[str, Any] = json.loads(self.folder.copy(number).read_bytes())
            if note["digest"] != digest:
                return None
            sizes: list[int] = note["sizes"]
            there = [self._at(target).stat().st_size for target in targets.values() if sizes]
        except (FileNotFoundError, NotADirectoryError):
            return None
        except (ValueError, KeyError, TypeError):  # a power cut has left it damaged
            return None
        except OSError as error:
            raise StorageError(
                f"{self.folder.path}: cannot be read ({error.strerror}); expected a folder that "
                "can be read and written; check its permissions"
            ) from error
        return sizes if sizes == there else None

    def _write(self, shard: Shard, rows: pa.Table, targets: Mapping[str, str]) -> list[int]:
        if not len(rows):
            # A tar may be there if more of another version of the shard stayed.
            self._remove(targets.values())
            return []
        sizes, moves = [], {}
        try:
            for number, (column, target) in enumerate(targets.items()):
                staged = self.folder.stage()
                moves[staged] = target
                with ExitStack() as stack:
                    source = stack.enter_context(shard.open(column))
                    file = stack.enter_context(self.folder.target.create(staged))
                    tar = stack.enter_context(TarWriter(file))
                    for name, position, size in _members(rows, number):
                        tar.add_pieces(name, _pieces(source, position, size), size=size)
                sizes.append(tar.size)
            self.folder.target.move(moves)
        except BaseException:
            self._remove(moves)
            raise
        return sizes

    def _remove(self, names: Iterable[str]) -> None:
        try:
            for name in names:
                self._at(name).unlink(missing_ok=True)
        except OSError as error:
            raise StorageError(
                f"{self.folder.path}: cannot be written ({error.strerror}); expected a folder "
                "that can be read and written; check its permissions"
            ) from error

    def _at(self, name: str) -> Path:
        return Path(self.folder.path) / name


def _members(rows: pa.Table, number: int) -> Iterator[tuple[str, int, int]]:
    columns = (rows.column(f"{what}_{number}") for what in ("name", "position", "size"))
    return zip(*(column.to_pylist() for column in columns), strict=True)


def _pieces(file: File, position: int, size: int) -> Iterator[bytes]:
    for start in range(0, size, PIECE):
        yield file.read(position + start, min(PIECE, size - start))


def _digest(look: ShardLook, rows: pa.Table) -> str:
    """Return what changes with the content of the tars that rows make."""
    digest = hashlib.sha256()
    states: Sequence[object] = [
        (column, state.size, state.mtime_ns, state.tag) for column, state in look.states.items()
    ]
    digest.update(json.dumps(states).encode())
    buffer = io.BytesIO()
    plain = rows.replace_schema_metadata(None).combine_chunks()
    with pa.ipc.new_stream(buffer, plain.schema) as writer:
        writer.write_table(plain)
    digest.update(buffer.getvalue())
    return digest.hexdigest()
