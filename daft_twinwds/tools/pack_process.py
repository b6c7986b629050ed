"""Worker processes that fill tars: Python copies small files no faster in several threads."""

import json
import os
import subprocess
import sys
import tempfile
from collections import deque
from collections.abc import Generator, Iterable, Iterator
from contextlib import ExitStack, contextmanager, suppress
from io import BufferedReader
from itertools import islice
from pathlib import Path
from selectors import EVENT_READ, DefaultSelector
from typing import BinaryIO, Final, Self

import daft_twinwds
from daft_twinwds import errors
from daft_twinwds.errors import StorageError, TwinWebDatasetError
from daft_twinwds.tools.pack_fill import SYNCS, Job, Places

__all__ = ["Processes", "can_start"]

_AHEAD: Final = SYNCS + 3
"""Jobs that a process has at a time: those that wait for the disk, and some to go on with.

With no more than the former both sides would wait for each other. They fit into a pipe, which holds
4096 bytes at least, so that giving one never waits for a process that is busy.
"""
_MOST: Final = 1 << 16
"""Bytes of answers that are read at a time."""
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


class Processes:
    """Worker processes of one packing, which are waited for where a ``with`` block ends."""

    def __init__(self, *, lock: int) -> None:
        """Start nothing yet.

        Args:
            lock: Descriptor of the output's lock. The processes hold it, too, so that nobody writes
                there before they have ended, even if this one is killed.
        """
        self._lock = lock
        self._stack = ExitStack()
        self._workers: list[_Worker] = []

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *error: object) -> None:
        self._stack.close()

    def start(self, count: int) -> None:
        """Start what is missing of so many, so that they are ready when there are jobs.

        Raises:
            StorageError: One cannot be started.
        """
        while len(self._workers) < count:
            self._workers.append(self._stack.enter_context(_started_worker(self._lock)))

    def fill(
        self, places: Places, jobs: Iterable[Job], *, count: int
    ) -> Generator[Job, None, None]:
        """Write tars as `fill_tars` does; without a job nothing is started. To be called once.

        Args:
            places: Where the plan is, and what it is about.
            jobs: Some more are asked for than are being done.
            count: Most processes.

        Yields:
            Each job, when its tars are on the disk under their names.

        Raises:
            StorageError: As `fill_tars`; or a process could not be started, or was killed. What has
                been begun is finished.
        """
        jobs = iter(jobs)
        first = list(islice(jobs, count))
        self.start(len(first))
        workers = self._workers[: len(first)]
        with DefaultSelector() as ready:
            for worker, job in zip(workers, first, strict=True):
                worker.begin(places)
                worker.give(job)
                ready.register(worker.answers, EVENT_READ, worker)
            for _ in range(_AHEAD - 1):
                for worker in workers:
                    worker.give(next(jobs, None))
            while ready.get_map():
                for key, _ in ready.select():
                    worker = key.data
                    for job in worker.done():
                        yield job
                        worker.give(next(jobs, None))
                    if not worker.due:
                        ready.unregister(key.fileobj)


class _Worker:
    """A process and what it has been given to do."""

    def __init__(self, process: "subprocess.Popen[bytes]", noise: BinaryIO) -> None:
        assert process.stdin
        assert isinstance(process.stdout, BufferedReader)
        self.answers = process.stdout
        self.due: deque[Job] = deque()
        self._process = process
        self._jobs = process.stdin
        self._noise = noise
        self._begun = b""

    def begin(self, places: Places) -> None:
        """Say what it is about."""
        self._send(json.dumps(places).encode() + b"\n")

    def give(self, job: Job | None) -> None:
        """Send a job, or that there are no more."""
        if job is None:
            self.end()
        else:
            self.due.append(job)
            self._send(json.dumps(job.tars).encode() + b"\n")

    def end(self) -> None:
        """Send that there are no more jobs, unless that has been done."""
        if not self._jobs.closed:
            self._send(_END)
            with suppress(BrokenPipeError):
                self._jobs.close()

    def done(self) -> Iterator[Job]:
        """Yield the jobs that answers have come for, at least a part of one.

        Raises:
            StorageError: A job has failed, or the process has ended without an answer that was due.
        """
        came = self.answers.read1(_MOST)
        if not came:
            raise self._early()
        *lines, self._begun = (self._begun + came).split(b"\n")
        for line in lines:
            try:
                error = json.loads(line)
            except ValueError:
                raise self._early() from None
            if error is not None:
                name, text = error
                kind: type[TwinWebDatasetError] = getattr(errors, name)
                raise kind(text)
            yield self.due.popleft()

    def _send(self, line: bytes) -> None:
        # If it has ended, what it has answered says why.
        with suppress(BrokenPipeError):
            self._jobs.write(line)
            self._jobs.flush()

    def _early(self) -> StorageError:
        self.end()
        code = self._process.wait()
        self._noise.seek(0)
        said = self._noise.read().decode(errors="replace").strip().rpartition("\n")[2]
        return StorageError(
            f"a worker process ended early (exit code {code}; {said or 'silent'}); expected it to "
            "live; give it more memory, or pass num_workers=1 (--num-workers 1), which starts none, "
            "and resume"
        )


@contextmanager
def _started_worker(lock: int) -> Iterator[_Worker]:
    """Yield a process, which is waited for in the end."""
    with ExitStack() as stack:
        try:
            noise = stack.enter_context(tempfile.TemporaryFile())
            process = _started(noise, lock)
        except OSError as error:
            raise StorageError(
                f"{sys.executable}: no worker process could be started ({error.strerror}); "
                "expected to run Python and to write to the folder of temporary files; give this "
                "process more memory and files, or pass num_workers=1 (--num-workers 1), which "
                "starts none, and resume"
            ) from error
        worker = _Worker(process, noise)
        with process:
            try:
                yield worker
            finally:
                worker.end()


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
