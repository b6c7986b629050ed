"""What validating a data set found, and how far it is."""

from collections import Counter
from collections.abc import Collection, Mapping
from dataclasses import dataclass
from typing import Final, Literal, TypeAlias

from daft_twinwds.tools.terminal import printable

__all__ = [
    "WARNINGS",
    "Fault",
    "Findings",
    "Kind",
    "ValidateProgress",
    "ValidationReport",
]

FaultKind: TypeAlias = Literal[
    "bad layout",
    "no manifest",
    "unfinished",
    "missing modality",
    "different modalities",
    "missing tar",
    "unlisted tar",
    "unreadable tar",
    "damaged tar",
    "bad name",
    "no suffix",
    "duplicate key",
    "missing key",
    "odd suffix",
    "bad schema",
    "bad text",
    "extra field",
    "bad picture",
    "wrong count",
    "wrong total",
]
"""What readers refuse, lose or are misled by."""
WarningKind: TypeAlias = Literal[
    "different order",
    "no end marker",
    "single end block",
    "bytes after the end marker",
    "members left out",
    "stale root",
    "stale index",
]
"""What this package reads all the same."""
Kind: TypeAlias = FaultKind | WarningKind

WARNINGS: Final[frozenset[str]] = frozenset(WarningKind.__args__)  # type: ignore[attr-defined]


@dataclass(frozen=True, slots=True, kw_only=True)
class Fault:
    """One thing that is wrong, and where. Paths and keys are as they are: escape to print them."""

    kind: Kind
    path: str
    """The tar, manifest or folder; a URL without its secrets."""
    text: str
    """What was found, what was expected, what to do."""
    modality: str | None = None
    """Column; None for what concerns no single one."""
    shard: str | None = None
    """Path of the tar below its modality's folder; None for what concerns no single shard."""
    key: str | None = None
    """The sample's, where there is one."""
    offset: int | None = None
    """Byte of `path`: of a member its first, of a damaged tar the header where reading stopped."""

    @property
    def is_warning(self) -> bool:
        """Whether the data set can be read all the same."""
        return self.kind in WARNINGS

    @property
    def line(self) -> str:
        """The fault in one sentence, place first; what cannot be printed is escaped."""
        place = [self.path]
        if self.offset is not None:
            place.append(f"byte {self.offset}")
        if self.key is not None:
            place.append(f"key {self.key!r}")
        return printable(": ".join([*place, self.text]))


@dataclass(frozen=True, slots=True, kw_only=True)
class ValidateProgress:
    """How far a validation is; handed to the ``progress`` callback."""

    done: int
    """Shards, in ``[0, total]``."""
    total: int
    """Shards of the data set that are there."""
    shard: str
    """The one that has just been finished, without its modality."""
    num_faults: int
    """Faults so far, without warnings."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ValidationReport:
    """What is wrong with a data set."""

    faults: tuple[Fault, ...]
    """Faults in the order of leaves and shards; of each kind the first ``max_faults``."""
    warnings: tuple[Fault, ...]
    """The same of what is read all the same."""
    counts: Mapping[str, int]
    """Kind -> how many there are, kept or not; warnings included."""
    num_leaves: int
    """Folders of twin modalities that could be looked into."""
    num_shards: int
    """Shards that were looked into."""
    num_keys: int
    """Keys that all twins of their shard hold."""
    num_members: int
    """Members of all tars."""
    num_decoded: int
    """Pictures that were decoded, the bad ones among them included."""
    fixed: tuple[str, ...] = ()
    """Manifests that were corrected."""

    @property
    def num_faults(self) -> int:
        """Faults, kept or not, without warnings."""
        return sum(number for kind, number in self.counts.items() if kind not in WARNINGS)

    @property
    def num_warnings(self) -> int:
        """Warnings, kept or not."""
        return sum(number for kind, number in self.counts.items() if kind in WARNINGS)

    @property
    def is_sound(self) -> bool:
        """Whether there is no fault; there may be warnings."""
        return not self.num_faults


class Findings:
    """Faults as they are found: all are counted, of each kind some are kept.

    Args:
        max_faults: How many of each kind to keep.
    """

    def __init__(self, max_faults: int) -> None:
        self.max_faults = max_faults
        self.counts: Counter[str] = Counter()
        self.kept: list[Fault] = []

    def add(self, fault: Fault) -> None:
        """Take note of a fault."""
        if self.counts[fault.kind] < self.max_faults:
            self.kept.append(fault)
        self.counts[fault.kind] += 1

    def merge(self, other: "Findings") -> None:
        """Take note of what another found later; it kept at least as many."""
        for fault in other.kept:
            if self.counts[fault.kind] < self.max_faults:
                self.kept.append(fault)
                self.counts[fault.kind] += 1
                other.counts[fault.kind] -= 1
        self.counts += other.counts

    def forget(self, kinds: Collection[str]) -> None:
        """Drop what is no longer so."""
        self.kept = [fault for fault in self.kept if fault.kind not in kinds]
        for kind in kinds:
            self.counts.pop(kind, None)

    def num_faults(self) -> int:
        """Return how many there are, without warnings."""
        return sum(number for kind, number in self.counts.items() if kind not in WARNINGS)
