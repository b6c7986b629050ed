"""Staged shards -> a data set: all keys compared, names given, the manifest written."""

from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import Final, Literal

import numpy as np
import pyarrow as pa

from daft_twinwds.errors import AlignmentError, LayoutError, SchemaError
from daft_twinwds.query.schema import kind_of
from daft_twinwds.query.sink_columns import OutColumn
from daft_twinwds.query.sink_shards import DIGEST, StagedShard, digest_of, double_key_error
from daft_twinwds.shards.enclosing import require_outside
from daft_twinwds.shards.manifest import MANIFEST_NAME, Manifest
from daft_twinwds.shards.samples import Samples, read_samples
from daft_twinwds.shards.storage import open_file
from daft_twinwds.shards.urls import is_url, join
from daft_twinwds.shards.write_target import WriteTarget

__all__ = ["Mode", "check_target", "publish", "shard_table", "table_type"]

Mode = Literal["error", "append", "overwrite"]

_SIDE_BY_SIDE: Final = 8
"""Tars of an old data set whose headers are read at a time."""


def check_target(target: WriteTarget, columns: Sequence[OutColumn], mode: Mode) -> None:
    """Refuse a folder that cannot be written to in this mode.

    Raises:
        LayoutError: Something is there that is in the way, or not of the same kind, or the new
            folder would lie in a data set.
        StorageError: It cannot be looked at.
    """
    visible = target.visible()
    if not visible:
        # To ask a bucket would take several requests, and rights to what lies outside.
        if not is_url(target.path):
            require_outside(target.path)
        return
    if mode == "error":
        more = f" and {len(visible) - 5} more" if len(visible) > 5 else ""
        raise LayoutError(
            f"{target.path}: {', '.join(visible[:5])}{more} found; expected a new or empty folder; "
            "write elsewhere, or pass mode='append' or mode='overwrite'"
        )
    manifest = target.manifest()
    if manifest is None:
        raise LayoutError(
            f"{target.path}: {', '.join(visible[:5])} found, but no {MANIFEST_NAME}; expected a "
            f"data set with one, as it tells what may be replaced or added to (mode={mode!r}); "
            "write elsewhere"
        )
    folders = {column.folder for column in columns}
    if mode == "append" and set(manifest.modalities) != folders:
        raise LayoutError(
            f"{manifest.path}: the modalities {sorted(manifest.modalities)} found; expected "
            f"{sorted(folders)}, those that are written; name the same by modalities="
        )


def publish(
    target: WriteTarget,
    staged: Sequence[StagedShard],
    columns: Sequence[OutColumn],
    *,
    mode: Mode,
    part_size: int,
) -> list[str]:
    """Make a data set of staged shards.

    All keys are compared, which takes about 80 bytes of memory each.

    Args:
        target: What the shards are staged in.
        staged: The shards, in their order.
        columns: What was written.
        mode: What to do with the data set that was there.
        part_size: Shards in one part folder.

    Returns:
        The shards' names.

    Raises:
        AlignmentError: Two samples have one key.
        LayoutError: Another writer was at work.
        SchemaError: A modality mixes kinds that one column cannot hold.
        StorageError: Something cannot be read or written.
    """
    manifest = target.manifest()
    old_names: list[str] = [] if manifest is None else manifest.names.to_pylist()
    old = [] if manifest is None or mode != "append" else _read_old(target, manifest)
    folders = [column.folder for column in columns]
    _check_kinds(staged, old, columns)
    _check_unique(target, staged, old, columns)
    names = target.shard_names(old_names, len(staged), part_size=part_size)
    target.publish(
        {
            target.staged(folder, shard.name): f"{folder}/{name}"
            for shard, name in zip(staged, names, strict=True)
            for folder in folders
        },
        modalities=folders if manifest is None or mode != "append" else manifest.modalities,
        names=[*(shard.name for shard in old), *names],
        counts=[*(shard.count for shard in old), *(shard.count for shard in staged)],
        old=_replaced(manifest) if mode == "overwrite" else (),
    )
    return names


def table_type(columns: Sequence[OutColumn]) -> pa.Schema:
    """Return the columns of `shard_table`."""
    sizes = pa.struct([(column.name, pa.int64()) for column in columns])
    return pa.schema({"shard": pa.large_string(), "samples": pa.int64(), "bytes": sizes})


