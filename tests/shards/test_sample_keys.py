"""The file of sample keys: which keys are read, and in which order."""

import os
import pickle
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from daft_twinwds.errors import LayoutError, StorageError
from daft_twinwds.shards.sample_keys import SampleKeys, _ranks

if TYPE_CHECKING:
    from tests.conftest import RangeServer


def load(path: str) -> Mapping[str, int]:
    return SampleKeys.find(path).ranks()


@pytest.fixture
def path(tmp_path: Path) -> str:
    return str(tmp_path / "keys.parquet")


def write(path: str, columns: dict[str, Any], **options: Any) -> str:
    pq.write_table(pa.table(columns), path, **options)
    return path


@pytest.mark.parametrize("type_", [pa.string(), pa.large_string()], ids=str)
def test_the_first_column_ranks_the_keys(path: str, type_: pa.DataType) -> None:
    keys = pa.array(["id_2", "a/b.c", "id_0"], type_)

    ranks = load(write(path, {"key": keys, "score": [1, None, 3]}))

    assert ranks == {"id_2": 0, "a/b.c": 1, "id_0": 2}
    assert list(ranks) == ["id_2", "a/b.c", "id_0"]


def test_a_key_that_is_listed_again_keeps_its_first_rank(path: str) -> None:
    ranks = load(write(path, {"key": ["b", "a", "b", "c"]}))

    assert ranks == {"b": 0, "a": 1, "c": 3}


def test_row_groups_are_read_in_order(path: str) -> None:
    keys = [f"id_{number}" for number in range(10)]

    ranks = load(write(path, {"key": keys}, row_group_size=3))

    assert list(ranks) == keys


@pytest.mark.parametrize("name", ["", "a.b", "sample key"])
def test_the_first_column_may_have_any_name(path: str, name: str) -> None:
    assert load(write(path, {name: ["id_0"], "a": [{"b": 1}]})) == {"id_0": 0}


def test_a_list_of_no_keys_is_empty(path: str) -> None:
    assert load(write(path, {"key": pa.array([], pa.string())})) == {}


def test_a_list_is_read_once_until_its_file_changes(path: str) -> None:
    write(path, {"key": ["id_0"]})
    first = load(path)

    assert load(path) is first

    write(path, {"key": ["id_1"]})
    os.utime(path, ns=(0, 1))
    assert load(path) == {"id_1": 0}


def test_a_missing_file_is_refused_with_its_path(path: str) -> None:
    with pytest.raises(StorageError, match=f"{path}: was not found; .*check sample_keys"):
        load(path)


def test_a_file_that_has_changed_since_is_refused(path: str) -> None:
    keys = SampleKeys.find(write(path, {"key": ["id_0"]}))
    write(path, {"key": ["id_1", "id_2"]})
    there = pickle.loads(pickle.dumps(keys))

    assert there.ranks() == {"id_0": 0}  # this process has read it before

    _ranks.cache_clear()
    with pytest.raises(StorageError, match=f"{path}: has changed since .*; call it again"):
        there.ranks()


def test_keys_are_read_from_a_server_whose_signature_stays_secret(
    range_server: "RangeServer", path: str
) -> None:
    range_server.files["/a b.parquet"] = Path(write(path, {"key": ["x", "y"], "n": [1, 2]}))
    range_server.required_query = "sig=secret"

    keys = SampleKeys.find(f"{range_server.url}/a%20b.parquet?sig=secret")

    assert keys.ranks() == {"x": 0, "y": 1}
    assert "secret" not in repr(keys)
    with pytest.raises(StorageError, match=r"missing\.parquet: was not found"):
        SampleKeys.find(f"{range_server.url}/missing.parquet?sig=secret")


def test_what_is_no_parquet_file_is_refused(path: str) -> None:
    Path(path).write_text("id_0\nid_1\n")

    with pytest.raises(LayoutError, match=f"{path}: not a readable Parquet file .*; expected one"):
        load(path)


def test_a_folder_is_refused(tmp_path: Path) -> None:
    with pytest.raises(LayoutError, match=f"{tmp_path}: not a readable Parquet file"):
        load(str(tmp_path))


def test_a_damaged_file_is_refused(path: str) -> None:
    write(path, {"key": ["id_0", "id_1"]})
    content = bytearray(Path(path).read_bytes())
    content[4:40] = bytes(36)
    Path(path).write_bytes(content)

    with pytest.raises(LayoutError, match=f"{path}: not a readable Parquet file"):
        load(path)


def test_keys_that_are_no_unicode_are_refused(path: str) -> None:
    offsets, latin_1 = pa.py_buffer(bytes(4) + b"\x04\0\0\0"), pa.py_buffer(b"caf\xe9")
    keys = pa.Array.from_buffers(pa.string(), 1, [None, offsets, latin_1])

    with pytest.raises(LayoutError, match=f"{path}: not a readable Parquet file .*UTF8"):
        load(write(path, {"key": keys}))


def test_a_column_name_that_is_no_unicode_is_refused(path: str) -> None:
    write(path, {"name": ["id_0"]}, store_schema=False)
    content = Path(path).read_bytes()
    Path(path).write_bytes(content.replace(b"name", b"nam\xe9"))

    with pytest.raises(LayoutError, match=f"{path}: not a readable Parquet file .*utf-8"):
        load(path)


@pytest.mark.parametrize(
    ("columns", "found"),
    [
        pytest.param({}, "no column", id="no-column"),
        pytest.param({"n": [1], "key": ["id_0"]}, "'n' of type int64", id="integers"),
        pytest.param({"key": [b"id_0"]}, "'key' of type binary", id="bytes"),
        pytest.param({"key": [{"a": "id_0"}]}, "'key' of type struct<a: string>", id="structs"),
        pytest.param({"key": [None]}, "'key' of type null", id="nulls"),
    ],
)
def test_a_first_column_without_strings_is_refused(
    path: str, columns: dict[str, Any], found: str
) -> None:
    with pytest.raises(
        LayoutError, match=f"{path}: the first column is {found}; expected strings, one sample key"
    ):
        load(write(path, columns))


def test_a_null_key_is_refused(path: str) -> None:
    with pytest.raises(LayoutError, match=f"{path}: 'key' holds 2 nulls; expected a key in every"):
        load(write(path, {"key": ["id_0", None, None]}))
