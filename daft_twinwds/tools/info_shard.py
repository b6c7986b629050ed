"""One shard -> what is counted of it: by its index where that holds, else by reading its tars."""

from collections import Counter
from collections.abc import Iterator, Mapping
from contextlib import ExitStack
from dataclasses import dataclass, field
from typing import Any, Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from daft_twinwds.errors import StorageError
from daft_twinwds.query.index_build import index_shard
from daft_twinwds.query.index_use import look_up
from daft_twinwds.query.schema import CAPTION_FIELDS, kind_of
from daft_twinwds.shards.dataset import Shard
from daft_twinwds.shards.index_file import IndexFile
from daft_twinwds.shards.index_format import (
    FORMAT,
    HEIGHT,
    SIZE,
    SUFFIX,
    TEXT,
    WIDTH,
    ShardEntry,
    TarEntry,
    UnusableIndexError,
    field_of,
)
from daft_twinwds.shards.samples import KeySplit
from daft_twinwds.tools.info_classes import aspect_labels, megapixel_labels, preset_labels

__all__ = ["ShardFacts", "look_at"]

_UNREADABLE_SHARD: Final = "shards that could not be read"
_UNREADABLE_TEXTS: Final = "shards whose texts could not be read"

Columns = Mapping[str, pa.Array]
Sized = tuple[int, int, int]
"""Pixels, width, height."""


@dataclass(slots=True, kw_only=True)
class ShardFacts:
    """What was counted of one shard, or of several: its size depends on what occurs, not on rows."""

    num_samples: int = 0
    num_complete: int = 0
    num_indexed: int = 0
    members: Counter[tuple[str, str]] = field(default_factory=Counter)
    """(column, what) -> members, bytes and so on; all of them plain sums."""
    suffixes: Counter[tuple[str, str]] = field(default_factory=Counter)
    classes: Counter[tuple[str, str, str]] = field(default_factory=Counter)
    """(column, kind of class, class) -> pictures."""
    extremes: dict[str, tuple[Sized, Sized]] = field(default_factory=dict)
    """Column -> smallest and largest picture."""
    lengths: dict[str, Counter[int]] = field(default_factory=dict)
    """Name of a text -> characters -> texts."""
    oddities: Counter[str] = field(default_factory=Counter)
    faults: dict[str, str] = field(default_factory=dict)
    """Shard -> what is wrong with it."""

    def add(self, other: "ShardFacts") -> None:
        """Add what was counted of other shards."""
        self.num_samples += other.num_samples
        self.num_complete += other.num_complete
        self.num_indexed += other.num_indexed
        self.members.update(other.members)
        self.suffixes.update(other.suffixes)
        self.classes.update(other.classes)
        self.oddities.update(other.oddities)
        self.faults |= other.faults
        for column, (small, large) in other.extremes.items():
            known = self.extremes.get(column, (small, large))
            self.extremes[column] = min(known[0], small), max(known[1], large)
        for name, lengths in other.lengths.items():
            self.lengths.setdefault(name, Counter()).update(lengths)


def look_at(
    shard: Shard, folders: Mapping[str, str], *, key_split: KeySplit, use_index: bool
) -> ShardFacts:
    """Count what a shard holds.

    Args:
        shard: Where it is.
        folders: Column -> folder, in order.
        key_split: See `split_name`.
        use_index: Whether to look for one; it is used only as far as it holds.

    Returns:
        The counts. A shard that cannot be read is among the faults, and counts as a shard alone.
    """
    facts = ShardFacts()
    try:
        with ExitStack() as stack:
            indexed = None
            if use_index:
                indexed = _indexed(shard, folders, facts, key_split, stack)
            if indexed is None:
                rows = index_shard(
                    shard, folders, key_split=key_split, texts=True, to_be_kept=False
                )
                indexed = rows.entry, rows.columns
            _count(facts, shard, folders, *indexed)
    except StorageError as error:
        return ShardFacts(oddities=Counter({_UNREADABLE_SHARD: 1}), faults={shard.url: str(error)})
    return facts


def _indexed(
    shard: Shard,
    folders: Mapping[str, str],
    facts: ShardFacts,
    key_split: KeySplit,
    stack: ExitStack,
) -> tuple[ShardEntry, Columns] | None:
    """Return what the index says of a shard; None if the tars are needed."""
    try:
        found = look_up(shard, list(folders), key_split=key_split, stack=stack)
        facts.num_indexed = 1
        columns = {}
        if not all(_tells_texts(found.shard.tars.get(folder)) for folder in folders.values()):
            return None
        if found.shard.num_rows:
            columns = found.file.read(found.shard, list(_names(found.file, folders.values())))
    except UnusableIndexError:
        # One that is damaged does not hold either.
        facts.num_indexed = 0
        return None
    return found.shard, columns


