"""A worker process that fills tars: Python copies small files no faster in several threads."""

import json
import os
import subprocess
import sys
import tempfile
from collections import deque
from collections.abc import Iterable, Iterator
from contextlib import ExitStack, suppress
from itertools import chain
from pathlib import Path
from typing import IO, BinaryIO, Final

import daft_twinwds
from daft_twinwds import errors
from daft_twinwds.errors import StorageError, TwinWebDatasetError
from daft_twinwds.tools.pack_fill import SYNCS, TarJob

__all__ = ["can_start", "fill_by_process"]

_AHEAD: Final = SYNCS + 4
"""Jobs that a process has at a time: those whose tars wait for the disk, and some to go on with.

With no more than the former both sides would wait for each other.
"""

_END: Final = b"null\n"
"""Instead of a job: a pipe alone does not end while a fork of this process has it open, too."""

# A worker needs no more than the standard library, and of this package not its front, which imports
# Daft: that takes longer than thousands of files.
_START: Final = """
import sys, types
package = types.ModuleType("daft_twinwds")
package.__path__ = sys.argv[2:]
sys.modules["daft_twinwds"] = package
from daft_twinwds.tools.pack_worker import main
main(int(sys.argv[1]))
"""


def can_start() -> bool:
    """Return whether it is known which program Python is, which it is not where it is embedded."""
    is_python = bool(sys.executable) and not getattr(sys, "frozen", False)
    return is_python and Path(sys.executable).exists()


def fill_by_process(jobs: Iterable[TarJob], *, lock: int) -> Iterator[str]:
    """Write tars as `fill_tars` does, in a process that is started for it.

    Args:
        jobs: Some more are asked for than are being written. Without one nothing is started.
        lock: Descriptor of the output's lock. The process holds it, too, so that nobody writes
            there before it has ended, even if this one is killed.

    Yields:
        The path of each tar, in order, when it is on the disk under its name.

    Raises:
        StorageError: As `fill_tars`; or the process could not be started, or was killed.
    """
    jobs = iter(jobs)
    first = next(jobs, None)
    if first is None:
        return
    with ExitStack() as stack:
        try:
            noise = stack.enter_context(tempfile.TemporaryFile())
            process = _started(noise, lock)
        except OSError as error:
            raise StorageError(
                f"{sys.executable}: no worker process could be started ({error.strerror}); "
                "expected to run Python and to write to the folder of temporary files; give this "
                "process more memory and files, or pass num_workers=1, which starts none, and "
                "resume"
            ) from error
        try:
            with process:
                assert process.stdin
                assert process.stdout
                yield from _conversation(chain([first], jobs), process.stdin, process.stdout)
            is_whole = process.returncode == 0
        except EOFError:
            is_whole = False
        if not is_whole:
            noise.seek(0)
            said = noise.read().decode(errors="replace").strip().rpartition("\n")[2]
            raise StorageError(
                f"a worker process ended early (exit code {process.returncode}; {said or 'silent'})"
                "; expected it to live; give it more memory, or pass num_workers=1, which starts "
                "none, and resume"
            )


def _started(noise: BinaryIO, lock: int) -> "subprocess.Popen[bytes]":
    """Start a worker, to which text and paths are what they are here."""
    utf8 = f"utf8={sys.flags.utf8_mode}"
    return subprocess.Popen(
        [
            *(sys.executable, "-I", "-S", "-X", utf8, "-c", _START),
            *(str(os.getpid()), *daft_twinwds.__path__),
        ],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=noise,
        pass_fds=[lock],
        start_new_session=True,  # or Ctrl-C would interrupt it, too
    )


def _conversation(jobs: Iterable[TarJob], source: IO[bytes], answers: IO[bytes]) -> Iterator[str]:
    """Send jobs, and yield the path of each that has been done.

    Raises:
        EOFError: The worker has ended without an answer that was due.
        TwinWebDatasetError: A job has failed.
    """
    due: deque[str] = deque()
    try:
        for job in jobs:
            due.append(job.path)
            source.write(json.dumps(job).encode() + b"\n")
            source.flush()
            if len(due) == _AHEAD:
                yield _next_done(due, answers)
        source.write(_END)
        source.close()
    except BrokenPipeError:
        # It has ended; what it has answered says why. Closing would send the rest once more.
        with suppress(BrokenPipeError):
            source.close()
    while due:
        yield _next_done(due, answers)


def _next_done(due: deque[str], answers: IO[bytes]) -> str:
    line = answers.readline()
    try:
        error = json.loads(line)
    except ValueError:
        raise EOFError from None
    if error is not None:
        name, text = error
        kind: type[TwinWebDatasetError] = getattr(errors, name)
        raise kind(text)
    return due.popleft()
