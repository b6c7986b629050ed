"""`daft-twinwds info`."""

import json
from dataclasses import asdict
from pathlib import Path

import click

from daft_twinwds.cli.output import progress_bar, stdout_console, storage_facts
from daft_twinwds.cli.types import FILE, PLACE
from daft_twinwds.tools.info import InfoProgress, info
from daft_twinwds.tools.info_plot import write_info_png
from daft_twinwds.tools.info_table import info_table

__all__ = ["info_command"]


@click.command(name="info")
@click.argument("roots", type=PLACE, metavar="ROOT...", nargs=-1, required=True)
@click.option(
    "--png",
    type=FILE,
    metavar="FILE",
    help="Draw it as plots, too (needs matplotlib); an old file is replaced.",
)
@click.option("--workers", type=click.IntRange(min=1), help="Threads. [default: all CPUs]")
@click.option("--json", "as_json", is_flag=True, help="Print one line of JSON instead.")
def info_command(
    roots: tuple[str, ...], png: Path | None, workers: int | None, as_json: bool
) -> None:
    """Tell what a data set holds.

    Samples, shards, bytes and suffixes of each modality, keys that a twin lacks, the columns that
    queries see, and histograms of the pictures' sizes and the captions' lengths. With an index
    that holds nothing of the tars is read.
    """
    with progress_bar() as tell:

        def progress(state: InfoProgress) -> None:
            tell("info", state.done, state.total)

        found = info(list(roots), workers=workers, progress=progress)
    if png is not None:
        write_info_png(found, png)
    if as_json:
        facts = {**asdict(found), "index_state": found.index_state, "storage": storage_facts()}
        click.echo(json.dumps(facts))
    else:
        stdout_console().print(info_table(found))