def shard_table(
    staged: Sequence[StagedShard], names: Sequence[str], columns: Sequence[OutColumn]
) -> pa.Table:
    """Return what was written: a shard's name, samples and bytes by column, one row per shard."""
    sizes = [
        {column.name: size for column, size in zip(columns, shard.sizes, strict=True)}
        for shard in staged
    ]
    schema = table_type(columns)
    return pa.table(
        {"shard": list(names), "samples": [shard.count for shard in staged], "bytes": sizes},
        schema=schema,
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class _OldShard:
    name: str
    count: int
    digests: bytes
    suffixes: Mapping[str, frozenset[str]]
    """By modality's folder."""


def _replaced(manifest: Manifest | None) -> Iterator[str]:
    if manifest is not None:
        for folder in manifest.modalities:
            yield from (f"{folder}/{name}" for name in manifest.names.to_pylist())


def _read_old(target: WriteTarget, manifest: Manifest) -> list[_OldShard]:
    """Return what a data set holds, from the headers of all its tars."""

    def read(name: str) -> _OldShard:
        samples = {folder: _samples(target, f"{folder}/{name}") for folder in manifest.modalities}
        keys = dict.fromkeys(key for twin in samples.values() for key in twin.keys)
        return _OldShard(
            name=name,
            count=len(keys),
            digests=b"".join(digest_of(key) for key in keys),
            suffixes={folder: twin.suffixes for folder, twin in samples.items()},
        )

    with ThreadPoolExecutor(_SIDE_BY_SIDE, thread_name_prefix="daft-twinwds-old") as pool:
        return list(pool.map(read, manifest.names.to_pylist()))


def _samples(target: WriteTarget, tar: str) -> Samples:
    with open_file(join(target.path, tar), target.folder.options) as file:
        return read_samples(file, key_split="last", strict=True)


def _check_kinds(
    staged: Sequence[StagedShard], old: Sequence[_OldShard], columns: Sequence[OutColumn]
) -> None:
    """Refuse a modality that readers could make no column of."""
    for number, column in enumerate(columns):
        suffixes = {suffix for shard in staged for suffix in shard.suffixes[number]}
        suffixes |= {suffix for shard in old for suffix in shard.suffixes[column.folder]}
        kinds = {kind_of(suffix): suffix for suffix in sorted(suffixes)}
        if len(kinds) > 1:
            raise SchemaError(
                f"column {column.name!r}: members with the suffixes "
                f"{', '.join(f'.{suffix}' for suffix in kinds.values())} found; expected suffixes "
                "that one column can be read from; write them as two columns, or pass "
                f"suffixes={{{column.name!r}: ...}}"
            )


def _check_unique(
    target: WriteTarget,
    staged: Sequence[StagedShard],
    old: Sequence[_OldShard],
    columns: Sequence[OutColumn],
) -> None:
    digests = [*(shard.digests for shard in old), *(shard.digests for shard in staged)]
    double = _double_of(digests)
    if double is None:
        return
    key, places = None, []
    for shard in old:
        if _holds(shard.digests, double):
            tars = [f"{column.folder}/{shard.name}" for column in columns]
            key, places = _key_of(target, tars, double), [f"{target.path}/{shard.name}"]
    for new in staged:
        if key is None and _holds(new.digests, double):
            tars = [target.staged(column.folder, new.name) for column in columns]
            key = _key_of(target, tars, double)
    if places:
        raise AlignmentError(
            f"sample {key!r}: is in {places[0]} already; expected keys that the data set does not "
            "have yet; leave such rows out of what is appended"
        )
    raise double_key_error(key)


def _double_of(digests: Sequence[bytes]) -> bytes | None:
    """Return a digest that occurs twice."""
    halves = np.frombuffer(b"".join(digests), ">u8").reshape(-1, 2)
    order = np.lexsort((halves[:, 1], halves[:, 0]))
    is_double = (halves[order[1:]] == halves[order[:-1]]).all(axis=1)
    found = np.flatnonzero(is_double)
    return halves[order[found[0]]].tobytes() if len(found) else None


def _holds(digests: bytes, digest: bytes) -> bool:
    return any(
        digests[start : start + DIGEST] == digest for start in range(0, len(digests), DIGEST)
    )


def _key_of(target: WriteTarget, tars: Sequence[str], digest: bytes) -> str | None:
    """Return the key that a digest stands for, out of the twins of one shard."""
    keys = (key for tar in tars for key in _samples(target, tar).keys)
    return next((key for key in keys if digest_of(key) == digest), None)
