"""What tasks do, in the thread of the test, where errors keep their types."""

import io
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import daft
import numpy as np
import pyarrow as pa
import pytest
from daft import DataType, col
from daft.io import IOConfig, S3Config
from daft.recordbatch import MicroPartition
from PIL import Image

from daft_twinwds import read_twin_webdataset
from daft_twinwds.errors import (
    AlignmentError,
    LayoutError,
    SchemaError,
    StorageError,
    TwinWebDatasetError,
)
from daft_twinwds.query.sink import TwinWebDatasetSink, write_twin_webdataset
from daft_twinwds.query.sink_files import PIECE, _own_options, is_below
from daft_twinwds.shards.storage import storage_stats
from daft_twinwds.shards.write_target import WriteTarget
from daft_twinwds.testing import make_twin_dataset

if TYPE_CHECKING:
    from tests.conftest import RangeServer


@pytest.fixture(autouse=True)
def in_this_thread(monkeypatch: pytest.MonkeyPatch) -> None:
    def write_sink(df: daft.DataFrame, sink: TwinWebDatasetSink) -> daft.DataFrame:
        parts = [part for part in df.iter_partitions() if isinstance(part, MicroPartition)]
        results = list(sink.write(iter(parts)))
        return daft.DataFrame._from_micropartitions(sink.finalize(results))

    monkeypatch.setattr(daft.DataFrame, "write_sink", write_sink)


def one_row(value: Any, type_: pa.DataType | None = None) -> daft.DataFrame:
    return daft.from_arrow(pa.table({"__key__": ["a"], "x": pa.array([value], type_)}))


def arrays(*values: np.ndarray[Any, Any]) -> daft.DataFrame:
    keys = [f"k{number}" for number in range(len(values))]
    return daft.from_pydict({"__key__": keys, "x": list(values)})


@pytest.mark.parametrize(
    ("value", "type_"),
    [
        pytest.param("\ufeffmarked", pa.string(), id="text-with-mark"),
        pytest.param(-(2**63), pa.int64(), id="integer"),
        pytest.param(7, pa.uint8(), id="small-integer"),
        pytest.param(0.1, pa.float64(), id="float"),
        pytest.param(float("inf"), pa.float64(), id="infinity"),
        pytest.param(False, pa.bool_(), id="boolean"),
        pytest.param([{"y": None}, {"y": 2.5}], None, id="list-of-structs"),
    ],
)
def test_a_value_is_read_as_it_was_written(tmp_path: Path, value: Any, type_: Any) -> None:
    write_twin_webdataset(one_row(value, type_), tmp_path / "out")

    assert read_twin_webdataset(tmp_path / "out").to_pydict()["x"] == [value]


def test_not_a_number_is_read_as_it_was_written(tmp_path: Path) -> None:
    write_twin_webdataset(one_row(float("nan")), tmp_path / "out")

    (value,) = read_twin_webdataset(tmp_path / "out").to_pydict()["x"]
    assert value != value


@pytest.mark.parametrize("suffix", ["png", "jpg", "npy"])
def test_pictures_and_arrays_are_encoded(tmp_path: Path, suffix: str) -> None:
    df = arrays(np.zeros((4, 6, 3), np.uint8), np.zeros((4, 6), np.uint8))

    written = write_twin_webdataset(df, tmp_path / "out", suffixes={"x": suffix})

    assert written.to_pydict()["samples"] == [2]


def test_sixteen_bits_per_pixel_are_kept(tmp_path: Path) -> None:
    write_twin_webdataset(
        arrays(np.full((2, 2), 40000, np.uint16)), tmp_path / "out", suffixes={"x": "png"}
    )

    (file,) = read_twin_webdataset(tmp_path / "out").to_pydict()["x"]
    with file.open() as data, Image.open(io.BytesIO(data.read())) as image:
        assert np.asarray(image).tolist() == [[40000, 40000]] * 2


@pytest.mark.parametrize(
    ("df", "suffix", "kind", "message"),
    [
        (one_row(2**63, pa.uint64()), None, SchemaError, "expected it within int64"),
        (
            one_row([{"y": 2**64 - 1}], pa.list_(pa.struct({"y": pa.uint64()}))),
            None,
            SchemaError,
            "expected it within int64",
        ),
        (one_row("{"), "json", SchemaError, "no readable JSON"),
        (one_row("x" * (1 << 26) + "x"), None, SchemaError, "expected at most"),
        (arrays(np.zeros((2, 2, 3), np.float32)), "png", SchemaError, r"\.png takes"),
        (arrays(np.zeros((2, 2, 4), np.uint8)), "jpg", SchemaError, r"\.jpg takes"),
        (one_row(None, pa.string()), None, AlignmentError, "null; expected a value"),
    ],
    ids=["integer", "inner", "json", "long", "floats", "alpha", "null"],
)
def test_values_are_refused_with_their_sample_and_column(
    tmp_path: Path,
    df: daft.DataFrame,
    suffix: str | None,
    kind: type[TwinWebDatasetError],
    message: str,
) -> None:
    suffixes = {"x": suffix} if suffix else None

    with pytest.raises(kind, match=f"column 'x': .*{message}"):
        write_twin_webdataset(df, tmp_path / "out", suffixes=suffixes)

    assert not (tmp_path / "out").exists()


