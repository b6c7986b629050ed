"""Several workers fill the tars of a packing: threads for large files, processes for small ones."""

import threading
from collections.abc import Generator, Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from queue import SimpleQueue
from typing import Final, NamedTuple, Self

from daft_twinwds.tools.pack_fill import Job, Places, PlannedTar, fill_tars, jobs_of
from daft_twinwds.tools.pack_process import Processes, can_start

__all__ = ["Load", "Workers"]


class Load(NamedTuple):
    """What there is to copy."""

    num_files: int
    """Files."""
    num_bytes: int
    """Their bytes."""


_MANY: Final = 1000
"""Files that take longer to copy than a process to start."""
_SMALL: Final = 1 << 18
"""Bytes of a file on average below which threads wait for Python's lock and not for the file."""
_TOGETHER: Final = 16
"""Most tars of a job; small ones are written faster when they wait for the disk together."""
_TOGETHER_IN_THREADS: Final = 2
"""Likewise, where those of all workers are open in one process."""


class Workers:
    """Those of one packing, which are waited for where a ``with`` block ends."""

    def __init__(self, num_workers: int, *, lock: int) -> None:
        """Start nothing yet.

        Args:
            num_workers: Tars that are filled at a time.
            lock: See `Processes`.
        """
        self._num_workers = num_workers
        self._processes = Processes(lock=lock)

    def __enter__(self) -> Self:
        self._processes.__enter__()
        return self

    def __exit__(self, *error: object) -> None:
        self._processes.__exit__(*error)

    def expect(self, load: Load) -> None:
        """Start processes, if there will be any, while it is still worked out what they are to do.

        Raises:
            StorageError: One cannot be started.
        """
        self._processes.start(self._num_processes(load))

    def fill(
        self, load: Load, places: Places, tars: Iterable[PlannedTar]
    ) -> Generator[Job, None, None]:
        """Write tars, several at a time. To be called once.

        Args:
            load: What the tars are about, or somewhat more.
            places: Where the plan is, and what it is about.
            tars: Taken as workers get to them.

        Yields:
            Each job, when its tars are on the disk under their names.

        Raises:
            StorageError: As `fill_tars` and `Processes.fill`. What has been begun is finished.
        """
        count = self._num_processes(load)
        if count:
            return self._processes.fill(places, jobs_of(tars, most=_TOGETHER), count=count)
        jobs = jobs_of(tars, most=_TOGETHER_IN_THREADS)
        return _fill_by_threads(places, jobs, num_workers=self._num_workers)

    def _num_processes(self, load: Load) -> int:
        """Return how many processes are worth their start; 0 if threads are as fast."""
        count = min(self._num_workers, load.num_files // _MANY)
        is_small = load.num_bytes < load.num_files * _SMALL
        return count if count > 1 and is_small and can_start() else 0


def _fill_by_threads(
    places: Places, jobs: Iterable[Job], *, num_workers: int
) -> Generator[Job, None, None]:
    shared = _Shared(jobs)
    outcomes: SimpleQueue[Job | BaseException | None] = SimpleQueue()
    with ThreadPoolExecutor(num_workers, "daft-twinwds-pack") as threads:
        try:
            for _ in range(num_workers):
                threads.submit(_work, places, shared, outcomes)
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
    places: Places, jobs: "_Shared", outcomes: "SimpleQueue[Job | BaseException | None]"
) -> None:
    """Fill tars as long as there are some; at the end put None, or the error."""
    try:
        for job in fill_tars(places, jobs):
            outcomes.put(job)
        outcomes.put(None)
    except BaseException as error:  # noqa: BLE001  # it is raised where the outcomes are taken
        outcomes.put(error)


class _Shared:
    """An iterator for several threads."""

    def __init__(self, jobs: Iterable[Job]) -> None:
        self._jobs = iter(jobs)
        self._lock = threading.Lock()
        self._is_over = False

    def __iter__(self) -> Iterator[Job]:
        return self

    def __next__(self) -> Job:
        with self._lock:
            if self._is_over:
                raise StopIteration
            return next(self._jobs)

    def stop(self) -> None:
        """Give out no more."""
        self._is_over = True
