"""JSON documents -> Python values -> the Arrow type that holds them all."""

import json
from collections.abc import Mapping, Sequence
from itertools import combinations
from typing import NotRequired, TypedDict

import pyarrow as pa

from daft_twinwds.errors import SchemaError

__all__ = [
    "INT64",
    "ITEM",
    "MAX_DEPTH",
    "JsonSummary",
    "JsonTypes",
    "described",
    "dotted",
    "field_name",
    "is_unicode",
    "load_json",
]

INT64 = range(-(2**63), 2**63)
"""The integers that a column can hold."""
MAX_DEPTH = 64
"""Objects and lists within each other that a type is inferred for."""

ITEM = "[]"
"""Stands in a field path for any item of a list."""

# Daft holds strings and lists with 64-bit offsets: from these types it takes a column as it is,
# from pa.string and pa.list_ it copies the column first.
TEXT = pa.large_string()

_SCALARS: Mapping[frozenset[str], pa.DataType] = {
    frozenset(): TEXT,
    frozenset({"boolean"}): pa.bool_(),
    frozenset({"integer"}): pa.int64(),
    frozenset({"number"}): pa.float64(),
    frozenset({"integer", "number"}): pa.float64(),
    frozenset({"text"}): TEXT,
    # Parquet cannot store a struct without fields, so objects that never had any are text.
    frozenset({"empty object"}): TEXT,
    frozenset({"empty object", "text"}): TEXT,
}
_COMPATIBLE = {kinds for kinds in _SCALARS if len(kinds) == 2} | {
    frozenset({"empty object", "object"})
}
_KIND_OF: Mapping[type, str] = {
    bool: "boolean",
    int: "integer",
    float: "number",
    str: "text",
    list: "list",
    dict: "object",
}


def load_json(document: bytes) -> object:
    """Return the value that a JSON document holds.

    The encoding is detected from the first bytes, and a byte order mark is left out. Of a repeated
    object key the last value counts. ``NaN``, ``Infinity`` and ``-Infinity`` are numbers.

    Args:
        document: One JSON value in UTF-8, UTF-16 or UTF-32.

    Raises:
        SchemaError: The document is empty, wrongly encoded, not JSON, nested too deeply, or holds
            a number that Python or a float64 cannot. The message says what was found and what
            was expected, without a place.

    Source:
        RFC 4627, section 3, for the encodings; RFC 8259 for the text.
    """
    try:
        return _DECODER.decode(document.decode(json.detect_encoding(document)))
    except RecursionError as error:
        found = "values nested too deeply"
        reason: Exception = error
    except ValueError as error:
        found = f"no readable JSON ({error})" if document else "an empty document"
        reason = error
    raise SchemaError(
        f"found {found}; expected one JSON value in UTF-8, UTF-16 or UTF-32"
    ) from reason


class JsonSummary(TypedDict):
    """What was seen at one place inside the documents: plain values, in order of appearance."""

    kinds: list[str]
    """Kinds of values other than null: ``"boolean"``, ``"integer"``, ``"number"``, ``"text"``,
    ``"list"``, ``"object"``, ``"empty object"``."""
    fields: NotRequired[dict[str, "JsonSummary"]]
    items: NotRequired["JsonSummary"]


class JsonTypes:
    """The types that were seen in JSON documents, and the one type that holds them all.

    Null fixes nothing. Integers and numbers make float64. Text is text, whatever it looks like.
    What was never seen filled becomes text, and so do the items of lists that are always empty
    and objects that never have a field (their value is the text ``{}``). Every other mixture is a
    contradiction.
    """

    def __init__(self) -> None:
        self._root = _Seen()

    def add(self, value: object, *, where: str) -> None:
        """Take note of one document.

        Args:
            value: What `load_json` returned.
            where: The document's place, for messages.

        Raises:
            SchemaError: An integer is outside int64, a name cannot name a field, or the value is
                nested more than `MAX_DEPTH` levels; names the field. Nothing is noted then.
        """
        fault = _fault(value, MAX_DEPTH)
        if fault is not None:
            path, reason = fault
            raise SchemaError(
                f"{where}: {dotted(path)}: found {reason}; declare the column's type with schema="
            )
        self._root.see(value, where)

    def merged_type(self) -> pa.DataType:
        """Return the type that holds every value added; struct fields in order of appearance.

        Raises:
            SchemaError: Two documents contradict each other; names the field and both places.
        """
        return self._root.merged_type(())

    def summary(self) -> JsonSummary:
        """Return what was seen, without the places; it can be kept as JSON."""
        return self._root.summary()

    def add_summary(self, summary: JsonSummary, *, where: str) -> None:
        """Take note of all documents of another `JsonTypes` at once.

        Args:
            summary: What its `summary` returned.
            where: Where those documents are, for messages.
        """
        self._root.add_summary(summary, where)


