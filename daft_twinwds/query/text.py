"""Text members of one shard -> Arrow columns, by the column's kind."""

import codecs
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Literal

import numpy as np
import pyarrow as pa

from daft_twinwds.errors import SchemaError
from daft_twinwds.query.json_arrow import parse_json
from daft_twinwds.query.json_types import load_json
from daft_twinwds.query.schema import Column, Kind
from daft_twinwds.shards.samples import Samples
from daft_twinwds.shards.storage import File

__all__ = [
    "MAX_TEXT_BYTES",
    "ExtraFields",
    "OnError",
    "Parsed",
    "parse_texts",
    "read_texts",
    "text_fault",
]

OnError = Literal["raise", "skip"]
ExtraFields = Literal["error", "ignore"]

MAX_TEXT_BYTES = 1 << 26
"""A larger text member is refused before it is read: parsing holds it several times."""

_ENCODING_OF_MARK = {
    # UTF-32's mark in little-endian order begins with UTF-16's.
    codecs.BOM_UTF32_LE: "utf-32",
    codecs.BOM_UTF32_BE: "utf-32",
    codecs.BOM_UTF16_LE: "utf-16",
    codecs.BOM_UTF16_BE: "utf-16",
    codecs.BOM_UTF8: "utf-8-sig",
}
_INTEGER = re.compile("[+-]?[0-9]+")


@dataclass(frozen=True, slots=True, kw_only=True)
class Parsed:
    """The values of one text column."""

    values: pa.Array
    """One value per row, of the column's type."""
    bad: Mapping[int, str] = field(default_factory=dict)
    """Row -> why it could not be parsed; only where bad samples are skipped."""
    ignored: Mapping[str, int] = field(default_factory=dict)
    """Field -> rows whose field the column's type lacks."""


def read_texts(file: File, samples: Samples, places: Sequence[int], *, column: str) -> list[bytes]:
    """Read text members.

    Args:
        file: The tar that ``samples`` were read from.
        samples: Members of that tar.
        places: Which of them.
        column: Used in messages.

    Raises:
        SchemaError: A member is larger than `MAX_TEXT_BYTES`.
        StorageError: The tar cannot be read.
    """
    rows = np.asarray(places, np.int64)
    positions = samples.positions[rows].tolist()
    sizes = samples.sizes[rows].tolist()
    if sizes and max(sizes) > MAX_TEXT_BYTES:
        place = next(p for p, size in zip(places, sizes, strict=True) if size > MAX_TEXT_BYTES)
        raise SchemaError(
            f"{samples.path}: {samples.names[place]!r} at byte {samples.positions[place]} holds "
            f"{samples.sizes[place]} bytes; a text of at most {MAX_TEXT_BYTES} was expected; "
            f"read it lazily by schema={{{column!r}: daft.DataType.file()}}"
        )
    return file.read_many(positions, sizes)


def parse_texts(
    documents: Sequence[bytes],
    column: Column,
    *,
    where: Callable[[int], str],
    extra_fields: ExtraFields,
    on_error: OnError,
) -> Parsed:
    """Turn text members into one column.

    Args:
        documents: One member's bytes per row.
        column: A column that `Column.is_text`.
        where: Row -> place of its member, for messages.
        extra_fields: See `read_twin_webdataset`.
        on_error: ``"raise"``, or ``"skip"``: rows that cannot be parsed are listed in `Parsed.bad`.

    Raises:
        SchemaError: A member does not fit the column; names its place; only for ``"raise"``.
    """
    if column.kind == "json":
        parsed = parse_json(
            documents,
            column.arrow_type,
            where=where,
            extra_fields=extra_fields,
            on_error=on_error,
            text_for_string=column.declared,
        )
        return Parsed(values=parsed.column, bad=parsed.bad, ignored=parsed.ignored)
    if column.kind == "binary":
        return Parsed(values=pa.array(documents, column.arrow_type))
    values: list[str | int | None] = []
    bad: dict[int, str] = {}
    for row, document in enumerate(documents):
        try:
            text = _to_text(document)
            values.append(text if column.kind == "text" else _to_integer(text, column.arrow_type))
        except ValueError as error:
            message = (
                f"{where(row)}: {error}; expected a value of type {column.dtype}; mend the "
                "member, or pass on_error='skip'"
            )
            if on_error == "raise":
                raise SchemaError(message) from error
            bad[row] = message
            values.append(None)
    return Parsed(values=pa.array(values, column.arrow_type), bad=bad)


def text_fault(document: bytes, kind: Kind) -> str | None:
    """Return why a text member could be read by no column of its kind, or None if one could."""
    try:
        if kind == "json":
            load_json(document)
        elif kind == "text":
            _to_text(document)
        elif kind == "integer":
            _to_integer(_to_text(document), pa.int64())
    except (SchemaError, ValueError) as error:
        return str(error)
    return None


def _to_text(document: bytes) -> str:
    for mark, encoding in _ENCODING_OF_MARK.items():
        if document.startswith(mark):
            return document.decode(encoding)
    return document.decode("utf-8")


def _to_integer(text: str, type_: pa.DataType) -> int:
    text = text.strip()
    # int() alone would read more, such as 1_000.
    if not _INTEGER.fullmatch(text):
        raise ValueError(f"found {text[:40]!r}")
    try:
        value: int = pa.scalar(int(text), type_).as_py()
    except (ValueError, OverflowError) as error:
        raise ValueError(f"found {text[:40]!r}") from error
    return value
