"""Texts in an index: their type, whether they are what a scan would make, and how they become it.

The texts of a shard are kept in a type that holds those of all shards of its part folder. A scan
may want another type: one that holds more shards' texts, or one that its caller declared. What
was seen in the shard's documents tells whether reading them as that type would succeed, and give
the values that are kept.
"""

from collections.abc import Mapping
from typing import Any, Final

import pyarrow as pa
import pyarrow.compute as pc

from daft_twinwds.query.json_types import JsonSummary, JsonTypes
from daft_twinwds.query.schema import CAPTION, CAPTION_FIELDS, Column, Kind

__all__ = ["TextNotes", "are_values_of", "as_type"]

_EMPTY: Final = {"empty object"}
_OBJECTS: Final = {"object", "empty object"}
_INTEGERS: Final = {"integer"}


class TextNotes:
    """What was seen in the texts of a shard, or of several.

    Args:
        column: Name of the column; that of captions has fields of its own.
        kind: How its members become values.
    """

    def __init__(self, column: str, kind: Kind) -> None:
        self.kind: Kind = kind
        self._types = JsonTypes()
        self._column = column
        self._has_bare_texts = False

    def add(self, value: object, *, where: str) -> None:
        """Take note of a JSON document.

        Raises:
            SchemaError: See `JsonTypes.add`.
        """
        # A bare string is a caption's prompt, and says nothing of its other fields.
        if self._column == CAPTION and isinstance(value, str):
            self._has_bare_texts = True
        else:
            self._types.add(value, where=where)

    def to_plain(self) -> dict[str, Any]:
        """Return the notes as plain values."""
        if self.kind != "json":
            return {"kind": self.kind}
        return {"kind": "json", "seen": self._types.summary(), "bare": self._has_bare_texts}

    def add_plain(self, plain: Mapping[str, Any], *, where: str) -> None:
        """Take note of what another's `to_plain` returned, of the same kind.

        Args:
            plain: The notes.
            where: Where those texts are, for messages.
        """
        if self.kind == "json":
            self._has_bare_texts |= plain["bare"]
            self._types.add_summary(plain["seen"], where=where)

    def type(self) -> pa.DataType:
        """Return the type that holds all of the texts.

        Raises:
            SchemaError: They contradict each other.
        """
        if self.kind == "text":
            return pa.large_string()
        if self.kind == "integer":
            return pa.int64()
        types = JsonTypes()
        if self._column == CAPTION:
            types.add(dict.fromkeys(CAPTION_FIELDS, ""), where="PiD's caption layout")
        types.add_summary(self._types.summary(), where="the texts")
        return types.merged_type()


def are_values_of(plain: Mapping[str, Any], stored: pa.DataType, column: Column) -> bool:
    """Say whether kept texts, brought to a column's type, are what reading them anew would give.

    Args:
        plain: Notes on the texts, see `TextNotes.to_plain`.
        stored: The type that they are kept in.
        column: The column.
    """
    if plain["kind"] != column.kind:
        return False
    if column.kind != "json":
        return bool(stored == column.arrow_type)
    wanted = column.arrow_type
    if plain["bare"] and not _has_prompt(wanted):
        return False
    return _holds(wanted, stored, plain["seen"])


def as_type(values: pa.Array, wanted: pa.DataType) -> pa.Array:
    """Return kept texts as a column's type; they must be `are_values_of` it.

    Fields that were not kept, or not read, are null.
    """
    if values.type == wanted:
        return values
    if values.null_count == len(values):
        return pa.nulls(len(values), wanted)
    if pa.types.is_struct(wanted):
        fields = _fields_of(values)
        made = [
            as_type(fields[field.name], field.type)
            if field.name in fields
            else pa.nulls(len(values), field.type)
            for field in wanted
        ]
        return pa.StructArray.from_arrays(made, fields=list(wanted), mask=pc.is_null(values))
    if pa.types.is_large_list(wanted) or pa.types.is_list(wanted):
        if values.offset:
            # Arrow takes no gaps beside borders that are a part of others.
            values = values.take(pa.array(range(len(values)), pa.int64()))
        items = as_type(values.values, wanted.value_type)
        array = pa.large_list if pa.types.is_large_list(values.type) else pa.list_
        same = type(values).from_arrays(
            values.offsets, items, type=array(wanted.value_field), mask=pc.is_null(values)
        )
        return same.cast(wanted)
    return values.cast(wanted, safe=False)


def _fields_of(values: pa.Array) -> dict[str, pa.Array]:
    if not pa.types.is_struct(values.type):
        # Objects without fields are kept as text where no shard has any.
        return {}
    names = [field.name for field in values.type]
    # What lies in a field where its struct is null may be anything; flattened, it is null.
    return dict(zip(names, values.flatten(), strict=True))


def _has_prompt(type_: pa.DataType) -> bool:
    if not pa.types.is_struct(type_) or type_.get_field_index("prompt") < 0:
        return False
    return _is_text(type_.field("prompt").type)


def _holds(wanted: pa.DataType, stored: pa.DataType, seen: JsonSummary) -> bool:
    kinds = set(seen["kinds"])
    if not kinds:
        return True
    if pa.types.is_struct(wanted):
        if kinds <= _EMPTY:
            return True
        return kinds <= _OBJECTS and all(
            _holds_field(wanted, stored, name, field)
            for name, field in seen.get("fields", {}).items()
        )
    if pa.types.is_large_list(wanted) or pa.types.is_list(wanted):
        if kinds != {"list"}:
            return False
        return _holds(wanted.value_type, stored.value_type, seen["items"])
    if kinds <= _INTEGERS and stored == pa.int64() and wanted == pa.float64():
        return True
    # A text column of Daft's is always a large one.
    return bool(stored == wanted) or (_is_text(stored) and _is_text(wanted))


def _holds_field(wanted: pa.DataType, stored: pa.DataType, name: str, seen: JsonSummary) -> bool:
    if wanted.get_field_index(name) < 0:
        # Null counts as absent.
        return not seen["kinds"]
    return _holds(wanted.field(name).type, stored.field(name).type, seen)


def _is_text(type_: pa.DataType) -> bool:
    return bool(pa.types.is_string(type_) or pa.types.is_large_string(type_))
