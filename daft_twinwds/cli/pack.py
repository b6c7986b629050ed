"""`daft-twinwds pack`."""

from typing import Any

import click

from daft_twinwds.cli.output import print_facts, progress_bar
from daft_twinwds.cli.types import MEBIBYTES, PLACE
from daft_twinwds.tools.pack import pack
from daft_twinwds.tools.pack_report import PackProgress

__all__ = ["pack_command"]


@click.command(name="pack")
@click.argument("input_dir", type=PLACE, metavar="INPUT")
@click.argument("output_dir", type=PLACE, metavar="OUTPUT")
@click.option("--modality", "modalities", multiple=True, help="Folder to pack. [default: all]")
@click.option("--optional", multiple=True, help="Folder that a sample may lack.")
@click.option(
    "--shard-size",
    type=click.IntRange(min=1),
    default=20,
    show_default=True,
    help="Most samples per shard.",
)
@click.option(
    "--max-shard-size-mb",
    "max_shard_bytes",
    type=MEBIBYTES,
    default="500",
    show_default=True,
    help="Most MiB per shard.",
)
@click.option(
    "--size-based-on",
    help="Folder that shards are filled and classified by. [default: image, video]",
)
@click.option(
    "--shuffle/--no-shuffle", default=True, show_default=True, help="Else sorted by name."
)
@click.option("--seed", default=0, show_default=True, help="Which order.")
@click.option("--limit", type=click.IntRange(min=1), help="Pack at most so many samples.")
@click.option("--dataset-name", help="Makes keys NAME__STEM.")
@click.option("--key-prefix", help="Makes keys PREFIXSTEM.")
@click.option(
    "--max-file-size-mb",
    "max_file_bytes",
    type=MEBIBYTES,
    default="1024",
    show_default=True,
    help="Leave out larger files.",
)
@click.option(
    "--num-workers",
    type=click.IntRange(min=1),
    help="Threads, or processes for many small files. [default: all CPUs]",
)
@click.option(
    "--part-size",
    type=click.IntRange(min=1),
    default=1000,
    show_default=True,
    help="Shards per part folder.",
)
@click.option(
    "--classify-aspect-ratio/--no-classify-aspect-ratio",
    default=True,
    show_default=True,
    help="A folder per PiD's class of pictures.",
)
@click.option("--duration-bins", metavar="0,5,10,30,inf", help="Classify videos by seconds.")
@click.option("--keep-folders", is_flag=True, help="Sub-folders become a part of the key.")
@click.option("--skip-doubles", is_flag=True, help="Of x.jpg and x.png take the first by name.")
@click.option(
    "--check", is_flag=True, help="Decode all pictures, parse all texts; leave out what fails."
)
@click.option("--strict", is_flag=True, help="Leave out nothing, or write nothing.")
@click.option("--resume", is_flag=True, help="Go on with what a killed run began.")
@click.option("--dry-run", is_flag=True, help="Only tell what would be written.")
@click.option("--json", "as_json", is_flag=True, help="Print one line of JSON instead.")
def pack_command(
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
    with progress_bar() as tell:

        def progress(state: PackProgress) -> None:
            tell(state.stage, state.done, state.total)

        try:
            report = pack(
                **same,
                duration_bins=_seconds(duration_bins),
                on_double="skip" if skip_doubles else "error",
                progress=progress,
            )
        except ValueError as error:
            # Of arguments alone: what is wrong with files is an error of ours.
            raise click.UsageError(str(error)) from error
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
    print_facts(facts, as_json=as_json)


def _seconds(bins: str | None) -> tuple[float, ...] | None:
    if bins is None:
        return None
    try:
        return tuple(float(border) for border in bins.split(","))
    except ValueError as error:
        raise click.BadParameter(f"{bins!r}: expected seconds as 0,5,10,30,inf") from error
