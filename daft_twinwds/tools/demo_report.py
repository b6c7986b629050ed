"""The demo's steps for people, on a terminal or in a pipe, and for programs, as JSON lines."""

import json
from collections.abc import Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import asdict
from typing import TextIO

from rich import box
from rich.console import Console, Group, RenderableType
from rich.padding import Padding
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TaskID, TextColumn
from rich.table import Table
from rich.text import Text

from daft_twinwds.tools.demo_steps import (
    BatchStep,
    DataStep,
    QueryStep,
    ScanPlan,
    SheetStep,
    Step,
    StreamStep,
    TableStep,
)

__all__ = ["ConsoleReporter", "JsonReporter"]

RANK_STYLES = ("bright_blue", "yellow")


class JsonReporter:
    """One line of JSON per step."""

    def __init__(self, file: TextIO) -> None:
        self._file = file

    def tell(self, step: Step) -> None:
        """Write a step, but no batches."""
        if not isinstance(step, BatchStep):
            line = json.dumps({"step": step.step, **asdict(step)})
            self._file.write(f"{line}\n")
            self._file.flush()

    def busy(self, doing: str) -> AbstractContextManager[object]:  # noqa: ARG002  # the protocol's
        """Say nothing."""
        return nullcontext()

    def streaming(
        self,
        rows_per_rank: Sequence[int],  # noqa: ARG002  # the protocol's
    ) -> AbstractContextManager[object]:
        """Say nothing."""
        return nullcontext()


class ConsoleReporter:
    """Tables and bars on a terminal; in a pipe the same tables, and a line per batch or so."""

    def __init__(self, console: Console) -> None:
        self._console = console
        self._progress: Progress | None = None
        self._tasks: list[TaskID] = []
        self._wanted: list[int] = []
        self._passed: list[int] = []

    def tell(self, step: Step) -> None:
        """Print a step, or move a rank's bar."""
        match step:
            case BatchStep():
                self._advance(step)
            case DataStep():
                self._print("1  Data", *_data_parts(step))
            case TableStep():
                self._print("2  Table", *_table_parts(step))
            case QueryStep():
                self._print("3  Query", *_query_parts(step))
            case StreamStep():
                self._print("5  Result", *_stream_parts(step))
            case SheetStep():
                self._print("6  Contact sheet", *_sheet_parts(step))

    def busy(self, doing: str) -> AbstractContextManager[object]:
        """Show a spinner on a terminal."""
        return self._console.status(f"{doing} ...")

    @contextmanager
    def streaming(self, rows_per_rank: Sequence[int]) -> Iterator[None]:
        """Show one bar per rank on a terminal."""
        self._wanted, self._passed = list(rows_per_rank), [0] * len(rows_per_rank)
        self._print("4  Stream")
        if not self._console.is_terminal:
            yield
            return
        columns = (
            TextColumn("   [{task.fields[style]}]{task.description}"),
            BarColumn(),
            MofNCompleteColumn(),
            TextColumn("{task.fields[size]}", style="dim"),
        )
        with Progress(*columns, console=self._console) as self._progress:
            self._tasks = [
                self._progress.add_task(f"rank {rank}", total=rows, style=_style(rank), size="")
                for rank, rows in enumerate(rows_per_rank)
            ]
            yield
        self._progress = None

    def _advance(self, step: BatchStep) -> None:
        before = self._passed[step.rank]
        after = self._passed[step.rank] = before + step.num_rows
        size = f"{step.width} x {step.height}"
        if self._progress is not None:
            task = self._tasks[step.rank]
            self._progress.update(task, advance=step.num_rows, size=size)
            return
        wanted = self._wanted[step.rank]
        # Eight lines per rank are enough for a log, however many samples there are.
        if after * 8 // wanted > before * 8 // wanted:
            self._console.print(f"   rank {step.rank}: {after} of {wanted} pictures, last {size}")

    def _print(self, title: str, *parts: RenderableType) -> None:
        indented = Padding(Group(*parts), (0, 0, 0, 3), expand=False)
        step = Group("", Text(title, style="bold"), *([indented] if parts else []))
        if self._console.is_terminal:
            self._console.print(step)
            return
        with self._console.capture() as capture:
            self._console.print(step)
        # Tables fill their lines up with spaces, which a log does not want.
        for line in capture.get().splitlines():
            self._console.out(line.rstrip(), highlight=False)


def _data_parts(step: DataStep) -> list[RenderableType]:
    what = f"{step.num_rows:,} samples in {step.num_shards:,} shards, "
    what += f"{_size(step.picture_bytes)} of pictures"
    if not step.made:
        return [Text(f"{what}; listed in {step.seconds:.1f} s"), Text(step.root, style="dim")]
    fate = "stays there" if step.kept_at else "removed at the end; --keep DIR leaves it"
    return [
        Text(f"{what}; painted in {step.seconds:.1f} s"),
        Text(f"{step.root} ({fate})", style="dim"),
    ]


