import json
import math
from collections.abc import Sequence
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from daft_twinwds.errors import SchemaError
from daft_twinwds.query import json_arrow
from daft_twinwds.query.json_arrow import PIECE_BYTES, ParsedJson, parse_json

TEXT = pa.large_string()
CAPTION = pa.struct([("prompt", TEXT), ("prompt_short", TEXT)])


def parse(documents: Sequence[bytes], type_: pa.DataType, **changes: Any) -> ParsedJson:
    options = {
        "where": "shard.tar: row {}".format,
        "extra_fields": "error",
        "on_error": "raise",
        **changes,
    }
    parsed = parse_json(documents, type_, **options)
    parsed.column.validate(full=True)
    assert parsed.column.type.equals(type_, check_metadata=True)
    assert len(parsed.column) == len(documents)
    return parsed


def values_of(documents: Sequence[bytes], type_: pa.DataType, **changes: Any) -> list[Any]:
    values = parse(documents, type_, **changes).column.to_pylist()
    assert isinstance(values, list)
    return values


def refusal_of(document: bytes, type_: pa.DataType, **changes: Any) -> str:
    """The message for a bad document; its place and the way past it are checked."""
    good = b"null"
    with pytest.raises(SchemaError) as caught:
        parse([good, document, good], type_, **changes)
    message = str(caught.value)
    assert message.startswith("shard.tar: row 1: ")

    skipped = parse([good, document, good], type_, on_error="skip", **changes)

    assert skipped.bad == {1: message}
    assert skipped.column.to_pylist() == [None, None, None]
    return message


def is_read_in_one_block(documents: Sequence[bytes], type_: pa.StructType) -> bool:
    block_type = json_arrow._block_type(type_)
    return (
        block_type is not None and json_arrow._read_block(documents, block_type, type_) is not None
    )


# ---- both ways read alike -----------------------------------------------------------------------

leaf_types = st.sampled_from([pa.bool_(), pa.int64(), pa.float64(), pa.string(), TEXT])
names = st.sampled_from(["a", "b", "prompt", "x y", "", "\u00e9"])


def struct_types(inner: st.SearchStrategy[pa.DataType]) -> st.SearchStrategy[pa.DataType]:
    return st.dictionaries(names, inner, min_size=1, max_size=3).map(
        lambda d: pa.struct([*d.items()])
    )


types = struct_types(
    st.recursive(
        leaf_types,
        lambda inner: inner.map(pa.list_) | inner.map(pa.large_list) | struct_types(inner),
        max_leaves=3,
    )
)

PLAIN_INTEGERS = st.integers(-(2**63), 2**63 - 1).map(str)
PLAIN_FLOATS = (
    st.floats(allow_nan=False, allow_infinity=False).map(repr)
    | st.floats(0, 1).map("{:.30e}".format)
    | st.sampled_from(["1E5", "1e-400", "0.0", "-0.0", "-0", "9007199254740993"])
    | PLAIN_INTEGERS
)
CHARACTERS = st.characters(exclude_categories=["Cs"])
PLAIN_TEXTS = st.builds(
    json.dumps,
    st.text(CHARACTERS, max_size=5) | st.sampled_from(["2024-01-02", "007", "null", "} {", "}\n{"]),
    ensure_ascii=st.booleans(),
)
ODD_LITERALS = st.sampled_from(
    [
        *("1", "true", "3.0", "NaN", "Inf", "-NaN", "Infinity", "-Infinity", "1e400"),
        *("9223372036854775808", "-9223372036854775809", '""', '"\\ud800"', '"\\u0000"'),
        *("{}", "[]", "[null]", '{"a": 1}'),
    ]
)


@st.composite
def literals(draw: st.DrawFn, type_: pa.DataType, *, odd: bool) -> str:
    """JSON text for a value of a type; now and then, if ``odd``, for another value."""
    chance = draw(st.integers(0, 19))
    if chance == 0 or (odd and chance == 1):
        return draw(ODD_LITERALS) if chance else "null"
    if pa.types.is_boolean(type_):
        return draw(st.sampled_from(["true", "false"]))
    if pa.types.is_integer(type_):
        return draw(PLAIN_INTEGERS)
    if pa.types.is_floating(type_):
        return draw(PLAIN_FLOATS)
    if pa.types.is_string(type_) or pa.types.is_large_string(type_):
        return draw(PLAIN_TEXTS)
    if pa.types.is_struct(type_):
        return draw(objects(type_, odd=odd))
    return f"[{','.join(draw(st.lists(literals(type_.value_type, odd=odd), max_size=3)))}]"


