"""What is refused before anything is written, and where a data set may not lie."""

import os
from pathlib import Path
from typing import Any

import daft
import numpy as np
import pyarrow as pa
import pytest
from daft import DataType

from daft_twinwds import read_twin_webdataset
from daft_twinwds.errors import LayoutError
from daft_twinwds.query.sink import write_twin_webdataset
from daft_twinwds.query.sink_publish import Mode
from daft_twinwds.testing import make_twin_dataset

ROW = {"__key__": ["a"], "x": [1]}


def one_row() -> daft.DataFrame:
    return daft.from_pydict(ROW)


@pytest.mark.parametrize("mode", ["error", "append", "overwrite"])
@pytest.mark.parametrize("has_manifest", [True, False])
def test_a_data_set_is_not_hidden_by_one_inside_it(
    tmp_path: Path, has_manifest: bool, mode: Mode
) -> None:
    make_twin_dataset(tmp_path / "set", num_shards=1)
    if not has_manifest:
        (tmp_path / "set/wdinfo.json").unlink()
    before = read_twin_webdataset(tmp_path / "set").to_pydict()["__key__"]

    with pytest.raises(LayoutError, match="lies in the data set" if has_manifest else "lies besid"):
        write_twin_webdataset(one_row(), tmp_path / "set/extra", mode=mode)

    assert not (tmp_path / "set/extra").exists()
    assert read_twin_webdataset(tmp_path / "set").to_pydict()["__key__"] == before


def test_leaves_are_written_beside_each_other(tmp_path: Path) -> None:
    for number, ratio in enumerate(("1_1", "16_9")):
        df = daft.from_pydict({"__key__": [f"k{number}"], "x": [number]})
        write_twin_webdataset(df, tmp_path / f"root/aspect_ratio_{ratio}")

    assert read_twin_webdataset(tmp_path / "root").sort("x").to_pydict()["x"] == [0, 1]


def test_a_data_set_inside_another_that_is_there_is_still_written_to(tmp_path: Path) -> None:
    write_twin_webdataset(one_row(), tmp_path / "set/inner")
    (tmp_path / "set/wdinfo.json").write_text("{}")

    write_twin_webdataset(
        daft.from_pydict({"__key__": ["b"], "x": [2]}), tmp_path / "set/inner", mode="append"
    )

    assert read_twin_webdataset(tmp_path / "set/inner").to_pydict()["x"] == [1, 2]


@pytest.mark.parametrize(
    ("path", "kind", "message"),
    [
        pytest.param(b"out", TypeError, "a path must be a string or a path", id="bytes"),
        pytest.param({}, TypeError, "a path must be a string .* got dict", id="mapping"),
        pytest.param(["out"], TypeError, "a path must be a string .* got list", id="list"),
        pytest.param("", ValueError, "a path must name something", id="empty"),
        pytest.param(Path("s3://bucket/x"), ValueError, "only one slash of a URL", id="flat-url"),
    ],
)
def test_what_is_no_path_is_refused(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    path: Any,
    kind: type[Exception],
    message: str,
) -> None:
    monkeypatch.chdir(tmp_path)

    with pytest.raises(kind, match=message):
        write_twin_webdataset(one_row(), path)

    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"max_shard_samples": 1.5}, r"max_shard_samples must be an int, got 1\.5"),
        ({"max_shard_samples": True}, "max_shard_samples must be an int, got True"),
        ({"max_shard_bytes": None}, "max_shard_bytes must be an int, got None"),
        ({"max_shard_bytes": 5e8}, "max_shard_bytes must be an int"),
        ({"part_size": "2"}, "part_size must be an int, got '2'"),
        ({"batch_size": 1.0}, "batch_size must be an int"),
        ({"jpeg_quality": 90.5}, "jpeg_quality must be an int"),
        ({"modalities": 3}, "modalities must be a list or a mapping, got 3"),
        ({"modalities": {"x"}}, "modalities must be a list or a mapping, got {'x'}"),
        ({"modalities": {"x": 3}}, "modalities must hold strings, got 3"),
        ({"suffixes": ["jpg"]}, "suffixes must be a mapping of column to suffix"),
        ({"df": [ROW]}, r"df must be a daft\.DataFrame, got list"),
    ],
)
def test_arguments_of_other_types_are_refused(
    tmp_path: Path, arguments: dict[str, Any], message: str
) -> None:
    with pytest.raises(TypeError, match=message):
        write_twin_webdataset(**{"df": one_row(), "path": tmp_path / "out", **arguments})

    assert not (tmp_path / "out").exists()


