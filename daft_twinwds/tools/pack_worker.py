"""The program of a packing's worker process: it fills the tars that it is told to.

Jobs come as lines of JSON, and an answer goes back for each; `daft_twinwds.tools.pack_process` is
the other end. It ends with its input, or with the process that has started it.
"""

import json
import os
import sys
from collections.abc import Iterable, Iterator
from typing import Any, TextIO

from daft_twinwds.errors import TwinWebDatasetError
from daft_twinwds.tools.pack_fill import Member, TarJob, fill_tars

__all__ = ["main"]


def main(source: Iterable[str] = sys.stdin, answers: TextIO = sys.stdout) -> None:
    """Do the jobs of ``source`` until one fails, and write what became of them."""
    try:
        for path in fill_tars(_jobs(source)):
            _answer(answers, {"done": path})
    except TwinWebDatasetError as error:
        _answer(answers, {"error": type(error).__name__, "text": str(error)})


def _jobs(source: Iterable[str]) -> Iterator[TarJob]:
    starter = os.getppid()
    for line in source:
        if os.getppid() != starter:
            # It was killed. What it has left behind is not to be changed behind the next one's back.
            os._exit(1)
        path, members = json.loads(line)
        yield TarJob(path, [Member(*member) for member in members])


def _answer(answers: TextIO, content: dict[str, Any]) -> None:
    answers.write(json.dumps(content) + "\n")
    answers.flush()
