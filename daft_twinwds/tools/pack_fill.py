"""Fills the tars of a plan with copies of files. Worker processes import this and little else."""

from collections import deque
from collections.abc import Iterable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import ExitStack
from itertools import groupby
from operator import itemgetter
from typing import Final, NamedTuple

from daft_twinwds.errors import StorageError
from daft_twinwds.shards.new_file import new_file
from daft_twinwds.shards.tar_write import TarWriter
from daft_twinwds.tools.pack_shard import ShardPlan, shard_of

__all__ = ["SYNCS", "Job", "Places", "PlannedTar", "Tar", "fill_tars", "jobs_of"]

SYNCS: Final = 2
"""Jobs whose tars wait for the disk while those of the next one are filled."""
_FILES: Final = 1000
"""Files after which a job takes no more tars."""
_BYTES: Final = 1 << 22
"""Bytes of these, likewise."""


class Places(NamedTuple):
    """Where things are; absolute paths."""

    plan: str
    """The plan."""
    output: str
    """Folder of the data set."""
    folders: Sequence[tuple[str, str]]
    """Modalities, and the folders that their files are read from."""


class Tar(NamedTuple):
    """A tar to be written."""

    start: int
    """Place in the plan of its shard's line."""
    stop: int
    """Where the line ends."""
    modality: int
    """Which of the modalities it is."""


class Job(NamedTuple):
    """Tars that are filled one after another, and then wait for the disk together."""

    tars: list[Tar]
    """Those of a shard stand together."""
    paths: list[str]
    """Of the tars below the output, for whoever wants to know."""


class PlannedTar(NamedTuple):
    """A tar and how much work it is."""

    tar: Tar
    """The tar."""
    path: str
    """Below the output."""
    num_files: int
    """Files in it, or somewhat more."""
    num_bytes: int
    """Their bytes."""


def jobs_of(tars: Iterable[PlannedTar], *, most: int) -> Iterator[Job]:
    """Put neighbours into a job as long as they are little work.

    Args:
        tars: Taken as jobs are.
        most: Most tars of a job; all of those that `fill_tars` has taken are open.
    """
    job, num_files, num_bytes = Job([], []), 0, 0
    for tar in tars:
        job.tars.append(tar.tar)
        job.paths.append(tar.path)
        num_files += tar.num_files
        num_bytes += tar.num_bytes
        if len(job.tars) == most or num_files >= _FILES or num_bytes >= _BYTES:
            yield job
            job, num_files, num_bytes = Job([], []), 0, 0
    if job.tars:
        yield job


def fill_tars(places: Places, jobs: Iterable[Job]) -> Iterator[Job]:
    """Write tars, one after another.

    Args:
        places: Where the plan is, and what it is about.
        jobs: Taken up to `SYNCS` ahead of what is yielded, and one more.

    Yields:
        Each, in order, when its tars are on the disk under their names.

    Raises:
        StorageError: A file cannot be read, has another size than it should, the plan is not what
            it was, or the disk fails. Earlier jobs are finished.
    """
    pending: deque[Future[Job]] = deque()
    with ThreadPoolExecutor(SYNCS) as syncing:
        for job in jobs:
            pending.append(syncing.submit(_finish, job, _filled(job, places)))
            if len(pending) > SYNCS:
                yield pending.popleft().result()
        while pending:
            yield pending.popleft().result()


def _filled(job: Job, places: Places) -> ExitStack:
    """Copy the files into new tars; closing the stack completes them."""
    with ExitStack() as stack:
        for (start, stop), twins in groupby(job.tars, key=itemgetter(0, 1)):
            shard = _shard(places.plan, start, stop)
            for tar in twins:
                modality, folder = places.folders[tar.modality]
                file = stack.enter_context(new_file(f"{places.output}/{shard.tar(modality)}"))
                with TarWriter(file) as writer:
                    for name, source, size in shard.members(modality):
                        writer.add_file(name, f"{folder}/{source}", size=size)
                file.flush()
        return stack.pop_all()


def _shard(plan: str, start: int, stop: int) -> ShardPlan:
    try:
        with open(plan, "rb") as file:
            file.seek(start)
            line = file.read(stop - start)
    except OSError as error:
        raise StorageError(
            f"{plan}: cannot be read ({error.strerror}); expected the plan of this packing; check "
            "the disk and how many files may be open, and resume"
        ) from error
    try:
        return shard_of(line)
    except (ValueError, TypeError) as error:
        raise StorageError(
            f"{plan}: no shard at byte {start} ({error}); expected the plan that was made for this "
            "packing; pack again, into another folder"
        ) from error


def _finish(job: Job, tars: ExitStack) -> Job:
    tars.close()
    return job
