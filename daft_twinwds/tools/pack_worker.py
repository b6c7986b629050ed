"""The program of a packing's worker process: it fills the tars that it is told to.

Jobs come as lines of JSON, the last of which is null, and an answer goes back for each, in their
order: null, or the error. `daft_twinwds.tools.pack_process` is the other end. A worker ends early
with the process that has started it.
"""

import json
import os
import sys
from collections.abc import Iterable, Iterator
from typing import TextIO

from daft_twinwds.errors import TwinWebDatasetError
from daft_twinwds.tools.pack_fill import Member, TarJob, fill_tars

__all__ = ["main"]


def main(starter: int, source: Iterable[str] = sys.stdin, answers: TextIO = sys.stdout) -> None:
    """Do jobs until one fails.

    Args:
        starter: The process that waits for the answers.
        source: Lines that come from it.
        answers: Where the answers go.
    """
    try:
        for _ in fill_tars(_jobs(source, starter)):
            _answer(answers, None)
    except TwinWebDatasetError as error:
        _answer(answers, [type(error).__name__, str(error)])


def _jobs(source: Iterable[str], starter: int) -> Iterator[TarJob]:
    for line in source:
        if os.getppid() != starter:
            # It was killed. The lock keeps others out as long as this goes on, so let it end.
            os._exit(1)
        job = json.loads(line)
        if job is None:
            return
        path, members = job
        yield TarJob(path, [Member(*member) for member in members])


def _answer(answers: TextIO, error: list[str] | None) -> None:
    # Answers are short, as the other side may be writing a long job and reading none.
    answers.write(json.dumps(error) + "\n")
    answers.flush()
