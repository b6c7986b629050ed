"""`daft-twinwds COMMAND`: parses, calls one function of `daft_twinwds.tools`, prints."""

import json
import logging
import os
import re
import sys
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import asdict
from pathlib import Path
from typing import Any

import click
from daft.exceptions import DaftCoreException
from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn
from rich.table import Table
from typing_extensions import override

from daft_twinwds import errors
from daft_twinwds.tools.demo import run_demo
from daft_twinwds.tools.demo_report import ConsoleReporter, JsonReporter
from daft_twinwds.tools.index import build_index
from daft_twinwds.tools.index_report import IndexProgress
from daft_twinwds.tools.pack import pack
from daft_twinwds.tools.pack_report import PackProgress

__all__ = ["main"]

OUR_ERROR = re.compile(rf"\b(?:{'|'.join(errors.__all__)}): (.+)", re.DOTALL)
PIPE_WIDTH = 100
"""Columns of a table that is not printed on a terminal."""
INTERRUPTED = 130
"""Exit code of what Ctrl-C ended, as shells have it."""


class _Commands(click.Group):
    """Turns our errors into one line and an exit code; all others are bugs and show where."""

    @override
    def invoke(self, ctx: click.Context) -> Any:
        # Daft draws bars of its own among ours, and logs that a pipeline failed before it raises
        # the error that we print.
        os.environ.setdefault("DAFT_PROGRESS_BAR", "0")
        os.environ.setdefault("DAFT_SHOW_QUERY_ID", "0")
        logging.getLogger("daft_local_execution").setLevel(logging.CRITICAL)
        try:
            return super().invoke(ctx)
        except KeyboardInterrupt:
            ctx.exit(INTERRUPTED)
        except errors.TwinWebDatasetError as error:
            raise click.ClickException(str(error)) from error
        except DaftCoreException as error:
            # Daft keeps only the text of an error that a task raised, below lines of its own.
            ours = OUR_ERROR.search(str(error))
            if ours is None:
                raise
            raise click.ClickException(ours[1].strip()) from error


@contextmanager
def _bar() -> Iterator[Callable[[str, int, int], None]]:
    """Draw a progress bar on a terminal, and nothing elsewhere.

    Yields:
        What is told (label, done, total).
    """
    columns = (
        TextColumn("{task.description}"),
        BarColumn(),
        MofNCompleteColumn(),
        TimeRemainingColumn(),
    )
    console = Console(stderr=True)
    with Progress(
        *columns, console=console, transient=True, disable=not console.is_terminal
    ) as bar:
        task = bar.add_task("", total=None)
        yield lambda label, done, total: bar.update(
            task, description=label, completed=done, total=total
        )


def _print_facts(facts: Mapping[str, Any], *, as_json: bool) -> None:
    """Print one line of JSON, or a table of what is not empty."""
    if as_json:
        click.echo(json.dumps(facts))
        return
    table = Table(show_header=False, box=None)
    for name, value in facts.items():
        items = value.items() if isinstance(value, dict) else [("", value)]
        for label, item in items:
            if item not in (None, "", 0) or not label:
                table.add_row(name.replace("_", " "), str(label), str(item))
    Console(width=None if sys.stdout.isatty() else PIPE_WIDTH).print(table)


@click.group(cls=_Commands, context_settings={"help_option_names": ["-h", "--help"]})
@click.version_option(package_name="daft-twinwds")
def main() -> None:
    """Query twin WebDatasets like a table with Daft, then train on what the query kept."""


@main.command()
@click.option("--data", metavar="ROOT", help="Read this twin data set; else one is painted.")
@click.option(
    "--contains",
    metavar="WORD",
    help="Stream only samples whose prompt holds WORD; capitals count. "
    "[default: clouds in painted data, any prompt in others]",
)
@click.option(
    "--output",
    type=click.Path(path_type=Path),
    default="contact_sheet.png",
    show_default=True,
    help="PNG file of the contact sheet; an old one is replaced.",
)
@click.option(
    "--threads",
    type=click.IntRange(min=1),
    default=2,
    show_default=True,
    help="Decoding threads of each rank.",
)
@click.option(
    "--keep",
    metavar="DIR",
    type=click.Path(path_type=Path),
    help="Paint the data in DIR, which is new or empty, and leave it there.",
)
@click.option("--json", "as_json", is_flag=True, help="Print one line of JSON per step instead.")
def demo(
    data: str | None,
    contains: str | None,
    output: Path,
    threads: int,
    keep: Path | None,
    as_json: bool,
) -> None:
    """Query a small data set and stream what was kept on two ranks.

    Paints 24 landscapes of 3840 x 2160 pixels with captions, shows them as a table, filters
    the captions with Daft, decodes batches for two data-parallel ranks side by side, checks that
    no sample was lost or seen twice, and draws a contact sheet of what passed. Given --data, all
    of its samples are streamed, one by one, each picture at its own size.
    """
    if data is not None and keep is not None:
        raise click.UsageError("--keep is for painted data; pass either --data or --keep")
    width = None if sys.stdout.isatty() else PIPE_WIDTH
    result = run_demo(
        data=data,
        contains=contains,
        output=output,
        threads=threads,
        keep=keep,
        reporter=JsonReporter(sys.stdout) if as_json else ConsoleReporter(Console(width=width)),
    )
    if not result.is_complete:
        raise click.ClickException(
            f"{result.data.root}: {result.stream.num_lost} samples were lost and "
            f"{result.stream.num_repeated} read more than once; expected each once; this is a "
            "fault of daft_twinwds, please report it"
        )


