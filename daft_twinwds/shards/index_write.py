"""Writes the index of a part folder."""

import shutil
import tempfile
from collections.abc import Callable, Iterable, Mapping
from dataclasses import replace
from typing import BinaryIO, Final

import pyarrow as pa
import pyarrow.parquet as pq

from daft_twinwds.errors import StorageError
from daft_twinwds.shards.index_footer import UNSEALED, FooterRecorder
from daft_twinwds.shards.index_format import (
    FORMAT,
    HEIGHT,
    KEY,
    PLACE,
    POSITION,
    SIZE,
    SUFFIX,
    TEXT,
    WIDTH,
    PartSummary,
    ShardEntry,
    field_of,
)
from daft_twinwds.shards.new_file import new_file
from daft_twinwds.shards.options import ENVIRONMENT, StorageOptions
from daft_twinwds.shards.urls import is_url, local_path

__all__ = ["index_schema", "write_index", "write_index_to"]

_LEVEL: Final = 1
"""Of Zstandard: smaller files than the tars they are about, read almost as fast as plain ones."""

_WORDS: Final = pa.dictionary(pa.int32(), pa.string())

Rows = Mapping[str, pa.Array]


def index_schema(
    folders: Iterable[str], *, pictures: Iterable[str], texts: Mapping[str, pa.DataType]
) -> pa.Schema:
    """Return the columns of an index.

    Args:
        folders: Modalities.
        pictures: Those of them that hold pictures.
        texts: Those of them that hold texts -> the type of these.
    """
    fields = {KEY: pa.large_string()}
    pictures = frozenset(pictures)
    for folder in folders:
        fields[field_of(folder, PLACE)] = pa.int32()
        fields[field_of(folder, POSITION)] = pa.int64()
        fields[field_of(folder, SIZE)] = pa.int64()
        fields[field_of(folder, SUFFIX)] = _WORDS
        if folder in pictures:
            fields[field_of(folder, WIDTH)] = pa.int64()
            fields[field_of(folder, HEIGHT)] = pa.int64()
            fields[field_of(folder, FORMAT)] = _WORDS
        if folder in texts:
            fields[field_of(folder, TEXT)] = texts[folder]
    return pa.schema(fields)


def write_index(
    path: str,
    summary: PartSummary,
    schema: pa.Schema,
    rows_of: Callable[[ShardEntry], Rows],
    *,
    options: StorageOptions = ENVIRONMENT,
) -> None:
    """Write an index; it replaces an old one when it is whole, and not before.

    Args:
        path: See `index_path`. In an object store a copy on the disk is written first.
        summary: What is known of the shards; row groups are numbered here.
        schema: See `index_schema`.
        rows_of: Called in turn for each shard that has rows; columns that it does not return are
            null.
        options: How storage is accessed.

    Raises:
        StorageError: The folder cannot be written to.
    """
    if not is_url(path):
        with new_file(local_path(path)) as file:
            write_index_to(file, summary, schema, rows_of)
        return
    with tempfile.TemporaryFile() as file:
        write_index_to(file, summary, schema, rows_of)
        _upload(file, path, options)


def write_index_to(
    file: BinaryIO, summary: PartSummary, schema: pa.Schema, rows_of: Callable[[ShardEntry], Rows]
) -> None:
    """Write an index to an open file; see `write_index`."""
    words = [field.name for field in schema if field.type == _WORDS]
    numbers = [
        field.name
        for field in schema
        if field.type in (pa.int32(), pa.int64()) and "/" in field.name
    ]
    entries: dict[str, ShardEntry] = {}
    groups = 0
    recorder = FooterRecorder(file)
    with pq.ParquetWriter(
        recorder,
        schema,
        compression="zstd",
        compression_level=_LEVEL,
        use_dictionary=words,
        column_encoding=dict.fromkeys(numbers, "DELTA_BINARY_PACKED"),
        # Those of all shards are in the summary, which a plan reads in one go.
        write_statistics=False,
        write_page_checksum=True,
    ) as writer:
        for entry in summary.entries.values():
            group = None
            if entry.num_rows:
                rows = rows_of(entry)
                table = pa.table(
                    [
                        rows.get(field.name, pa.nulls(entry.num_rows, field.type))
                        for field in schema
                    ],
                    schema=schema,
                )
                writer.write_table(table, row_group_size=entry.num_rows)
                group, groups = groups, groups + 1
            entries[entry.name] = replace(entry, group=group)
        summary = replace(summary, entries=entries)
        writer.add_key_value_metadata({**summary.to_metadata(), **UNSEALED})
        recorder.record()
    recorder.seal()


def _upload(file: BinaryIO, path: str, options: StorageOptions) -> None:
    # Importing the clients takes some hundred milliseconds, which local data need not pay.
    import obstore

    from daft_twinwds.shards.clients import OBJECT_SCHEMES, file_system, object_store
    from daft_twinwds.shards.fetch import retried
    from daft_twinwds.shards.urls import HTTP, Url

    url, options = Url.parse(path), options.with_secrets_of(path)
    if url.scheme in HTTP:
        raise StorageError(
            f"{url}: cannot be written, as web servers take no files; expected a bucket or a "
            "folder; build the index where the data set is, before it is put on the server"
        )

    def put() -> None:
        file.seek(0)
        if url.scheme in OBJECT_SCHEMES:
            store, name = object_store(url, options)
            obstore.put(store, name, file)
            return
        system, name = file_system(url, options)
        with system.open(name, "wb") as target:
            shutil.copyfileobj(file, target)

    retried(put, where=f"{url}: writing", url=url, options=options)
