"""JSON documents -> one Arrow array of a known type.

Arrow's own parser reads all documents in one go, and what it accepts is taken only where it surely
means the same as reading document by document does. All else is read document by document, which
finds the right value, or the place and the reason of the error.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Literal

import numpy as np
import pyarrow as pa
import pyarrow.json as pa_json

from daft_twinwds.errors import SchemaError
from daft_twinwds.query.json_values import DocumentReader

__all__ = ["ParsedJson", "parse_json"]

PIECE_BYTES = 1 << 24
"""Documents that are read in one go, in bytes: bounds the memory, and what one bad document slows."""
MAX_BLOCK_BYTES = 2**31 - 1
"""Arrow's limit, as it counts the bytes of a block in 32 bits."""
JSON_SPACE = b" \t\n\r"


@dataclass(frozen=True, slots=True, kw_only=True)
class ParsedJson:
    """Documents as an Arrow array."""

    column: pa.Array
    """One value per document; null where the document is in ``bad``."""
    bad: Mapping[int, str] = field(default_factory=dict)
    """Row -> why it could not be read; only where errors are skipped."""
    ignored: Mapping[str, int] = field(default_factory=dict)
    """Field path -> rows that had it although the type lacks it; only where these are ignored."""


def parse_json(
    documents: Sequence[bytes],
    type_: pa.DataType,
    *,
    where: Callable[[int], str],
    extra_fields: Literal["error", "ignore"],
    on_error: Literal["raise", "skip"],
    text_for_string: bool = False,
) -> ParsedJson:
    """Read JSON documents as values of one type.

    A missing field is null. A bare text where an object was expected is its ``prompt``, if the
    type has such a text field. An empty object where text was expected is the text ``{}``. Nothing
    else is converted, except that an integer in a float column becomes the nearest number (itself
    up to 2**53); one outside int64 is refused there too. Of a repeated object key the last value
    counts. A document that is null is a null row.

    Args:
        documents: One JSON document each, see `load_json`.
        type_: Booleans, integers, floats, strings, and lists and structs of these.
        where: Row -> the document's place, for messages.
        extra_fields: ``"error"``, or ``"ignore"``: fields that the type lacks are counted. A field
            that is null counts as absent.
        on_error: ``"raise"``, or ``"skip"``: documents that do not fit are null and listed.
        text_for_string: Keep a value that is not text, where the type has text, as compact JSON.

    Returns:
        A column of exactly ``type_``, as long as ``documents``.

    Raises:
        SchemaError: A document does not fit; names its place, the field, what was found and what
            was expected; only for ``"raise"``.
        ValueError: ``type_`` cannot be read from JSON, or a keyword is unknown.
    """
    if extra_fields not in ("error", "ignore"):
        raise ValueError(f"extra_fields must be 'error' or 'ignore', got {extra_fields!r}")
    if on_error not in ("raise", "skip"):
        raise ValueError(f"on_error must be 'raise' or 'skip', got {on_error!r}")
    reader = DocumentReader(
        type_, ignore_extra=extra_fields == "ignore", text_for_string=text_for_string
    )
    block_type = _block_type(type_) if pa.types.is_struct(type_) else None
    bad: dict[int, str] = {}
    columns = []
    for rows in _pieces(documents):
        piece = documents[rows.start : rows.stop]
        column = None if block_type is None else _read_block(piece, block_type, type_)
        if column is None:
            values: list[object] = []
            for row, document in zip(rows, piece, strict=True):
                try:
                    values.append(reader.read(document))
                except SchemaError as error:
                    bad[row] = f"{where(row)}: {error}"
                    if on_error == "raise":
                        raise SchemaError(bad[row]) from error
                    values.append(None)
            column = pa.array(values, type_)
        columns.append(column)
    return ParsedJson(
        column=columns[0] if len(columns) == 1 else pa.concat_arrays(columns),
        bad=bad,
        ignored=reader.ignored,
    )


def _pieces(documents: Sequence[bytes]) -> Iterator[range]:
    """Runs of rows of about `PIECE_BYTES`; one empty run if there are no documents."""
    start = num_bytes = 0
    for row, document in enumerate(documents):
        num_bytes += len(document)
        if num_bytes > PIECE_BYTES and row > start:
            yield range(start, row)
            start, num_bytes = row, len(document)
    yield range(start, len(documents))