@pytest.mark.parametrize("keys", [["a", ""], ["a", "../b"], ["a", "b/."], ["a", None], ["a", "a"]])
def test_keys_that_cannot_be_are_refused(tmp_path: Path, keys: Sequence[str | None]) -> None:
    df = daft.from_pydict({"__key__": keys, "x": [1, 2]})

    with pytest.raises(AlignmentError, match=r"no key that could be|is null|two rows have"):
        write_twin_webdataset(df, tmp_path / "out")

    assert not (tmp_path / "out").exists()


def test_missing_members_need_one_that_is_there(tmp_path: Path) -> None:
    df = daft.from_pydict({"__key__": ["a", "b"], "x": ["1", None], "y": [None, None]})
    df = df.with_column("y", col("y").cast(DataType.string()))

    with pytest.raises(AlignmentError, match="sample 'b': null in all of"):
        write_twin_webdataset(df, tmp_path / "out", allow_missing=True)


@pytest.mark.parametrize(
    ("most_bytes", "most_samples", "counts"),
    [
        pytest.param(10**6, None, [5], id="all-in-one"),
        pytest.param(10**6, 2, [2, 2, 1], id="by-samples"),
        pytest.param(1, None, [1] * 5, id="each-too-large"),
        # A header, two blocks of payload, and the end, to the next 10,240 bytes.
        pytest.param(10240, None, [5], id="exactly-full"),
    ],
)
def test_shards_close_before_they_exceed_their_bounds(
    tmp_path: Path, most_bytes: int, most_samples: int | None, counts: list[int]
) -> None:
    df = daft.from_pydict(
        {"__key__": [f"k{number}" for number in range(5)], "x": [b"." * 1024] * 5}
    )

    written = write_twin_webdataset(
        df, tmp_path / "out", max_shard_bytes=most_bytes, max_shard_samples=most_samples
    ).to_pydict()

    assert written["samples"] == counts
    assert all(sizes["x"] <= most_bytes for sizes in written["bytes"]) or most_bytes == 1


def test_one_block_too_many_begins_a_new_shard(tmp_path: Path) -> None:
    df = daft.from_pydict(
        {"__key__": [f"k{number}" for number in range(7)], "x": [b"." * 1024] * 7}
    )

    written = write_twin_webdataset(df, tmp_path / "out", max_shard_bytes=10240).to_pydict()

    # Six members of three blocks and two of the end are exactly twenty blocks.
    assert written["samples"] == [6, 1]


def test_files_are_read_in_pieces(tmp_path: Path) -> None:
    content = np.random.default_rng(0).bytes(2 * PIECE + 1)
    (tmp_path / "large.bin").write_bytes(content)
    df = daft.from_pydict({"__key__": ["a"], "x": [daft.File(str(tmp_path / "large.bin"))]})
    before = storage_stats()

    write_twin_webdataset(df, tmp_path / "out")

    after = storage_stats()
    assert after.requests - before.requests >= 3
    back = read_twin_webdataset(tmp_path / "out", schema={"x": DataType.binary()})
    assert back.to_pydict()["x"] == [content]


def test_files_of_an_url_without_a_suffix_are_looked_into(tmp_path: Path) -> None:
    for name in ("picture", "text"):
        (tmp_path / name).write_bytes(b"GIF89a..." if name == "picture" else b"some text")

    def df(name: str) -> daft.DataFrame:
        return daft.from_pydict({"__key__": ["a"], "x": [daft.File(f"file://{tmp_path}/{name}")]})

    write_twin_webdataset(df("picture"), tmp_path / "out")
    assert (tmp_path / "out/x/part_000000/000000.tar").read_bytes().startswith(b"a.gif\0")
    write_twin_webdataset(df("text"), tmp_path / "other")
    assert (tmp_path / "other/x/part_000000/000000.tar").read_bytes().startswith(b"a.bin\0")


def test_pictures_that_tell_no_suffix_are_refused(tmp_path: Path) -> None:
    (tmp_path / "text").write_bytes(b"some text")
    file = daft.functions.image_file(daft.lit(str(tmp_path / "text")))
    df = daft.from_pydict({"__key__": ["a"]}).with_column("x", file)

    with pytest.raises(SchemaError, match=r"tell no suffix; .*pass suffixes=\{'x'"):
        write_twin_webdataset(df, tmp_path / "out")

    write_twin_webdataset(df, tmp_path / "out", suffixes={"x": "txt"})
    assert read_twin_webdataset(tmp_path / "out").to_pydict()["x"] == ["some text"]


