"""Columns into a hash, piece by piece, as the bytes that they are made of."""

from collections.abc import Iterator
from typing import TYPE_CHECKING, Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

if TYPE_CHECKING:
    import hashlib

__all__ = ["add_numbers", "add_strings"]

_ROWS_AT_ONCE: Final = 2**16


def add_strings(digest: "hashlib._Hash", column: pa.ChunkedArray) -> None:
    """Add a column of strings: the lengths of all in bytes as int64, then their UTF-8.

    How it is cut into chunks does not count, nor whether it is coded by a dictionary.

    Raises:
        ValueError: One of them is null.
    """
    if column.null_count:
        raise ValueError(
            f"{column.null_count} of {len(column)} keys are null; expected none; drop such rows"
        )
    # Lengths first: "ab", "c" must not look like "a", "bc".
    for offsets, _ in _texts(column):
        digest.update(np.diff(offsets).astype("<i8", copy=False).data)
    for offsets, values in _texts(column):
        if values is not None:
            digest.update(memoryview(values)[offsets[0] : offsets[-1]])


def add_numbers(digest: "hashlib._Hash", column: pa.ChunkedArray, field: str) -> None:
    """Add a field of a column of structs as int64; -1 where it or the struct is null."""
    for piece in _pieces(pc.struct_field(column, field)):
        digest.update(pc.fill_null(piece, -1).to_numpy().astype("<i8", copy=False).data)


def _pieces(column: pa.ChunkedArray) -> Iterator[pa.Array]:
    for chunk in column.chunks:
        for first in range(0, len(chunk), _ROWS_AT_ONCE):
            yield chunk.slice(first, _ROWS_AT_ONCE)


def _texts(column: pa.ChunkedArray) -> Iterator[tuple[NDArray[np.integer], pa.Buffer | None]]:
    """Yield pieces: where each string begins and the last one ends, (rows + 1,), and the bytes."""
    for piece in _pieces(column):
        is_long = not pa.types.is_string(piece.type)
        plain = piece.cast(pa.large_string()) if is_long else piece
        _, buffer, values = plain.buffers()
        type_: type[np.integer] = np.int64 if is_long else np.int32
        offsets = np.frombuffer(buffer, type_, plain.offset + len(plain) + 1)
        yield offsets[plain.offset :], values