class _Seen:
    """What was seen at one place inside the documents."""

    __slots__ = ("fields", "items", "place_of")

    def __init__(self) -> None:
        self.place_of: dict[str, str] = {}
        """Kind of value -> the first document that had it."""
        self.fields: dict[str, _Seen] = {}
        self.items: _Seen | None = None

    def see(self, value: object, where: str) -> None:
        if value is None:
            return
        kind = _kind(value)
        if kind not in self.place_of:
            self.place_of[kind] = where
        if isinstance(value, dict):
            for name, item in value.items():
                field = self.fields.get(name)
                if field is None:
                    field = self.fields[name] = _Seen()
                field.see(item, where)
        elif isinstance(value, list):
            if self.items is None:
                self.items = _Seen()
            for item in value:
                self.items.see(item, where)

    def summary(self) -> JsonSummary:
        summary: JsonSummary = {"kinds": list(self.place_of)}
        if self.fields:
            summary["fields"] = {name: field.summary() for name, field in self.fields.items()}
        if self.items is not None:
            summary["items"] = self.items.summary()
        return summary

    def add_summary(self, summary: JsonSummary, where: str) -> None:
        for kind in summary["kinds"]:
            self.place_of.setdefault(kind, where)
        for name, field in summary.get("fields", {}).items():
            self.fields.setdefault(name, _Seen()).add_summary(field, where)
        if "items" in summary:
            self.items = self.items or _Seen()
            self.items.add_summary(summary["items"], where)

    def merged_type(self, path: tuple[str, ...]) -> pa.DataType:
        kinds = frozenset(self.place_of)
        if kinds in _SCALARS:
            return _SCALARS[kinds]
        if kinds <= {"object", "empty object"}:
            return pa.struct(
                [(name, field.merged_type((*path, name))) for name, field in self.fields.items()]
            )
        if kinds == {"list"} and self.items is not None:
            return pa.large_list(self.items.merged_type((*path, ITEM)))
        first, second = next(
            pair for pair in combinations(self.place_of, 2) if frozenset(pair) not in _COMPATIBLE
        )
        raise SchemaError(
            f"{dotted(path)}: found {first} in {self.place_of[first]} and {second} in "
            f"{self.place_of[second]}; expected one type; declare the column's type with schema="
        )


def dotted(path: Sequence[str]) -> str:
    """Return how messages call a place inside a document, such as ``field 'boxes[].label'``."""
    if not path:
        return "the document"
    return f"field {field_name(path)!r}"


def field_name(path: Sequence[str]) -> str:
    """Return the names of a path joined by dots; always text that can be encoded."""
    name = ".".join(path).replace(f".{ITEM}", ITEM)
    return name.encode("utf-8", "backslashreplace").decode()


def described(value: object) -> str:
    """Return how messages call a value: its kind, and what fits on the line."""
    if value is None:
        return "null"
    if isinstance(value, bool):
        return f"boolean {json.dumps(value)}"
    if isinstance(value, str):
        return f"text {value[:40]!r}{'...' if len(value) > 40 else ''}"
    if isinstance(value, int | float):
        text = repr(value)
        return f"{_kind(value)} {text[:40]}{'...' if len(text) > 40 else ''}"
    return _kind(value)


def _kind(value: object) -> str:
    return "empty object" if value == {} else _KIND_OF[type(value)]


def _fault(value: object, levels: int) -> tuple[tuple[str, ...], str] | None:
    """Path and description of what no inferred type can hold, or None."""
    if type(value) is int:
        return None if value in INT64 else ((), f"{described(value)}; expected it within int64")
    if isinstance(value, dict):
        items: Sequence[tuple[str, object]] = list(value.items())
    elif isinstance(value, list):
        items = [(ITEM, item) for item in value]
    else:
        return None
    if not levels:
        return (), f"values nested more than {MAX_DEPTH} levels; expected fewer"
    for name, item in items:
        if not _is_field_name(name):
            return (name,), "a name that no column can have; expected Unicode text without NUL"
        fault = _fault(item, levels - 1)
        if fault is not None:
            return (name, *fault[0]), fault[1]
    return None


def _is_field_name(name: str) -> bool:
    # Arrow hands names to Daft as C strings, which end at a NUL character.
    return "\0" not in name and (name.isascii() or is_unicode(name))


def is_unicode(text: str) -> bool:
    r"""Whether text can be encoded: JSON's escapes can name half a pair, such as ``\ud800``."""
    try:
        text.encode()
    except UnicodeEncodeError:
        return False
    return True


def _float64(text: str) -> float:
    value = float(text)
    if value in (float("inf"), float("-inf")):
        raise ValueError(f"{text[:40]} is outside float64")
    return value


_DECODER = json.JSONDecoder(parse_float=_float64)
