"""`daft-twinwds index`."""

from dataclasses import asdict
from typing import Any

import click

from daft_twinwds.cli.output import print_facts, progress_bar, storage_facts
from daft_twinwds.cli.types import PLACE
from daft_twinwds.tools.index import build_index
from daft_twinwds.tools.index_report import IndexProgress

__all__ = ["index_command"]


@click.command(name="index")
@click.argument("roots", type=PLACE, metavar="ROOT...", nargs=-1, required=True)
@click.option("--workers", type=click.IntRange(min=1), help="Threads. [default: all CPUs]")
@click.option("--no-text", is_flag=True, help="Leave texts in the tars.")
@click.option(
    "--output",
    type=PLACE,
    metavar="DIR",
    help="Put .twin_index into this folder instead of ROOT's.",
)
@click.option("--check", is_flag=True, help="Only tell whether the index that is there holds.")
@click.option(
    "--key-split",
    type=click.Choice(["last", "first"]),
    default="last",
    show_default=True,
    help="Which dot of a name ends the key.",
)
@click.option("--json", "as_json", is_flag=True, help="Print one line of JSON instead.")
def index_command(
    roots: tuple[str, ...],
    workers: int | None,
    no_text: bool,
    output: str | None,
    check: bool,
    key_split: Any,
    as_json: bool,
) -> None:
    """Write down what the tars of a data set hold.

    Scans that find this index beside the tars need not read their headers and texts. Only
    shards that changed since the last time are read; a tar that changes later is noticed and
    read again by every scan.
    """
    with progress_bar() as tell:

        def progress(state: IndexProgress) -> None:
            tell("index", state.done, state.total)

        report = build_index(
            list(roots),
            key_split=key_split,
            text=not no_text,
            output=output,
            check=check,
            workers=workers,
            progress=progress,
        )
    facts = {**asdict(report), "is_complete": report.is_complete, "storage": storage_facts()}
    print_facts(facts, as_json=as_json)
    if not report.is_complete:
        shard, why = next(iter({**report.failed, **report.out_of_date}.items()))
        raise click.ClickException(
            f"{shard}: {why}; the index does not hold for "
            f"{len(report.failed) + len(report.out_of_date)} of {report.num_shards} shards; build "
            "it again without --check"
        )
