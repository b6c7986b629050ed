"""What columns a data set has: a look into a few shards, spread evenly."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

import daft
import numpy as np
import pyarrow as pa

from daft_twinwds.errors import SchemaError
from daft_twinwds.query.index_schema import indexed_columns
from daft_twinwds.query.json_types import JsonTypes, load_json
from daft_twinwds.query.scan import IndexUse
from daft_twinwds.query.schema import (
    CAPTION,
    CAPTION_FIELDS,
    Column,
    Kind,
    declared_column,
    file_column,
    kind_of,
    parsed_column,
)
from daft_twinwds.query.text import MAX_TEXT_BYTES, read_texts
from daft_twinwds.shards.layout import Dataset
from daft_twinwds.shards.samples import KeySplit, Samples, read_samples
from daft_twinwds.shards.storage import File

__all__ = ["infer_columns"]

SAMPLED_SHARDS = 8
"""Shards that are looked into, spread evenly over the data set."""
SAMPLED_TEXTS = 1024
"""Text members that are parsed per modality, spread evenly over those shards."""
SAMPLED_NAMES = 64
"""Members per shard whose suffixes decide what a modality holds."""


def infer_columns(
    dataset: Dataset,
    declared: Mapping[str, daft.DataType],
    *,
    key_split: KeySplit,
    strict: bool,
    index: IndexUse,
) -> tuple[Column, ...]:
    """Return one column per modality, in the data set's order.

    Declared columns are taken as they are. Shards without members are looked past.

    Args:
        dataset: Where the tars are.
        declared: Column -> type that the caller gave.
        key_split: See `split_name`.
        strict: Whether a bad member ends inference or is passed over.
        index: Whether to ask an index first. One that holds for all shards has seen all members.

    Raises:
        LayoutError: An index is required, and does not hold.
        SchemaError: A modality mixes kinds that one column cannot hold, or its JSON documents
            contradict each other; names both members.
        ValueError: A declared column is not there, or its type cannot be read.
    """
    unknown = [name for name in declared if name not in dataset.modalities]
    if unknown:
        raise ValueError(
            f"schema: no column {unknown[0]!r}; the modalities are {list(dataset.modalities)}"
        )
    columns = {name: declared_column(name, dtype) for name, dtype in declared.items()}
    others = [name for name in dataset.modalities if name not in declared]
    columns |= indexed_columns(dataset, others, key_split=key_split, use=index)
    look = _Look(dataset=dataset, key_split=key_split, strict=strict)
    return tuple(columns.get(name) or look.column(name) for name in dataset.modalities)


@dataclass(frozen=True, slots=True, kw_only=True)
class _Look:
    dataset: Dataset
    key_split: KeySplit
    strict: bool

    def column(self, name: str) -> Column:
        kind, suffixes = self._kind(name)
        if kind == "file":
            return file_column(name, suffixes)
        if kind == "json":
            return parsed_column(name, kind, self._json_types(name).merged_type())
        return parsed_column(name, kind, pa.large_string() if kind == "text" else pa.int64())

    def _kind(self, name: str) -> tuple[Kind, set[str]]:
        """Kind and suffixes of a modality's members."""
        place_of: dict[str, str] = {}
        for _, samples in self._samples(name, limit=SAMPLED_NAMES):
            for number, member in enumerate(samples.names):
                place_of.setdefault(samples.suffix_of(number), f"{samples.path}: {member!r}")
        kinds: dict[Kind, str] = {}
        for suffix, place in place_of.items():
            kinds.setdefault(kind_of(suffix), place)
        if len(kinds) > 1:
            places = " and ".join(f"{place} ({kind})" for kind, place in kinds.items())
            raise SchemaError(
                f"{name}: one column cannot hold {places}; expected members of one kind; sort "
                f"them into two modalities, or pass schema={{{name!r}: daft.DataType.file()}}"
            )
        fallback: Kind = "json" if name == CAPTION else "file"
        return next(iter(kinds), fallback), set(place_of)

    def _json_types(self, name: str) -> JsonTypes:
        types = JsonTypes()
        if name == CAPTION:
            types.add(dict.fromkeys(CAPTION_FIELDS, ""), where="PiD's caption layout")
        shards = min(SAMPLED_SHARDS, len(self.dataset))
        for file, samples in self._samples(name, limit=None):
            places = _spread(len(samples.keys), -(-SAMPLED_TEXTS // shards))
            if not self.strict:
                places = [place for place in places if samples.sizes[place] <= MAX_TEXT_BYTES]
            documents = read_texts(file, samples, places, column=name)
            for place, document in zip(places, documents, strict=True):
                try:
                    _add(types, document, name, f"{samples.path}: {samples.names[place]!r}")
                except SchemaError:
                    if self.strict:
                        raise
        return types

    def _samples(self, name: str, *, limit: int | None) -> Iterator[tuple[File, Samples]]:
        """Samples of the first shards, in spread order, that hold any."""
        found = 0
        for number in _spread_order(len(self.dataset), SAMPLED_SHARDS):
            shard = self.dataset.shard(number)
            if shard.paths[name] is None:
                continue
            with shard.open(name) as file:
                samples = read_samples(
                    file, key_split=self.key_split, strict=self.strict, limit=limit
                )
                if samples.keys:
                    found += 1
                    yield file, samples
            if found == SAMPLED_SHARDS:
                return


def _add(types: JsonTypes, document: bytes, name: str, where: str) -> None:
    try:
        value = load_json(document)
    except SchemaError as error:
        raise SchemaError(f"{where}: {error}; mend the member, or pass on_error='skip'") from error
    # A bare string is a caption's prompt, and says nothing of its other fields.
    if not (name == CAPTION and isinstance(value, str)):
        types.add(value, where=where)


def _spread(num_items: int, most: int) -> Sequence[int]:
    """At most ``most`` places, spread evenly, the first and the last among them."""
    if num_items <= most:
        return range(num_items)
    places: list[int] = np.linspace(0, num_items - 1, most).astype(np.int64).tolist()
    return places


def _spread_order(num_items: int, first: int) -> Iterator[int]:
    """All places, beginning with the spread ones."""
    chosen = _spread(num_items, first)
    yield from chosen
    taken = set(chosen)
    yield from (place for place in range(num_items) if place not in taken)