@st.composite
def objects(draw: st.DrawFn, type_: pa.StructType, *, odd: bool) -> str:
    fields = draw(st.permutations(list(type_)))[draw(st.integers(0, 1)) :]
    items = [(field.name, draw(literals(field.type, odd=odd))) for field in fields]
    if odd and draw(st.integers(0, 9)) == 0:
        items += draw(st.sampled_from([items[:1], [("extra", "1")], [("extra", "null")]]))
    space = draw(st.sampled_from(["", " ", "\n", "\r\n\t"]))
    body = f",{space}".join(f"{json.dumps(name)}:{space}{literal}" for name, literal in items)
    return f"{{{space}{body}{space}}}"


FRAGMENTS = st.sampled_from(
    [
        *(b"{", b"}", b"[", b"]", b",", b":", b'"', b"\n", b"\\", b"-", b"1", b".", b"e9", b"null"),
        *(b"{}", b"}{", b"}\n{", b"} null {", b"\r\n", b"\x00", b"\x0b", b"\x1f", b"\xff"),
        *(b"\xed\xa0\x80", b"\xef\xbb\xbf", b"\\ud800", b"\\u0000", b"/**/", b"//"),
    ]
)


@st.composite
def damaged(draw: st.DrawFn, document: bytes) -> bytes:
    start = draw(st.integers(0, len(document)))
    end = draw(st.sampled_from([start, start, start + 1, len(document)]))
    return document[:start] + draw(FRAGMENTS | st.just(b"")) + document[end:]


@st.composite
def batches(draw: st.DrawFn) -> tuple[pa.StructType, list[bytes]]:
    """A type, and documents most of which fit it."""
    type_ = draw(types)
    documents = [
        document.encode()
        for document in draw(st.lists(objects(type_, odd=True), min_size=1, max_size=4))
    ]
    if draw(st.booleans()):
        place = draw(st.integers(0, len(documents) - 1))
        documents[place] = draw(damaged(documents[place]))
    return type_, documents


def outcome(documents: Sequence[bytes], type_: pa.DataType, num_rows: int, **options: Any) -> str:
    """What `parse_json` makes of the first rows, as text: NaN differs from itself, -0.0 is 0.0."""
    try:
        parsed = parse(documents, type_, **options)
    except SchemaError as error:
        return str(error)
    return repr((parsed.column[:num_rows].to_pylist(), parsed.bad, sorted(parsed.ignored.items())))


@given(
    batches(),
    st.fixed_dictionaries(
        {
            "extra_fields": st.sampled_from(["error", "ignore"]),
            "on_error": st.sampled_from(["raise", "skip"]),
            "text_for_string": st.booleans(),
        }
    ),
)
def test_all_at_once_and_one_by_one_read_alike(
    batch: tuple[pa.StructType, list[bytes]], options: dict[str, Any]
) -> None:
    type_, documents = batch

    at_once = outcome(documents, type_, len(documents), **options)

    # A document that is null makes Arrow's parser unfit for the whole batch.
    assert outcome([*documents, b"null"], type_, len(documents), **options) == at_once


def fitted(value: Any, type_: pa.DataType) -> Any:
    """What Python's json returned, with absent fields and with floats where the type has them."""
    if value is None:
        return None
    if pa.types.is_struct(type_):
        return {field.name: fitted(value.get(field.name), field.type) for field in type_}
    if pa.types.is_list(type_) or pa.types.is_large_list(type_):
        return [fitted(item, type_.value_type) for item in value]
    return float(value) if pa.types.is_floating(type_) else value


@given(
    types.flatmap(
        lambda type_: st.tuples(st.just(type_), st.lists(objects(type_, odd=False), max_size=4))
    )
)
def test_values_are_those_of_pythons_json(batch: tuple[pa.StructType, list[str]]) -> None:
    type_, documents = batch

    values = values_of([document.encode() for document in documents], type_)

    assert repr(values) == repr([fitted(json.loads(document), type_) for document in documents])


