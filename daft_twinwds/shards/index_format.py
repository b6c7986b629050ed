"""What the index of a part folder says: one Parquet file, one row group per shard, one summary.

::

    root/.twin_index/part_000000.parquet     beside root/image/part_000000/*.tar and its twins

A row is a key that any of the shard's twins holds. The summary, which lies in the file's footer,
tells of each shard which versions of its tars the rows were read from: they hold while those
are there, and no longer.
"""

import json
import zlib
from base64 import b64decode, b64encode
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Final, Literal, NamedTuple

from daft_twinwds.shards.samples import KeySplit
from daft_twinwds.shards.tar_state import TarState
from daft_twinwds.shards.urls import join

__all__ = [
    "FORMAT",
    "HEIGHT",
    "INDEX_FOLDER",
    "KEY",
    "PLACE",
    "POSITION",
    "SIZE",
    "SUFFIX",
    "TEXT",
    "VERSION",
    "WIDTH",
    "Fault",
    "LeafStats",
    "PartSummary",
    "ShardEntry",
    "TarEntry",
    "UnusableIndexError",
    "field_of",
    "file_name",
    "index_path",
    "part_of",
    "require_version",
]

INDEX_FOLDER: Final = ".twin_index"
"""Folder in a leaf's root. Its name is hidden, so that nobody takes it for a modality."""
VERSION: Final = 1
"""Of the format. A file of another version is built anew, never converted."""

KEY: Final = "key"
PLACE, POSITION, SIZE, SUFFIX = "place", "position", "size", "suffix"
"""Of a member: number in its tar, first byte, bytes, suffix as stored. Null where it is missing."""
WIDTH, HEIGHT, FORMAT = "width", "height", "format"
"""Of a picture as it is shown; null where its header cannot be read."""
TEXT: Final = "text"
"""Value of a text member."""

_SUMMARY: Final = b"daft_twinwds.index"
_VERSION: Final = b"daft_twinwds.index_version"

Fault = Literal[
    "not in its index",
    "changed since its index was built",
    "in an unreadable index",
    "in an index of another version",
    "in an index of another key_split",
    "in an index of other modalities",
]
"""Why a shard's index is of no use, as scans count it."""


class UnusableIndexError(Exception):
    """An index, or its entry for a shard, must not be used; the message says why."""

    def __init__(self, fault: Fault, message: str) -> None:
        super().__init__(message)
        self.fault: Fault = fault


class LeafStats(NamedTuple):
    """What the values of one column, or field of a struct, lie between in one shard."""

    low: bool | int | float | str | None
    """At most the smallest value; None where that is not known, or there is none."""
    high: bool | int | float | str | None
    """At least the largest."""
    nulls: int
    """Rows without a value."""


@dataclass(frozen=True, slots=True, kw_only=True)
class TarEntry:
    """What was found in one tar."""

    state: TarState
    """The version that was read."""
    count: int = 0
    """Members that became samples."""
    suffixes: frozenset[str] = frozenset()
    """Their suffixes, lower-case."""
    notes: Mapping[str, int] = field(default_factory=dict)
    """See `Samples.notes`."""
    text: Mapping[str, Any] | None = None
    """What the texts in the rows are; None where there are none."""
    text_fault: str | None = None
    """Why there are none although its members are texts."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ShardEntry:
    """What was found in one shard."""

    name: str
    """Of the shard, ``part_000000/000000.tar``."""
    tars: Mapping[str, TarEntry | None]
    """Folder -> its tar; None where there is none."""
    num_rows: int = 0
    """Keys that any tar holds."""
    group: int | None = None
    """Number of the row group; None where there are no rows."""
    in_step: bool = True
    """Whether all tars hold the same keys in the same order."""
    fault: str | None = None
    """Why the shard has no rows although it has members: what reading it strictly raised."""
    stats: Mapping[tuple[str, ...], LeafStats] = field(default_factory=dict)
    """Path of a column or of a field below it -> its values."""

    @property
    def text_fault(self) -> str | None:
        """Why the texts of a tar, the last of such, are not in the rows."""
        faults = [tar.text_fault for tar in self.tars.values() if tar is not None]
        return next(filter(None, reversed(faults)), None)


@dataclass(frozen=True, slots=True, kw_only=True)
class PartSummary:
    """What the index of one part folder is about."""

    key_split: KeySplit
    """See `split_name`."""
    folders: tuple[str, ...]
    """Modalities that were read, as folders below the root, or with a root of their own."""
    has_texts: bool
    """Whether texts were read."""
    entries: Mapping[str, ShardEntry] = field(default_factory=dict)
    """Shard's name -> what was found."""

    def to_metadata(self) -> dict[bytes, bytes]:
        """Return the summary as key-value metadata of a Parquet file."""
        texts: dict[str, int] = {}
        leaves: dict[tuple[str, ...], int] = {}
        shards = [
            _plain_entry(entry, self.folders, texts, leaves) for entry in self.entries.values()
        ]
        plain = {
            "key_split": self.key_split,
            "folders": self.folders,
            "has_texts": self.has_texts,
            "texts": [json.loads(text) for text in texts],
            "leaves": list(leaves),
            "shards": shards,
        }
        data = zlib.compress(json.dumps(plain, separators=(",", ":")).encode())
        return {_SUMMARY: b64encode(data), _VERSION: str(VERSION).encode()}

    @classmethod
    def from_metadata(cls, metadata: Mapping[bytes, bytes]) -> "PartSummary":
        """Return what `to_metadata` was given.

        Raises:
            KeyError, ValueError: It is not there, or damaged.
        """
        plain = json.loads(zlib.decompress(b64decode(metadata[_SUMMARY], validate=True)))
        folders = tuple(plain["folders"])
        leaves = [tuple(path) for path in plain["leaves"]]
        entries = [_entry_of(shard, folders, plain["texts"], leaves) for shard in plain["shards"]]
        return cls(
            key_split=plain["key_split"],
            folders=folders,
            has_texts=plain["has_texts"],
            entries={entry.name: entry for entry in entries},
        )


