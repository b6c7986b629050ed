"""Several workers fill the tars of a packing: threads for large files, processes for small ones."""

import threading
from collections.abc import Callable, Generator, Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from queue import SimpleQueue
from typing import Final

from daft_twinwds.tools.pack_fill import TarJob, fill_tars
from daft_twinwds.tools.pack_process import can_start, fill_by_process

__all__ = ["fill_in_parallel"]

_MANY: Final = 2000
"""Files that take longer to copy than a process to start."""
_SMALL: Final = 1 << 18
"""Bytes of a file on average below which threads wait for Python's lock and not for the file."""

_Fill = Callable[[Iterable[TarJob]], Iterator[str]]


def fill_in_parallel(
    jobs: Iterable[TarJob], *, num_workers: int, num_files: int, num_bytes: int, lock: int
) -> Generator[str, None, None]:
    """Write tars, several at a time.

    Args:
        jobs: Taken as workers get to them.
        num_workers: Tars that are filled at a time.
        num_files: Files in all of them, or somewhat more.
        num_bytes: Bytes of these.
        lock: See `fill_by_process`.

    Yields:
        The path of each tar, when it is on the disk under its name.

    Raises:
        StorageError: As `fill_tars` and `fill_by_process`. What has been begun is finished.
    """
    fill: _Fill = fill_tars
    if num_workers > 1 and num_files >= _MANY and num_bytes < num_files * _SMALL and can_start():
        fill = partial(fill_by_process, lock=lock)
    shared = _Shared(jobs)
    outcomes: SimpleQueue[str | BaseException | None] = SimpleQueue()
    with ThreadPoolExecutor(num_workers, "daft-twinwds-pack") as threads:
        try:
            for _ in range(num_workers):
                threads.submit(_work, fill, shared, outcomes)
            busy = num_workers
            while busy:
                outcome = outcomes.get()
                if outcome is None:
                    busy -= 1
                elif isinstance(outcome, BaseException):
                    raise outcome
                else:
                    yield outcome
        finally:
            shared.stop()


def _work(
    fill: _Fill, jobs: "_Shared", outcomes: "SimpleQueue[str | BaseException | None]"
) -> None:
    """Fill tars as long as there are some; at the end put None, or the error."""
    try:
        for path in fill(jobs):
            outcomes.put(path)
        outcomes.put(None)
    except BaseException as error:  # noqa: BLE001  # it is raised where the outcomes are taken
        outcomes.put(error)


class _Shared:
    """An iterator for several threads."""

    def __init__(self, jobs: Iterable[TarJob]) -> None:
        self._jobs = iter(jobs)
        self._lock = threading.Lock()
        self._is_over = False

    def __iter__(self) -> Iterator[TarJob]:
        return self

    def __next__(self) -> TarJob:
        with self._lock:
            if self._is_over:
                raise StopIteration
            return next(self._jobs)

    def stop(self) -> None:
        """Give out no more."""
        self._is_over = True
