"""`daft-twinwds validate`."""

import json
import logging
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict
from typing import Any

import click
from rich.table import Table

from daft_twinwds.cli.output import progress_bar, stdout_console, storage_facts
from daft_twinwds.cli.types import PLACE
from daft_twinwds.tools.terminal import printable
from daft_twinwds.tools.validate import validate
from daft_twinwds.tools.validate_report import (
    WARNINGS,
    ValidateProgress,
    ValidationReport,
)

__all__ = ["validate_command"]


@click.command(name="validate")
@click.argument("roots", type=PLACE, metavar="ROOT...", nargs=-1, required=True)
@click.option("--modality", "modalities", multiple=True, help="Folder to look at. [default: all]")
@click.option("--decode", is_flag=True, help="Decode every picture, whole.")
@click.option("--workers", type=click.IntRange(min=1), help="Threads. [default: all CPUs]")
@click.option(
    "--key-split",
    type=click.Choice(["last", "first"]),
    default="last",
    show_default=True,
    help="Which dot of a name ends the key.",
)
@click.option("--strict", is_flag=True, help="Exit with 1 for warnings, too.")
@click.option(
    "--fix-manifest", is_flag=True, help="Write true counts and roots, if all tars are sound."
)
@click.option("--json", "as_json", is_flag=True, help="Print lines of JSON, the summary last.")
@click.pass_context
def validate_command(  # noqa: PLR0913  # one argument for each option
    context: click.Context,
    roots: tuple[str, ...],
    modalities: tuple[str, ...],
    decode: bool,
    workers: int | None,
    key_split: Any,
    strict: bool,
    fix_manifest: bool,
    as_json: bool,
) -> None:
    """List everything that is wrong with a data set, one line each.

    Looks at the folders, the manifest, every tar's headers, the twins' keys, every text and
    the first bytes of every picture; with --decode at all of their bytes. Exits with 1 if there
    is a fault. Warnings are of what is read all the same.
    """
    with progress_bar() as tell, _quiet():

        def progress(state: ValidateProgress) -> None:
            tell(f"validate, {state.num_faults} faults", state.done, state.total)

        report = validate(
            list(roots),
            modalities=modalities or None,
            key_split=key_split,
            decode=decode,
            workers=workers,
            fix_manifest=fix_manifest,
            progress=progress,
        )
    if as_json:
        _print_json(report)
    else:
        _print_text(report)
    if not report.is_sound or (strict and report.num_warnings):
        context.exit(1)


@contextmanager
def _quiet() -> Iterator[None]:
    """Keep back the warnings of reading: what they tell is part of the report."""
    logger = logging.getLogger("daft_twinwds")
    level = logger.level
    logger.setLevel(logging.ERROR)
    try:
        yield
    finally:
        logger.setLevel(level)


def _print_json(report: ValidationReport) -> None:
    for fault in (*report.faults, *report.warnings):
        kind = "warning" if fault.is_warning else "fault"
        click.echo(json.dumps({"type": kind, **asdict(fault)}))
    facts = {key: value for key, value in asdict(report).items() if key not in _PRINTED}
    sums = {"num_faults": report.num_faults, "num_warnings": report.num_warnings}
    facts["storage"] = storage_facts()
    click.echo(json.dumps({"type": "summary", "is_sound": report.is_sound, **sums, **facts}))


def _print_text(report: ValidationReport) -> None:
    for fault in (*report.faults, *report.warnings):
        click.echo(f"{'warning' if fault.is_warning else 'fault'}: {fault.kind}: {fault.line}")
    for path in report.fixed:
        click.echo(f"corrected: {printable(path)}")
    table = Table(show_header=False, box=None)
    for kind, number in report.counts.items():
        table.add_row("warning" if kind in WARNINGS else "fault", kind, str(number))
    for label, number in (
        ("leaves", report.num_leaves),
        ("shards", report.num_shards),
        ("members", report.num_members),
        ("samples that all twins have", report.num_keys),
        ("pictures decoded", report.num_decoded),
        ("faults", report.num_faults),
        ("warnings", report.num_warnings),
    ):
        table.add_row("", label, str(number))
    for label, amount in storage_facts().items():
        table.add_row("", f"storage: {label}", str(amount))
    stdout_console().print(table)
    kept = len(report.faults) + len(report.warnings)
    if kept < report.num_faults + report.num_warnings:
        click.echo(f"only the first {kept} are listed, all are counted")


_PRINTED = ("faults", "warnings")
"""What has lines of its own before the summary."""
