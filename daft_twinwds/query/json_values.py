"""One JSON document -> the value that Arrow takes for a known type, or the reason why not."""

import json
import math
from collections import Counter
from collections.abc import Callable, Mapping
from typing import NoReturn

import numpy as np
import pyarrow as pa

from daft_twinwds.errors import SchemaError
from daft_twinwds.query.json_types import (
    INT64,
    ITEM,
    described,
    dotted,
    field_name,
    is_unicode,
    load_json,
)

__all__ = ["DocumentReader"]

MAX_NAMES = 10
"""Known fields that a message lists."""

Path = tuple[str, ...]
Read = Callable[[object], object]
"""Turns a value of a document into the value for Arrow, or raises a SchemaError without a place."""


class DocumentReader:
    """Reads documents as values of one type, and counts the fields that it ignores.

    Args:
        type_: Booleans, integers, floats, strings, and lists and structs of these.
        ignore_extra: Whether fields that the type lacks are counted rather than refused.
        text_for_string: Whether a value that is not text becomes compact JSON where the type has
            text.

    Raises:
        ValueError: ``type_`` cannot be read from JSON.
    """

    def __init__(self, type_: pa.DataType, *, ignore_extra: bool, text_for_string: bool) -> None:
        self.ignored: Counter[str] = Counter()
        """Field path -> documents read that had it although the type lacks it."""
        self._ignored_now: set[str] = set()
        self._ignore_extra = ignore_extra
        self._text_for_string = text_for_string
        self._read = self._reader(type_, ())
        if pa.types.is_struct(type_) and any(
            field.name == "prompt" and _is_text(field.type) for field in type_
        ):
            self._read = _prompt_from_text(self._read)

    def read(self, document: bytes) -> object:
        """Return a document's value for ``pyarrow.array(values, type_)``.

        Raises:
            SchemaError: The document is no JSON or does not fit the type. The message names the
                field, but no place.
        """
        self._ignored_now.clear()
        try:
            value = load_json(document)
        except SchemaError as error:
            raise SchemaError(f"{error}; mend the member, or pass on_error='skip'") from error
        result = self._read(value)
        self.ignored.update(self._ignored_now)
        return result

    def _reader(self, type_: pa.DataType, path: Path) -> Read:
        if pa.types.is_struct(type_):
            return self._struct_reader(type_, path)
        if pa.types.is_list(type_) or pa.types.is_large_list(type_):
            return self._list_reader(type_, path)
        if _is_text(type_):
            return self._text_reader(path)
        if pa.types.is_boolean(type_):
            return _boolean_reader(path)
        if pa.types.is_integer(type_):
            return _integer_reader(type_, path)
        if pa.types.is_floating(type_):
            return _float_reader(type_, path)
        raise ValueError(
            f"{dotted(path)}: {type_} cannot be read from JSON; use booleans, integers, floats, "
            "strings, and lists and structs of these, and convert the column afterwards"
        )

    def _field_reader(self, field: pa.Field, path: Path) -> Read:
        read = self._reader(field.type, path)
        return read if field.nullable else _required(read, field.type, path)

    def _struct_reader(self, type_: pa.StructType, path: Path) -> Read:
        reads = {field.name: self._field_reader(field, (*path, field.name)) for field in type_}
        if len(reads) < type_.num_fields:
            raise ValueError(f"{dotted(path)}: two fields of {type_} have the same name")

        def read(value: object) -> object:
            if value is None:
                return None
            if not isinstance(value, dict):
                _refuse(value, path, "an object")
            if not value.keys() <= reads.keys():
                self._take_extra(value, reads, path)
            return {name: read_item(value.get(name)) for name, read_item in reads.items()}

        return read

    def _take_extra(
        self, value: Mapping[str, object], known: Mapping[str, Read], path: Path
    ) -> None:
        for name, item in value.items():
            if name in known or item is None:
                continue
            if not self._ignore_extra:
                names = [*known][:MAX_NAMES] + ["..."] * (len(known) > MAX_NAMES)
                raise SchemaError(
                    f"{dotted((*path, name))}: found {described(item)}; expected only the fields "
                    f"{', '.join(names) or '(none)'}; declare the field with schema=, or pass "
                    "extra_fields='ignore'"
                )
            self._ignored_now.add(field_name((*path, name)))

    def _list_reader(self, type_: pa.DataType, path: Path) -> Read:
        read_item = self._field_reader(type_.value_field, (*path, ITEM))

        def read(value: object) -> object:
            if value is None:
                return None
            if not isinstance(value, list):
                _refuse(value, path, "a list")
            return [read_item(item) for item in value]

        return read

    def _text_reader(self, path: Path) -> Read:
        def read(value: object) -> object:
            if value is None:
                return None
            if not isinstance(value, str):
                if not self._text_for_string and value != {}:
                    _refuse(value, path, "text")
                value = _compact(value, path)
            if not value.isascii() and not is_unicode(value):
                _refuse(value, path, "text without half surrogate pairs")
            return value

        return read


def _prompt_from_text(read: Read) -> Read:
    return lambda value: read({"prompt": value} if isinstance(value, str) else value)


def _required(read: Read, type_: pa.DataType, path: Path) -> Read:
    def read_required(value: object) -> object:
        if value is None:
            _refuse(value, path, f"a value of type {type_}")
        return read(value)

    return read_required


def _boolean_reader(path: Path) -> Read:
    def read(value: object) -> object:
        if value is None or isinstance(value, bool):
            return value
        _refuse(value, path, "a boolean")

    return read


def _integer_reader(type_: pa.DataType, path: Path) -> Read:
    signed = pa.types.is_signed_integer(type_)
    half = 1 << (type_.bit_width - 1)
    within = range(-half, half) if signed else range(2 * half)

    def read(value: object) -> object:
        if value is None or (type(value) is int and value in within):
            return value
        _refuse(value, path, f"an integer within {type_}")

    return read


def _float_reader(type_: pa.DataType, path: Path) -> Read:
    largest = float(np.finfo(f"float{type_.bit_width}").max)

    def read(value: object) -> object:
        if value is None:
            return None
        if isinstance(value, float) or (type(value) is int and value in INT64):
            number = float(value)
            if abs(number) <= largest or not math.isfinite(number):
                return number
        _refuse(value, path, f"a number within {type_} (an integer within int64)")

    return read


def _is_text(type_: pa.DataType) -> bool:
    return bool(pa.types.is_string(type_) or pa.types.is_large_string(type_))


def _compact(value: object, path: Path) -> str:
    try:
        return json.dumps(value, ensure_ascii=False, separators=(",", ":"))
    except RecursionError as error:
        raise SchemaError(
            f"{dotted(path)}: found values nested too deeply; expected text; mend the member, or "
            "pass on_error='skip'"
        ) from error


def _refuse(value: object, path: Path, expected: str) -> NoReturn:
    raise SchemaError(
        f"{dotted(path)}: found {described(value)}; expected {expected}; declare the column's "
        "type with schema=, or pass on_error='skip'"
    )