def test_numpy_s_integers_are_integers(tmp_path: Path) -> None:
    df = daft.from_pydict({"__key__": ["a", "b"], "x": [1, 2]})

    count: Any = np.int64(1)
    written = write_twin_webdataset(df, tmp_path / "out", max_shard_samples=count)

    assert written.to_pydict()["samples"] == [1, 1]


@pytest.mark.parametrize("name", ["wdinfo.json", "WDInfo.JSON", "wdinfo.json/x"])
def test_a_column_that_would_stand_where_the_manifest_does_is_refused(
    tmp_path: Path, name: str
) -> None:
    df = daft.from_pydict({"__key__": ["a"], name: [1]})

    with pytest.raises(ValueError, match=r"as wdinfo\.json is the manifest; .*modalities="):
        write_twin_webdataset(df, tmp_path / "out")

    assert not (tmp_path / "out").exists()
    write_twin_webdataset(df, tmp_path / "out", modalities={name: "info"})
    assert read_twin_webdataset(tmp_path / "out").to_pydict()["info"] == [1]


@pytest.mark.parametrize("name", [".x", ".write.lock", "a/.b", "..", "a\\b", "a//b", ""])
def test_a_column_that_readers_would_not_see_is_refused(tmp_path: Path, name: str) -> None:
    df = daft.from_pydict({"__key__": ["a"], name: [1]})

    with pytest.raises(ValueError, match="modalities must be folders below the dataset's"):
        write_twin_webdataset(df, tmp_path / "out")


@pytest.mark.parametrize("name", ["lock", "publish.json", "part_000000", "x.tar", "aspect_ratio_1"])
def test_a_column_may_have_any_other_name(tmp_path: Path, name: str) -> None:
    write_twin_webdataset(daft.from_pydict({"__key__": ["a"], name: [1]}), tmp_path / "out")

    assert read_twin_webdataset(tmp_path / "out").to_pydict()[name] == [1]


def test_a_column_with_a_slash_is_read_with_an_underscore(tmp_path: Path) -> None:
    write_twin_webdataset(daft.from_pydict({"__key__": ["a"], "x/y": [1]}), tmp_path / "out")

    assert read_twin_webdataset(tmp_path / "out").to_pydict()["x_y"] == [1]


def test_columns_that_would_be_read_under_one_name_are_refused(tmp_path: Path) -> None:
    df = daft.from_pydict({"__key__": ["a"], "x/y": [1], "x_y": [2]})

    with pytest.raises(LayoutError, match="'x/y' and 'x_y' both make a column 'x_y'"):
        write_twin_webdataset(df, tmp_path / "out")


@pytest.mark.parametrize(
    "dtype",
    [
        pa.struct([]),
        pa.list_(pa.struct([])),
        pa.struct({"a": pa.int64(), "b": pa.struct([])}),
    ],
    ids=["struct", "list", "inner"],
)
def test_a_struct_without_fields_is_refused(tmp_path: Path, dtype: pa.DataType) -> None:
    column = DataType.from_arrow_type(dtype)
    df = one_row().with_column("at", daft.lit(None).cast(column))

    with pytest.raises(ValueError, match=r"at: a column of .* cannot be written"):
        write_twin_webdataset(df, tmp_path / "out")


@pytest.mark.parametrize("scheme", ["", "file://"])
def test_a_folder_whose_path_is_no_text_is_refused(tmp_path: Path, scheme: str) -> None:
    name = "%FF" if scheme else os.fsdecode(b"\xff")

    with pytest.raises(LayoutError, match=r"\\xff/out': the folder's path is not UTF-8"):
        write_twin_webdataset(one_row(), f"{scheme}{tmp_path}/{name}/out")

    assert list(tmp_path.iterdir()) == []
