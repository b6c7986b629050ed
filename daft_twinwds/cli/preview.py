"""`daft-twinwds preview`."""

from dataclasses import asdict
from pathlib import Path

import click

from daft_twinwds.cli.output import print_facts, progress_bar, storage_facts
from daft_twinwds.cli.types import FILE, PLACE
from daft_twinwds.tools.preview import PreviewProgress, write_preview

__all__ = ["preview_command"]


@click.command(name="preview")
@click.argument("roots", type=PLACE, metavar="ROOT...", nargs=-1, required=True)
@click.option(
    "--output",
    type=FILE,
    default="preview.html",
    show_default=True,
    help="HTML file; an old one is replaced.",
)
@click.option(
    "--where",
    metavar="SQL",
    help="Show samples for which this holds, as: image_width >= 3840 AND caption.prompt LIKE "
    "'%lake%'",
)
@click.option(
    "--limit",
    type=click.IntRange(min=1, max=100_000),
    default=48,
    show_default=True,
    help="Most samples.",
)
@click.option("--sample", is_flag=True, help="Take them at random, not from the beginning.")
@click.option(
    "--seed",
    type=click.IntRange(min=0, max=2**63 - 1),
    default=0,
    show_default=True,
    help="Which samples of --sample.",
)
@click.option("--no-count", is_flag=True, help="Do not count the samples that are not shown.")
@click.option("--workers", type=click.IntRange(min=1), help="Threads. [default: all CPUs]")
@click.option("--json", "as_json", is_flag=True, help="Print one line of JSON instead.")
def preview_command(  # noqa: PLR0913  # one per option
    roots: tuple[str, ...],
    output: Path,
    where: str | None,
    limit: int,
    sample: bool,
    seed: int,
    no_count: bool,
    workers: int | None,
    as_json: bool,
) -> None:
    """Write samples as one HTML page with their pictures and captions.

    The page needs nothing else, so that it can be sent around: pictures are inside, there is no
    script, and nothing is loaded. A click, or the Enter key, shows all values of a sample.
    """
    with progress_bar() as tell:

        def progress(state: PreviewProgress) -> None:
            tell("preview", state.done, state.total)

        report = write_preview(
            list(roots),
            output,
            where=where,
            limit=limit,
            sample=sample,
            seed=seed,
            count=not no_count,
            workers=workers,
            progress=progress,
        )
    print_facts({**asdict(report), "storage": storage_facts()}, as_json=as_json)
