"""What a packing wrote, and what it left out and why."""

import json
from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Final, Literal

from daft_twinwds.errors import StorageError
from daft_twinwds.shards.new_file import new_file

__all__ = [
    "REPORT_NAME",
    "LeftOut",
    "PackProgress",
    "PackReport",
    "PackedLeaf",
    "read_left_out",
    "write_left_out",
]

REPORT_NAME: Final = "pack_report.jsonl"


@dataclass(frozen=True, slots=True, kw_only=True)
class LeftOut:
    """A sample or file of the input that was not packed: one line of ``pack_report.jsonl``."""

    key: str
    """The sample's, without the prefix; the whole name where there is no suffix."""
    modality: str
    """Folder that `file` lies in; empty for what lies in none."""
    file: str
    """Path below the modality's folder; bytes that are not UTF-8 as ``\\xff``."""
    reason: str
    """A few words that repeat from case to case, so that they can be counted."""
    detail: str = ""
    """What is special about this case."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PackedLeaf:
    """One folder of twin modalities in the output."""

    folder: str
    """Below the output folder, ``aspect_ratio_16_9``; empty where it is the output itself."""
    num_shards: int
    """Tars per modality."""
    num_samples: int
    """Keys in all of them."""
    num_bytes: Mapping[str, int]
    """Modality -> bytes of its files."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PackReport:
    """What was packed, or would be."""

    output_dir: str
    """Root of the data set."""
    leaves: tuple[PackedLeaf, ...]
    """Sorted by folder."""
    left_out: tuple[LeftOut, ...]
    """Samples and files that are not in the output."""
    beyond_limit: int
    """Samples that ``limit`` cut off; they are not in `left_out`."""
    tars_found: int
    """Tars that an earlier, interrupted run had finished."""
    dry_run: bool
    """Whether nothing was written."""

    @property
    def num_shards(self) -> int:
        """Shards of all leaves."""
        return sum(leaf.num_shards for leaf in self.leaves)

    @property
    def num_samples(self) -> int:
        """Samples of all leaves."""
        return sum(leaf.num_samples for leaf in self.leaves)

    @property
    def num_bytes(self) -> int:
        """Bytes of all files that were packed."""
        return sum(sum(leaf.num_bytes.values()) for leaf in self.leaves)

    @property
    def reasons(self) -> dict[str, int]:
        """Reason -> how many samples and files were left out for it, the commonest first."""
        return dict(Counter(item.reason for item in self.left_out).most_common())


@dataclass(frozen=True, slots=True, kw_only=True)
class PackProgress:
    """How far a packing is; handed to the ``progress`` callback."""

    stage: Literal["inspect", "write"]
    """Looking at pictures and videos counts samples, writing counts tars."""
    done: int
    """Samples or tars, in ``[0, total]``."""
    total: int
    """Samples or tars of this stage."""
    tar: str | None = None
    """Tar that has just been finished, below the output folder."""


def write_left_out(output: str, left_out: Iterable[LeftOut]) -> None:
    """Write ``pack_report.jsonl``, one JSON object per line.

    Raises:
        StorageError: The folder cannot be written to.
    """
    with new_file(f"{output}/{REPORT_NAME}") as file:
        for item in left_out:
            file.write(json.dumps(asdict(item), ensure_ascii=False).encode() + b"\n")


def read_left_out(output: str) -> tuple[LeftOut, ...]:
    """Return what `write_left_out` wrote.

    Raises:
        StorageError: The file is not there, or is not what was written.
    """
    path = Path(output) / REPORT_NAME
    try:
        with path.open("rb") as file:
            return tuple(LeftOut(**json.loads(line)) for line in file)
    except (OSError, ValueError, TypeError) as error:
        raise StorageError(
            f"{path}: cannot be read ({error}); expected the report of the packing that is "
            "resumed; empty the output folder and pack again"
        ) from error
