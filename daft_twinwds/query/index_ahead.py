"""Meets the indexes of many shards before they are looked up."""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, suppress
from typing import Final, TypeAlias

from daft_twinwds.query.index_use import open_index_of
from daft_twinwds.shards.dataset import Shard
from daft_twinwds.shards.index_format import UnusableIndexError, index_path
from daft_twinwds.shards.urls import is_url

__all__ = ["iter_looked_for"]

AT_ONCE: Final = 64
"""Shards that are looked up side by side."""
_SHARDS_AHEAD: Final = 1 << 14
"""Shards whose indexes are met before the first of them is looked up."""
_INDEXES_AHEAD: Final = 32
"""Indexes that may be; a process keeps the ends of more."""

_Listed: TypeAlias = tuple[Shard, Mapping[str, bytes]]


def iter_looked_for(
    shards: Iterable[_Listed], pool: ThreadPoolExecutor
) -> Iterator[Sequence[_Listed]]:
    """Yield the shards, `AT_ONCE` at a time, having met the indexes on servers that tell of them.

    Each index is met once, side by side with others; else all who look shards up, being at the
    same place, would read the same one at the same time.

    Args:
        shards: Shards, and what was listed of them.
        pool: Reads the indexes.
    """
    some: list[_Listed] = []
    paths: dict[str, Shard] = {}

    def met() -> Iterator[Sequence[_Listed]]:
        _meet(paths.values(), pool)
        for start in range(0, len(some), AT_ONCE):
            yield some[start : start + AT_ONCE]

    for shard, listed in shards:
        path = index_path(shard.root, shard.name)
        is_new = path not in paths
        if len(some) == _SHARDS_AHEAD or (is_new and len(paths) == _INDEXES_AHEAD):
            yield from met()
            some, paths = [], {}
        if is_url(path):
            paths.setdefault(path, shard)
        some.append((shard, listed))
    yield from met()


def _meet(shards: Iterable[Shard], pool: ThreadPoolExecutor) -> None:
    def meet(shard: Shard) -> None:
        # What is wrong with an index is met again, and told, by who looks a shard up in it.
        with ExitStack() as stack, suppress(UnusableIndexError):
            open_index_of(shard, stack, may_remember=True)

    for _ in pool.map(meet, shards):
        pass
