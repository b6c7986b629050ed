"""Text members -> values of one column, whatever their encoding, or errors with a place."""

import codecs
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import daft
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from daft_twinwds.errors import SchemaError
from daft_twinwds.query import text
from daft_twinwds.query.schema import Column, Kind, declared_column
from daft_twinwds.query.text import ExtraFields, OnError, Parsed, parse_texts, read_texts
from daft_twinwds.shards.samples import Samples, read_samples
from daft_twinwds.shards.storage import LocalFile
from daft_twinwds.testing import write_tar

DOCUMENTS = [b"zero", b"", b"two", b"x" * 3000, b"four"]

STRING = daft.DataType.string()
INT64 = daft.DataType.int64()
PROMPT = daft.DataType.struct({"prompt": STRING, "score": daft.DataType.float64()})


@pytest.fixture
def tar(tmp_path: Path) -> Iterator[tuple[LocalFile, Samples]]:
    """An open tar that holds `DOCUMENTS`, and its samples."""
    members = [(f"id_{number}.txt", document) for number, document in enumerate(DOCUMENTS)]
    with LocalFile(str(write_tar(tmp_path / "000000.tar", members))) as file:
        yield file, read_samples(file, key_split="last", strict=True)


def column_of(kind: Kind, dtype: daft.DataType) -> Column:
    """A column whose type was inferred."""
    return Column(name="caption", kind=kind, dtype=dtype, suffixes=None)


def parse(
    documents: Sequence[bytes],
    column: Column,
    *,
    extra_fields: ExtraFields = "error",
    on_error: OnError = "raise",
) -> Parsed:
    return parse_texts(
        documents,
        column,
        where=lambda row: f"a.tar: 'id_{row}'",
        extra_fields=extra_fields,
        on_error=on_error,
    )


@pytest.mark.parametrize(
    "places",
    [[3, 0, 1, 2, 4], [4, 4, 0], range(1, 4), (0, 2), [], range(0)],
    ids=["all", "repeated", "range", "tuple", "none", "empty-range"],
)
def test_texts_come_in_the_order_asked_for(
    tar: tuple[LocalFile, Samples], places: Sequence[int]
) -> None:
    assert read_texts(*tar, places, column="caption") == [DOCUMENTS[place] for place in places]


def test_a_huge_text_is_refused_before_it_is_read(
    tar: tuple[LocalFile, Samples], monkeypatch: pytest.MonkeyPatch
) -> None:
    file, samples = tar
    monkeypatch.setattr(text, "MAX_TEXT_BYTES", 2999)
    monkeypatch.delattr(LocalFile, "read_many")

    with pytest.raises(
        SchemaError,
        match=rf"{samples.path}: 'id_3.txt' at byte {samples.positions[3]} holds 3000 bytes; .*2999 "
        r"was expected; .* schema=\{'caption': daft.DataType.file\(\)\}",
    ):
        read_texts(file, samples, [0, 3, 1], column="caption")


