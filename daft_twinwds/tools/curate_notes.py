"""What a look at a shard has noted: a small Parquet file of the rows that may stay."""

import io
import json
import logging
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Final, NamedTuple

import pyarrow as pa
import pyarrow.parquet as pq

from daft_twinwds.errors import StorageError
from daft_twinwds.shards.tar_state import TarState
from daft_twinwds.tools.curate_place import CurationFolder

__all__ = [
    "HASH",
    "PLACE",
    "ROWS",
    "THUMBNAIL",
    "Gone",
    "LookOutcome",
    "ShardLook",
    "read_look",
    "required_look",
    "write_look",
]

logger = logging.getLogger("daft_twinwds")

HASH: Final = "hash"
THUMBNAIL: Final = "thumbnail"
PLACE: Final = "place"
"""`place_of` a row: a number that is unique in the data set, and grows in its order."""
ROWS: Final = 1 << 32
"""More rows than a shard has."""
_NOTES: Final = b"daft_twinwds.look"


@dataclass(frozen=True, slots=True, kw_only=True)
class LookOutcome:
    """What is to be said of a shard; plain values, so that it travels."""

    number: int
    """Of the shard in the data set."""
    num_rows: int
    num_staying: int
    """Rows that may stay, before they are compared with those of other shards."""
    dropped: Mapping[str, int]
    """Reason -> rows."""
    left_out: Mapping[str, int]
    """Reason -> what became no row."""
    is_taken_over: bool = False
    """Whether an earlier run had looked."""


class Gone(NamedTuple):
    """A row that is dropped for what is wrong with it."""

    place: int
    """Its `PLACE`."""
    key: str
    reason: str


@dataclass(frozen=True, slots=True, kw_only=True)
class ShardLook:
    """What a look at a shard has noted."""

    outcome: LookOutcome
    states: Mapping[str, TarState]
    """Column -> version of its tar that was looked at."""
    rows: pa.Table
    """Those that may stay, in order: `PLACE`, `KEY`, `HASH`, `THUMBNAIL` if what they show is
    compared, and `name`, `position` and `size` of the member in each modality, numbered as these
    are."""
    gone: tuple[Gone, ...]
    """Rows with a fault, in order."""


def read_look(folder: CurationFolder, number: int) -> ShardLook | None:
    """Return what has been noted of a shard, None if nothing has or it is damaged.

    Raises:
        StorageError: It may not be read.
    """
    path = folder.look(number)
    try:
        rows = pq.read_table(pa.BufferReader(path.read_bytes()))
        notes = json.loads(rows.schema.metadata[_NOTES])
        return ShardLook(
            outcome=LookOutcome(**notes["outcome"]),
            states={column: TarState(**state) for column, state in notes["states"].items()},
            rows=rows,
            gone=tuple(Gone(*gone) for gone in notes["gone"]),
        )
    except FileNotFoundError:
        return None
    except OSError as error:
        raise StorageError(
            f"{path}: cannot be read ({error.strerror}); expected what a look has written; check "
            "its permissions"
        ) from error
    except (pa.ArrowException, ValueError, KeyError, TypeError) as error:
        logger.warning("%s: damaged (%s); the shard is looked at again", path, error)
        return None


def required_look(folder: CurationFolder, number: int) -> ShardLook:
    """Return what has been noted of a shard that was looked at.

    Raises:
        StorageError: It is gone, or may not be read.
    """
    look = read_look(folder, number)
    if look is None:
        raise StorageError(
            f"{folder.look(number)}: not found; expected what the look at a shard has noted, on a "
            "folder that all nodes share; check the mount and curate again"
        )
    return look


def write_look(folder: CurationFolder, look: ShardLook) -> None:
    """Note what was seen of a shard.

    Raises:
        StorageError: It cannot be written.
    """
    notes = {
        "outcome": asdict(look.outcome),
        "states": {column: asdict(state) for column, state in look.states.items()},
        "gone": look.gone,
    }
    buffer = io.BytesIO()
    rows = look.rows.replace_schema_metadata({_NOTES: json.dumps(notes)})
    pq.write_table(rows, buffer, compression="zstd")
    folder.put(folder.look(look.outcome.number), buffer.getvalue())
