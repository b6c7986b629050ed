"""What the demo finds out, step by step, and who is told of it."""

from collections.abc import Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from typing import ClassVar, Protocol

__all__ = [
    "BatchStep",
    "DataStep",
    "DemoResult",
    "PreviewRow",
    "QueryStep",
    "RankReading",
    "Reporter",
    "ScanPlan",
    "SheetStep",
    "SilentReporter",
    "Step",
    "StreamStep",
    "TableStep",
]


@dataclass(frozen=True, slots=True, kw_only=True)
class ScanPlan:
    """What Daft's optimised plan says about the scan; nothing is added to it."""

    num_tasks: int | None
    """Scan tasks, one per shard; None where the plan does not say."""
    pushdowns: Mapping[str, str]
    """``"projection"``, ``"filter"``, ``"limit"``, as far as there are any, -> what the plan
    prints behind it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class DataStep:
    """The data set that the demo reads."""

    step: ClassVar[str] = "data"
    root: str
    made: bool
    """Painted for the demo, not given."""
    kept_at: str | None
    """Folder in which made data stay."""
    num_rows: int
    num_shards: int
    picture_bytes: int
    """Bytes of all pictures, as their tars hold them."""
    seconds: float
    """Time for painting, or for finding all rows of given data."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PreviewRow:
    """One row of the table; None where the data set does not say."""

    key: str
    prompt: str | None
    width: int | None
    """Pixels, as the caption claims."""
    height: int | None
    tar: str
    """Base name of the tar that holds the picture."""
    position: int
    """First byte of the picture in it."""
    size: int
    """Bytes of the picture."""


@dataclass(frozen=True, slots=True, kw_only=True)
class TableStep:
    """The data set as a DataFrame."""

    step: ClassVar[str] = "table"
    columns: Mapping[str, str]
    """Column -> type."""
    rows: Sequence[PreviewRow]
    """The first rows."""
    num_rows: int
    """Rows in the whole table."""
    plan: ScanPlan
    seconds: float
    """Time for running the query."""


@dataclass(frozen=True, slots=True, kw_only=True)
class QueryStep:
    """What the query kept, and what it did not have to touch."""

    step: ClassVar[str] = "query"
    word: str | None
    """Word that the prompts that were kept hold, asked for by ``read_twin_webdataset(where=)``."""
    least_score: float | None
    """Score that the captions that were kept have at least, asked for by ``DataFrame.where``."""
    num_rows: int
    """Rows before the query."""
    num_kept: int
    num_shards_kept: int
    """Shards that hold a row that was kept."""
    kept_bytes: int
    """Bytes of the pictures that were kept: all that streaming will read."""
    read_bytes: int | None
    """Bytes that the process read while the query ran, as Linux counts them; else None."""
    plan: ScanPlan
    seconds: float
    """Time for running the query."""


@dataclass(frozen=True, slots=True, kw_only=True)
class BatchStep:
    """One batch has passed."""

    step: ClassVar[str] = "batch"
    rank: int
    num_rows: int
    width: int
    """Pixels, of the batch's pictures."""
    height: int


@dataclass(frozen=True, slots=True, kw_only=True)
class RankReading:
    """What one data-parallel rank has read."""

    rank: int
    num_rows: int
    num_batches: int
    num_bytes: int
    """Bytes of picture files."""


@dataclass(frozen=True, slots=True, kw_only=True)
class StreamStep:
    """What the ranks have read together, and whether that was each sample once."""

    step: ClassVar[str] = "stream"
    ranks: Sequence[RankReading]
    num_rows: int
    num_bytes: int
    num_pixels: int
    sizes: Sequence[tuple[int, int]]
    """Different (width, height) of the decoded pictures, ascending."""
    num_lost: int
    """Samples that the query kept and no rank read."""
    num_repeated: int
    """Readings of a sample that was read before, or that the query did not keep."""
    seconds: float
    """From the first request to the last picture, thumbnails included."""
    images_per_second: float
    megabytes_per_second: float
    megapixels_per_second: float
    peak_memory_bytes: int
    """Largest resident memory of the process so far."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SheetStep:
    """The contact sheet."""

    step: ClassVar[str] = "sheet"
    path: str
    width: int
    height: int
    num_pictures: int
    """Pictures on it, the first ones of all that were streamed."""
    replaced: bool
    """A file of that name was there before."""


Step = DataStep | TableStep | QueryStep | BatchStep | StreamStep | SheetStep


@dataclass(frozen=True, slots=True, kw_only=True)
class DemoResult:
    """All that the demo found out."""

    data: DataStep
    table: TableStep
    query: QueryStep
    stream: StreamStep
    sheet: SheetStep

    @property
    def is_complete(self) -> bool:
        """Whether each sample that the query kept was read exactly once."""
        return self.stream.num_lost == 0 and self.stream.num_repeated == 0


class Reporter(Protocol):
    """Who is told what the demo does while it runs."""

    def tell(self, step: Step) -> None:
        """Take note of what was found out."""

    def busy(self, doing: str) -> AbstractContextManager[object]:
        """Return a context for work that takes a moment."""

    def streaming(self, rows_per_rank: Sequence[int]) -> AbstractContextManager[object]:
        """Return a context in which each `BatchStep` belongs to these ranks."""


class SilentReporter:
    """Tells nobody."""

    def tell(self, step: Step) -> None:
        """Do nothing."""

    def busy(self, doing: str) -> AbstractContextManager[object]:  # noqa: ARG002  # the protocol's
        """Return a context that does nothing."""
        return nullcontext()

    def streaming(
        self,
        rows_per_rank: Sequence[int],  # noqa: ARG002  # the protocol's
    ) -> AbstractContextManager[object]:
        """Return a context that does nothing."""
        return nullcontext()