def _block_type(type_: pa.DataType) -> pa.DataType | None:
    """The type that Arrow's parser reads instead of ``type_``, or None if it should not.

    Only what JSON types are inferred as: for these it is known what the parser lets pass.
    """
    if type_ in (pa.bool_(), pa.int64(), pa.float64(), pa.string(), pa.large_string()):
        return type_
    if pa.types.is_list(type_) or pa.types.is_large_list(type_):
        item = _block_field(type_.value_field)
        # The parser knows no large_list.
        return None if item is None else pa.list_(item)
    if pa.types.is_struct(type_) and type_.num_fields:
        fields = [_block_field(field) for field in type_]
        return None if any(field is None for field in fields) else pa.struct(fields)
    return None


def _block_field(field: pa.Field) -> pa.Field | None:
    block_type = _block_type(field.type) if field.nullable else None
    return None if block_type is None else field.with_type(block_type)


def _read_block(
    documents: Sequence[bytes], block_type: pa.StructType, type_: pa.StructType
) -> pa.Array | None:
    """Read documents by Arrow's parser, or return None where they must be read one by one.

    The parser sees one stream of values and knows of no documents, so it must be sure that value
    number i comes from document number i. Each document begins with ``{`` and ends with ``}``, and
    they are joined by line breaks. A line break inside a string is an error, and so is ``}``
    followed by ``{`` inside a value; hence no value that the parser accepts crosses the border of
    two documents, each document holds at least one, and if there are as many values as documents,
    each holds exactly one.

    Two things that could end the process cannot happen: null as the very first value, on which
    the parser crashes, as an object comes first; and deep recursion, as the parser uses none and
    stops where a document is nested deeper than the type.
    """
    if not documents or not all(
        (document[:1] == b"{" and document[-1:] == b"}") or _is_braced(document)
        for document in documents
    ):
        return None
    block = b"\n".join(documents)
    if len(block) >= MAX_BLOCK_BYTES:
        return None
    try:
        table = pa_json.read_json(
            pa.BufferReader(block),
            # In one block: finding where to cut blocks costs as much as parsing them.
            read_options=pa_json.ReadOptions(use_threads=False, block_size=len(block) + 1),
            parse_options=pa_json.ParseOptions(
                explicit_schema=pa.schema(list(block_type)),
                newlines_in_values=True,
                unexpected_field_behavior="error",
            ),
        )
        if table.num_rows != len(documents) or table.column(0).num_chunks != 1:
            return None
        column = pa.StructArray.from_arrays(
            # One block makes one chunk; combine_chunks would copy it.
            [column.chunk(0) for column in table.columns],
            fields=list(block_type),
        )
        column.validate(full=True)  # The parser copies bytes that are not UTF-8 as they are.
    except (pa.ArrowInvalid, pa.ArrowNotImplementedError):
        return None
    if not all(_are_certain(leaf) for leaf in _float_leaves(column)):
        return None
    return column if block_type == type_ else column.cast(type_)


def _is_braced(document: bytes) -> bool:
    text = document.strip(JSON_SPACE)
    return text[:1] == b"{" and text[-1:] == b"}"


def _float_leaves(array: pa.Array) -> Iterator[pa.Array]:
    if pa.types.is_struct(array.type):
        for number in range(array.type.num_fields):
            yield from _float_leaves(array.field(number))
    elif pa.types.is_list(array.type):
        yield from _float_leaves(array.values)
    elif pa.types.is_float64(array.type):
        yield array


def _are_certain(floats: pa.DoubleArray) -> bool:
    """Whether these floats can only come from literals that both ways read alike.

    Arrow reads ``Inf`` and ``-NaN``, which are not even Python's JSON, integers outside int64,
    which are errors here, and ``-0`` as minus zero, where Python's integer has no sign.
    """
    numbers = floats.fill_null(0.0).to_numpy()
    in_range = np.abs(numbers) < 2.0**63
    minus_zero = np.signbit(numbers) & (numbers == 0)
    return bool(in_range.all()) and not minus_zero.any()
