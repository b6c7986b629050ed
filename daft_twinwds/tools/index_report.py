"""What building an index found, and how far it is."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

__all__ = ["IndexProgress", "IndexReport", "PartOutcome", "ShardOutcome"]


@dataclass(frozen=True, slots=True, kw_only=True)
class IndexProgress:
    """How far a build is; handed to the ``progress`` callback."""

    done: int
    """Shards, in ``[0, total]``."""
    total: int
    """Shards of the data set."""
    shard: str
    """The one that has just been finished, without its modality."""
    is_read: bool
    """Whether its tars were read; what was known of it held otherwise."""


@dataclass(frozen=True, slots=True, kw_only=True)
class IndexReport:
    """What an index covers. Shards are called by their path or URL without the modality."""

    num_shards: int
    """Shards of the data set."""
    num_read: int
    """Shards whose tars were read by this call."""
    num_rows: int
    """Keys in the index."""
    num_written: int
    """Part folders whose index was written by this call."""
    not_indexed: Mapping[str, str]
    """Shard -> why it has no rows: its tars are damaged or contradict themselves. Scans read them."""
    texts_left_out: Mapping[str, str]
    """Shard -> why its texts are not in the index. Scans read them from the tar."""
    unreadable_pictures: int
    """Pictures without a readable header, in the shards that were read by this call."""
    failed: Mapping[str, str]
    """Shard -> why it could not be read, and is not covered; the next call tries again."""
    out_of_date: Mapping[str, str]
    """Shard -> why its entry does not hold; only where an index was checked and not built."""

    @property
    def is_complete(self) -> bool:
        """Whether every shard has an entry that holds."""
        return not self.failed and not self.out_of_date


@dataclass(frozen=True, slots=True, kw_only=True)
class ShardOutcome:
    """What became of a shard; plain values, so that it travels."""

    url: str
    """The shard, without its modality."""
    is_read: bool
    """Whether its tars were read; what was known of it held otherwise."""
    num_rows: int = 0
    unreadable_pictures: int = 0
    """Pictures without a readable header, if its tars were read."""
    failure: str | None = None
    """Why it cannot be read, and is not in the index."""
    not_indexed: str | None = None
    """Why it has no rows."""
    text_left_out: str | None = None
    """Why its texts are not in the index."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PartOutcome:
    """What became of a part folder."""

    shards: Sequence[ShardOutcome]
    """All of them, in order."""
    is_written: bool
    """Whether its index was written, because something had changed."""
