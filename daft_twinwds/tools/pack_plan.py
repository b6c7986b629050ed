"""Which file goes into which tar: made once, written down, and followed to the end.

The plan is a file, so that a run that was killed goes on with the very tars that it had begun. It
says where each key came from, too.
"""

import json
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Final, NamedTuple

import numpy as np

from daft_twinwds.errors import ResumeError
from daft_twinwds.shards.new_file import new_file
from daft_twinwds.shards.unfinished import PLAN_NAME
from daft_twinwds.tools.pack_report import PackedLeaf
from daft_twinwds.tools.pack_samples import Samples, groups
from daft_twinwds.tools.pack_settings import PackSettings
from daft_twinwds.tools.pack_shard import ShardPlan, line_of, shard_of

__all__ = [
    "PlanHead",
    "PlanLine",
    "iter_plan",
    "plan_shards",
    "read_plan_head",
    "summary_of",
    "write_plan",
]

_VERSION: Final = 1
_SHARDS, _SAMPLES = "/shards", "/samples"  # no folder's name begins so


@dataclass(frozen=True, slots=True, kw_only=True)
class PlanHead:
    """What a plan was made of; its first line."""

    flags: Mapping[str, Any]
    """`PackSettings.flags`."""
    folders: Mapping[str, Mapping[str, Any]]
    """Modality -> fingerprint of its folder, in the order of the manifest."""
    beyond_limit: int = 0
    """Samples that the limit cut off."""
    version: int = _VERSION
    """Of the plan's form and of the rules that it was made by."""

    def require_same(self, saved: "PlanHead", *, path: str) -> None:
        """Refuse to go on with the plan of another packing.

        Raises:
            ResumeError: The flags or the input are others; both are named.
        """
        changes = [f"{name} {then}, now {now}" for name, then, now in self._changes(saved)]
        if changes:
            raise ResumeError(
                f"{path}: was made with {'; '.join(changes)}; expected the same input and flags "
                "to go on with; give those, or pack into another folder"
            )

    def _changes(self, saved: "PlanHead") -> Iterator[tuple[str, Any, Any]]:
        for name in {**saved.flags, **self.flags}:
            if saved.flags.get(name) != self.flags.get(name):
                yield name, saved.flags.get(name), self.flags.get(name)
        for name in {**saved.folders, **self.folders}:
            if saved.folders.get(name) != self.folders.get(name):
                yield f"folder {name!r}", _described(saved, name), _described(self, name)


class PlanLine(NamedTuple):
    """A shard in the file."""

    start: int
    """Where its line begins, in bytes."""
    stop: int
    """Where it ends."""
    shard: ShardPlan
    """What it says."""


def plan_shards(
    leaves: Mapping[str, Samples], main: str | None, settings: PackSettings
) -> Iterator[ShardPlan]:
    """Yield the shards of all leaves, sorted by leaf, numbered from 0 in each.

    Args:
        leaves: Folder below the output -> its samples, in their order.
        main: Modality whose files fill a shard up; None for those of all modalities together.
        settings: How full a shard gets.
    """
    for leaf, samples in sorted(leaves.items()):
        filling = samples.files.values() if main is None else [samples.files[main]]
        sizes = np.sum([files.sizes for files in filling], axis=0).tolist()
        cuts = groups(sizes, max_count=settings.shard_size, max_size=settings.max_shard_bytes)
        for number, cut in enumerate(cuts):
            part, tar = divmod(number, settings.part_size)
            yield ShardPlan(
                leaf=leaf,
                name=f"part_{part:06d}/{tar:06d}.tar",
                keys=[settings.key_prefix + samples.stems[place] for place in cut],
                files={
                    modality: [samples.name(modality, place) for place in cut]
                    for modality in samples.files
                },
                sizes={
                    modality: files.sizes[cut.start : cut.stop].tolist()
                    for modality, files in samples.files.items()
                },
            )


def write_plan(output: str, head: PlanHead, shards: Iterable[ShardPlan]) -> None:
    """Write the plan; from now on the output belongs to it.

    Raises:
        StorageError: The folder cannot be written to.
    """
    with new_file(f"{output}/{PLAN_NAME}") as file:
        file.write(json.dumps(asdict(head), ensure_ascii=False).encode() + b"\n")
        for shard in shards:
            file.write(line_of(shard))


def read_plan_head(output: str) -> PlanHead | None:
    """Return what the plan in a folder was made of, or None where there is no plan.

    Raises:
        ResumeError: It is no plan, or one of another version.
    """
    path = Path(output) / PLAN_NAME
    if not path.exists():
        return None
    with _plan_faults(path), path.open("rb") as file:
        content = json.loads(file.readline())
        if content["version"] != _VERSION:
            raise ValueError(f"its version is {content['version']!r}, not {_VERSION}")
        return PlanHead(**content)


def iter_plan(output: str) -> Iterator[PlanLine]:
    """Yield the shards of the plan in a folder, reading them one by one.

    Raises:
        ResumeError: It is no plan.
    """
    path = Path(output) / PLAN_NAME
    with _plan_faults(path), path.open("rb") as file:
        start = len(file.readline())
        for line in file:
            stop = start + len(line)
            yield PlanLine(start, stop, shard_of(line))
            start = stop


def summary_of(shards: Iterable[ShardPlan]) -> tuple[PackedLeaf, ...]:
    """Return what the shards of a plan add up to, by leaf."""
    counts: dict[str, Counter[str]] = {}
    for shard in shards:
        count = counts.setdefault(shard.leaf, Counter())
        count[_SHARDS] += 1
        count[_SAMPLES] += len(shard.keys)
        for modality, sizes in shard.sizes.items():
            count[modality] += sum(sizes)
    return tuple(
        PackedLeaf(
            folder=leaf,
            num_shards=count.pop(_SHARDS),
            num_samples=count.pop(_SAMPLES),
            num_bytes=dict(count),
        )
        for leaf, count in counts.items()
    )


@contextmanager
def _plan_faults(path: Path) -> Iterator[None]:
    try:
        yield
    except (OSError, ValueError, TypeError, KeyError) as error:
        raise ResumeError(
            f"{path}: not a plan that can be followed ({error}); expected one that this version "
            "has written; empty the output folder and pack again"
        ) from error


def _described(head: PlanHead, folder: str) -> str:
    content = head.folders.get(folder)
    if content is None:
        return "absent"
    return f"{content['files']} files of {content['bytes']} bytes (sha256 {content['sha256'][:8]})"
