"""Fills tars with copies of files. A packing's worker processes import this and little else."""

from collections import deque
from collections.abc import Iterable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import ExitStack
from typing import Final, NamedTuple

from daft_twinwds.shards.new_file import new_file
from daft_twinwds.shards.tar_write import TarWriter

__all__ = ["SYNCS", "Member", "TarJob", "fill_tars"]

SYNCS: Final = 4
"""Tars that wait for the disk while the next one is filled."""


class Member(NamedTuple):
    """A file that becomes a member."""

    name: str
    """In the tar."""
    path: str
    """Of the file."""
    size: int
    """Its bytes."""


class TarJob(NamedTuple):
    """A tar to be written."""

    path: str
    """Its own."""
    members: list[Member]
    """In order."""


def fill_tars(jobs: Iterable[TarJob]) -> Iterator[str]:
    """Write tars, one after another.

    Args:
        jobs: Taken up to `SYNCS` ahead of what is yielded, and one more.

    Yields:
        The path of each, in order, when it is on the disk under its name.

    Raises:
        StorageError: A file cannot be read, has another size than it should, or the disk fails.
            Tars that have been filled get their names.
    """
    pending: deque[Future[str]] = deque()
    with ThreadPoolExecutor(SYNCS) as syncing:
        for job in jobs:
            pending.append(syncing.submit(_finish, job.path, _filled(job)))
            if len(pending) > SYNCS:
                yield pending.popleft().result()
        while pending:
            yield pending.popleft().result()


def _filled(job: TarJob) -> ExitStack:
    """Copy the files into a new tar; closing the stack completes it."""
    with ExitStack() as stack:
        file = stack.enter_context(new_file(job.path))
        with TarWriter(file) as tar:
            for member in job.members:
                tar.add_file(member.name, member.path, size=member.size)
        return stack.pop_all()


def _finish(path: str, tar: ExitStack) -> str:
    tar.close()
    return path
