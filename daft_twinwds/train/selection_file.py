"""A selection as a Parquet file: row groups that are read by themselves."""

import json
import os
import secrets
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any, BinaryIO, Final

import pyarrow as pa
import pyarrow.parquet as pq

from daft_twinwds.errors import LayoutError, StorageError
from daft_twinwds.train.refs import with_used_paths

__all__ = [
    "METADATA",
    "VERSION",
    "read_selection",
    "with_media",
    "without_media",
    "write_selection",
]

METADATA: Final = b"daft_twinwds.selection"
VERSION: Final = 1
ROWS_PER_GROUP: Final = 2**20
"""Each group holds the paths of its rows."""


def with_media(table: pa.Table, media: Mapping[str, str]) -> pa.Table:
    """Return the table with all that is known beside it, as a file has it."""
    known = json.dumps({"version": VERSION, "media": dict(media)}).encode()
    return table.replace_schema_metadata({METADATA: known})


def without_media(table: pa.Table) -> tuple[pa.Table, dict[str, str]]:
    """Return the table that `with_media` was given, and the media."""
    media: dict[str, str] = json.loads(table.schema.metadata[METADATA])["media"]
    return table.replace_schema_metadata(None), media


def write_selection(
    path: str | os.PathLike[str], table: pa.Table, media: Mapping[str, str]
) -> None:
    """Write a file that appears whole or not at all.

    Raises:
        StorageError: It cannot be written.
    """
    target = Path(path)
    # All ranks of a job may save the same selection at once.
    temporary = target.with_name(f".{target.name}.{secrets.token_hex(8)}")
    try:
        try:
            with temporary.open("xb") as file:
                _write_groups(file, with_media(table, media), media)
                file.flush()
                os.fsync(file.fileno())
            temporary.replace(target)
        finally:
            temporary.unlink(missing_ok=True)
    except OSError as error:
        raise StorageError(
            f"{target}: the selection cannot be written ({error.strerror or error}); expected "
            "the name of a file in a folder that can be written to"
        ) from error


def read_selection(path: str | os.PathLike[str]) -> tuple[pa.Table, dict[str, str]]:
    """Return the table of a file, each column as one array, and the media.

    Raises:
        StorageError: The file cannot be read.
        LayoutError: It holds no selection, or one of another version, or is damaged.
    """
    try:
        with Path(path).open("rb") as file:
            parquet = pq.ParquetFile(file)
            metadata = parquet.schema_arrow.metadata or {}
            media = _checked_metadata(metadata.get(METADATA), path)["media"]
            return _read_groups(parquet, media), media
    except (pa.ArrowException, OSError, ValueError, KeyError, TypeError) as error:
        # Damage may be an OSError to Arrow, but none with a number.
        if isinstance(error, OSError) and error.errno is not None:
            raise StorageError(
                f"{path}: cannot be read ({error.strerror or error}); expected a file that "
                "Selection.save wrote"
            ) from error
        raise LayoutError(
            f"{path}: not a readable Parquet file ({error}); expected one that Selection.save wrote"
        ) from error


def _checked_metadata(metadata: bytes | None, path: str | os.PathLike[str]) -> dict[str, Any]:
    if metadata is None:
        raise LayoutError(
            f"{path}: a Parquet file that holds no selection; expected one that Selection.save "
            "wrote"
        )
    saved: dict[str, Any] = json.loads(metadata)
    if saved["version"] != VERSION:
        raise LayoutError(
            f"{path}: holds a selection of version {saved['version']}, expected {VERSION}; save it "
            "again by Selection.from_dataframe(df).save(path)"
        )
    return saved


def _with_used_paths(table: pa.Table, media: Iterable[str]) -> pa.Table:
    for name in media:
        place = table.column_names.index(name)
        table = table.set_column(place, name, with_used_paths(table.column(name)))
    return table


def _write_groups(file: BinaryIO, table: pa.Table, media: Iterable[str]) -> None:
    with pq.ParquetWriter(file, table.schema, compression="zstd") as writer:
        for first in range(0, len(table), ROWS_PER_GROUP):
            group = table.slice(first, ROWS_PER_GROUP)
            writer.write_table(_with_used_paths(group, media), ROWS_PER_GROUP)


def _read_groups(parquet: pq.ParquetFile, media: Iterable[str]) -> pa.Table:
    """Return all rows, each column as one array; at most one column is in memory twice."""
    # Arrow cannot read references of several groups at once; and in files that were not written
    # as here, each group may have the paths of all.
    groups = [
        _with_used_paths(parquet.read_row_group(number), media).columns
        for number in range(parquet.num_row_groups)
    ]
    schema = parquet.schema_arrow.remove_metadata()
    columns = [_take_column(groups, place, field) for place, field in enumerate(schema)]
    return pa.table(columns, schema=schema)


def _take_column(groups: list[list[Any]], place: int, field: pa.Field) -> pa.ChunkedArray:
    """Remove a column from its groups, and return it as one array."""
    chunks = [chunk for group in groups for chunk in group[place].chunks]
    for group in groups:
        group[place] = None
    pieces = pa.table([pa.chunked_array(chunks, field.type)], schema=pa.schema([field]))
    return pieces.combine_chunks().column(0)