def test_a_text_as_large_as_allowed_is_read(
    tar: tuple[LocalFile, Samples], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(text, "MAX_TEXT_BYTES", 3000)

    assert read_texts(*tar, [3], column="caption") == [DOCUMENTS[3]]


def test_json_becomes_a_struct() -> None:
    documents = [b'{"prompt": "a", "score": 1}', b'"bare"', b'{"prompt": null}']

    parsed = parse(documents, column_of("json", PROMPT))

    assert parsed.values.type == PROMPT.to_arrow_dtype()
    assert parsed.values.to_pylist() == [
        {"prompt": "a", "score": 1.0},
        {"prompt": "bare", "score": None},
        {"prompt": None, "score": None},
    ]
    assert not parsed.bad
    assert not parsed.ignored


def test_json_fields_that_the_column_lacks_are_refused_or_counted() -> None:
    documents = [b'{"prompt": "a", "mood": "b"}', b'{"prompt": "c"}']
    column = column_of("json", PROMPT)

    with pytest.raises(SchemaError, match=r"a.tar: 'id_0': field 'mood'.*extra_fields='ignore'"):
        parse(documents, column)
    parsed = parse(documents, column, extra_fields="ignore")

    assert [value["prompt"] for value in parsed.values.to_pylist()] == ["a", "c"]
    assert parsed.ignored == {"mood": 1}


def test_json_that_does_not_fit_is_refused_or_listed() -> None:
    documents = [b'{"prompt": "a"}', b"broken", b'{"prompt": 5}']
    column = column_of("json", PROMPT)

    with pytest.raises(SchemaError, match=r"a.tar: 'id_1': found no readable JSON"):
        parse(documents, column)
    parsed = parse(documents, column, on_error="skip")

    assert parsed.values.to_pylist() == [{"prompt": "a", "score": None}, None, None]
    assert parsed.bad.keys() == {1, 2}
    assert "a.tar: 'id_2': field 'prompt': found integer 5" in parsed.bad[2]


def test_only_a_declared_text_field_takes_other_json_values_as_text() -> None:
    documents = [b'{"prompt": {"de": "Berg"}}']

    parsed = parse(documents, declared_column("caption", PROMPT))

    assert parsed.values.to_pylist() == [{"prompt": '{"de":"Berg"}', "score": None}]
    with pytest.raises(SchemaError, match="field 'prompt': found object; expected text"):
        parse(documents, column_of("json", PROMPT))


def test_bytes_stay_as_they_are() -> None:
    parsed = parse([b"\x00\xff", b""], declared_column("caption", daft.DataType.binary()))

    assert parsed.values.type == pa.large_binary()
    assert parsed.values.to_pylist() == [b"\x00\xff", b""]


@pytest.mark.parametrize(
    "document",
    ["2024-01-02", "007", "true", "null", "1e5", "{}", '{"a": [1, 2]}', " lead and trail \n", ""],
)
def test_text_that_looks_typed_stays_text(document: str) -> None:
    parsed = parse([document.encode()], column_of("text", STRING))

    assert parsed.values.type == pa.large_string()
    assert parsed.values.to_pylist() == [document]


@pytest.mark.parametrize(
    "encoding",
    [
        pytest.param("utf-8", id="utf-8"),
        pytest.param("utf-8-sig", id="utf-8-with-mark"),
        pytest.param("utf-16", id="utf-16"),
        pytest.param("utf-16-be", id="utf-16-big-endian"),
        pytest.param("utf-32", id="utf-32"),
        pytest.param("utf-32-be", id="utf-32-big-endian"),
    ],
)
@given(value=st.text(st.characters(exclude_characters="\0\ufeff", codec="utf-8")))
def test_text_is_decoded_as_its_mark_says(encoding: str, value: str) -> None:
    marks = {"utf-16-be": codecs.BOM_UTF16_BE, "utf-32-be": codecs.BOM_UTF32_BE}
    document = marks.get(encoding, b"") + value.encode(encoding)

    assert parse([document], column_of("text", STRING)).values.to_pylist() == [value]


def test_only_one_mark_is_taken_off() -> None:
    document = "\ufeff\ufeffa".encode()

    assert parse([document], column_of("text", STRING)).values.to_pylist() == ["\ufeffa"]


@pytest.mark.parametrize(
    "document",
    [
        pytest.param("caf\u00e9 3".encode("latin-1"), id="latin-1"),
        pytest.param(codecs.BOM_UTF16_LE + b"a", id="half-a-character"),
        pytest.param(b"a\xed\xa0\x80", id="surrogate"),
    ],
)
def test_text_in_another_encoding_is_refused_or_listed(document: bytes) -> None:
    documents = [b"good", document, b"too"]
    column = column_of("text", STRING)

    with pytest.raises(
        SchemaError, match=r"a.tar: 'id_1': .*decode.*; expected .*String.*on_error='skip'"
    ):
        parse(documents, column)
    parsed = parse(documents, column, on_error="skip")

    assert parsed.values.to_pylist() == ["good", None, "too"]
    assert parsed.bad.keys() == {1}
    assert parsed.bad[1].startswith("a.tar: 'id_1': ")


@pytest.mark.parametrize(
    ("document", "value"),
    [
        pytest.param(b"7", 7, id="digit"),
        pytest.param(b"-0012\n", -12, id="line"),
        pytest.param(b"  5 ", 5, id="spaces"),
        pytest.param(b"\xef\xbb\xbf3", 3, id="mark"),
        pytest.param(b"9223372036854775807", 2**63 - 1, id="largest"),
    ],
)
def test_an_integer_is_read(document: bytes, value: int) -> None:
    parsed = parse([document], column_of("integer", INT64))

    assert parsed.values.type == pa.int64()
    assert parsed.values.to_pylist() == [value]


@pytest.mark.parametrize(
    ("document", "found"),
    [
        pytest.param(b"seven", "found 'seven'", id="word"),
        pytest.param(b"", "found ''", id="empty"),
        pytest.param(b"1.5", "found '1.5'", id="number"),
        pytest.param(b"1_000", "found '1_000'", id="underscore"),
        pytest.param(b"9223372036854775808", "found '9223372036854775808'", id="too-large"),
        pytest.param(b"9" * 5000, f"found '{'9' * 40}'", id="far-too-large"),
        pytest.param(b"\xff", "can't decode", id="no-text"),
    ],
)
def test_what_is_no_integer_is_refused_or_listed(document: bytes, found: str) -> None:
    column = column_of("integer", INT64)

    with pytest.raises(SchemaError, match=f"^a.tar: 'id_1': .*{found}.*; expected .* Int64; mend"):
        parse([b"1", document], column)
    parsed = parse([b"1", document], column, on_error="skip")

    assert parsed.values.to_pylist() == [1, None]
    assert parsed.bad.keys() == {1}


def test_an_integer_must_fit_its_declared_type() -> None:
    column = declared_column("label", daft.DataType.uint8())

    assert parse([b"255"], column).values.equals(pa.array([255], pa.uint8()))
    with pytest.raises(SchemaError, match="'id_0': found '256'; expected a value of type UInt8"):
        parse([b"256"], column)


@pytest.mark.parametrize(
    ("kind", "dtype"),
    [
        pytest.param("json", PROMPT, id="json"),
        pytest.param("text", STRING, id="text"),
        pytest.param("integer", INT64, id="integer"),
        pytest.param("binary", daft.DataType.binary(), id="binary"),
    ],
)
def test_no_documents_make_an_empty_column(kind: Kind, dtype: Any) -> None:
    parsed = parse([], column_of(kind, dtype))

    assert len(parsed.values) == 0
    assert parsed.values.type == dtype.to_arrow_dtype()
