"""`daft-twinwds demo`."""

import sys
from pathlib import Path

import click

from daft_twinwds.cli.output import stdout_console
from daft_twinwds.cli.types import FILE, PLACE
from daft_twinwds.tools.demo import run_demo
from daft_twinwds.tools.demo_report import ConsoleReporter, JsonReporter

__all__ = ["demo_command"]


@click.command(name="demo")
@click.option(
    "--data", type=PLACE, metavar="ROOT", help="Read this twin data set; else one is painted."
)
@click.option(
    "--contains",
    metavar="WORD",
    help="Stream only samples whose prompt holds WORD; capitals count. "
    "[default: clouds in painted data, any prompt in others]",
)
@click.option(
    "--output",
    type=FILE,
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
def demo_command(
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
    result = run_demo(
        data=data,
        contains=contains,
        output=output,
        threads=threads,
        keep=keep,
        reporter=JsonReporter(sys.stdout) if as_json else ConsoleReporter(stdout_console()),
    )
    if not result.is_complete:
        raise click.ClickException(
            f"{result.data.root}: {result.stream.num_lost} samples were lost and "
            f"{result.stream.num_repeated} read more than once; expected each once; this is a "
            "fault of daft_twinwds, please report it"
        )
