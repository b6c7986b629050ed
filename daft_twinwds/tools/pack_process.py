"""A worker process that fills tars: Python copies small files no faster in several threads."""

import json
import subprocess
import sys
import tempfile
from collections.abc import Iterable, Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any, BinaryIO, Final

import daft_twinwds
from daft_twinwds import errors
from daft_twinwds.errors import StorageError, TwinWebDatasetError
from daft_twinwds.tools.pack_fill import SYNCS, TarJob

__all__ = ["can_start", "fill_by_process"]

_AHEAD: Final = SYNCS + 4
"""Jobs that a process has at a time: those whose tars wait for the disk, and some to go on with.

With no more than the former both sides would wait for each other.
"""

# A worker needs no more than the standard library, and of this package not its front, which imports
# Daft: that takes longer than thousands of files.
_START: Final = """
import sys, types
package = types.ModuleType("daft_twinwds")
package.__path__ = sys.argv[1:]
sys.modules["daft_twinwds"] = package
from daft_twinwds.tools.pack_worker import main
main()
"""


def can_start() -> bool:
    """Return whether it is known which program Python is, which it is not where it is embedded."""
    return bool(sys.executable) and Path(sys.executable).exists()


def fill_by_process(jobs: Iterable[TarJob], *, lock: int) -> Iterator[str]:
    """Write tars as `fill_tars` does, in a process that is started for it.

    Args:
        jobs: Some more are asked for than are being written.
        lock: Descriptor of the output's lock. The process holds it, too, so that nobody writes
            there before it has ended, even if this one is killed.

    Yields:
        The path of each tar, in order, when it is on the disk under its name.

    Raises:
        StorageError: As `fill_tars`; or the process could not be started, or was killed.
    """
    with tempfile.TemporaryFile() as noise:
        with _started(noise, lock) as process:
            conversation = _Conversation(process)
            yield from conversation.run(jobs)
        if process.returncode or conversation.is_cut:
            noise.seek(0)
            said = noise.read().decode(errors="replace").strip().rpartition("\n")[2]
            raise StorageError(
                f"a worker process ended early (exit code {process.returncode}; {said or 'silent'})"
                "; expected it to live; give it more memory, or pass num_workers=1, which starts "
                "none, and resume"
            )


def _started(noise: BinaryIO, lock: int) -> "subprocess.Popen[bytes]":
    try:
        return subprocess.Popen(
            [sys.executable, "-I", "-S", "-c", _START, *daft_twinwds.__path__],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=noise,
            pass_fds=[lock],
            start_new_session=True,  # or Ctrl-C would interrupt it, too
        )
    except OSError as error:
        raise StorageError(
            f"{sys.executable}: no worker process could be started ({error.strerror}); expected to "
            "run Python; give this process more memory and files, or pass num_workers=1, which "
            "starts none, and resume"
        ) from error


class _Conversation:
    def __init__(self, process: "subprocess.Popen[bytes]") -> None:
        assert process.stdin
        assert process.stdout
        self._jobs = process.stdin
        self._answers = process.stdout
        self.is_cut = False
        """Whether it has ended without an answer that was due."""

    def run(self, jobs: Iterable[TarJob]) -> Iterator[str]:
        due = 0
        try:
            for job in jobs:
                if not self._send(job):
                    break
                due += 1
                if due == _AHEAD:
                    yield self._answer()
                    due -= 1
            with suppress(BrokenPipeError):  # a job that could not be sent is tried once more
                self._jobs.close()
            for _ in range(due):
                yield self._answer()
        except EOFError:
            self.is_cut = True

    def _send(self, job: TarJob) -> bool:
        """Return whether there was somebody to take it; why not, the answers may say."""
        try:
            self._jobs.write(json.dumps(job).encode() + b"\n")
            self._jobs.flush()
        except BrokenPipeError:
            self.is_cut = True
        return not self.is_cut

    def _answer(self) -> str:
        line = self._answers.readline()
        if not line:
            raise EOFError
        content: dict[str, Any] = json.loads(line)
        if "error" in content:
            kind: type[TwinWebDatasetError] = getattr(errors, content["error"])
            raise kind(content["text"])
        return str(content["done"])
