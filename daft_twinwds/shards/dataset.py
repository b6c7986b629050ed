"""The shards of a twin dataset: where each one's tars are, and how they are opened."""

import operator
from bisect import bisect_right
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from itertools import accumulate

import pyarrow as pa

from daft_twinwds.shards.modalities import has_own_root
from daft_twinwds.shards.options import ENVIRONMENT, StorageOptions
from daft_twinwds.shards.storage import File, open_file
from daft_twinwds.shards.urls import join

__all__ = ["Dataset", "Leaf", "Shard"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Shard:
    """The twin tars of one name."""

    root: str
    """Absolute folder of the leaf, or its URL without secrets; no trailing slash."""
    name: str
    """Path of each twin relative to its modality's folder, ``part_000000/000000.tar``."""
    paths: Mapping[str, str | None]
    """Column -> path or URL of its tar; ``None`` where that modality lacks the shard."""
    options: Mapping[str, StorageOptions] = field(default_factory=dict)
    """Column -> how its tar is accessed; the environment's way for those that are not there."""

    @property
    def url(self) -> str:
        """What the twins have in common: the path without the modality."""
        return join(self.root, self.name)

    def open(self, column: str) -> File:
        """Open a column's tar, which must not be one that the modality lacks.

        Raises:
            StorageError: See `open_file`.
        """
        path = self.paths[column]
        assert path is not None
        return open_file(path, self.options.get(column, ENVIRONMENT))

    def reference(self, column: str) -> str | None:
        """Return the path under which other programs open a column's tar, if it has one.

        Of a URL that was given with a password or query both are part; never show it.
        """
        path = self.paths[column]
        return None if path is None else self.options.get(column, ENVIRONMENT).reference(path)


@dataclass(frozen=True, slots=True, kw_only=True)
class Leaf:
    """One folder of twin modalities, and the shards in it that are read."""

    root: str
    """Absolute folder, or its URL without secrets; no trailing slash."""
    folders: Mapping[str, str]
    """Column -> folder below `root`, which may contain ``/``; or an absolute path or URL."""
    names: pa.StringArray
    """Names of the shards; Arrow, so that a million of them cost no Python objects."""
    counts: pa.Int64Array | None
    """Samples per shard as the manifest claims, where it was asked; never to be trusted."""
    absent: Mapping[str, frozenset[str]]
    """Column -> names that this modality lacks; empty sets unless missing twins become null."""
    options: Mapping[str, StorageOptions] = field(default_factory=dict)
    """Column -> how its tars are accessed, where not in the environment's way."""
    versions: Mapping[str, pa.FixedSizeBinaryArray] = field(default_factory=dict)
    """Column -> `TarState.digest` of each shard's tar when the folder was listed, null where that
    did not tell; columns of whose tars it tells nothing are not there. 16 bytes per tar."""

    def shard(self, index: int) -> Shard:
        """Return the shard at ``index`` in `names`."""
        name: str = self.names[index].as_py()
        paths = {
            column: None if name in self.absent[column] else self._path(folder, name)
            for column, folder in self.folders.items()
        }
        return Shard(root=self.root, name=name, paths=paths, options=self.options)

    def listed(self, index: int) -> dict[str, bytes]:
        """Return column -> the shard's digest in `versions`, where there is one."""
        digests = {column: digests[index].as_py() for column, digests in self.versions.items()}
        return {column: digest for column, digest in digests.items() if digest is not None}

    def _path(self, folder: str, name: str) -> str:
        return join(folder, name) if has_own_root(folder) else join(self.root, folder, name)


@dataclass(frozen=True, slots=True, kw_only=True)
class Dataset:
    """The shards of one or more leaves, numbered through from 0."""

    leaves: tuple[Leaf, ...]
    """Leaves in the order in which they are read."""
    modalities: tuple[str, ...]
    """Columns, in order; the same in every leaf."""
    skipped: Mapping[str, int]
    """What is left out, counted by reason; reasons that did not occur are not there."""
    _ends: tuple[int, ...] = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        ends = tuple(accumulate(len(leaf.names) for leaf in self.leaves))
        object.__setattr__(self, "_ends", ends)

    def __len__(self) -> int:
        """Return the number of shards."""
        return self._ends[-1] if self._ends else 0

    def shard(self, index: int) -> Shard:
        """Return the shard of a global number; the work is logarithmic in the leaves.

        Args:
            index: Number in ``[0, len(self))``.

        Raises:
            IndexError: There is no shard of this number.
        """
        leaf, place = self._find(index)
        return leaf.shard(place)

    def _find(self, index: int) -> tuple[Leaf, int]:
        number = operator.index(index)
        if not 0 <= number < len(self):
            raise IndexError(f"shard number must be in [0, {len(self)}), got {number}")
        position = bisect_right(self._ends, number)
        leaf = self.leaves[position]
        return leaf, number - self._ends[position] + len(leaf.names)

    def iter_shards(self, indices: Iterable[int] | None = None) -> Iterator[Shard]:
        """Yield the shards of the given numbers, or all, in order.

        Raises:
            IndexError: There is no shard of a number; raised when it is reached.
        """
        for index in range(len(self)) if indices is None else indices:
            yield self.shard(index)

    def iter_listed(
        self, indices: Iterable[int] | None = None
    ) -> Iterator[tuple[Shard, dict[str, bytes]]]:
        """Yield the shards as `iter_shards` does, each with what `Leaf.listed` tells of it.

        A shard itself holds none of that: it goes to where it is read, which may be much later.
        """
        for index in range(len(self)) if indices is None else indices:
            leaf, place = self._find(index)
            yield leaf.shard(place), leaf.listed(place)
