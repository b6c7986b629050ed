"""Follows a plan: writes its tars, several at a time, and the manifests when all are there."""

from collections.abc import Callable, Generator, Iterable, Iterator, Mapping
from contextlib import closing
from pathlib import Path, PurePosixPath

from daft_twinwds.shards.manifest_write import write_manifest
from daft_twinwds.shards.new_file import sync_folder
from daft_twinwds.tools.pack_fill import Member, TarJob
from daft_twinwds.tools.pack_plan import ShardPlan

__all__ = ["write_shards"]


def write_shards(
    output: str,
    shards: Iterable[ShardPlan],
    folders: Mapping[str, str],
    *,
    fill: Callable[[Iterable[TarJob]], Generator[str, None, None]],
    progress: Callable[[int, str | None], None],
) -> int:
    """Write what is not there yet of a plan, the manifests last.

    A tar that is there in its full size is whole, as it got its name only then.

    Args:
        output: Folder of the data set.
        shards: The plan, leaf by leaf.
        folders: Modality -> folder that its files are read from.
        fill: Writes tars and yields the path of each.
        progress: Called with the number of tars that are done and the last one of them.

    Returns:
        Tars that were there.

    Raises:
        StorageError: A file cannot be read, has another size than planned, the disk fails, or a
            worker process is killed. No manifest is written then.
    """
    leaves: dict[str, dict[str, int]] = {}
    parts: set[str] = set()
    found = 0

    def iter_missing() -> Iterator[TarJob]:
        nonlocal found
        for shard in shards:
            leaves.setdefault(shard.leaf, {})[shard.name] = len(shard.keys)
            for modality, folder in folders.items():
                tar = shard.tar(modality)
                parts.add(tar.rpartition("/")[0])
                if _is_there(f"{output}/{tar}", shard, modality):
                    found += 1
                else:
                    members = [
                        Member(name, f"{folder}/{file}", size)
                        for name, file, size in shard.members(modality)
                    ]
                    yield TarJob(f"{output}/{tar}", members)

    done = 0
    with closing(fill(iter_missing())) as filled:
        for path in filled:
            done += 1
            progress(found + done, path.removeprefix(f"{output}/"))
    progress(found + done, None)
    # The names of tars, of part folders, and so on up to the output.
    for folder in {above for part in parts for above in PurePosixPath(part, "x").parents}:
        sync_folder(f"{output}/{folder}")
    for leaf, counts in leaves.items():
        path = f"{output}/{leaf}".rstrip("/")
        write_manifest(
            path, modalities=list(folders), names=list(counts), counts=list(counts.values())
        )
        sync_folder(path)
    return found


def _is_there(path: str, shard: ShardPlan, modality: str) -> bool:
    tar = Path(path)
    return tar.is_file() and tar.stat().st_size == shard.size(modality)
