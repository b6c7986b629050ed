"""One curation, from the first look to the manifests."""

from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from daft_twinwds.errors import StorageError
from daft_twinwds.shards.dataset import Shard
from daft_twinwds.shards.manifest_write import write_manifest
from daft_twinwds.shards.new_file import sync_folder
from daft_twinwds.tools.cluster import run_for_each
from daft_twinwds.tools.curate_copy import Copy, CopyItem
from daft_twinwds.tools.curate_doubles import Doubles, doubles_in
from daft_twinwds.tools.curate_dropped import DroppedRows
from daft_twinwds.tools.curate_look import Duplicates, Look
from daft_twinwds.tools.curate_place import CurationFolder
from daft_twinwds.tools.curate_report import DUPLICATE, FAULTS, CurationProgress, CurationReport
from daft_twinwds.tools.curate_source import CurationSource

__all__ = ["Curation"]

_VERSION = 2
"""Of what looks note, hashes and thumbnails among it; runs of another version are not gone on with."""


@dataclass(slots=True, kw_only=True)
class Curation:
    """One call of `curate`."""

    source: CurationSource
    folder: CurationFolder
    picture: str | None
    least: Mapping[str, int]
    """``"width"`` and ``"height"`` -> pixels, if they are bounded."""
    duplicates: Duplicates | None
    workers: int | None
    progress: Callable[[CurationProgress], None]
    num_rows: int = 0
    dropped: Counter[str] = field(default_factory=Counter)
    left_out: Counter[str] = field(default_factory=Counter)
    looks_taken_over: int = 0
    copies_taken_over: int = 0
    num_bytes: int = 0
    counts: NDArray[np.int64] = field(init=False)
    """Rows of each shard: first those that may stay, then those that were copied."""
    with_faults: NDArray[np.bool_] = field(init=False)
    """Which shards have rows that are dropped for what is wrong with them."""
    doubles: Doubles = field(default_factory=Doubles.none)

    def __post_init__(self) -> None:
        self.counts = np.zeros(len(self.source.dataset), np.int64)
        self.with_faults = np.zeros(len(self.source.dataset), np.bool_)
        self.left_out.update(self.source.dataset.skipped)

    def facts(self) -> dict[str, object]:
        """Return what must be equal for this run to go on with another's work."""
        return {
            "version": _VERSION,
            **self.source.facts(),
            **{f"min_{what}": self.least.get(what) for what in ("width", "height")},
            "duplicates": self.duplicates,
            "picture": self.picture,
            "modalities": [list(pair) for pair in self.source.folders().items()],
            "leaves": self.source.prefixes(),
        }

    def look(self) -> None:
        """Look at all rows, and find those that are equal to an earlier one."""
        sizes = tuple((f"{self.picture}_{what}", least) for what, least in self.least.items())
        look = Look(
            scan=self.source.scan([name for name, _ in sizes]),
            sizes=sizes,
            picture=self.picture,
            duplicates=self.duplicates,
            folder=self.folder,
        )
        total = len(self.counts)
        outcomes = run_for_each(look, enumerate(self._shards()), total=total, workers=self.workers)
        for done, outcome in enumerate(outcomes, start=1):
            self.num_rows += outcome.num_rows
            self.dropped.update(outcome.dropped)
            self.left_out.update(outcome.left_out)
            self.looks_taken_over += outcome.is_taken_over
            self.counts[outcome.number] = outcome.num_staying
            self.with_faults[outcome.number] = not FAULTS.isdisjoint(outcome.dropped)
            self.progress(CurationProgress(stage="look", done=done, total=total))
        if self.duplicates is not None and self.counts.any():
            self.doubles = doubles_in(self.folder, self.duplicates)
            self.dropped[DUPLICATE] += len(self.doubles)

    def copy(self) -> None:
        """Copy what stays."""
        staying = int(self.counts.sum()) - len(self.doubles)
        copy = Copy(folders=self.source.folders(), folder=self.folder)
        total = len(self.counts)
        outcomes = run_for_each(copy, self._copies(), total=total, workers=self.workers)
        for done, outcome in enumerate(outcomes, start=1):
            self.counts[outcome.number] = outcome.num_rows
            self.num_bytes += outcome.num_bytes
            self.copies_taken_over += outcome.is_taken_over
            self.progress(CurationProgress(stage="copy", done=done, total=total))
        if self.counts.sum() != staying:
            raise StorageError(
                f"{self.folder.path}: {self.counts.sum()} rows were copied, {staying} were to be; "
                "expected that nobody else writes there; curate again"
            )

    def publish(self) -> None:
        """Write which rows were dropped, and then the manifests."""
        dropped = DroppedRows(
            folder=self.folder,
            doubles=self.doubles,
            with_faults=np.flatnonzero(self.with_faults),
        )
        dropped.write(
            f"{prefix}{name}"
            for leaf, prefix in zip(self.source.dataset.leaves, self.source.prefixes(), strict=True)
            for name in leaf.names.to_pylist()
        )
        folders = list(self.source.folders().values())
        start = 0
        for leaf, prefix in zip(self.source.dataset.leaves, self.source.prefixes(), strict=True):
            counts = self.counts[start : start + len(leaf.names)]
            start += len(leaf.names)
            root = Path(self.folder.path, prefix)
            for folder in folders:
                # A leaf that nothing is left of is read as one without rows.
                (root / folder).mkdir(parents=True, exist_ok=True)
            kept = np.flatnonzero(counts)
            write_manifest(
                str(root),
                modalities=folders,
                names=leaf.names.take(kept).to_pylist(),
                counts=counts[kept].tolist(),
            )
            sync_folder(str(root))

    def report(self, seconds: float) -> CurationReport:
        """Return what was done."""
        return CurationReport(
            output=self.folder.path,
            num_rows=self.num_rows,
            num_kept=int(self.counts.sum()),
            dropped=dict(+self.dropped),
            left_out=dict(+self.left_out),
            num_shards=len(self.counts),
            num_written=int(np.count_nonzero(self.counts)),
            num_bytes=self.num_bytes,
            looks_taken_over=self.looks_taken_over,
            copies_taken_over=self.copies_taken_over,
            seconds=seconds,
        )

    def _shards(self) -> Iterator[Shard]:
        return self.source.dataset.iter_shards()

    def _copies(self) -> Iterator[CopyItem]:
        number = 0
        for leaf, prefix in zip(self.source.dataset.leaves, self.source.prefixes(), strict=True):
            for index in range(len(leaf.names)):
                doubles = self.doubles.of(number).places
                yield CopyItem(
                    number=number, shard=leaf.shard(index), prefix=prefix, doubles=doubles
                )
                number += 1
