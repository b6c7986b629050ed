"""PiD's index mode: a Parquet file whose first column lists the keys to read, in order."""

from collections.abc import Mapping
from functools import lru_cache
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq

from daft_twinwds.errors import LayoutError, StorageError

__all__ = ["load_sample_keys"]


def load_sample_keys(path: str) -> Mapping[str, int]:
    """Return key -> rank from a ``sample_keys`` file.

    The mapping is kept per process until the file changes, as every shard asks for it.

    Args:
        path: Parquet file. Only its first column is read: strings, a key each, as they stand in
            ``__key__``. A key that is listed again keeps its first rank.

    Raises:
        StorageError: The file cannot be read.
        LayoutError: It is no Parquet file, or its first column holds no strings, or a null.
    """
    try:
        state = Path(path).stat()
    except OSError as error:
        raise StorageError(
            f"{path}: cannot be read ({error.strerror}); expected a Parquet file of sample keys; "
            "check sample_keys"
        ) from error
    return _load(path, state.st_mtime_ns, state.st_size)


@lru_cache(maxsize=4)
def _load(path: str, mtime_ns: int, size: int) -> Mapping[str, int]:
    del mtime_ns, size  # they only tell one state of the file from the next
    try:
        with pq.ParquetFile(path) as file:
            names = file.schema_arrow.names
            column = file.read(columns=names[:1]).column(0) if names else None
        if column is not None:
            column.validate(full=True)  # reading checks no text for being UTF-8
    except (pa.ArrowException, UnicodeDecodeError, OSError) as error:
        raise LayoutError(
            f"{path}: not a readable Parquet file ({error}); expected one whose first column "
            "lists sample keys"
        ) from error
    if column is None or not (
        pa.types.is_string(column.type) or pa.types.is_large_string(column.type)
    ):
        found = "no column" if column is None else f"{names[0]!r} of type {column.type}"
        raise LayoutError(
            f"{path}: the first column is {found}; expected strings, one sample key per row"
        )
    if column.null_count:
        raise LayoutError(
            f"{path}: {names[0]!r} holds {column.null_count} nulls; expected a key in every row"
        )
    ranks: dict[str, int] = {}
    for rank, key in enumerate(column.to_pylist()):
        ranks.setdefault(key, rank)
    return ranks
