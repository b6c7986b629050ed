"""References to byte ranges of files, as Arrow and as values."""

from collections.abc import Callable
from dataclasses import dataclass

import pyarrow as pa
import pyarrow.compute as pc

from daft_twinwds.shards.urls import shown

__all__ = [
    "FIELDS",
    "FileRef",
    "to_refs",
    "with_used_paths",
    "without_codes",
    "without_secrets",
]

FIELDS = ("path", "position", "size")
"""Of a reference in Arrow."""


@dataclass(frozen=True, slots=True, kw_only=True)
class FileRef:
    """A byte range of a file."""

    path: str
    position: int
    """First byte."""
    size: int | None
    """Bytes; None reaches to the end of the file."""


def to_refs(storage: pa.ChunkedArray) -> pa.ChunkedArray:
    """Return ``{path, position, size}`` of what a File column is in Arrow.

    Paths become dictionary-coded, as a shard has one for all; credentials are left behind.
    """
    chunks = []
    for chunk in storage.chunks:
        # Daft leaves the position of a whole file null.
        begin = pc.fill_null(chunk.field("position").cast(pa.int64()), 0)
        size = chunk.field("size").cast(pa.int64())
        path, position, size = (
            _masked(field, chunk) for field in (chunk.field("url"), begin, size)
        )
        chunks.append(
            pa.StructArray.from_arrays(
                [_coded(path), position, size],
                names=FIELDS,
                mask=chunk.is_null() if chunk.null_count else None,
            )
        )
    type_ = pa.struct(
        {
            "path": pa.dictionary(pa.int32(), pa.string()),
            "position": pa.int64(),
            "size": pa.int64(),
        }
    )
    return pa.chunked_array(chunks, type=type_)


def without_secrets(refs: pa.ChunkedArray) -> pa.ChunkedArray:
    """Return references whose URLs have lost their passwords and queries."""

    def without(path: pa.Array) -> pa.Array:
        coded = path if pa.types.is_dictionary(path.type) else path.dictionary_encode()
        safe = [shown(text) for text in coded.dictionary.to_pylist()]
        coded = pa.DictionaryArray.from_arrays(coded.indices, pa.array(safe, coded.dictionary.type))
        return coded.cast(path.type)

    return _with_paths(refs, without)


def with_used_paths(refs: pa.ChunkedArray) -> pa.ChunkedArray:
    """Return references whose dictionaries hold the paths of their own rows and no others.

    A slice has the dictionary of the whole, as has every row group of a Parquet file that was
    written with it.
    """

    def used(path: pa.Array) -> pa.Array:
        if not pa.types.is_dictionary(path.type):
            return path
        coded = path.indices.dictionary_encode()
        names = path.dictionary.take(coded.dictionary)
        return pa.DictionaryArray.from_arrays(coded.indices, names).cast(path.type)

    return _with_paths(refs, used)


def without_codes(refs: pa.ChunkedArray) -> pa.ChunkedArray:
    """Return references whose paths are plain strings, which programs join without thinking."""
    type_ = pa.struct({"path": pa.string(), "position": pa.int64(), "size": pa.int64()})
    return refs.cast(type_)


def _with_paths(refs: pa.ChunkedArray, change: Callable[[pa.Array], pa.Array]) -> pa.ChunkedArray:
    chunks = [
        pa.StructArray.from_arrays(
            [change(chunk.field("path")), chunk.field("position"), chunk.field("size")],
            names=FIELDS,
            mask=chunk.is_null() if chunk.null_count else None,
        )
        for chunk in refs.chunks
    ]
    return pa.chunked_array(chunks, type=refs.type)


def _coded(paths: pa.Array) -> pa.DictionaryArray:
    coded = paths.dictionary_encode()
    # Parquet gives dictionaries back with values of this type, whatever they had before.
    return pa.DictionaryArray.from_arrays(coded.indices, coded.dictionary.cast(pa.string()))


def _masked(values: pa.Array, parent: pa.Array) -> pa.Array:
    return pc.if_else(parent.is_valid(), values, pa.scalar(None, values.type))
