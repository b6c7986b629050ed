"""A line of a packing's plan, which worker processes follow, too: the twin tars of one name."""

import json
from collections.abc import Iterator, Mapping, Sequence
from typing import NamedTuple

from daft_twinwds.shards.tar_write import tar_size

__all__ = ["ShardPlan", "line_of", "shard_of"]


class ShardPlan(NamedTuple):
    """The twin tars of one name."""

    leaf: str
    """Folder below the output; empty for the output itself."""
    name: str
    """Path below each modality's folder."""
    keys: Sequence[str]
    """Of its samples, in order."""
    files: Mapping[str, Sequence[str | None]]
    """Modality -> path below its folder of the file of each key, or None where it lacks one."""
    sizes: Mapping[str, Sequence[int]]
    """Modality -> bytes of those files, 0 where there is none."""

    def tar(self, modality: str) -> str:
        """Return the path of a twin below the output."""
        return "/".join(part for part in (self.leaf, modality, self.name) if part)

    def members(self, modality: str) -> Iterator[tuple[str, str, int]]:
        """Yield (member's name, file, bytes) of a twin, in order."""
        for key, file, size in zip(
            self.keys, self.files[modality], self.sizes[modality], strict=True
        ):
            if file is not None:
                yield f"{key}.{file.rpartition('.')[2].lower()}", file, size

    def size(self, modality: str) -> int:
        """Return the bytes that a twin will have."""
        return tar_size((name, size) for name, _, size in self.members(modality))


def line_of(shard: ShardPlan) -> bytes:
    """Return a shard's line, its end included."""
    return json.dumps(shard._asdict(), ensure_ascii=False).encode() + b"\n"


def shard_of(line: bytes) -> ShardPlan:
    """Return the shard of a line.

    Raises:
        ValueError: It is no JSON.
        TypeError: It has other fields.
    """
    return ShardPlan(**json.loads(line))
