"""Kept texts of another type are what reading the documents as that type would give."""

import json
from typing import Any

import daft
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from daft_twinwds.errors import SchemaError
from daft_twinwds.query.index_text import TextNotes, are_values_of, as_type
from daft_twinwds.query.json_arrow import parse_json
from daft_twinwds.query.schema import Column, declared_column, parsed_column

scalars = st.none() | st.booleans() | st.sampled_from([0, 1, 2**60 + 1, 0.5, -0.0, "", "text"])
documents = st.recursive(
    scalars,
    lambda inner: (
        st.lists(inner, max_size=2)
        | st.dictionaries(st.sampled_from(["prompt", "a", "b.c"]), inner, max_size=3)
    ),
    max_leaves=6,
)
DECLARED: dict[str, daft.DataType] = {
    "prompt": daft.DataType.struct({"prompt": daft.DataType.string()}),
    "a": daft.DataType.struct({"a": daft.DataType.float64(), "b.c": daft.DataType.string()}),
    "lists": daft.DataType.struct({"a": daft.DataType.list(daft.DataType.float64())}),
    "texts": daft.DataType.struct({"a": daft.DataType.list(daft.DataType.string())}),
    "number": daft.DataType.float64(),
    "nested": daft.DataType.list(daft.DataType.struct({"a": daft.DataType.int64()})),
}


def notes_on(column: str, values: list[Any]) -> TextNotes:
    notes = TextNotes(column, "json")
    for value in values:
        notes.add(value, where="here")
    return notes


def read(values: list[Any], column: Column) -> pa.Array:
    return parse_json(
        [json.dumps(value).encode() for value in values],
        column.arrow_type,
        where=lambda row: f"row {row}",
        extra_fields="error",
        on_error="raise",
        text_for_string=column.declared,
    ).column


@given(
    name=st.sampled_from(["caption", "other"]),
    mine=st.lists(documents, max_size=3),
    part=st.lists(documents, max_size=3),
    rest=st.lists(documents, max_size=3),
    declared=st.none() | st.sampled_from(sorted(DECLARED)),
)
def test_values_that_count_as_those_of_a_type_are_what_reading_gives(
    name: str, mine: list[Any], part: list[Any], rest: list[Any], declared: str | None
) -> None:
    """Kept in the type of their part folder, wanted in the type of the data set, or another."""
    try:
        own = notes_on(name, mine)
        stored = parsed_column(name, "json", notes_on(name, [*mine, *part]).type())
        wanted = parsed_column(name, "json", notes_on(name, [*mine, *part, *rest]).type())
        kept = read(mine, stored)
    except SchemaError:
        return
    if declared is not None:
        wanted = declared_column(name, DECLARED[declared])

    fits = are_values_of(own.to_plain(), stored.arrow_type, wanted)

    if fits:
        made = as_type(kept, wanted.arrow_type)
        made.validate(full=True)
        assert made.type == wanted.arrow_type
        assert repr(made.to_pylist()) == repr(read(mine, wanted).to_pylist())
    elif declared is None:
        # Only what is rounded, or has become text, cannot be brought back.
        assert stored.arrow_type != wanted.arrow_type or own.to_plain()["bare"]


@given(first=st.lists(documents, max_size=3), second=st.lists(documents, max_size=3))
def test_notes_on_parts_add_up(first: list[Any], second: list[Any]) -> None:
    try:
        together = notes_on("caption", [*first, *second])
        type_ = together.type()
    except SchemaError:
        return

    added = TextNotes("caption", "json")
    for values in (first, second):
        plain = json.loads(json.dumps(notes_on("caption", values).to_plain()))
        added.add_plain(plain, where="there")

    assert added.type() == type_
    assert added.to_plain() == together.to_plain()


def test_a_contradiction_is_an_error() -> None:
    notes = notes_on("caption", [{"a": 1}])
    notes.add_plain(notes_on("caption", [{"a": "x"}]).to_plain(), where="there")

    with pytest.raises(SchemaError, match="field 'a'"):
        notes.type()


def test_integers_become_numbers_and_numbers_stay_what_they_are() -> None:
    integers = notes_on("other", [{"a": 1}]).to_plain()
    as_integers = parsed_column("other", "json", pa.struct([("a", pa.int64())]))
    as_numbers = parsed_column("other", "json", pa.struct([("a", pa.float64())]))

    assert are_values_of(integers, as_integers.arrow_type, as_numbers)
    assert not are_values_of(integers, as_numbers.arrow_type, as_integers)


@pytest.mark.parametrize(("kind", "type_"), [("text", pa.large_string()), ("integer", pa.int64())])
def test_plain_texts_and_labels_have_one_type(kind: Any, type_: pa.DataType) -> None:
    notes = TextNotes("label", kind)

    assert notes.type() == type_
    assert are_values_of(notes.to_plain(), type_, parsed_column("label", kind, type_))
    other = declared_column("label", daft.DataType.int32())
    assert not are_values_of(notes.to_plain(), type_, other)
    assert not are_values_of(
        notes.to_plain(), type_, declared_column("label", daft.DataType.binary())
    )