def require_version(metadata: Mapping[bytes, bytes], *, path: str) -> None:
    """Refuse an index of another version.

    Args:
        metadata: Of the Parquet file.
        path: Where that is, for messages.

    Raises:
        UnusableIndexError: It is of another version, or no index.
    """
    version = metadata.get(_VERSION, b"none")
    if version != str(VERSION).encode():
        raise UnusableIndexError(
            "in an index of another version",
            f"{path}: version {version.decode(errors='replace')} was found, expected {VERSION}",
        )


def part_of(name: str) -> str:
    """Return the part folder of a shard's name; empty where it lies in none."""
    return name.rpartition("/")[0]


def file_name(part: str) -> str:
    """Return the name of a part folder's index, or of a shard's: no two have the same."""
    escaped = (part or "/").replace("%", "%25").replace("/", "%2F")
    return f"{escaped}.parquet"


def index_path(root: str, name: str) -> str:
    """Return the path of the index that tells of a shard.

    Args:
        root: Of the leaf.
        name: Of the shard.
    """
    return join(root, INDEX_FOLDER, file_name(part_of(name)))


def field_of(folder: str, what: str) -> str:
    """Return the name of a modality's column in the index."""
    return f"{folder}/{what}"


def _plain_entry(
    entry: ShardEntry,
    folders: tuple[str, ...],
    texts: dict[str, int],
    leaves: dict[tuple[str, ...], int],
) -> list[Any]:
    for leaf in entry.stats:
        leaves.setdefault(leaf, len(leaves))
    return [
        entry.name,
        [_plain_tar(entry.tars.get(folder), texts) for folder in folders],
        entry.num_rows,
        entry.group,
        entry.in_step,
        entry.fault,
        [[leaves[leaf], *stats] for leaf, stats in entry.stats.items()],
    ]


def _plain_tar(tar: TarEntry | None, texts: dict[str, int]) -> list[Any] | None:
    if tar is None:
        return None
    # Most shards' texts are alike, so they are told of once.
    text = None
    if tar.text is not None:
        text = texts.setdefault(json.dumps(tar.text), len(texts))
    return [
        tar.state.size,
        tar.state.mtime_ns,
        tar.state.tag,
        tar.count,
        sorted(tar.suffixes),
        dict(tar.notes),
        text,
        tar.text_fault,
    ]


def _entry_of(
    plain: list[Any],
    folders: tuple[str, ...],
    texts: list[Mapping[str, Any]],
    leaves: list[tuple[str, ...]],
) -> ShardEntry:
    name, tars, num_rows, group, in_step, fault, stats = plain
    return ShardEntry(
        name=name,
        tars={
            folder: None if tar is None else _tar_of(tar, texts)
            for folder, tar in zip(folders, tars, strict=True)
        },
        num_rows=num_rows,
        group=group,
        in_step=in_step,
        fault=fault,
        stats={leaves[leaf]: LeafStats(low, high, nulls) for leaf, low, high, nulls in stats},
    )


def _tar_of(plain: list[Any], texts: list[Mapping[str, Any]]) -> TarEntry:
    size, mtime_ns, tag, count, suffixes, notes, text, text_fault = plain
    return TarEntry(
        state=TarState(size=size, mtime_ns=mtime_ns, tag=tag),
        count=count,
        suffixes=frozenset(suffixes),
        notes=notes,
        text=None if text is None else texts[text],
        text_fault=text_fault,
    )
