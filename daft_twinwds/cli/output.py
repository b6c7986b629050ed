"""What all commands print alike: a progress bar, and facts as a table or as JSON."""

import json
import sys
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import asdict
from typing import Any

import click
from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn
from rich.table import Table
from rich.text import Text

from daft_twinwds.shards.storage import storage_stats
from daft_twinwds.tools.terminal import printable

__all__ = ["print_facts", "progress_bar", "stdout_console", "storage_facts"]

_PIPE_WIDTH = 100
"""Columns of a table that is not printed on a terminal."""
_LINE = 10_000
"""Columns where a fact, as a path, is to stay in one line."""


def stdout_console(*, pipe_width: int = _PIPE_WIDTH) -> Console:
    """Return a console as wide as the terminal, or as a table needs that goes into a pipe."""
    # A shell may have closed it.
    is_terminal = sys.stdout is not None and sys.stdout.isatty()
    return Console(width=None if is_terminal else pipe_width)


@contextmanager
def progress_bar() -> Iterator[Callable[[str, int, int], None]]:
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


def print_facts(facts: Mapping[str, Any], *, as_json: bool) -> None:
    """Print one line of JSON, or a table of what is not empty."""
    if as_json:
        click.echo(json.dumps(facts))
        return
    table = Table(show_header=False, box=None)
    for _ in range(3):
        table.add_column(overflow="fold")
    for name, value in facts.items():
        items = value.items() if isinstance(value, dict) else [("", value)]
        for label, item in items:
            if item not in (None, "", 0) or not label:
                # As `Text`, since square brackets in a path are no markup.
                cells = (name.replace("_", " "), printable(str(label)), printable(str(item)))
                table.add_row(*map(Text, cells))
    stdout_console(pipe_width=_LINE).print(table)


def storage_facts() -> dict[str, int | float]:
    """Return what this command has read: requests (of local files, reads), bytes, retries, seconds.

    Seconds are those spent waiting, added up over threads.
    """
    facts = asdict(storage_stats() - click.get_current_context().find_root().obj)
    return {**facts, "seconds": round(facts["seconds"], 3)}
