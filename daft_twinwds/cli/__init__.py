"""`daft-twinwds COMMAND`: parses, calls one function of `daft_twinwds.tools`, prints."""

import errno
import io
import logging
import os
import re
import signal
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from types import FrameType
from typing import Any

import click
from daft.exceptions import DaftCoreException
from typing_extensions import override

from daft_twinwds import errors
from daft_twinwds.cli.demo import demo_command
from daft_twinwds.cli.index import index_command
from daft_twinwds.cli.info import info_command
from daft_twinwds.cli.pack import pack_command
from daft_twinwds.cli.preview import preview_command
from daft_twinwds.cli.validate import validate_command
from daft_twinwds.shards.storage import storage_stats
from daft_twinwds.tools.terminal import printable

__all__ = ["main"]

OUR_ERROR = re.compile(rf"\b(?:{'|'.join(errors.__all__)}): (.+)", re.DOTALL)
INTERRUPTED = 130
"""Exit code of what Ctrl-C ended, as shells have it."""
PATIENCE = 3.0
"""Seconds that a command may take to end after Ctrl-C."""


class _Commands(click.Group):
    """Turns our errors into one line and an exit code; all others are bugs and show where."""

    @override
    def invoke(self, ctx: click.Context) -> Any:
        # Daft draws bars of its own among ours, and logs that a pipeline failed before it raises
        # the error that we print.
        os.environ.setdefault("DAFT_PROGRESS_BAR", "0")
        os.environ.setdefault("DAFT_SHOW_QUERY_ID", "0")
        logging.getLogger("daft_local_execution").setLevel(logging.CRITICAL)
        ctx.obj = storage_stats()
        for stream in (sys.stdout, sys.stderr):
            if isinstance(stream, io.TextIOWrapper):
                # A terminal may not have the letters of a key or caption.
                stream.reconfigure(errors="backslashreplace")
        handler = logging.StreamHandler()
        handler.setFormatter(_Escaping())
        handler.setLevel(logging.WARNING)
        logger = logging.getLogger("daft_twinwds")
        logger.addHandler(handler)
        try:
            with _prompt_end():
                return super().invoke(ctx)
        except KeyboardInterrupt:
            ctx.exit(INTERRUPTED)
        except errors.TwinWebDatasetError as error:
            raise click.ClickException(_printable_lines(str(error))) from error
        except OSError as error:
            # All files of ours have an error of ours: what is full is what the output goes to.
            if error.errno != errno.ENOSPC or error.filename is not None:
                raise
            _give_up_output()
            raise click.ClickException(
                "standard output: cannot be written (No space left on device); expected room for "
                "what is printed; make room, or send it elsewhere"
            ) from error
        except DaftCoreException as error:
            # Daft keeps only the text of an error that a task raised, below lines of its own.
            ours = OUR_ERROR.search(str(error))
            if ours is None:
                raise
            raise click.ClickException(_printable_lines(ours[1].strip())) from error
        finally:
            logger.removeHandler(handler)


def _give_up_output() -> None:
    """Have Python's own last flush succeed."""
    with Path(os.devnull).open("w") as nothing:
        os.dup2(nothing.fileno(), sys.stdout.fileno())


@contextmanager
def _prompt_end() -> Iterator[None]:
    """End the process some seconds after Ctrl-C, whatever it waits for.

    Daft may swallow the interrupt, or wait for threads that wait for each other. Files that are
    being written have no name yet.
    """
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    timers: list[threading.Timer] = []

    def interrupt(number: int, frame: FrameType | None) -> None:
        del number, frame
        timers.append(threading.Timer(PATIENCE, os._exit, [INTERRUPTED]))
        timers[-1].daemon = True
        timers[-1].start()
        raise KeyboardInterrupt

    before = signal.signal(signal.SIGINT, interrupt)
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, before)
        for timer in timers:
            timer.cancel()


class _Escaping(logging.Formatter):
    """Writes warnings so that names out of the data command no terminal."""

    @override
    def format(self, record: logging.LogRecord) -> str:
        return _printable_lines(super().format(record))


def _printable_lines(text: str) -> str:
    return "\n".join(map(printable, text.split("\n")))


@click.group(cls=_Commands, context_settings={"help_option_names": ["-h", "--help"]})
@click.version_option(package_name="daft-twinwds")
def main() -> None:
    """Query twin WebDatasets like a table with Daft, then train on what the query kept."""


for command in (
    demo_command,
    index_command,
    info_command,
    pack_command,
    preview_command,
    validate_command,
):
    main.add_command(command)
