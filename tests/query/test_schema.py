"""Suffixes and declared types decide what column a modality becomes."""

import pickle
from typing import Any

import daft
import pyarrow as pa
import pytest
from daft.datatype import MediaType

from daft_twinwds.query.schema import (
    Column,
    declared_column,
    file_column,
    kind_of,
    media_of,
    suffixes_of,
)

DataType = daft.DataType

STRING = DataType.string()
FILE = DataType.file()


@pytest.mark.parametrize(
    ("suffix", "kind"),
    [
        ("json", "json"),
        ("txt", "text"),
        ("text", "text"),
        ("cls", "integer"),
        ("id", "integer"),
        ("index", "integer"),
        ("jpg", "file"),
        ("npy", "file"),
        ("pickle", "file"),
        ("pkl", "file"),
        ("mask.png", "file"),
        ("", "file"),
    ],
)
def test_a_suffix_has_its_kind(suffix: str, kind: str) -> None:
    assert kind_of(suffix) == kind


@pytest.mark.parametrize("kind", ["json", "text", "integer"])
def test_the_suffixes_of_a_kind_are_of_that_kind(kind: Any) -> None:
    suffixes = suffixes_of(kind)

    assert suffixes
    assert {kind_of(suffix) for suffix in suffixes} == {kind}


@pytest.mark.parametrize(
    ("suffix", "medium"),
    [
        ("jpg", "image"),
        ("jpeg", "image"),
        ("png", "image"),
        ("webp", "image"),
        ("wav", "audio"),
        ("flac", "audio"),
        ("mp4", "video"),
        ("webm", "video"),
        ("npy", "unknown"),
        ("mask.png", "unknown"),
        ("", "unknown"),
    ],
)
def test_a_suffix_has_its_medium(suffix: str, medium: str) -> None:
    assert media_of(suffix) == medium


@pytest.mark.parametrize(
    ("suffixes", "dtype"),
    [
        pytest.param({"jpg", "png"}, DataType.file(MediaType.image()), id="pictures"),
        pytest.param({"wav"}, DataType.file(MediaType.audio()), id="sound"),
        pytest.param({"mp4", "mkv"}, DataType.file(MediaType.video()), id="films"),
    ],
)
def test_files_of_one_medium_are_typed_and_refuse_others(
    suffixes: set[str], dtype: DataType
) -> None:
    column = file_column("image", suffixes)

    assert column.dtype == dtype
    assert column.kind == "file"
    assert not column.is_text
    assert not column.declared
    assert column.suffixes is not None
    assert column.suffixes > suffixes
    assert {media_of(suffix) for suffix in column.suffixes} == {media_of(next(iter(suffixes)))}


@pytest.mark.parametrize(
    "suffixes",
    [
        pytest.param({"jpg", "mp4"}, id="two-media"),
        pytest.param({"jpg", "npy"}, id="a-medium-and-another-file"),
        pytest.param({"npy"}, id="other-files"),
        pytest.param(set(), id="none-seen"),
    ],
)
def test_other_files_are_plain_and_any_fits(suffixes: set[str]) -> None:
    column = file_column("latent", suffixes)

    assert column.dtype == FILE
    assert column.suffixes is None


@pytest.mark.parametrize(
    ("dtype", "kind", "arrow_type"),
    [
        pytest.param(DataType.binary(), "binary", pa.large_binary(), id="binary"),
        pytest.param(STRING, "text", pa.large_string(), id="string"),
        pytest.param(DataType.int8(), "integer", pa.int8(), id="int8"),
        pytest.param(DataType.uint64(), "integer", pa.uint64(), id="uint64"),
        pytest.param(DataType.float32(), "json", pa.float32(), id="float32"),
        pytest.param(DataType.bool(), "json", pa.bool_(), id="bool"),
        pytest.param(
            DataType.list(DataType.struct({"a": DataType.int64()})),
            "json",
            pa.large_list(pa.field("item", pa.struct([("a", pa.int64())]))),
            id="nested",
        ),
    ],
)
def test_a_declared_type_decides_the_kind(
    dtype: DataType, kind: str, arrow_type: pa.DataType
) -> None:
    column = declared_column("caption", dtype)

    assert column.kind == kind
    assert column.dtype == dtype
    assert column.arrow_type == arrow_type
    assert column.is_text
    assert column.declared
    assert column.suffixes is None


@pytest.mark.parametrize(
    "dtype", [FILE, DataType.file(MediaType.image())], ids=["plain", "picture"]
)
def test_a_declared_file_takes_any_suffix(dtype: DataType) -> None:
    column = declared_column("image", dtype)

    assert column.kind == "file"
    assert column.dtype == dtype
    assert column.suffixes is None
    assert not column.is_text


@pytest.mark.parametrize(
    "dtype",
    [
        DataType.date(),
        DataType.timestamp("us"),
        DataType.image(),
        DataType.image("RGB", 2, 2),
        DataType.embedding(DataType.float32(), 4),
        DataType.tensor(DataType.float32()),
        DataType.fixed_size_list(DataType.int64(), 2),
        DataType.fixed_size_binary(3),
        DataType.map(STRING, STRING),
        DataType.decimal128(10, 2),
        DataType.python(),
        DataType.null(),
        DataType.list(DataType.date()),
        DataType.list(FILE),
        DataType.struct({"a": STRING, "b": DataType.binary()}),
    ],
    ids=str,
)
def test_a_type_that_no_member_can_have_is_refused(dtype: DataType) -> None:
    with pytest.raises(
        ValueError, match=r"schema\['x'\]: .* cannot be read from a member; declare a file, binary"
    ) as caught:
        declared_column("x", dtype)

    assert str(dtype) in str(caught.value)


@pytest.mark.parametrize("dtype", ["string", str, pa.string(), None], ids=repr)
def test_a_type_that_is_not_daft_s_is_refused(dtype: Any) -> None:
    with pytest.raises(TypeError, match=r"schema\['x'\] must be a daft.DataType, got "):
        declared_column("x", dtype)


@pytest.mark.parametrize(
    "column",
    [
        pytest.param(declared_column("caption", DataType.struct({"prompt": STRING})), id="text"),
        pytest.param(file_column("image", ["jpg"]), id="file"),
    ],
)
def test_a_column_travels_to_other_processes(column: Column) -> None:
    assert column.arrow_type is column.arrow_type

    assert pickle.loads(pickle.dumps(column)) == column
