"""What a data set holds: ``info``."""

import os
from bisect import bisect_left
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from functools import partial
from itertools import accumulate, islice

from daft_twinwds.errors import SchemaError
from daft_twinwds.query.index_use import settled_use
from daft_twinwds.query.io_options import AnyConfig, storage_options
from daft_twinwds.query.read import read_twin_webdataset
from daft_twinwds.shards.dataset import Dataset, Leaf
from daft_twinwds.shards.layout import find_dataset
from daft_twinwds.shards.samples import KeySplit
from daft_twinwds.shards.urls import shown
from daft_twinwds.tools.info_classes import ASPECTS, MEGAPIXELS, PRESET_CLASSES, length_ranges
from daft_twinwds.tools.info_report import (
    DatasetInfo,
    InfoProgress,
    LeafInfo,
    ModalityInfo,
    PictureInfo,
    TextInfo,
)
from daft_twinwds.tools.info_shard import ShardFacts, look_at
from daft_twinwds.train.batches import available_cpus

__all__ = ["DatasetInfo", "InfoProgress", "info"]

PathLike = str | os.PathLike[str]

_AT_ONCE = 64
"""Shards that are under way at a time: what was counted of them is small."""


def info(  # noqa: PLR0913  # the public function holds all defaults
    root: PathLike | Sequence[PathLike],
    *,
    modalities: Sequence[str] | Mapping[str, str] | None = None,
    key_split: KeySplit = "last",
    include: str | Sequence[str] | None = None,
    exclude: str | Sequence[str] | None = None,
    aspect_ratios: Sequence[str] | None = None,
    io_config: AnyConfig | Mapping[str, AnyConfig] | None = None,
    workers: int | None = None,
    progress: Callable[[InfoProgress], None] | None = None,
) -> DatasetInfo:
    """Count what a data set holds.

    Shards that an index tells of are not opened; of all others the headers, the texts and the
    pictures' first bytes are read. Memory is bounded by a shard's texts per thread. Nothing is
    written, and a key that a twin lacks, a damaged tar or a text that cannot be parsed is counted
    and no error.

    Args:
        root: As in `read_twin_webdataset`.
        modalities: Folders to look at, or ``{column: folder}``; all by default.
        key_split: Whether the ``"last"`` or the ``"first"`` dot of a base name ends the key.
        include: As in `read_twin_webdataset`.
        exclude: As in `read_twin_webdataset`.
        aspect_ratios: As in `read_twin_webdataset`.
        io_config: As in `read_twin_webdataset`.
        workers: Threads; the CPUs of this process by default.
        progress: Called from this thread after each shard.

    Returns:
        The counts, sizes and lengths.

    Raises:
        LayoutError: The folders or manifests do not make a data set.
        StorageError: The data set cannot be listed, or a tar that tells what the columns are cannot
            be read.
        ValueError: An argument is none of those that it can be.
    """
    if workers is not None and workers < 1:
        raise ValueError(f"workers must be at least 1, got {workers}")
    columns: dict[str, str] = {}
    faults: dict[str, str] = {}
    try:
        df = read_twin_webdataset(
            root,
            modalities,
            on_missing="null",
            on_error="skip",
            extra_fields="ignore",
            key_split=key_split,
            include=include,
            exclude=exclude,
            aspect_ratios=aspect_ratios,
            io_config=io_config,
        )
        columns = {field.name: str(field.dtype) for field in df.schema()}
    except SchemaError as error:
        faults[_shown_root(root)] = f"cannot be read as it is: {error}"
    dataset = find_dataset(
        root,
        modalities=modalities,
        include=include,
        exclude=exclude,
        aspect_ratios=aspect_ratios,
        on_missing="null",
        options=storage_options(io_config),
    )
    has_index = settled_use(dataset, "auto") != "off"
    facts = ShardFacts(oddities=Counter(dataset.skipped), faults=faults)
    leaves = []
    done = 0
    with ThreadPoolExecutor(workers or available_cpus(), "daft-twinwds-info") as pool:
        for leaf in dataset.leaves:
            before = facts.num_samples
            look = partial(look_at, folders=leaf.folders, key_split=key_split, use_index=has_index)
            for found in _iter_facts(leaf, look, pool):
                facts.add(found)
                done += 1
                if progress is not None:
                    progress(InfoProgress(done=done, total=len(dataset)))
            leaves.append(
                LeafInfo(
                    root=shown(leaf.root),
                    num_shards=len(leaf.names),
                    num_samples=facts.num_samples - before,
                )
            )
    made = _to_info(dataset, facts, columns)
    return replace(made, root=_shown_root(root), leaves=tuple(leaves), has_index=has_index)