def _tells_texts(tar: TarEntry | None) -> bool:
    if tar is None or not tar.count or tar.text is not None or tar.text_fault is not None:
        return True
    return {kind_of(suffix) for suffix in tar.suffixes} == {"file"}


def _names(file: IndexFile, folders: Any) -> Iterator[str]:
    for folder in folders:
        yield from (field_of(folder, what) for what in (SIZE, SUFFIX, WIDTH, HEIGHT, FORMAT))
        type_ = file.text_type(folder)
        if type_ is not None and pa.types.is_struct(type_):
            yield from (f"{field_of(folder, TEXT)}.{name}" for name in CAPTION_FIELDS)
        elif type_ is not None:
            yield field_of(folder, TEXT)


def _count(
    facts: ShardFacts,
    shard: Shard,
    folders: Mapping[str, str],
    entry: ShardEntry,
    columns: Columns,
) -> None:
    for column, folder in folders.items():
        tar = entry.tars.get(folder)
        if tar is None:
            continue
        facts.members[column, "tar_bytes"] += tar.state.size
        facts.oddities.update(tar.notes)
        if tar.text_fault is not None:
            facts.oddities[_UNREADABLE_TEXTS] += 1
            facts.faults[shard.url] = tar.text_fault
    if entry.fault is not None:
        facts.oddities[_UNREADABLE_SHARD] += 1
        facts.faults[shard.url] = entry.fault
        return
    facts.num_samples += entry.num_rows
    if entry.num_rows:
        _count_rows(facts, folders, columns, entry.num_rows)


def _count_rows(
    facts: ShardFacts, folders: Mapping[str, str], columns: Columns, num_rows: int
) -> None:
    complete = np.ones(num_rows, np.bool_)
    for column, folder in folders.items():
        sizes = columns[field_of(folder, SIZE)]
        complete &= sizes.is_valid().to_numpy(zero_copy_only=False)
        facts.members[column, "missing"] += sizes.null_count
        facts.members[column, "members"] += num_rows - sizes.null_count
        facts.members[column, "bytes"] += pc.sum(sizes, min_count=0).as_py()
        for suffix, number in _value_counts(columns[field_of(folder, SUFFIX)]):
            facts.suffixes[column, suffix.lower()] += number
        if field_of(folder, WIDTH) in columns:
            _count_pictures(facts, column, folder, columns)
        if field_of(folder, TEXT) in columns:
            for name, texts in _texts(column, columns[field_of(folder, TEXT)]):
                _count_lengths(facts, name, texts)
    facts.num_complete += int(complete.sum())


def _count_pictures(facts: ShardFacts, column: str, folder: str, columns: Columns) -> None:
    sides = [columns[field_of(folder, what)] for what in (WIDTH, HEIGHT)]
    held = len(sides[0]) - columns[field_of(folder, SIZE)].null_count
    # An index has these columns for a whole part folder, whatever this shard holds.
    widths, heights = (side.drop_null().to_numpy().astype(np.int64) for side in sides)
    facts.classes[column, "unreadable", ""] += held - len(widths)
    if not len(widths):
        return
    for format_, number in _value_counts(columns[field_of(folder, FORMAT)]):
        facts.classes[column, "format", format_] += number
    for kind, labels in (
        ("megapixels", megapixel_labels(widths, heights)),
        ("preset", preset_labels(widths, heights)),
        ("aspect", aspect_labels(widths, heights)),
    ):
        for label, number in zip(*np.unique(labels, return_counts=True), strict=True):
            facts.classes[column, kind, str(label)] += int(number)
    pixels = widths * heights
    small, large = (
        (int(pixels[place]), int(widths[place]), int(heights[place]))
        for place in (int(pixels.argmin()), int(pixels.argmax()))
    )
    facts.extremes[column] = small, large


def _texts(column: str, values: pa.Array) -> Iterator[tuple[str, pa.Array]]:
    if pa.types.is_struct(values.type):
        for name in CAPTION_FIELDS:
            if values.type.get_field_index(name) >= 0:
                # A null struct's fields may hold anything; flattening makes them null.
                texts = values.flatten()[values.type.get_field_index(name)]
                yield f"{column}.{name}", texts
    else:
        yield column, values


def _count_lengths(facts: ShardFacts, name: str, texts: pa.Array) -> None:
    if not (pa.types.is_string(texts.type) or pa.types.is_large_string(texts.type)):
        return
    lengths = pc.utf8_length(texts).drop_null().to_numpy()
    if not len(lengths):
        return
    values, numbers = np.unique(lengths, return_counts=True)
    counts = zip(values.tolist(), numbers.tolist(), strict=True)
    facts.lengths[name] = Counter(dict(counts))


def _value_counts(values: pa.Array) -> Iterator[tuple[str, int]]:
    if pa.types.is_dictionary(values.type):
        values = values.cast(values.type.value_type)
    for pair in values.drop_null().value_counts():
        yield pair["values"].as_py(), pair["counts"].as_py()
