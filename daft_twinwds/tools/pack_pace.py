"""Work on many files, by one thread or by several, whichever is faster."""

from collections import deque
from collections.abc import Callable, Generator, Iterable
from concurrent.futures import Future, ThreadPoolExecutor
from math import inf
from time import perf_counter
from typing import Final, TypeVar

__all__ = ["run_paced"]

Item = TypeVar("Item")
Outcome = TypeVar("Outcome")

_ALONE: Final = 1e-4
"""Seconds for a file below which one thread is faster than two.

Each call to the system passes Python's global lock on and has to wait for it, which takes some 20
microseconds a time: longer than opening, reading and closing a small file that is in memory.
"""
_TOGETHER: Final = 2 * _ALONE
"""Seconds for such a file while two threads get into each other's way."""


def run_paced(
    work: Callable[[Item], Outcome],
    items: Iterable[Item],
    *,
    num_files: Callable[[Item], int],
    num_workers: int,
) -> Generator[Outcome, None, None]:
    """Do something with each item, in threads while files take their time, else in this one.

    Large files and slow disks keep a thread waiting, so that others get on meanwhile. Which it is
    shows in the time that the last item took; only the first does not count, as all is new to it.

    Args:
        work: What is done.
        items: What it is done with; at most twice as many as there are threads are taken ahead.
        num_files: How many files an item is about.
        num_workers: Threads.

    Yields:
        What became of the items, in their order. The first error ends it.
    """

    def timed(item: Item, limit: float) -> tuple[Outcome, bool]:
        begin = perf_counter()
        outcome = work(item)
        return outcome, perf_counter() - begin < limit * num_files(item)

    pending: deque[Future[tuple[Outcome, bool]]] = deque()
    is_fast, limit = True, inf
    pool = ThreadPoolExecutor(num_workers)
    try:
        for item in items:
            if is_fast:
                outcome, is_fast = timed(item, limit)
                limit = _ALONE
                yield outcome
                continue
            pending.append(pool.submit(timed, item, _TOGETHER))
            if len(pending) == 2 * num_workers:
                outcome, is_fast = pending.popleft().result()
                yield outcome
            while is_fast and pending:
                outcome, is_fast = pending.popleft().result()
                yield outcome
        while pending:
            yield pending.popleft().result()[0]
    finally:
        pool.shutdown(cancel_futures=True)