def test_files_are_opened_as_their_own_configuration_says(tmp_path: Path) -> None:
    (tmp_path / "a.bin").write_bytes(b"content")
    config = IOConfig(s3=S3Config(num_tries=3))
    files = [daft.File(str(tmp_path / "a.bin"), config), daft.File(str(tmp_path / "a.bin"))]
    df = daft.from_pydict({"__key__": ["a", "b"], "x": files})

    write_twin_webdataset(df, tmp_path / "out", suffixes={"x": "dat"})

    back = read_twin_webdataset(tmp_path / "out", schema={"x": DataType.binary()})
    assert back.to_pydict()["x"] == [b"content"] * 2
    assert _own_options.cache_info().currsize > 0


def test_files_of_a_server_are_asked_for_ahead(tmp_path: Path, range_server: "RangeServer") -> None:
    contents = [b"%d" % number * 1000 for number in range(16)]
    contents[5] = b"5" * (2 * PIECE + 1)
    for number, content in enumerate(contents):
        range_server.files[f"/{number}.bin"] = content
    keys = [f"k{number:02d}" for number in range(16)]
    files = [daft.File(f"{range_server.url}/{number}.bin") for number in range(16)]
    df = daft.from_pydict({"__key__": keys, "x": files})
    range_server.latency = 0.1

    write_twin_webdataset(df, tmp_path / "out")
    most = range_server.most_in_flight

    back = read_twin_webdataset(tmp_path / "out", schema={"x": DataType.binary()}).to_pydict()
    assert dict(zip(back["__key__"], back["x"], strict=True)) == dict(
        zip(keys, contents, strict=True)
    )
    # One after another there would never be more than one.
    assert most > 1


def test_a_missing_file_of_a_server_is_named_with_its_sample(
    tmp_path: Path, range_server: "RangeServer"
) -> None:
    range_server.files["/a.bin"] = b"content"
    files = [daft.File(f"{range_server.url}/{name}.bin?secret") for name in "ab"]
    df = daft.from_pydict({"__key__": ["a", "b"], "x": files})

    with pytest.raises(StorageError, match=r"sample 'b', column 'x': .*/b\.bin") as caught:
        write_twin_webdataset(df, tmp_path / "out")

    assert "secret" not in str(caught.value)


def test_a_missing_file_is_a_storage_error(tmp_path: Path) -> None:
    df = daft.from_pydict({"__key__": ["a"], "x": [daft.File(str(tmp_path / "none.jpg"))]})

    with pytest.raises(StorageError, match=r"sample 'a', column 'x': .*none\.jpg"):
        write_twin_webdataset(df, tmp_path / "out")


def test_null_files_are_missing_members(tmp_path: Path) -> None:
    (tmp_path / "a.bin").write_bytes(b"a")
    df = daft.from_pydict({"__key__": ["a", "b"], "x": [daft.File(str(tmp_path / "a.bin")), None]})

    written = write_twin_webdataset(
        df.with_column("y", daft.lit(1)), tmp_path / "out", allow_missing=True
    )

    assert written.to_pydict()["samples"] == [2]
    found = read_twin_webdataset(tmp_path / "out", on_missing="null").sort("__key__")
    assert found.select(col("x").is_null()).to_pydict()["x"] == [False, True]


def test_a_failed_shard_leaves_no_tar(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    seen: list[list[Path]] = []
    df = daft.from_pydict({"__key__": ["a", "b", "c"], "x": ["1", "2", None]})
    clean = WriteTarget._clean

    def look(self: WriteTarget, staging: str) -> None:
        seen.append(sorted((tmp_path / "out").rglob("*.tar*")))
        clean(self, staging)

    monkeypatch.setattr(WriteTarget, "_clean", look)

    with pytest.raises(AlignmentError, match="sample 'c'"):
        write_twin_webdataset(df, tmp_path / "out", max_shard_samples=4)

    assert seen == [[]]


def test_files_below_an_overwritten_folder_are_refused(tmp_path: Path) -> None:
    make_twin_dataset(tmp_path / "in", num_shards=1, samples_per_shard=2)

    with pytest.raises(LayoutError, match="which is to be overwritten"):
        write_twin_webdataset(
            read_twin_webdataset(tmp_path / "in"), tmp_path / "in", mode="overwrite"
        )


@pytest.mark.parametrize(
    ("path", "folder", "expected"),
    [
        ("s3://b/set/image/x.tar", "s3://b/set", True),
        ("s3a://b/set/image/x.tar", "s3://b/set", True),
        ("s3://b/set2/x.tar", "s3://b/set", False),
        ("s3://other/set/x.tar", "s3://b/set", False),
        ("s3://b/set/x.tar", "/set", False),
        ("/data/set/x.tar", "/data/set", True),
        ("file:///data/set/x.tar", "/data/set", True),
        ("/data/set/../x.tar", "/data/set", False),
        ("/data/set2/x.tar", "/data/set", False),
    ],
)
def test_what_lies_below_a_folder(path: str, folder: str, expected: bool) -> None:
    assert is_below(path, folder) is expected
