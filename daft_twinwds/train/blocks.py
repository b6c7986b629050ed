"""A selection's rows as blocks of Ray Data."""

from collections.abc import Iterator

import pyarrow as pa
import ray.data

from daft_twinwds.train.permutation import check_int
from daft_twinwds.train.refs import without_codes

__all__ = ["ROW", "blocks_of", "to_ray_dataset"]

ROW = "__row__"
"""Column of row numbers: Ray Data keeps no order, and what is drawn by chance depends on them."""


def to_ray_dataset(table: pa.Table, media: list[str], rows_per_block: int) -> ray.data.Dataset:
    """Put a selection's rows into Ray's object store; see `Selection.to_ray_dataset`."""
    return ray.data.from_arrow(list(blocks_of(table, media, rows_per_block)))


def blocks_of(table: pa.Table, media: list[str], rows_per_block: int) -> Iterator[pa.Table]:
    """Yield the rows, numbered, in tables of at most so many; one without rows if there are none.

    Args:
        table: A selection's.
        media: Its columns of references.
        rows_per_block: At least 1.

    Raises:
        ValueError: The number cannot be, or a column has the name of the row numbers.
    """
    check_int("rows_per_block", rows_per_block, least=1)
    if ROW in table.column_names:
        raise ValueError(
            f"the selection has a column {ROW!r}, which is what its rows' numbers are called in "
            f"Ray Data; give it another name by df.with_column_renamed({ROW!r}, ...)"
        )
    for start in range(0, max(len(table), 1), rows_per_block):
        block = table.slice(start, rows_per_block)
        for name in media:
            place = block.column_names.index(name)
            block = block.set_column(place, name, without_codes(block.column(name)))
        yield block.append_column(ROW, pa.array(range(start, start + len(block)), pa.int64()))
