"""The demo's streaming: two data-parallel ranks side by side, each sample counted."""

import resource
import sys
import time
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from daft_twinwds.partition import Partition
from daft_twinwds.tools.contact_sheet import Tile, make_tile
from daft_twinwds.tools.demo_query import KEY, PROMPT, URL, picture_of, printable
from daft_twinwds.tools.demo_steps import BatchStep, RankReading, Reporter, StreamStep
from daft_twinwds.train import DecodeImage, Selection

if TYPE_CHECKING:
    import numpy as np
    import numpy.typing as npt

    from daft_twinwds.train.torch import TwinIterDataset

__all__ = ["NUM_RANKS", "Sample", "count_readings", "stream"]

NUM_RANKS = 2
PREFETCH_BATCHES = 1
MOST_TILES = 98

Sample = tuple[str, str]
"""URL of the shard and key; keys alone may be the same in several shards."""


def stream(
    selection: Selection, *, batch_size: int | None, threads: int, reporter: Reporter
) -> tuple[StreamStep, list[Tile]]:
    """Read and decode all pictures of a selection once, by ranks that take turns.

    Pictures live as long as their batch; of the first ones a thumbnail is kept.

    Args:
        selection: Keys, URLs, pictures and perhaps prompts.
        batch_size: Pictures per batch, which then must all have one shape; None streams them one
            by one, each at its own size.
        threads: Decoding threads of each rank.
        reporter: Who is told of each batch.

    Raises:
        MissingDependencyError: Torch is not installed.
        DecodeError: A picture is damaged.
        StorageError: A tar cannot be read.
    """
    with reporter.busy("importing torch"):
        from daft_twinwds.train import to_torch_iter_dataset
    readers = [Partition(rank=rank, world_size=NUM_RANKS) for rank in range(NUM_RANKS)]
    datasets = [
        to_torch_iter_dataset(
            selection,
            decode={picture_of(selection): DecodeImage()},
            batch_size=batch_size,
            partition=reader,
            num_threads=threads,
            prefetch_batches=PREFETCH_BATCHES,
        )
        for reader in readers
    ]
    tally = _Tally(picture=picture_of(selection), is_batched=batch_size is not None)
    with reporter.streaming([len(reader.slice_of(len(selection))) for reader in readers]):
        start = time.perf_counter()
        for rank, item in _take_turns(datasets):
            reporter.tell(tally.add(rank, item))
            # The batch would live on while the next one is waited for.
            del item
        seconds = time.perf_counter() - start
    urls, keys = (selection.table.column(name).to_pylist() for name in (URL, KEY))
    step = tally.step(
        wanted=list(zip(urls, keys, strict=True)),
        bytes_per_rank=[int(dataset.report()["bytes"]) for dataset in datasets],
        seconds=seconds,
    )
    return step, tally.tiles


def count_readings(wanted: Sequence[Sample], read: Mapping[Sample, int]) -> tuple[int, int]:
    """Compare what was to be read with what was read.

    Args:
        wanted: Each sample once.
        read: Sample -> how often it was read.

    Returns:
        How many samples were not read, and how many readings were not wanted: of a sample read
        before, or of one that nobody asked for.
    """
    once, often = Counter(wanted), Counter(read)
    return (once - often).total(), (often - once).total()


def _take_turns(datasets: "Sequence[TwinIterDataset]") -> Iterator[tuple[int, dict[str, Any]]]:
    """Yield (rank, batch) of each rank in turn; the others go on decoding ahead meanwhile."""
    feeds = {rank: iter(dataset) for rank, dataset in enumerate(datasets)}
    while feeds:
        for rank in list(feeds):
            item = next(feeds[rank], None)
            if item is None:
                del feeds[rank]
            else:
                yield rank, item
                del item


@dataclass(slots=True, kw_only=True)
class _Tally:
    """What has passed so far."""

    picture: str
    is_batched: bool
    tiles: list[Tile] = field(default_factory=list)
    rows: Counter[int] = field(default_factory=Counter)
    batches: Counter[int] = field(default_factory=Counter)
    read: Counter[Sample] = field(default_factory=Counter)
    sizes: set[tuple[int, int]] = field(default_factory=set)
    pixels: int = 0

    def add(self, rank: int, item: dict[str, Any]) -> BatchStep:
        """Count one batch, or one sample where there are no batches."""
        if not self.is_batched:
            item = {
                name: value[None] if name == self.picture else [value]
                for name, value in item.items()
            }
        keys: list[str] = item[KEY]
        prompts: list[str | None] = item.get(PROMPT, [None] * len(keys))
        # Channels come first in torch; in memory they are last, as the thumbnails want them.
        pixels: npt.NDArray[np.uint8] = item[self.picture].permute(0, 2, 3, 1).numpy()
        num_rows, height, width = pixels.shape[:3]
        for place in range(min(num_rows, MOST_TILES - len(self.tiles))):
            title, text = printable(keys[place]) or "", printable(prompts[place]) or ""
            self.tiles.append(make_tile(pixels[place], title=title, text=text, group=rank))
        self.read.update(zip(item[URL], keys, strict=True))
        self.rows[rank] += num_rows
        self.batches[rank] += 1
        self.sizes.add((width, height))
        self.pixels += num_rows * width * height
        return BatchStep(rank=rank, num_rows=num_rows, width=width, height=height)

    def step(
        self, *, wanted: Sequence[Sample], bytes_per_rank: Sequence[int], seconds: float
    ) -> StreamStep:
        """Sum up."""
        lost, repeated = count_readings(wanted, self.read)
        num_rows, num_bytes = self.rows.total(), sum(bytes_per_rank)
        return StreamStep(
            ranks=[
                RankReading(
                    rank=rank,
                    num_rows=self.rows[rank],
                    num_batches=self.batches[rank],
                    num_bytes=size,
                )
                for rank, size in enumerate(bytes_per_rank)
            ],
            num_rows=num_rows,
            num_bytes=num_bytes,
            num_pixels=self.pixels,
            sizes=sorted(self.sizes),
            num_lost=lost,
            num_repeated=repeated,
            seconds=seconds,
            images_per_second=num_rows / seconds,
            megabytes_per_second=num_bytes / 1e6 / seconds,
            megapixels_per_second=self.pixels / 1e6 / seconds,
            peak_memory_bytes=_peak_memory(),
        )


def _peak_memory() -> int:
    """Return the largest resident memory of this process so far, in bytes."""
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    # Linux counts in KiB.
    return peak if sys.platform == "darwin" else peak * 1024
