"""The program of a packing's worker process: it fills the tars that it is told to.

The first line that comes is about the packing, the following ones are jobs, and the last one, which
may be the only one, is null; all as JSON. An answer goes back for each job, in their order: null,
or the error. `daft_twinwds.tools.pack_process` is the other end. A worker ends early with the
process that has started it.
"""

import json
import os
import sys
from collections.abc import Iterable, Iterator
from typing import TextIO

from daft_twinwds.errors import TwinWebDatasetError
from daft_twinwds.tools.pack_fill import Job, Places, Tar, fill_tars

__all__ = ["main"]


def main(starter: int, source: Iterable[str] = sys.stdin, answers: TextIO = sys.stdout) -> None:
    """Do jobs until one fails.

    Args:
        starter: The process that waits for the answers.
        source: Lines that come from it.
        answers: Where the answers go.
    """
    lines = iter(source)
    places = json.loads(next(lines, "null"))
    if places is None:
        return
    try:
        for _ in fill_tars(Places(*places), _jobs(lines, starter)):
            _answer(answers, None)
    except TwinWebDatasetError as error:
        _answer(answers, [type(error).__name__, str(error)])


def _jobs(lines: Iterable[str], starter: int) -> Iterator[Job]:
    for line in lines:
        if os.getppid() != starter:
            # It was killed. The lock keeps others out as long as this goes on, so let it end.
            os._exit(1)
        tars = json.loads(line)
        if tars is None:
            return
        yield Job([Tar(*tar) for tar in tars], paths=[])


def _answer(answers: TextIO, error: list[str] | None) -> None:
    answers.write(json.dumps(error) + "\n")
    answers.flush()