@pytest.mark.parametrize(
    ("documents", "expected"),
    [
        pytest.param([b'{"a": 1.5}', b' {"a": 2}\r\n', b"{}"], True, id="plain"),
        pytest.param([], False, id="none"),
        pytest.param([b'{"a": 1}', b""], False, id="an empty one"),
        pytest.param([b'{"a": 1}{"a": 2}', b""], False, id="two in one and an empty one"),
        pytest.param([b'{"a": 1}{"a": 2}', b"\n"], False, id="two in one and a blank one"),
        pytest.param([b'{"a": 1}{"a": 2}', b"{}"], False, id="one too many"),
        pytest.param([b'{"a": 1', b'"b": 2}'], False, id="one in two"),
        pytest.param([b"null", b'{"a": 1}'], False, id="null, on which Arrow crashes"),
        pytest.param([b'{"a": 1} null {"a": 1}'], False, id="null between objects"),
        pytest.param([b'\xef\xbb\xbf{"a": 1}'], False, id="byte order mark"),
        pytest.param([b'{"a": 9223372036854775808}'], False, id="integer above int64"),
        pytest.param([b'{"a": NaN}'], False, id="NaN"),
        pytest.param([b'{"a": Inf}'], False, id="Inf"),
        pytest.param([b'{"a": -0}'], False, id="minus zero"),
        pytest.param([b'{"a": 1, "a": 2}'], False, id="repeated key"),
        pytest.param([b'{"b": "\xff"}'], False, id="text that is not UTF-8"),
        pytest.param([b'{"c": 1}'], False, id="extra field"),
    ],
)
def test_one_block_is_only_read_where_it_surely_means_the_same(
    documents: list[bytes], expected: bool
) -> None:
    type_ = pa.struct([("a", pa.float64()), ("b", TEXT)])

    assert is_read_in_one_block(documents, type_) is expected


@pytest.mark.parametrize(
    ("type_", "document", "expected"),
    [
        pytest.param(CAPTION, b'{"prompt": "a"}', True, id="caption"),
        pytest.param(pa.struct([("a", pa.large_list(CAPTION))]), b"{}", True, id="list of objects"),
        pytest.param(pa.struct([]), b"{}", False, id="no field"),
        pytest.param(pa.struct([("a", pa.list_(pa.float32()))]), b"{}", False, id="float32"),
        pytest.param(pa.struct([("a", pa.int8())]), b"{}", False, id="int8"),
        pytest.param(
            pa.struct([pa.field("a", TEXT, nullable=False)]), b'{"a": ""}', False, id="no nulls"
        ),
    ],
)
def test_one_block_is_only_read_for_types_that_are_inferred(
    type_: pa.StructType, document: bytes, expected: bool
) -> None:
    assert is_read_in_one_block([document], type_) is expected


