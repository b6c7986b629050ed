"""PiD's index mode: a Parquet file whose first column lists the keys to read, in order."""

from collections.abc import Mapping
from contextlib import closing
from dataclasses import dataclass
from functools import lru_cache
from typing import Self

import pyarrow as pa
import pyarrow.parquet as pq

from daft_twinwds.errors import LayoutError, StorageError
from daft_twinwds.shards.arrow_file import ArrowFile
from daft_twinwds.shards.options import ENVIRONMENT, StorageOptions
from daft_twinwds.shards.tar_state import TarState, state_of
from daft_twinwds.shards.urls import shown

__all__ = ["SampleKeys"]


@dataclass(frozen=True, slots=True, kw_only=True)
class SampleKeys:
    """One version of a ``sample_keys`` file; a plain value that travels to where shards are read."""

    path: str
    """Absolute path, or a URL without what is secret in it."""
    state: TarState
    options: StorageOptions

    @classmethod
    def find(cls, path: str, options: StorageOptions = ENVIRONMENT) -> Self:
        """Look for a file, and read it.

        Args:
            path: Parquet file, an absolute local path or a URL. Only its first column is read:
                strings, a key each, as they stand in ``__key__``.
            options: How it is accessed.

        Raises:
            StorageError: It is not there, or cannot be read.
            LayoutError: It is no Parquet file, or its first column holds no strings, or a null.
        """
        options = options.with_secrets_of(path)
        path = shown(path)
        state = state_of(path, options)
        if state is None:
            raise StorageError(
                f"{path}: was not found; expected a Parquet file of sample keys; check sample_keys"
            )
        found = cls(path=path, state=state, options=options)
        found.ranks()
        return found

    def ranks(self) -> Mapping[str, int]:
        """Return key -> rank; a key that is listed again keeps its first rank.

        A process reads the file once, however many shards ask, so that no query mixes two
        versions of it.

        Raises:
            StorageError: It cannot be read, or is no longer the one that was found.
            LayoutError: It is damaged.
        """
        return _ranks(self)


@lru_cache(maxsize=4)
def _ranks(keys: SampleKeys) -> Mapping[str, int]:
    column = _first_column(keys)
    if state_of(keys.path, keys.options) != keys.state:
        raise StorageError(
            f"{keys.path}: has changed since read_twin_webdataset was called; expected the same "
            "sample keys for all shards; call it again"
        )
    ranks: dict[str, int] = {}
    for rank, key in enumerate(column.to_pylist()):
        ranks.setdefault(key, rank)
    return ranks


def _first_column(keys: SampleKeys) -> pa.ChunkedArray:
    try:
        with (
            closing(ArrowFile(keys.path, keys.options)) as opened,
            pq.ParquetFile(opened.source) as file,
        ):
            names = file.schema_arrow.names
            column = file.read(columns=names[:1]).column(0) if names else None
        if column is not None:
            column.validate(full=True)  # reading checks no text for being UTF-8
    except (pa.ArrowException, UnicodeDecodeError, OSError) as error:
        raise LayoutError(
            f"{keys.path}: not a readable Parquet file ({error}); expected one whose first column "
            "lists sample keys"
        ) from error
    if column is None or not (
        pa.types.is_string(column.type) or pa.types.is_large_string(column.type)
    ):
        found = "no column" if column is None else f"{names[0]!r} of type {column.type}"
        raise LayoutError(
            f"{keys.path}: the first column is {found}; expected strings, one sample key per row"
        )
    if column.null_count:
        raise LayoutError(
            f"{keys.path}: {names[0]!r} holds {column.null_count} nulls; expected a key in every "
            "row"
        )
    return column
