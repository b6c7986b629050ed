"""The whole way once, on a small data set: tars, table, query, batches on two ranks, a picture."""

import os
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager, nullcontext
from pathlib import Path

from daft_twinwds.errors import StorageError
from daft_twinwds.testing import make_twin_dataset
from daft_twinwds.tools.contact_sheet import Tile, draw_sheet
from daft_twinwds.tools.demo_query import ask, count_shards, find_all, look, picture_bytes
from daft_twinwds.tools.demo_steps import (
    DataStep,
    DemoResult,
    QueryStep,
    Reporter,
    SheetStep,
    SilentReporter,
    StreamStep,
)
from daft_twinwds.tools.demo_stream import stream

__all__ = ["run_demo"]

BATCH_SIZE = 4
SEED = 4
WORD, LEAST_SCORE = "clouds", 2.0
"""What is asked of the captions of made data; half of them are so."""

PathLike = str | os.PathLike[str]


def run_demo(  # noqa: PLR0913  # the public function holds all defaults
    *,
    data: PathLike | None = None,
    output: PathLike = "contact_sheet.png",
    contains: str | None = None,
    threads: int = 2,
    keep: PathLike | None = None,
    reporter: Reporter | None = None,
    num_shards: int = 4,
    samples_per_shard: int = 6,
    image_size: tuple[int, int] = (3840, 2160),
) -> DemoResult:
    """Query a twin data set and stream what the query kept on two data-parallel ranks.

    Made data is filtered by its captions and streamed in batches of four at full size. Of given
    data every sample is streamed unless a word is asked for, one by one, each picture at its own
    size. Memory is bounded by the batches that the ranks prepare, and by the sheet's thumbnails.

    Args:
        data: Twin data set to read: its root, its ``wdinfo.json``, or a pattern of either. None
            paints one, in a temporary folder that is removed at the end.
        output: PNG file of the contact sheet; an old file of that name is replaced.
        contains: Word that the prompts to stream hold. None: ``clouds`` for made data, any prompt
            for given data.
        threads: Decoding threads of each rank, at least 1.
        keep: Folder in which to paint the made data and leave it, new or empty.
        reporter: Who is told of each step when it is done.
        num_shards: Shards of made data.
        samples_per_shard: Samples in each of them.
        image_size: (width, height) of painted pictures, in pixels.

    Returns:
        What each step found out. Whether every sample was read exactly once is for the caller to
        ask: `DemoResult.is_complete`.

    Raises:
        ValueError: Both ``data`` and ``keep`` were given, or a number is out of its range.
        MissingDependencyError: Torch is not installed.
        StorageError: A file cannot be written or read.
        TwinWebDatasetError: The data set is damaged, or holds nothing of what was asked for.
        DaftCoreException: The same, as Daft wraps it if it happens while a query runs.
    """
    if data is not None and keep is not None:
        raise ValueError("keep is for data that the demo makes; pass either data or keep")
    if threads < 1:
        raise ValueError(f"threads must be at least 1, got {threads}")
    path = _checked_output(Path(output))
    reporter = reporter or SilentReporter()
    made = data is None
    with _folder(keep) if data is None else nullcontext(str(data)) as root:
        start = time.perf_counter()
        if made:
            with reporter.busy(f"painting {num_shards * samples_per_shard} pictures"):
                _paint(Path(root), num_shards, samples_per_shard, image_size)
        with reporter.busy("listing the samples"):
            everything = find_all(root)
        data_step = DataStep(
            root=root,
            made=made,
            kept_at=None if keep is None else str(keep),
            num_rows=len(everything),
            num_shards=count_shards(everything),
            picture_bytes=picture_bytes(everything),
            seconds=time.perf_counter() - start,
        )
        reporter.tell(data_step)
        table_step = look(root, num_rows=len(everything))
        reporter.tell(table_step)
        selection, query_step = ask(
            root,
            word=contains or (WORD if made else None),
            least_score=LEAST_SCORE if made else None,
            everything=everything,
        )
        reporter.tell(query_step)
        stream_step, tiles = stream(
            selection,
            batch_size=BATCH_SIZE if made else None,
            threads=threads,
            reporter=reporter,
        )
        reporter.tell(stream_step)
    sheet_step = _write_sheet(path, tiles, query_step, stream_step)
    reporter.tell(sheet_step)
    return DemoResult(
        data=data_step,
        table=table_step,
        query=query_step,
        stream=stream_step,
        sheet=sheet_step,
    )


@contextmanager
def _folder(keep: PathLike | None) -> Iterator[str]:
    """Yield an empty folder: the one to keep, or one that goes away."""
    if keep is None:
        with tempfile.TemporaryDirectory(prefix="daft_twinwds_demo_") as folder:
            yield folder
        return
    if Path(keep).exists() and not (Path(keep).is_dir() and not any(Path(keep).iterdir())):
        raise StorageError(
            f"{keep}: something is there already; expected a new or an empty folder to paint "
            "data in; name another one, or read what is there by data"
        )
    yield str(keep)


def _paint(root: Path, num_shards: int, samples_per_shard: int, size: tuple[int, int]) -> None:
    try:
        make_twin_dataset(
            root,
            num_shards=num_shards,
            samples_per_shard=samples_per_shard,
            image_size=size,
            seed=SEED,
        )
    except OSError as error:
        raise StorageError(
            f"{root}: the painted data cannot be written ({error.strerror}); expected a folder "
            "with some room that can be written to; keep it in another place"
        ) from error


def _checked_output(path: Path) -> Path:
    """Refuse at the beginning what could not be written at the end."""
    try:
        if path.is_dir() or not path.parent.is_dir():
            found = "is a folder" if path.is_dir() else "its folder does not exist"
            raise StorageError(
                f"{path}: {found}; expected a file for the contact sheet; name one in a folder "
                "that is there"
            )
    except OSError as error:
        raise StorageError(
            f"{path}: cannot be a file ({error.strerror}); expected a file for the contact "
            "sheet; name another one"
        ) from error
    return path


def _write_sheet(
    path: Path, tiles: list[Tile], query: QueryStep, streamed: StreamStep
) -> SheetStep:
    shown = "" if len(tiles) == streamed.num_rows else f", the first {len(tiles)} are shown"
    sheet = draw_sheet(
        tiles,
        heading="daft-twinwds demo",
        line=f"{query.num_kept:,} of {query.num_rows:,} samples asked for, "
        f"{streamed.num_rows:,} streamed by {len(streamed.ranks)} ranks: "
        f"{streamed.num_lost} lost, {streamed.num_repeated} seen twice{shown}",
        groups=[f"rank {rank.rank}: {rank.num_rows:,} pictures" for rank in streamed.ranks],
    )
    replaced = path.exists()
    try:
        sheet.save(path, format="PNG")
    except OSError as error:
        raise StorageError(
            f"{path}: the contact sheet cannot be written ({error.strerror}); expected a place "
            "that can be written to; name another one"
        ) from error
    return SheetStep(
        path=str(path),
        width=sheet.width,
        height=sheet.height,
        num_pictures=len(tiles),
        replaced=replaced,
    )
