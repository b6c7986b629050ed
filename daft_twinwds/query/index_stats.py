"""What the values of a shard lie between, for filters that exclude whole shards."""

import math
from collections.abc import Iterator
from typing import Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from daft_twinwds.shards.index_format import LeafStats

__all__ = ["iter_stats"]

_LONGEST: Final = 64
"""Letters of a text that are kept: longer ones are seldom compared with."""

Path = tuple[str, ...]
Bound = bool | int | float | str | None


def iter_stats(values: pa.Array, path: Path) -> Iterator[tuple[Path, LeafStats]]:
    """Yield the statistics of a column, or of each field below it that is no list.

    Args:
        values: One value per row of the shard.
        path: Of the column.
    """
    if pa.types.is_struct(values.type):
        # Where the struct is null, so are the fields.
        for field, child in zip(values.type, values.flatten(), strict=True):
            yield from iter_stats(child, (*path, field.name))
        return
    if pa.types.is_dictionary(values.type):
        values = values.cast(values.type.value_type)
    bounds = _bounds_of(values)
    if bounds is not None:
        yield path, LeafStats(*bounds, values.null_count)


def _bounds_of(values: pa.Array) -> tuple[Bound, Bound] | None:
    if pa.types.is_floating(values.type):
        return _float_bounds(values.drop_null().to_numpy())
    if pa.types.is_string(values.type) or pa.types.is_large_string(values.type):
        low, high = pc.min_max(values).values()
        return _text_bounds(low.as_py(), high.as_py())
    if pa.types.is_integer(values.type) or pa.types.is_boolean(values.type):
        low, high = pc.min_max(values).values()
        return low.as_py(), high.as_py()
    return None


def _text_bounds(low: str | None, high: str | None) -> tuple[str | None, str | None]:
    """Bounds no longer than is useful: the beginning of a text is not above it."""
    return (
        None if low is None else low[:_LONGEST],
        None if high is None or len(high) > _LONGEST else high,
    )


def _float_bounds(numbers: NDArray[np.floating]) -> tuple[Bound, Bound]:
    """Bounds in Daft's order, where -0.0 is below 0.0, and what is no number has no place."""
    if not len(numbers) or np.isnan(numbers).any():
        return None, None
    low, high = float(numbers.min()), float(numbers.max())
    zeros = np.signbit(numbers[numbers == 0])
    if low == 0:
        low = math.copysign(0.0, -1.0 if zeros.any() else 1.0)
    if high == 0:
        high = math.copysign(0.0, 1.0 if not zeros.all() else -1.0)
    return low, high