def _table_parts(step: TableStep) -> list[RenderableType]:
    rows = Table(box=box.SIMPLE_HEAD, pad_edge=False, show_edge=False, expand=True)
    pictures = [f"{row.tar} [{row.position}:{row.position + row.size}]" for row in step.rows]
    longest_key = max((len(row.key) for row in step.rows), default=0)
    # The prompt gives way where the terminal is narrow.
    rows.add_column("__key__", no_wrap=True, width=min(24, max(7, longest_key)))
    rows.add_column("prompt", no_wrap=True, ratio=1)
    rows.add_column("width", justify="right", width=5)
    rows.add_column("height", justify="right", width=6)
    rows.add_column("picture", no_wrap=True, width=max(map(len, pictures), default=7))
    for row, picture in zip(step.rows, pictures, strict=True):
        sides = ["" if side is None else str(side) for side in (row.width, row.height)]
        rows.add_row(Text(row.key), Text(row.prompt or ""), *sides, Text(picture))
    columns = Table(box=box.SIMPLE_HEAD, pad_edge=False, show_edge=False)
    columns.add_column("column", no_wrap=True)
    columns.add_column("type")
    for name, dtype in step.columns.items():
        columns.add_row(Text(name), Text(dtype))
    facts = {
        "shown": f"{len(step.rows)} of {step.num_rows:,} rows, in {step.seconds:.2f} s",
        **_plan_facts(step.plan),
    }
    return [columns, "", rows, "", _facts(facts)]


def _query_parts(step: QueryStep) -> list[RenderableType]:
    asked = []
    if step.word is not None:
        asked.append(f"prompt contains {step.word!r}, by read_twin_webdataset(where=...)")
    if step.least_score is not None:
        asked.append(f"score >= {step.least_score:g}, by DataFrame.where(...)")
    kept = f"{step.num_kept:,} of {step.num_rows:,} rows, in {step.num_shards_kept:,} shards"
    facts = {
        "asked": "\n".join(asked) or "all rows",
        "kept": f"{kept}; {step.seconds:.2f} s",
        **_plan_facts(step.plan),
    }
    if step.read_bytes is not None:
        facts["bytes read"] = f"{_size(step.read_bytes)} by the query, be it from disk or cache"
    facts["to stream"] = f"{_size(step.kept_bytes)} of pictures"
    return [_facts(facts)]


def _plan_facts(plan: ScanPlan) -> dict[str, str]:
    facts = {f"{name} pushed down": value for name, value in plan.pushdowns.items()}
    return facts if plan.num_tasks is None else {**facts, "scan tasks": f"{plan.num_tasks:,}"}


def _stream_parts(step: StreamStep) -> list[RenderableType]:
    table = Table(box=box.SIMPLE_HEAD, pad_edge=False, show_edge=False, show_footer=True)
    table.add_column("", footer="together")
    table.add_column("pictures", f"{step.num_rows:,}", justify="right")
    batches = sum(rank.num_batches for rank in step.ranks)
    table.add_column("batches", f"{batches:,}", justify="right")
    table.add_column("bytes", _size(step.num_bytes), justify="right")
    for rank in step.ranks:
        counts = f"{rank.num_rows:,}", f"{rank.num_batches:,}", _size(rank.num_bytes)
        table.add_row(Text(f"rank {rank.rank}", style=_style(rank.rank)), *counts)
    sizes = [f"{width} x {height}" for width, height in step.sizes]
    facts = {
        "decoded": f"{step.num_pixels / 1e6:,.0f} megapixels in {step.seconds:.2f} s, thumbnails "
        "included",
        "sizes": sizes[0] if len(sizes) == 1 else f"{len(sizes)}, {sizes[0]} to {sizes[-1]}",
        "rates": f"{step.images_per_second:.1f} images/s, {step.megabytes_per_second:.1f} MB/s, "
        f"{step.megapixels_per_second:.0f} megapixels/s",
        "peak memory": f"{_size(step.peak_memory_bytes)}, the whole process",
    }
    good = step.num_lost == step.num_repeated == 0
    verdict = f"{step.num_lost:,} lost, {step.num_repeated:,} seen twice"
    verdict = f"every sample was read once ({verdict})" if good else verdict
    return [table, "", _facts(facts), Text(verdict, style="bold green" if good else "bold red")]


def _sheet_parts(step: SheetStep) -> list[RenderableType]:
    replaced = ", replaced" if step.replaced else ""
    what = f"{step.num_pictures} pictures on {step.width} x {step.height} pixels{replaced}"
    return [Text(step.path, style="bold"), Text(what, style="dim")]


def _facts(facts: dict[str, str]) -> Table:
    grid = Table.grid(padding=(0, 3, 0, 0))
    grid.add_column(style="dim", no_wrap=True)
    for name, value in facts.items():
        grid.add_row(name, Text(value))
    return grid


def _size(num_bytes: int) -> str:
    for unit, size in (("GB", 1e9), ("MB", 1e6), ("kB", 1e3)):
        if num_bytes >= size:
            return f"{num_bytes / size:,.1f} {unit}"
    return f"{num_bytes} B"


def _style(rank: int) -> str:
    return RANK_STYLES[rank % len(RANK_STYLES)]
