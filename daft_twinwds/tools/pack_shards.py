"""Follows a plan: writes its tars, several at a time, and the manifests when all are there."""

from collections.abc import Callable, Generator, Iterable, Iterator, Sequence
from contextlib import closing
from pathlib import Path, PurePosixPath

from daft_twinwds.errors import StorageError
from daft_twinwds.shards.manifest_write import write_manifest
from daft_twinwds.shards.new_file import sync_folder
from daft_twinwds.tools.pack_fill import Job, PlannedTar, Tar
from daft_twinwds.tools.pack_plan import PlanLine
from daft_twinwds.tools.pack_shard import ShardPlan

__all__ = ["write_shards"]


def write_shards(
    output: str,
    plan: Iterable[PlanLine],
    modalities: Sequence[str],
    *,
    fill: Callable[[Iterable[PlannedTar]], Generator[Job, None, None]],
    progress: Callable[[int, str | None], None],
) -> int:
    """Write what is not there yet of a plan, the manifests last.

    A tar that is there in its full size is whole, as it got its name only then.

    Args:
        output: Folder of the data set.
        plan: The shards, leaf by leaf.
        modalities: In the order of the manifest.
        fill: Writes tars, several to a job, and yields each job that is done.
        progress: Called with the number of tars that are done and the last one of them.

    Returns:
        Tars that were there.

    Raises:
        StorageError: A file cannot be read, has another size than planned, the disk fails, or a
            worker process is killed. No manifest is written then.
    """
    leaves: dict[str, dict[str, int]] = {}
    parts: set[str] = set()
    there: dict[str, set[str]] = {}
    found = 0

    def iter_missing() -> Iterator[PlannedTar]:
        nonlocal found
        for start, stop, shard in plan:
            leaves.setdefault(shard.leaf, {})[shard.name] = len(shard.keys)
            for number, modality in enumerate(modalities):
                path = shard.tar(modality)
                part, _, name = path.rpartition("/")
                if part not in parts:
                    # One look for all of them, as tars are about to be written there.
                    parts.add(part)
                    there[modality] = _names_in(f"{output}/{part}")
                if name in there[modality] and _is_whole(f"{output}/{path}", shard, modality):
                    found += 1
                else:
                    yield PlannedTar(
                        tar=Tar(start, stop, number),
                        path=path,
                        num_files=len(shard.keys),
                        num_bytes=sum(shard.sizes[modality]),
                    )

    done = 0
    with closing(fill(iter_missing())) as filled:
        for job in filled:
            for path in job.paths:
                done += 1
                progress(found + done, path)
    progress(found + done, None)
    # The names of tars, of part folders, and so on up to the output.
    for folder in {above for part in parts for above in PurePosixPath(part, "x").parents}:
        sync_folder(f"{output}/{folder}")
    for leaf, counts in leaves.items():
        path = f"{output}/{leaf}".rstrip("/")
        write_manifest(
            path, modalities=modalities, names=list(counts), counts=list(counts.values())
        )
        sync_folder(path)
    return found


def _names_in(folder: str) -> set[str]:
    try:
        return {entry.name for entry in Path(folder).iterdir()}
    except (FileNotFoundError, NotADirectoryError):
        return set()
    except OSError as error:
        raise StorageError(
            f"{folder}: cannot be listed ({error.strerror}); expected a folder of this packing's "
            "tars; check its permissions, and resume"
        ) from error


def _is_whole(path: str, shard: ShardPlan, modality: str) -> bool:
    tar = Path(path)
    return tar.is_file() and tar.stat().st_size == shard.size(modality)