def test_a_block_that_arrow_cannot_count_is_read_one_by_one(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(json_arrow, "MAX_BLOCK_BYTES", 31)

    assert is_read_in_one_block([b'{"prompt": "a"}', b'{"prompt":"b"}'], CAPTION)
    assert not is_read_in_one_block([b'{"prompt": "a"}'] * 2, CAPTION)


@pytest.mark.parametrize(
    ("sizes", "expected"),
    [
        pytest.param([], [range(0)], id="none"),
        pytest.param([5, 5], [range(2)], id="exactly one piece"),
        pytest.param([5, 5, 1, 4, 6], [range(2), range(2, 4), range(4, 5)], id="three pieces"),
        pytest.param([11, 1, 11], [range(1), range(1, 2), range(2, 3)], id="larger than a piece"),
    ],
)
def test_pieces_are_as_many_documents_as_fit(
    monkeypatch: pytest.MonkeyPatch, sizes: list[int], expected: list[range]
) -> None:
    monkeypatch.setattr(json_arrow, "PIECE_BYTES", 10)

    assert [*json_arrow._pieces([bytes(size) for size in sizes])] == expected


# ---- what documents may be ----------------------------------------------------------------------


def test_missing_fields_and_null_are_null() -> None:
    documents = [b'{"prompt": "a"}', b'{"prompt": null, "prompt_short": "b"}', b"{}", b"null"]

    assert values_of(documents, CAPTION) == [
        {"prompt": "a", "prompt_short": None},
        {"prompt": None, "prompt_short": "b"},
        {"prompt": None, "prompt_short": None},
        None,
    ]


def test_no_documents_make_an_empty_column() -> None:
    assert values_of([], CAPTION) == []


@pytest.mark.parametrize(
    "text", ["2024-01-02", "2024-01-02T03:04:05Z", "007", "true", "null", "1e5", "{}", " a \n"]
)
def test_text_stays_text(text: str) -> None:
    documents = [json.dumps({"prompt": text}).encode()]

    assert is_read_in_one_block(documents, CAPTION)
    assert values_of(documents, CAPTION)[0]["prompt"] == text


def test_documents_of_any_encoding_go_together() -> None:
    text = '{"prompt": "caf\u00e9 \U0001f4f7"}'
    documents = [text.encode(name) for name in ("utf-8", "utf-8-sig", "utf-16", "utf-32-be")]

    assert {row["prompt"] for row in values_of(documents, CAPTION)} == {"caf\u00e9 \U0001f4f7"}


def test_nul_and_control_characters_can_be_escaped() -> None:
    assert values_of([b'{"prompt": "a\\u0000b\\u001f\\n"}'], CAPTION)[0]["prompt"] == "a\0b\x1f\n"


def test_a_bare_text_is_the_prompt() -> None:
    assert values_of([b'"a lake"', b'{"prompt": "b"}'], CAPTION) == [
        {"prompt": "a lake", "prompt_short": None},
        {"prompt": "b", "prompt_short": None},
    ]


def test_a_bare_text_is_no_prompt_where_the_type_has_none() -> None:
    message = refusal_of(b'"a lake"', pa.struct([("prompt", pa.int64())]))

    assert "field 'prompt'" not in message
    assert "the document: found text 'a lake'; expected an object" in message


@pytest.mark.parametrize(
    ("type_", "document", "value"),
    [
        pytest.param(pa.large_list(pa.float64()), b"[1, 2.5, null]", [1.0, 2.5, None], id="list"),
        pytest.param(TEXT, b'"x"', "x", id="text"),
        pytest.param(pa.int64(), b" 7\n", 7, id="integer"),
        pytest.param(pa.bool_(), b"true", True, id="boolean"),
        pytest.param(pa.uint64(), b"18446744073709551615", 2**64 - 1, id="uint64"),
        pytest.param(pa.float16(), b"0.5", 0.5, id="float16"),
        pytest.param(pa.struct([]), b"{}", {}, id="no field"),
    ],
)
def test_a_column_may_be_of_another_type_than_a_struct(
    type_: pa.DataType, document: bytes, value: object
) -> None:
    assert values_of([document, b"null"], type_) == [value, None]


def test_the_type_is_kept_to_the_letter() -> None:
    type_ = pa.struct(
        [
            pa.field("tags", pa.list_(pa.field("element", TEXT, nullable=False)), nullable=False),
            pa.field("more", pa.large_list(pa.field("l", pa.string())), metadata={"unit": "word"}),
        ]
    )

    assert values_of([b'{"tags": ["a"], "more": ["b"]}'], type_) == [{"tags": ["a"], "more": ["b"]}]
    assert "field 'tags': found null; expected a value of" in refusal_of(b"{}", type_)
    assert "field 'tags[]': found null" in refusal_of(b'{"tags": [null]}', type_)


def test_many_documents_are_read_in_pieces() -> None:
    document = json.dumps({"prompt": "x" * (PIECE_BYTES // 3)}).encode()
    documents = [document, document, document, b"[]", document, document + document, document]

    parsed = parse(documents, CAPTION, on_error="skip")

    assert [*parsed.bad] == [3, 5]
    assert [value is None for value in parsed.column.to_pylist()] == [
        row in parsed.bad for row in range(len(documents))
    ]


def test_a_document_larger_than_a_piece_is_read() -> None:
    text = "x" * (PIECE_BYTES + 1)
    documents = [b'{"prompt": "a"}', json.dumps({"prompt": text}).encode(), b'{"prompt": "b"}']

    assert [row["prompt"] for row in values_of(documents, CAPTION)] == ["a", text, "b"]


# ---- numbers ------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("literal", "value"),
    [
        ("1", 1.0),
        ("9007199254740992", 2.0**53),
        ("9007199254740993", 2.0**53),
        ("9223372036854775807", 2.0**63),
        ("-9223372036854775808", -(2.0**63)),
        ("1e19", 1e19),
        ("Infinity", float("inf")),
        ("-Infinity", float("-inf")),
        ("1e-400", 0.0),
        ("1.7976931348623157e308", 1.7976931348623157e308),
    ],
)
def test_a_float_column_holds_the_nearest_number(literal: str, value: float) -> None:
    type_ = pa.struct([("score", pa.float64())])

    assert values_of([f'{{"score": {literal}}}'.encode()], type_) == [{"score": value}]


def test_nan_is_a_number() -> None:
    column = parse([b'{"score": NaN}'], pa.struct([("score", pa.float64())])).column

    assert math.isnan(column[0].as_py()["score"])


@pytest.mark.parametrize(
    ("type_", "literal", "reason"),
    [
        (pa.int64(), "9223372036854775808", "integer 9223372036854775808; expected an integer"),
        (pa.int64(), "3.0", "number 3.0; expected an integer within int64; declare"),
        (pa.int64(), "true", "boolean true; expected an integer"),
        (pa.int64(), '"1"', "text '1'; expected an integer"),
        (pa.int8(), "128", "integer 128; expected an integer within int8"),
        (pa.uint8(), "-1", "integer -1; expected an integer within uint8"),
        (pa.float64(), "1180591620717411303424", "integer 1180591620717411303424; expected a num"),
        (pa.float64(), "-9223372036854775809", "integer -9223372036854775809; expected a number"),
        (pa.float64(), "false", "boolean false; expected a number"),
        (pa.float32(), "1e39", "number 1e+39; expected a number within float"),
        (pa.bool_(), "1", "integer 1; expected a boolean"),
    ],
)
def test_a_value_that_would_be_bent_to_fit_is_refused(
    type_: pa.DataType, literal: str, reason: str
) -> None:
    document = f'{{"a": {{"score": {literal}}}}}'.encode()

    message = refusal_of(document, pa.struct([("a", pa.struct([("score", type_)]))]))

    assert f"field 'a.score': found {reason}" in message


# ---- what is refused, and how to go on ----------------------------------------------------------


@pytest.mark.parametrize(
    ("document", "reason"),
    [
        pytest.param(b"", "found an empty document", id="empty"),
        pytest.param(b'{"prompt": "caf\xe9"}', "byte 0xe9 in position 15", id="Latin-1"),
        pytest.param(b'{"prompt": "a"} x', "Extra data", id="trailing garbage"),
        pytest.param(b'{"prompt": "a"} {}', "Extra data", id="two objects"),
        pytest.param(b'{"prompt": "a"} null {}', "Extra data", id="null between objects"),
        pytest.param(b'{"prompt": "a\nb"}', "Invalid control character", id="raw line break"),
        pytest.param(b'{"prompt": "a"}\0', "Extra data", id="NUL after the document"),
        pytest.param(b'{"prompt": 1e400}', "1e400 is outside float64", id="1e400"),
        pytest.param(b"7", "the document: found integer 7; expected an object", id="integer"),
        pytest.param(b"[]", "the document: found list; expected an object", id="list"),
        pytest.param(
            b'{"prompt": "\\ud800"}',
            r"field 'prompt': found text '\ud800'; expected text without half surrogate pairs",
            id="half a surrogate pair",
        ),
        pytest.param(
            b'{"prompt": {"a": "%s"}}' % (b"x" * 99),
            "field 'prompt': found object; expected text; declare the column's type with schema=, "
            "or pass on_error='skip'",
            id="object for text",
        ),
        pytest.param(
            b'{"prompt": "%s' % (b"[{" * 100_000) + b'"} x', "Extra data", id="brackets in text"
        ),
    ],
)
def test_a_document_that_does_not_fit_is_refused_by_its_place(document: bytes, reason: str) -> None:
    assert reason in refusal_of(document, CAPTION)


@pytest.mark.parametrize("type_", [CAPTION, pa.struct([("a", pa.list_(pa.list_(TEXT)))])])
@pytest.mark.parametrize("opening", [b"[", b'{"a":'])
def test_deep_nesting_is_refused_without_harm(type_: pa.StructType, opening: bytes) -> None:
    closing = b"]" if opening == b"[" else b"}"
    inside = opening * 100_000 + b"1" + closing * 100_000

    for name in ("a", "prompt"):
        document = f'{{"{name}": '.encode() + inside + b"}"
        assert not is_read_in_one_block([document], type_)
        assert "found values nested too deeply" in refusal_of(document, type_)


def test_every_depth_of_nesting_is_kept_as_text_or_refused() -> None:
    depths = range(1, 1100, 7)
    documents = [b'{"prompt": ' + b"[" * depth + b"]" * depth + b"}" for depth in depths]

    parsed = parse(documents, CAPTION, on_error="skip", text_for_string=True)

    for row, depth in enumerate(depths):
        if row in parsed.bad:
            assert "found values nested too deeply" in parsed.bad[row]
        else:
            assert parsed.column[row].as_py()["prompt"] == "[" * depth + "]" * depth
    assert 0 not in parsed.bad
    assert len(depths) - 1 in parsed.bad


def test_a_field_that_the_type_lacks_is_refused_with_both_cures() -> None:
    document = b'{"prompt": "a", "source": {"kind": "synthetic"}}'

    assert refusal_of(document, CAPTION) == (
        "shard.tar: row 1: field 'source': found object; expected only the fields prompt, "
        "prompt_short; declare the field with schema=, or pass extra_fields='ignore'"
    )


def test_the_message_lists_some_of_many_known_fields() -> None:
    type_ = pa.struct([(f"f{number}", TEXT) for number in range(11)])

    assert "f8, f9, ...; declare" in refusal_of(b'{"x": 1}', type_)
    assert "expected only the fields (none);" in refusal_of(b'{"x": 1}', pa.struct([]))


def test_fields_that_the_type_lacks_are_counted_by_row() -> None:
    type_ = pa.struct([("prompt", TEXT), ("boxes", pa.list_(pa.struct([("x", pa.int64())])))])
    documents = [
        b'{"prompt": "a", "source": 1, "boxes": [{"x": 1, "y": 2}, {"y": 3}]}',
        b'{"prompt": "b", "source": [], "seed": null}',
        b'{"prompt": "c"}',
        b'{"prompt": 4, "source": 1}',
    ]

    parsed = parse(documents, type_, extra_fields="ignore", on_error="skip")

    assert parsed.ignored == {"source": 2, "boxes[].y": 1}
    assert [*parsed.bad] == [3]
    assert parsed.column.to_pylist()[:3] == [
        {"prompt": "a", "boxes": [{"x": 1}, {"x": None}]},
        {"prompt": "b", "boxes": None},
        {"prompt": "c", "boxes": None},
    ]


def test_a_field_that_the_type_lacks_may_be_null() -> None:
    parsed = parse([b'{"prompt": "a", "source": null}'], CAPTION)

    assert parsed.column.to_pylist() == [{"prompt": "a", "prompt_short": None}]
    assert not parsed.ignored


@pytest.mark.parametrize(
    ("literal", "text"),
    [
        ('"x"', "x"),
        ("7", "7"),
        ("1180591620717411303424", "1180591620717411303424"),
        ("false", "false"),
        ('{"kind": "caf\u00e9", "tags": [1, null]}', '{"kind":"caf\u00e9","tags":[1,null]}'),
        ("null", None),
    ],
)
def test_what_is_not_text_can_be_kept_as_json(literal: str, text: str | None) -> None:
    documents = [f'{{"prompt": {literal}}}'.encode()]

    assert values_of(documents, CAPTION, text_for_string=True)[0]["prompt"] == text


def test_an_object_without_fields_is_text() -> None:
    assert values_of([b'{"prompt": {}}'], CAPTION)[0]["prompt"] == "{}"


# ---- arguments ----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "type_",
    [pa.timestamp("us"), pa.large_binary(), pa.null(), pa.map_(TEXT, TEXT), pa.decimal128(9)],
)
def test_a_type_that_json_does_not_have_is_refused(type_: pa.DataType) -> None:
    with pytest.raises(ValueError, match=r"field 'a\[\]': .* cannot be read from JSON; use bool"):
        parse([], pa.struct([("a", pa.list_(type_))]))


def test_a_type_that_repeats_a_field_is_refused() -> None:
    with pytest.raises(ValueError, match=r"the document: two fields of .* have the same name"):
        parse([], pa.struct([("a", TEXT), ("a", TEXT)]))


@pytest.mark.parametrize("name", ["extra_fields", "on_error"])
def test_an_unknown_policy_is_refused(name: str) -> None:
    with pytest.raises(ValueError, match=f"{name} must be '.*' or '.*', got 'maybe'"):
        parse([], CAPTION, **{name: "maybe"})
