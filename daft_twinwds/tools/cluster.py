"""Work that is spread: over the nodes of a cluster by Daft's runner, or over threads here."""

import os
import pickle
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import FIRST_COMPLETED, Executor, Future, ThreadPoolExecutor, wait
from dataclasses import dataclass
from functools import cache
from itertools import islice
from typing import Final, Generic, Protocol, TypeVar

import daft

from daft_twinwds.errors import TwinWebDatasetError
from daft_twinwds.query._daft import runs_on_ray
from daft_twinwds.train.batches import available_cpus

__all__ = ["ClusterJob", "run_for_each", "run_on_cluster"]

Item = TypeVar("Item")
Outcome = TypeVar("Outcome")
OutcomeOut = TypeVar("OutcomeOut", covariant=True)

_MOST_JOBS: Final = 1024
"""Of one call of `run_for_each`: enough for any cluster, few enough for Daft to plan."""
_AHEAD: Final = 4
"""Items per thread that wait for one."""


class ClusterJob(Protocol[OutcomeOut]):
    """Work for one process. It pickles, and so does what becomes of it."""

    def run(self, executor: Executor, /) -> OutcomeOut:
        """Do it, by threads of an executor, which other jobs of the process use as well."""


def run_on_cluster(
    jobs: Iterable[ClusterJob[Outcome]], *, workers: int | None
) -> Iterator[Outcome]:
    """Do each job on some node, and yield what became of it.

    Jobs and outcomes go through the cluster's memory, so neither should hold more than references.

    Args:
        jobs: Each node must reach the paths in them.
        workers: Threads of a node's process; its CPUs by default.

    Raises:
        TwinWebDatasetError: What a job has raised, without its traceback.
        ray.exceptions.RayTaskError: A job has raised something else; its text says what.
    """

    @daft.func(return_dtype=daft.DataType.binary())
    def run(pickled: bytes) -> bytes:
        # What this function is given was pickled a few lines below.
        job: ClusterJob[Outcome] = pickle.loads(pickled)  # noqa: S301
        try:
            return pickle.dumps(job.run(_pool(os.getpid(), workers)))
        except TwinWebDatasetError as error:
            # Daft would keep only the text.
            return pickle.dumps(error)

    pickled = [pickle.dumps(job) for job in jobs]
    if not pickled:
        return
    df = daft.from_pydict({"job": pickled}).into_partitions(len(pickled))
    for row in df.select(run(daft.col("job")).alias("outcome")).iter_rows():
        outcome: Outcome = pickle.loads(row["outcome"])  # noqa: S301
        if isinstance(outcome, TwinWebDatasetError):
            raise outcome
        yield outcome


def run_for_each(
    work: Callable[[Item], Outcome],
    items: Iterable[Item],
    *,
    total: int,
    workers: int | None,
) -> Iterator[Outcome]:
    """Do something with each item, on the cluster that Daft runs on, or else by threads here.

    Args:
        work: What is done. On a cluster it pickles, as items and outcomes do.
        items: What it is done with.
        total: How many they are.
        workers: Threads of each process; its CPUs by default.

    Yields:
        What became of the items, in any order.

    Raises:
        TwinWebDatasetError: As `work` does. The rest is not begun, if it has not been.
    """
    if not runs_on_ray():
        yield from _by_threads(work, items, workers or available_cpus())
        return
    rest = iter(items)
    size = max(1, -(-total // _MOST_JOBS))
    batches = iter(lambda: tuple(islice(rest, size)), ())
    jobs = (_Batch(work, batch) for batch in batches)
    for outcomes in run_on_cluster(jobs, workers=workers):
        yield from outcomes


@dataclass(frozen=True, slots=True)
class _Batch(Generic[Item, Outcome]):
    """Some of the items."""

    work: Callable[[Item], Outcome]
    items: tuple[Item, ...]

    def run(self, executor: Executor, /) -> list[Outcome]:
        futures = [executor.submit(self.work, item) for item in self.items]
        try:
            return [future.result() for future in futures]
        except BaseException:
            for future in futures:
                future.cancel()
            raise


def _by_threads(
    work: Callable[[Item], Outcome], items: Iterable[Item], workers: int
) -> Iterator[Outcome]:
    with ThreadPoolExecutor(workers, "daft-twinwds-work") as executor:
        rest = iter(items)
        pending: set[Future[Outcome]] = set()
        try:
            while True:
                room = _AHEAD * workers - len(pending)
                pending |= {executor.submit(work, item) for item in islice(rest, room)}
                if not pending:
                    return
                done, pending = wait(pending, return_when=FIRST_COMPLETED)
                for future in done:
                    yield future.result()
        except BaseException:
            executor.shutdown(cancel_futures=True)
            raise


@cache
def _pool(process: int, workers: int | None) -> ThreadPoolExecutor:
    """Return the threads of a process: several jobs run in it at a time and share them."""
    del process
    return ThreadPoolExecutor(workers or available_cpus(), "daft-twinwds-job")
