import io
import json

import daft
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given
from hypothesis import strategies as st

from daft_twinwds.errors import SchemaError
from daft_twinwds.query.json_arrow import parse_json
from daft_twinwds.query.json_types import MAX_DEPTH, JsonTypes, load_json

TEXT = pa.large_string()

names = st.sampled_from(["a", "b", "prompt", "x.y", "", "\u5199"])
scalars = st.one_of(
    st.none(),
    st.booleans(),
    st.integers(-(2**63), 2**63 - 1),
    st.floats(),
    st.text(st.characters(exclude_categories=["Cs"]), max_size=5),
)
values = st.recursive(
    scalars,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(names, inner, max_size=3),
    max_leaves=8,
)


def merged(*documents: object) -> pa.DataType:
    types = JsonTypes()
    for number, document in enumerate(documents):
        types.add(document, where=f"a.tar: {number}.json")
    return types.merged_type()


def encoded(value: object) -> bytes:
    return json.dumps(value, ensure_ascii=False).encode()


def sorted_fields(type_: pa.DataType) -> object:
    """The type without the order of struct fields."""
    if pa.types.is_struct(type_):
        return {field.name: sorted_fields(field.type) for field in type_}
    if pa.types.is_large_list(type_):
        return [sorted_fields(type_.value_type)]
    return type_


# ---- documents to values ------------------------------------------------------------------------


@pytest.mark.parametrize(
    "encoding",
    ["utf-8", "utf-8-sig", "utf-16", "utf-16-le", "utf-16-be", "utf-32", "utf-32-le", "utf-32-be"],
)
@pytest.mark.parametrize("value", ["caf\u00e9 \U0001f4f7", {"a": ["\u5199"]}, 7, []])
def test_every_encoding_of_json_is_detected(encoding: str, value: object) -> None:
    document = json.dumps(value, ensure_ascii=False).encode(encoding)

    assert load_json(document) == value


@pytest.mark.parametrize(
    ("document", "reason"),
    [
        pytest.param(b"", "found an empty document", id="empty"),
        pytest.param(b" \r\n", "Expecting value", id="white space"),
        pytest.param('{"a": "\u00e9"}'.encode("latin-1"), "byte 0xe9 in position 7", id="latin-1"),
        pytest.param(b'"\xed\xa0\x80"', "byte 0xed", id="half a surrogate pair in UTF-8"),
        pytest.param('"ab"'.encode("utf-16-le")[:-1], "truncated data", id="half a UTF-16 unit"),
        pytest.param(b'{"a": 1} x', "Extra data", id="trailing garbage"),
        pytest.param(b"{}{}", "Extra data", id="two values"),
        pytest.param(b'"a\nb"', "Invalid control character", id="line break in a string"),
        pytest.param(b"[1,]", "Illegal trailing comma|Expecting value", id="trailing comma"),
        pytest.param(b"-NaN", "Expecting value", id="minus NaN"),
        pytest.param(b"[1e400]", "1e400 is outside float64", id="number beyond float64"),
        pytest.param(b"-1e400", "-1e400 is outside float64", id="number below float64"),
        pytest.param(b"1" * 5000, "4300 digits", id="integer that Python does not read"),
        pytest.param(b"[" * 100_000, "found values nested too deeply", id="deep lists"),
        pytest.param(b'{"a":' * 100_000, "found values nested too deeply", id="deep objects"),
    ],
)
def test_what_is_no_json_is_refused_with_the_reason(document: bytes, reason: str) -> None:
    with pytest.raises(SchemaError, match=reason) as caught:
        load_json(document)

    assert "expected one JSON value in UTF-8, UTF-16 or UTF-32" in str(caught.value)


def test_numbers_that_python_adds_to_json_are_read() -> None:
    assert str(load_json(b"[NaN, Infinity, -Infinity, 1e-400]")) == "[nan, inf, -inf, 0.0]"


def test_the_last_of_repeated_keys_counts() -> None:
    assert load_json(b'{"a": 1, "a": null, "a": 2}') == {"a": 2}


# ---- values to types ----------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("documents", "expected"),
    [
        pytest.param([], TEXT, id="nothing"),
        pytest.param([None, None], TEXT, id="only null"),
        pytest.param([True, None], pa.bool_(), id="boolean"),
        pytest.param([1, None, -(2**63), 2**63 - 1], pa.int64(), id="integer"),
        pytest.param([1.5], pa.float64(), id="number"),
        pytest.param([1, 1.5, 2], pa.float64(), id="integer then number"),
        pytest.param([1.5, 1], pa.float64(), id="number then integer"),
        pytest.param([float("nan"), 1], pa.float64(), id="NaN"),
        pytest.param(["2024-01-02", "007", "true", "null", "1e5", "{}"], TEXT, id="typed text"),
        pytest.param([[]], pa.large_list(TEXT), id="empty list"),
        pytest.param([[None]], pa.large_list(TEXT), id="list of null"),
        pytest.param([[], [1], None, [2.5]], pa.large_list(pa.float64()), id="list"),
        pytest.param([[[1]], [[]]], pa.large_list(pa.large_list(pa.int64())), id="list in list"),
        pytest.param([{}], TEXT, id="object that never has a field"),
        pytest.param([{}, "x"], TEXT, id="empty object or text"),
        pytest.param([{}, {"a": 1}], pa.struct([("a", pa.int64())]), id="object"),
        pytest.param([{"a": None}], pa.struct([("a", TEXT)]), id="field that is always null"),
        pytest.param(
            [{"b": 1}, {"a": None, "b": 2}, {"c": [True], "a": {"x": ""}}],
            pa.struct(
                [
                    ("b", pa.int64()),
                    ("a", pa.struct([("x", TEXT)])),
                    ("c", pa.large_list(pa.bool_())),
                ]
            ),
            id="fields in order of first appearance",
        ),
    ],
)
def test_one_type_holds_all_documents(documents: list[object], expected: pa.DataType) -> None:
    assert merged(*documents) == expected


