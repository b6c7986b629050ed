"""Follows a plan: writes its tars, several at a time, and the manifests when all are there."""

import threading
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Mapping
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path, PurePosixPath
from typing import Final

from daft_twinwds.shards.manifest_write import write_manifest
from daft_twinwds.shards.new_file import new_file, sync_folder
from daft_twinwds.shards.tar_write import TarWriter
from daft_twinwds.tools.pack_plan import ShardPlan

__all__ = ["write_shards"]

_SYNCS: Final = 16
"""Tars that wait for the disk at a time: file systems write the news of many as fast as of one."""


def write_shards(
    output: str,
    shards: Iterable[ShardPlan],
    folders: Mapping[str, str],
    *,
    num_workers: int,
    progress: Callable[[int, str | None], None],
) -> int:
    """Write what is not there yet of a plan, the manifests last.

    A tar that is there in its full size is whole, as it got its name only then.

    Args:
        output: Folder of the data set.
        shards: The plan, leaf by leaf.
        folders: Modality -> folder that its files are read from.
        num_workers: Tars that are filled at a time.
        progress: Called with the number of tars that are done and the last one of them.

    Returns:
        Tars that were there.

    Raises:
        StorageError: A file cannot be read, has another size than planned, or the disk fails. No
            manifest is written then.
    """
    leaves: dict[str, dict[str, int]] = {}
    parts: set[PurePosixPath] = set()
    found = 0

    def iter_missing() -> Iterator[tuple[ShardPlan, str]]:
        nonlocal found
        for shard in shards:
            leaves.setdefault(shard.leaf, {})[shard.name] = len(shard.keys)
            for modality in folders:
                parts.add(PurePosixPath(shard.tar(modality)).parent)
                if _is_there(output, shard, modality):
                    found += 1
                else:
                    yield shard, modality

    writer = _Writer(output, folders, num_workers)
    done = 0
    for tar in writer.run(iter_missing()):
        done += 1
        progress(found + done, tar)
    progress(found + done, None)
    # The names of tars, of part folders, and so on up to the output.
    for folder in parts.union(*(part.parents for part in parts)):
        sync_folder(f"{output}/{folder}")
    for leaf, counts in leaves.items():
        path = f"{output}/{leaf}".rstrip("/")
        write_manifest(
            path, modalities=list(folders), names=list(counts), counts=list(counts.values())
        )
        sync_folder(path)
    return found


class _Writer:
    """Threads that write tars."""

    def __init__(self, output: str, folders: Mapping[str, str], num_workers: int) -> None:
        self._output = output
        self._folders = folders
        self._threads = max(num_workers, _SYNCS)
        # Copying is work for as many threads as there are CPUs; waiting for the disk is none.
        self._copying = threading.Semaphore(num_workers)

    def run(self, jobs: Iterator[tuple[ShardPlan, str]]) -> Iterator[str]:
        """Yield the tars in order, each when it is done; the first error ends it."""
        pool = ThreadPoolExecutor(self._threads)
        pending: deque[Future[str]] = deque()
        try:
            for shard, modality in jobs:
                pending.append(pool.submit(self._write, shard, modality))
                if len(pending) >= 2 * self._threads:
                    yield pending.popleft().result()
            while pending:
                yield pending.popleft().result()
        finally:
            pool.shutdown(cancel_futures=True)

    def _write(self, shard: ShardPlan, modality: str) -> str:
        name, folder = shard.tar(modality), self._folders[modality]
        with new_file(f"{self._output}/{name}") as file, self._copying, TarWriter(file) as tar:
            for member, source, size in shard.members(modality):
                tar.add_file(member, f"{folder}/{source}", size=size)
        return name


def _is_there(output: str, shard: ShardPlan, modality: str) -> bool:
    path = Path(output) / shard.tar(modality)
    return path.is_file() and path.stat().st_size == shard.size(modality)
