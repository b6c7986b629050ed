"""The samples of a shard's twins <-> rows of its index, one per key."""

from collections.abc import Mapping

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from daft_twinwds.shards.align import align
from daft_twinwds.shards.index_format import (
    KEY,
    PLACE,
    POSITION,
    SIZE,
    SUFFIX,
    TarEntry,
    field_of,
)
from daft_twinwds.shards.samples import Samples

__all__ = ["SAMPLE_FIELDS", "rows_of", "samples_of", "spread"]

SAMPLE_FIELDS = (PLACE, POSITION, SIZE, SUFFIX)
"""What is kept of a member of any kind."""

_SUFFIXES = pa.dictionary(pa.int32(), pa.string())


def rows_of(twins: Mapping[str, Samples | None]) -> tuple[dict[str, pa.Array], bool]:
    """Return the rows of a shard, and whether all twins hold the same keys in the same order.

    Args:
        twins: Folder -> samples as read strictly; None for a modality that lacks the shard.

    Returns:
        Column -> values, equally long: keys in the order of the first modality, then what only
        later ones hold. All columns of a modality are null where it lacks the key.
    """
    there = {folder: samples for folder, samples in twins.items() if samples is not None}
    alignment = align(there, on_missing="null")
    num_rows = len(alignment.keys)
    columns: dict[str, pa.Array] = {KEY: pa.array(alignment.keys, pa.large_string())}
    in_step = True
    for folder, samples in twins.items():
        places = np.full(num_rows, -1, np.int64) if samples is None else alignment.rows[folder]
        in_step &= bool(np.array_equal(places, np.arange(num_rows)))
        for name, values in _member_columns(samples).items():
            columns[field_of(folder, name)] = spread(values, places)
    return columns, in_step


def spread(values: pa.Array, places: NDArray[np.int64]) -> pa.Array:
    """Return ``values[places]``, null where the place is -1."""
    if np.array_equal(places, np.arange(len(values))):
        return values
    return values.take(pa.array(places, mask=places < 0))


def samples_of(rows: Mapping[str, pa.Array], folder: str, entry: TarEntry, *, path: str) -> Samples:
    """Return what reading a tar's headers gave when it was indexed.

    Args:
        rows: Columns of the shard: keys, and `SAMPLE_FIELDS` of the folder.
        folder: Modality.
        entry: What the index says of its tar.
        path: Where that tar is, for messages.
    """
    places = rows[field_of(folder, PLACE)]
    held = np.flatnonzero(places.is_valid().to_numpy(zero_copy_only=False))
    order = held[np.argsort(places.drop_null().to_numpy())]
    keys: list[str] = rows[KEY].take(pa.array(order)).to_pylist()
    suffixes: list[str] = rows[field_of(folder, SUFFIX)].take(pa.array(order)).to_pylist()
    return Samples(
        path=path,
        keys=keys,
        names=[f"{key}.{suffix}" for key, suffix in zip(keys, suffixes, strict=True)],
        positions=rows[field_of(folder, POSITION)].take(pa.array(order)).to_numpy(),
        sizes=rows[field_of(folder, SIZE)].take(pa.array(order)).to_numpy(),
        suffixes=entry.suffixes,
        notes=entry.notes,
    )


def _member_columns(samples: Samples | None) -> dict[str, pa.Array]:
    samples = samples or Samples.none("")
    # Whatever the rule was, the key and the dot behind it begin the name.
    suffixes = [name[len(key) + 1 :] for name, key in zip(samples.names, samples.keys, strict=True)]
    return {
        PLACE: pa.array(np.arange(len(samples.keys), dtype=np.int32)),
        POSITION: pa.array(samples.positions, pa.int64()),
        SIZE: pa.array(samples.sizes, pa.int64()),
        SUFFIX: pa.array(suffixes, pa.string()).dictionary_encode().cast(_SUFFIXES),
    }