@pytest.mark.parametrize(
    ("documents", "message"),
    [
        pytest.param(
            [{"a": True}, {"a": 1}],
            r"field 'a': found boolean in a\.tar: 0\.json and integer in a\.tar: 1\.json; "
            "expected one type; declare the column's type with schema=",
            id="boolean and integer",
        ),
        pytest.param([1, 1.5, "x"], "the document: found integer in .* and text in", id="text"),
        pytest.param([{"a": [1]}, {"a": 1}], "field 'a': found list in .* and integer", id="list"),
        pytest.param(["x", {"a": 1}], "the document: found text in .* and object in", id="object"),
        pytest.param([{}, "x", {"a": 1}], "found text in .* and object in", id="empty object"),
        pytest.param([[{"a": [[1], ["x"]]}]], r"field '\[\].a\[\]\[\]'", id="inside lists"),
    ],
)
def test_a_contradiction_names_the_field_and_both_places(
    documents: list[object], message: str
) -> None:
    with pytest.raises(SchemaError, match=message):
        merged(*documents)


@pytest.mark.parametrize(
    ("document", "message"),
    [
        pytest.param(
            {"score": [2**63]},
            r"a\.tar: 0\.json: field 'score\[\]': found integer 9223372036854775808; expected it "
            "within int64; declare",
            id="integer above int64",
        ),
        pytest.param({"a": {"b": -(2**63) - 1}}, r"field 'a\.b': found integer -9223", id="below"),
        pytest.param(10**4000, r"the document: found integer 10{39}\.\.\.;", id="huge integer"),
        pytest.param({"a\0": 1}, r"field 'a\\x00': found a name that no column", id="NUL in name"),
        pytest.param({"\ud800": 1}, r"field '\\\\ud800': found a name", id="half a pair in name"),
    ],
)
def test_what_no_column_can_hold_is_refused_and_leaves_no_trace(
    document: object, message: str
) -> None:
    types = JsonTypes()

    with pytest.raises(SchemaError, match=message):
        types.add(document, where="a.tar: 0.json")

    types.add(1, where="a.tar: 1.json")
    assert types.merged_type() == pa.int64()


def nested(levels: int) -> object:
    value: object = 1
    for _ in range(levels):
        value = [value]
    return value


def test_types_are_inferred_down_to_the_deepest_level_that_is_allowed() -> None:
    assert str(merged(nested(MAX_DEPTH))).count("large_list") == MAX_DEPTH


def test_a_document_nested_deeper_than_that_is_refused() -> None:
    with pytest.raises(SchemaError, match="nested more than 64 levels; expected fewer; declare"):
        merged(nested(MAX_DEPTH + 1))


@given(st.lists(values, max_size=5).flatmap(lambda v: st.tuples(st.just(v), st.permutations(v))))
def test_the_order_of_documents_decides_only_the_order_of_fields(
    orders: tuple[list[object], list[object]],
) -> None:
    results: list[object] = []
    for documents in orders:
        try:
            results.append(sorted_fields(merged(*documents)))
        except SchemaError:
            results.append("contradiction")

    assert results[0] == results[1]


@given(st.lists(values, max_size=5))
def test_documents_can_always_be_read_as_the_type_inferred_from_them(
    documents: list[object],
) -> None:
    try:
        type_ = merged(*documents)
    except SchemaError:
        return

    parsed = parse_json(
        [encoded(document) for document in documents],
        type_,
        where=str,
        extra_fields="error",
        on_error="raise",
    )

    assert parsed.column.type == type_
    parsed.column.validate(full=True)


@given(st.lists(st.dictionaries(names, values, max_size=3), max_size=5))
def test_daft_and_parquet_keep_inferred_columns(documents: list[object]) -> None:
    try:
        type_ = merged(*documents)
    except SchemaError:
        return
    column = parse_json(
        [encoded(document) for document in documents],
        type_,
        where=str,
        extra_fields="error",
        on_error="raise",
    ).column
    file = io.BytesIO()

    pq.write_table(pa.table({"column": column}), file)

    # By their text, since NaN differs from itself.
    assert str(pq.read_table(file)["column"].to_pylist()) == str(column.to_pylist())
    assert str(daft.Series.from_arrow(column).to_pylist()) == str(column.to_pylist())
    assert daft.DataType.from_arrow_type(type_).to_arrow_dtype() == type_


def test_daft_takes_an_inferred_column_without_copying_its_text() -> None:
    type_ = merged({"prompt": "x", "tags": ["a"]})
    column = parse_json(
        [b'{"prompt": "a lake", "tags": ["b"]}'],
        type_,
        where=str,
        extra_fields="error",
        on_error="raise",
    ).column

    taken = daft.Series.from_arrow(column).to_arrow()

    for ours, daft_s in zip(column.flatten(), taken.flatten(), strict=True):
        assert [b and b.address for b in ours.buffers()] == [
            b and b.address for b in daft_s.buffers()
        ]