def _iter_facts(
    leaf: Leaf, look: Callable[..., ShardFacts], pool: ThreadPoolExecutor
) -> Iterator[ShardFacts]:
    """Yield what was counted of each shard; only some are under way at a time."""
    numbers = iter(range(len(leaf.names)))
    while some := list(islice(numbers, _AT_ONCE)):
        yield from pool.map(look, [leaf.shard(number) for number in some])


def _shown_root(root: PathLike | Sequence[PathLike]) -> str:
    items = [root] if isinstance(root, str | os.PathLike) else root
    return ", ".join(shown(os.fspath(item)) for item in items)


def _to_info(dataset: Dataset, facts: ShardFacts, columns: Mapping[str, str]) -> DatasetInfo:
    names = dataset.modalities
    texts = sorted(facts.lengths, key=lambda name: names.index(_column_of(name, names)))
    return DatasetInfo(
        root="",
        leaves=(),
        num_shards=len(dataset),
        num_samples=facts.num_samples,
        num_complete=facts.num_complete,
        modalities={name: _modality(name, facts) for name in names},
        columns=columns,
        pictures={name: _pictures(name, facts) for name in names if _has_pictures(name, facts)},
        texts={
            name: _text(name, facts, facts.members[_column_of(name, names), "members"])
            for name in texts
        },
        num_indexed=facts.num_indexed,
        has_index=False,
        oddities=dict(facts.oddities.most_common()),
        faults=dict(sorted(facts.faults.items())),
    )


def _modality(column: str, facts: ShardFacts) -> ModalityInfo:
    suffixes = Counter(
        {suffix: number for (name, suffix), number in facts.suffixes.items() if name == column}
    )
    return ModalityInfo(
        num_members=facts.members[column, "members"],
        num_missing=facts.members[column, "missing"],
        num_bytes=facts.members[column, "bytes"],
        tar_bytes=facts.members[column, "tar_bytes"],
        suffixes=_most_common(suffixes),
    )


def _has_pictures(column: str, facts: ShardFacts) -> bool:
    return any(number for (name, _, _), number in facts.classes.items() if name == column)


def _pictures(column: str, facts: ShardFacts) -> PictureInfo:
    counts = facts.classes
    formats = Counter(
        {
            label: number
            for (name, kind, label), number in counts.items()
            if (name, kind) == (column, "format")
        }
    )
    small, large = facts.extremes.get(column, (None, None))
    aspects = {name: counts[column, "aspect", name] for name in ASPECTS}
    return PictureInfo(
        num_pictures=sum(aspects.values()),
        num_unreadable=counts[column, "unreadable", ""],
        smallest=None if small is None else small[1:],
        largest=None if large is None else large[1:],
        formats=_most_common(formats),
        megapixels={name: counts[column, "megapixels", name] for name in MEGAPIXELS},
        presets={name: counts[column, "preset", name] for name in PRESET_CLASSES},
        aspect_ratios=aspects,
    )


def _text(name: str, facts: ShardFacts, num_members: int) -> TextInfo:
    lengths = facts.lengths[name]
    return TextInfo(
        num_texts=lengths.total(),
        num_absent=num_members - lengths.total(),
        shortest=min(lengths),
        median=_median(lengths),
        longest=max(lengths),
        lengths=length_ranges(lengths),
    )


def _median(lengths: Mapping[int, int]) -> int:
    """Return the lower one of the two in the middle."""
    lengths = dict(sorted(lengths.items()))
    ends = list(accumulate(lengths.values()))
    return list(lengths)[bisect_left(ends, (ends[-1] + 1) // 2)]


def _column_of(text: str, columns: Sequence[str]) -> str:
    """Return the column that a text, ``caption.prompt``, is part of."""
    return text if text in columns else text.rpartition(".")[0]


def _most_common(counts: Counter[str]) -> dict[str, int]:
    # By name where they are equally frequent, so that the order does not depend on the threads.
    return dict(sorted(counts.items(), key=lambda item: (-item[1], item[0])))
