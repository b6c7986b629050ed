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

numbers = st.none() | st.sampled_from([0, 1, 2**60 + 1, 0.5, -0.0])
integers = st.none() | st.integers(-1, 1)
texts = st.none() | st.sampled_from(["", "text"])
empty: st.SearchStrategy[dict[str, Any]] = st.just({})
inner = st.none() | empty | st.fixed_dictionaries({}, optional={"n": integers, "b.c": texts})
objects = st.fixed_dictionaries(
    {},
    optional={
        "prompt": texts,
        "a": numbers,
        "i": integers,
        "b.c": inner,
        "list": st.none() | st.lists(numbers, max_size=2) | st.lists(st.none(), max_size=1),
        "objects": st.none() | st.lists(inner, max_size=2),
        "flag": st.none() | st.booleans(),
        "empty": st.none() | empty,
    },
)
documents = objects | objects | objects | st.none() | texts | numbers
PROMPT = daft.DataType.struct({"prompt": daft.DataType.string()})
DECLARED: dict[str, daft.DataType] = {
    "prompt": PROMPT,
    "some": daft.DataType.struct({"a": daft.DataType.float64(), "prompt": daft.DataType.string()}),
    "integers": daft.DataType.struct({"a": daft.DataType.int64(), "i": daft.DataType.int64()}),
    "numbers": daft.DataType.struct({"i": daft.DataType.float64(), "a": daft.DataType.float64()}),
    "texts": daft.DataType.struct({"a": daft.DataType.string(), "empty": daft.DataType.string()}),
    "objects": daft.DataType.struct(
        {"empty": PROMPT, "b.c": daft.DataType.struct({"n": daft.DataType.float64()})}
    ),
    "lists": daft.DataType.struct(
        {
            "list": daft.DataType.list(daft.DataType.float64()),
            "objects": daft.DataType.list(
                daft.DataType.struct({"b.c": daft.DataType.string(), "n": daft.DataType.int64()})
            ),
        }
    ),
    "all": daft.DataType.struct(
        {
            "objects": daft.DataType.list(
                daft.DataType.struct({"b.c": daft.DataType.string(), "n": daft.DataType.float64()})
            ),
            "list": daft.DataType.list(daft.DataType.float64()),
            "i": daft.DataType.float64(),
            "a": daft.DataType.float64(),
            "flag": daft.DataType.bool(),
            "empty": daft.DataType.struct({"x": daft.DataType.int64()}),
            "b.c": daft.DataType.struct(
                {
                    "b.c": daft.DataType.string(),
                    "n": daft.DataType.int64(),
                    "more": daft.DataType.bool(),
                }
            ),
            "prompt": daft.DataType.string(),
        }
    ),
    "short": daft.DataType.struct({"i": daft.DataType.int8(), "a": daft.DataType.float32()}),
    "number": daft.DataType.float64(),
    "no struct": daft.DataType.list(PROMPT),
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
    declared=st.none() | st.just("all") | st.sampled_from(sorted(DECLARED)),
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


def test_lists_of_another_type_keep_their_borders_and_gaps() -> None:
    values = [{"l": [1, 2]}, {"l": None}, {"l": []}, None, {"l": [3, None]}]
    stored = parsed_column("other", "json", notes_on("other", values).type())
    wanted = parsed_column("other", "json", notes_on("other", [*values, {"l": [0.5]}]).type())

    assert are_values_of(notes_on("other", values).to_plain(), stored.arrow_type, wanted)
    kept = read(values, stored)
    assert as_type(kept, wanted.arrow_type).equals(read(values, wanted))
    assert as_type(kept[1:], wanted.arrow_type).equals(read(values[1:], wanted))


def test_a_bare_text_is_a_prompt_only_where_there_is_one() -> None:
    notes = notes_on("caption", ["a horse", {"a": 1}]).to_plain()
    stored = notes_on("caption", ["a horse", {"a": 1}]).type()

    with_prompt = daft.DataType.struct(
        {"a": daft.DataType.float64(), "prompt": daft.DataType.string()}
    )
    assert are_values_of(notes, stored, declared_column("caption", with_prompt))
    without = daft.DataType.struct({"a": daft.DataType.float64()})
    assert not are_values_of(notes, stored, declared_column("caption", without))


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
