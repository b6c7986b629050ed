"""What a curation kept and dropped, and how far it is."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final, Literal

__all__ = [
    "DUPLICATE",
    "FAULTS",
    "TOO_SMALL",
    "UNDECODABLE",
    "UNFIT_NAME",
    "WHERE",
    "CurationProgress",
    "CurationReport",
]

WHERE: Final = "where"
TOO_SMALL: Final = "too small"
UNDECODABLE: Final = "undecodable"
UNFIT_NAME: Final = "unfit name"
DUPLICATE: Final = "duplicate"
FAULTS: Final = frozenset({UNDECODABLE, UNFIT_NAME})
"""What is wrong with a row in itself, whatever the filters."""


@dataclass(frozen=True, slots=True, kw_only=True)
class CurationProgress:
    """How far a curation is; handed to the ``progress`` callback."""

    stage: Literal["look", "copy"]
    """Rows are looked at first; those that stay are copied."""
    done: int
    """Shards that this stage is done with, in ``[0, total]``."""
    total: int
    """Shards of the source."""


@dataclass(frozen=True, slots=True, kw_only=True)
class CurationReport:
    """What became of a data set. ``num_rows == num_kept + sum(dropped.values())``."""

    output: str
    """Folder of the new data set."""
    num_rows: int
    """Rows of the source, earlier runs' share included."""
    num_kept: int
    """Rows of the new data set."""
    dropped: Mapping[str, int]
    """Reason -> rows: ``"where"``, ``"too small"``, ``"undecodable"``, ``"duplicate"``,
    ``"unfit name"``; those that occurred."""
    left_out: Mapping[str, int]
    """What became no row in the first place, or was odd, by reason; as `scan_report` has it."""
    num_shards: int
    """Shards of the source."""
    num_written: int
    """Shards of the new data set; those without a row are not there."""
    num_bytes: int
    """Bytes of its tars."""
    looks_taken_over: int
    """Shards that an earlier run had looked at, and that have not changed since."""
    copies_taken_over: int
    """Shards that an earlier run had written."""
    seconds: float
    """How long this run took."""
