"""Builds the indexes of part folders on the nodes of a cluster, as Daft's runner spreads them."""

import pickle
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor

import daft

from daft_twinwds.tools.index_part import PartJob
from daft_twinwds.tools.index_report import PartOutcome
from daft_twinwds.train.batches import available_cpus

__all__ = ["run_on_cluster"]


def run_on_cluster(jobs: Sequence[PartJob], *, workers: int | None) -> Iterator[PartOutcome]:
    """Do each job on some node, and yield what became of it.

    Args:
        jobs: Part folders; each node must reach their paths.
        workers: Threads of a job; the CPUs of the node's process by default.

    Raises:
        ray.exceptions.RayTaskError: An index could not be written; its text says why.
    """

    @daft.func(return_dtype=daft.DataType.binary())
    def run(job: bytes) -> bytes:
        # What this function is given was pickled a few lines below.
        part: PartJob = pickle.loads(job)  # noqa: S301
        with ThreadPoolExecutor(workers or available_cpus()) as executor:
            return pickle.dumps(part.run(executor))

    df = daft.from_pydict({"job": [pickle.dumps(job) for job in jobs]})
    done = df.into_partitions(len(jobs)).select(run(daft.col("job")).alias("outcome"))
    for row in done.iter_rows():
        outcome: PartOutcome = pickle.loads(row["outcome"])  # noqa: S301
        yield outcome
