"""`daft-twinwds COMMAND`: parses, calls one function of `daft_twinwds.tools`, prints."""

import logging
import os
import re
import sys
from pathlib import Path
from typing import Any

import click
from daft.exceptions import DaftCoreException
from rich.console import Console
from typing_extensions import override

from daft_twinwds import errors
from daft_twinwds.tools.demo import run_demo
from daft_twinwds.tools.demo_report import ConsoleReporter, JsonReporter

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