@main.command()
@click.argument("roots", metavar="ROOT...", nargs=-1, required=True)
@click.option("--workers", type=click.IntRange(min=1), help="Threads. [default: all CPUs]")
@click.option("--no-text", is_flag=True, help="Leave texts in the tars.")
@click.option("--check", is_flag=True, help="Only tell whether the index that is there holds.")
@click.option(
    "--key-split",
    type=click.Choice(["last", "first"]),
    default="last",
    show_default=True,
    help="Which dot of a name ends the key.",
)
@click.option("--json", "as_json", is_flag=True, help="Print one line of JSON instead.")
def index(
    roots: tuple[str, ...],
    workers: int | None,
    no_text: bool,
    check: bool,
    key_split: Any,
    as_json: bool,
) -> None:
    """Write down what the tars of a data set hold.

    Scans that find this index beside the tars need not read their headers and texts. Only
    shards that changed since the last time are read; a tar that changes later is noticed and
    read again by every scan.
    """
    with _bar() as tell:

        def progress(state: IndexProgress) -> None:
            tell("index", state.done, state.total)

        report = build_index(
            list(roots),
            key_split=key_split,
            text=not no_text,
            check=check,
            workers=workers,
            progress=progress,
        )
    _print_facts({**asdict(report), "is_complete": report.is_complete}, as_json=as_json)
    if not report.is_complete:
        shard, why = next(iter({**report.failed, **report.out_of_date}.items()))
        raise click.ClickException(
            f"{shard}: {why}; the index does not hold for "
            f"{len(report.failed) + len(report.out_of_date)} of {report.num_shards} shards; build "
            "it again without --check"
        )


@main.command(name="pack")
@click.argument("input_dir", metavar="INPUT")
@click.argument("output_dir", metavar="OUTPUT")
@click.option("--modality", "modalities", multiple=True, help="Folder to pack. [default: all]")
@click.option("--optional", multiple=True, help="Folder that a sample may lack.")
@click.option("--shard-size", default=20, show_default=True, help="Most samples per shard.")
@click.option("--max-shard-size-mb", default=500.0, show_default=True, help="Most MiB per shard.")
@click.option("--size-based-on", help="Folder that shards are filled by. [default: image, video]")
@click.option(
    "--shuffle/--no-shuffle", default=True, show_default=True, help="Else sorted by name."
)
@click.option("--seed", default=0, show_default=True, help="Which order.")
@click.option("--limit", type=click.IntRange(min=1), help="Pack at most so many samples.")
@click.option("--dataset-name", help="Makes keys NAME__STEM.")
@click.option("--key-prefix", help="Makes keys PREFIXSTEM.")
@click.option(
    "--max-file-size-mb", default=1024.0, show_default=True, help="Leave out larger files."
)
@click.option("--num-workers", type=click.IntRange(min=1), help="Threads. [default: all CPUs]")
@click.option("--part-size", default=1000, show_default=True, help="Shards per part folder.")
@click.option(
    "--classify-aspect-ratio/--no-classify-aspect-ratio",
    default=True,
    show_default=True,
    help="A folder per PiD's class of pictures.",
)
@click.option("--duration-bins", metavar="0,5,10,30,inf", help="Classify videos by seconds.")
@click.option("--keep-folders", is_flag=True, help="Sub-folders become a part of the key.")
@click.option("--skip-doubles", is_flag=True, help="Of x.jpg and x.png take the first by name.")
@click.option("--check", is_flag=True, help="Decode all pictures; leave out what does not decode.")
@click.option("--strict", is_flag=True, help="Leave out nothing, or write nothing.")
@click.option("--resume", is_flag=True, help="Go on with what a killed run began.")
@click.option("--dry-run", is_flag=True, help="Only tell what would be written.")
@click.option("--json", "as_json", is_flag=True, help="Print one line of JSON instead.")
def pack_command(
    max_shard_size_mb: float,
    max_file_size_mb: float,
    duration_bins: str | None,
    skip_doubles: bool,
    as_json: bool,
    **same: Any,
) -> None:
    """Pack the folders of INPUT into twin tars with manifests in OUTPUT.

    INPUT has a folder per modality (image, caption, ...); files of one name up to the last dot
    make a sample. Equal input, flags and seed give equal bytes. What is left out stands in
    pack_report.jsonl, with the reason.
    """
    same["modalities"] = same["modalities"] or None
    with _bar() as tell:

        def progress(state: PackProgress) -> None:
            tell(state.stage, state.done, state.total)

        report = pack(
            **same,
            max_shard_bytes=int(max_shard_size_mb * 2**20),
            max_file_bytes=int(max_file_size_mb * 2**20),
            duration_bins=_seconds(duration_bins),
            on_double="skip" if skip_doubles else "error",
            progress=progress,
        )
    leaves = {
        leaf.folder or ".": f"{leaf.num_samples} samples in {leaf.num_shards} shards"
        for leaf in report.leaves
    }
    facts = {
        "output": report.output_dir,
        "dry_run": report.dry_run,
        "samples": report.num_samples,
        "shards": report.num_shards,
        "bytes": report.num_bytes,
        "leaves": leaves,
        "left_out": report.reasons,
        "beyond_limit": report.beyond_limit,
    }
    _print_facts(facts, as_json=as_json)


def _seconds(bins: str | None) -> tuple[float, ...] | None:
    if bins is None:
        return None
    try:
        return tuple(float(border) for border in bins.split(","))
    except ValueError as error:
        raise click.BadParameter(f"{bins!r}: expected seconds as 0,5,10,30,inf") from error
