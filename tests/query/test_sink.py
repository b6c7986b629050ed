import io
import json
import pickle
import subprocess
import sys
import tarfile
import time
import tracemalloc
from pathlib import Path
from typing import Any

import daft
import numpy as np
import pyarrow as pa
import pytest
import webdataset  # type: ignore[import-untyped]
from daft import DataType, col
from daft.datatype import MediaType
from PIL import Image

from daft_twinwds import read_twin_webdataset
from daft_twinwds.errors import AlignmentError, LayoutError, SchemaError
from daft_twinwds.query.sink import TwinWebDatasetSink, write_twin_webdataset
from daft_twinwds.query.sink_publish import Mode
from daft_twinwds.shards.storage import read_range
from daft_twinwds.testing import make_twin_dataset

ROWS = 12


def numbered(count: int = ROWS, *, first: int = 0) -> daft.DataFrame:
    numbers = list(range(first, first + count))
    return daft.from_pydict({"__key__": [f"id_{number}" for number in numbers], "number": numbers})


def numbers_in(path: Path) -> list[int]:
    return sorted(read_twin_webdataset(path).to_pydict()["number"])


def names_in(folder: Path) -> set[str]:
    """Everything in a folder, hidden files too, without the folders themselves."""
    return {str(path.relative_to(folder)) for path in folder.rglob("*") if path.is_file()}


def members_of(tar: Path) -> dict[str, bytes]:
    with tarfile.open(tar) as archive:
        return {member.name: archive.extractfile(member).read() for member in archive}  # type: ignore[union-attr]


def bytes_of(file: Any) -> bytes:
    return read_range(file.path, file.position or 0, file.size())


# ---- what is written


def test_files_of_a_twin_data_set_are_copied_byte_by_byte(tmp_path: Path) -> None:
    make_twin_dataset(tmp_path / "in", num_shards=3, samples_per_shard=4)
    df = read_twin_webdataset(tmp_path / "in").where("__key__ != 'id_5'")

    written = write_twin_webdataset(df, tmp_path / "out", max_shard_samples=5).to_pydict()

    wanted = df.sort("__key__").to_pydict()
    found = read_twin_webdataset(tmp_path / "out").sort("__key__").to_pydict()
    assert found["__key__"] == wanted["__key__"]
    assert found["caption"] == wanted["caption"]
    assert [*map(bytes_of, found["image"])] == [*map(bytes_of, wanted["image"])]
    assert written["samples"] == [5, 5, 1]
    assert written["shard"] == [f"part_000000/{number:06d}.tar" for number in range(3)]


def test_ranges_get_the_suffix_that_their_bytes_tell(tmp_path: Path) -> None:
    make_twin_dataset(tmp_path / "in", num_shards=1, samples_per_shard=2)

    write_twin_webdataset(
        read_twin_webdataset(tmp_path / "in").select("__key__", "image"), tmp_path / "out"
    )

    tar = tmp_path / "out/image/part_000000/000000.tar"
    assert sorted(members_of(tar)) == ["id_0.jpg", "id_1.jpg"]


def test_whole_files_keep_the_suffix_of_their_names(tmp_path: Path) -> None:
    for number in range(2):
        (tmp_path / f"x{number}.Pt").write_bytes(b"weights %d" % number)
    df = daft.from_pydict(
        {
            "__key__": ["a", "b"],
            "latent": [daft.File(str(tmp_path / f"x{number}.Pt")) for number in range(2)],
        }
    )

    write_twin_webdataset(df, tmp_path / "out")

    tar = tmp_path / "out/latent/part_000000/000000.tar"
    assert members_of(tar) == {"a.pt": b"weights 0", "b.pt": b"weights 1"}


def test_a_file_larger_than_a_piece_is_copied_whole(tmp_path: Path) -> None:
    content = np.random.default_rng(0).bytes((1 << 21) + 17)
    (tmp_path / "large.bin").write_bytes(content)
    df = daft.from_pydict({"__key__": ["a"], "x": [daft.File(str(tmp_path / "large.bin"))]})

    write_twin_webdataset(df, tmp_path / "out")

    assert members_of(tmp_path / "out/x/part_000000/000000.tar") == {"a.bin": content}


def test_memory_does_not_grow_with_the_size_of_files(tmp_path: Path) -> None:
    with (tmp_path / "large.bin").open("wb") as file:
        file.truncate(64 << 20)
    files = [daft.File(str(tmp_path / "large.bin")) for _ in range(2)]
    df = daft.from_pydict({"__key__": ["a", "b"], "x": files})

    tracemalloc.start()
    write_twin_webdataset(df, tmp_path / "out")
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()

    assert (tmp_path / "out/x/part_000000/000000.tar").stat().st_size > 128 << 20
    assert peak < 8 << 20


def test_bytes_get_the_suffix_that_they_tell(tmp_path: Path) -> None:
    df = daft.from_pydict({"__key__": ["a", "b", "c"], "x": [b"\xff\xd8\xff..", b"other", b""]})

    write_twin_webdataset(df, tmp_path / "out")

    members = members_of(tmp_path / "out/x/part_000000/000000.tar")
    assert list(members) == ["a.jpg", "b.bin", "c.bin"]


def test_pictures_are_written_as_png_without_loss(tmp_path: Path) -> None:
    pixels = np.random.default_rng(0).integers(0, 256, (2, 6, 5, 3), np.uint8)
    df = daft.from_pydict({"__key__": ["a", "b"], "image": list(pixels)}).with_column(
        "image", col("image").cast(DataType.image("RGB"))
    )

    write_twin_webdataset(df, tmp_path / "out")

    back = read_twin_webdataset(tmp_path / "out")
    assert back.schema()["image"].dtype == DataType.file(MediaType.image())
    decoded = back.select(daft.functions.decode_image_file(col("image"))).to_pydict()["image"]
    assert np.array_equal(np.stack(decoded), pixels)


@pytest.mark.parametrize(
    ("shape", "dtype"),
    [((3, 4), np.uint8), ((3, 4, 1), np.uint16), ((3, 4, 2), np.uint8), ((3, 4, 4), np.uint8)],
)
def test_tensors_can_be_written_as_pictures(
    tmp_path: Path, shape: tuple[int, ...], dtype: type
) -> None:
    pixels: np.ndarray[Any, Any] = np.arange(np.prod(shape), dtype=dtype).reshape(shape) * 5
    df = daft.from_pydict({"__key__": ["a"], "x": [pixels]})

    write_twin_webdataset(df, tmp_path / "out", suffixes={"x": "png"})

    (data,) = members_of(tmp_path / "out/x/part_000000/000000.tar").values()
    with Image.open(io.BytesIO(data)) as image:
        assert np.array_equal(np.asarray(image), pixels.squeeze())


def test_pictures_are_written_as_jpeg_when_asked_for(tmp_path: Path) -> None:
    df = daft.from_pydict(
        {"__key__": ["a"], "image": [np.full((16, 16, 3), 90, np.uint8)]}
    ).with_column("image", col("image").cast(DataType.image("RGB")))

    write_twin_webdataset(df, tmp_path / "out", suffixes={"image": "jpg"})

    (name, data), *_ = members_of(tmp_path / "out/image/part_000000/000000.tar").items()
    assert name == "a.jpg"
    assert data.startswith(b"\xff\xd8\xff")


def test_tensors_are_written_as_numpy_arrays(tmp_path: Path) -> None:
    latents = [np.arange(6, dtype=np.float32).reshape(2, 3), np.ones((1, 4), np.float32)]
    df = daft.from_pydict({"__key__": ["a", "b"], "latent": latents})

    write_twin_webdataset(df, tmp_path / "out")

    members = members_of(tmp_path / "out/latent/part_000000/000000.tar")
    loaded = [np.load(io.BytesIO(data)) for data in members.values()]
    assert all(map(np.array_equal, loaded, latents))
    assert loaded[0].dtype == np.float32


def test_embeddings_are_lists_of_numbers(tmp_path: Path) -> None:
    df = daft.from_pydict({"__key__": ["a"], "vector": [[0.5, 1.5]]}).with_column(
        "vector", col("vector").cast(DataType.embedding(DataType.float32(), 2))
    )

    write_twin_webdataset(df, tmp_path / "out")

    assert read_twin_webdataset(tmp_path / "out").to_pydict()["vector"] == [[0.5, 1.5]]


def test_texts_that_are_json_can_be_written_as_such(tmp_path: Path) -> None:
    df = daft.from_pydict({"__key__": ["a"], "meta": ['{"x": 1}']})

    write_twin_webdataset(df, tmp_path / "out", suffixes={"meta": "json"})

    assert read_twin_webdataset(tmp_path / "out").to_pydict()["meta"] == [{"x": 1}]


def test_picture_info_and_url_are_left_out_by_default(tmp_path: Path) -> None:
    make_twin_dataset(tmp_path / "in", num_shards=1, samples_per_shard=2)
    df = read_twin_webdataset(tmp_path / "in", picture_info=True)

    write_twin_webdataset(df, tmp_path / "out")

    assert {path.name for path in (tmp_path / "out").iterdir()} == {
        "image",
        "caption",
        "wdinfo.json",
    }


def test_columns_that_only_look_like_picture_info_are_written(tmp_path: Path) -> None:
    df = daft.from_pydict({"__key__": ["a"], "image": ["x"], "image_width": [3]})

    write_twin_webdataset(df, tmp_path / "out")

    assert read_twin_webdataset(tmp_path / "out").to_pydict()["image_width"] == [3]


def test_columns_go_into_the_folders_that_are_given(tmp_path: Path) -> None:
    df = daft.from_pydict({"name": ["a"], "x": [1], "y": ["z"], "rest": [0]})

    write_twin_webdataset(
        df, tmp_path / "out", key="name", modalities={"x": "labels/main", "y": "text"}
    )

    row = {"labels_main": [1], "text": ["z"], "__key__": ["a"]}
    found = read_twin_webdataset(tmp_path / "out").to_pydict()
    assert {name: found[name] for name in row} == row
    assert "rest" not in found


def test_a_data_frame_without_rows_is_a_data_set_without_shards(tmp_path: Path) -> None:
    written = write_twin_webdataset(numbered().where("number < 0"), tmp_path / "out")

    assert written.count_rows() == 0
    assert json.loads((tmp_path / "out/wdinfo.json").read_text())["data_list"] == []


def test_parts_hold_as_many_shards_as_asked_for(tmp_path: Path) -> None:
    written = write_twin_webdataset(numbered(5), tmp_path / "out", max_shard_samples=1, part_size=2)

    assert written.to_pydict()["shard"] == [
        "part_000000/000000.tar",
        "part_000000/000001.tar",
        "part_000001/000000.tar",
        "part_000001/000001.tar",
        "part_000002/000000.tar",
    ]


@pytest.mark.filterwarnings("ignore::ResourceWarning")  # webdataset closes no files
@pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")
def test_webdataset_reads_what_is_written(tmp_path: Path) -> None:
    make_twin_dataset(tmp_path / "in", num_shards=1, samples_per_shard=3)
    df = read_twin_webdataset(tmp_path / "in")

    write_twin_webdataset(df, tmp_path / "out")

    tars = str(tmp_path / "out/caption/part_000000/000000.tar")
    found = {
        sample["__key__"]: json.loads(sample["json"])
        for sample in webdataset.WebDataset(tars, shardshuffle=False)
    }
    wanted = df.to_pydict()
    for key, caption in zip(wanted["__key__"], wanted["caption"], strict=True):
        assert caption.items() >= found[key].items()


# ---- missing values


def with_null() -> daft.DataFrame:
    return daft.from_pydict(
        {"__key__": ["a", "b"], "x": ["one", None], "y": pa.array([1, 2], pa.int64())}
    )


def test_a_null_is_refused_with_its_sample_and_column(tmp_path: Path) -> None:
    with pytest.raises(RuntimeError, match=r"sample 'b', column 'x': null"):
        write_twin_webdataset(with_null(), tmp_path / "out")

    assert not (tmp_path / "out").exists()


def test_nulls_are_left_out_and_read_back_when_allowed(tmp_path: Path) -> None:
    write_twin_webdataset(with_null(), tmp_path / "out", allow_missing=True)

    found = read_twin_webdataset(tmp_path / "out", on_missing="null").sort("__key__").to_pydict()
    assert (found["x"], found["y"]) == (["one", None], [1, 2])


def test_a_row_of_nothing_but_nulls_is_refused_even_then(tmp_path: Path) -> None:
    with pytest.raises(RuntimeError, match=r"sample 'b': null in all of \['x'\]"):
        write_twin_webdataset(with_null(), tmp_path / "out", modalities=["x"], allow_missing=True)


# ---- keys


@pytest.mark.parametrize(
    ("key", "reason"),
    [
        pytest.param("", "it is empty", id="empty"),
        pytest.param(".", "nothing but dots", id="dot"),
        pytest.param("a/..", "nothing but dots", id="dots-in-folder"),
        pytest.param("../a", "'.' or '..' in its name", id="parent"),
        pytest.param("./a", "'.' or '..' in its name", id="leading-dot-slash"),
        pytest.param("/a", "absolute name", id="absolute"),
        pytest.param("a\\b", "backslash", id="backslash"),
        pytest.param("a//b", "empty part", id="empty-part"),
        pytest.param("._a", "macOS sidecar", id="sidecar"),
        pytest.param("a" * 4095, "longer than 4095 bytes", id="long"),
    ],
)
def test_keys_that_could_not_be_read_back_are_refused(
    tmp_path: Path, key: str, reason: str
) -> None:
    df = daft.from_pydict({"__key__": ["good", key], "x": [1, 2]})

    with pytest.raises(RuntimeError, match="no key that could be read back") as caught:
        write_twin_webdataset(df, tmp_path / "out")

    assert reason in str(caught.value)
    assert not (tmp_path / "out").exists()


def test_a_null_key_is_refused(tmp_path: Path) -> None:
    df = daft.from_pydict({"__key__": ["a", None], "x": [1, 2]})

    with pytest.raises(RuntimeError, match="the key is null"):
        write_twin_webdataset(df, tmp_path / "out")


def test_a_key_twice_in_one_shard_is_refused(tmp_path: Path) -> None:
    df = daft.from_pydict({"__key__": ["a", "b", "a"], "x": [1, 2, 3]})

    with pytest.raises(RuntimeError, match="sample 'a': two rows have this key"):
        write_twin_webdataset(df, tmp_path / "out")


def test_a_key_twice_in_the_data_set_is_refused_at_the_end(tmp_path: Path) -> None:
    df = daft.from_pydict({"__key__": ["a", "b", "c", "a"], "x": [1, 2, 3, 4]})

    with pytest.raises(AlignmentError, match="sample 'a': two rows have this key"):
        write_twin_webdataset(df, tmp_path / "out", max_shard_samples=1)

    assert not (tmp_path / "out").exists()


# ---- failures


@daft.func
def fail_late(number: int) -> int:
    if number == ROWS - 1:
        raise ValueError("number too large")
    return number


def test_a_failing_task_leaves_nothing(tmp_path: Path) -> None:
    df = numbered().into_batches(2).with_column("number", fail_late(col("number")))

    with pytest.raises(Exception, match="number too large"):
        write_twin_webdataset(df, tmp_path / "out", max_shard_samples=1, batch_size=2)

    assert not (tmp_path / "out").exists() or not [
        name for name in names_in(tmp_path / "out") if not name.startswith(".write-")
    ]


def test_a_failing_task_leaves_the_old_data_set(tmp_path: Path) -> None:
    write_twin_webdataset(numbered(3), tmp_path / "out")
    before = names_in(tmp_path / "out")
    df = numbered().with_column("number", fail_late(col("number")))

    modes: tuple[Mode, ...] = ("append", "overwrite")
    for mode in modes:
        with pytest.raises(Exception, match="number too large"):
            write_twin_webdataset(df, tmp_path / "out", mode=mode)

    assert names_in(tmp_path / "out") == before
    assert numbers_in(tmp_path / "out") == [0, 1, 2]


KILLED = """
import sys, time, daft
from daft_twinwds.query.sink import write_twin_webdataset

@daft.func
def slowly(number: int) -> int:
    time.sleep(0.02)
    return number

keys = [f"id_{number}" for number in range(1000)]
df = daft.from_pydict({"__key__": keys, "number": list(range(1000))}).into_batches(5)
df = df.with_column("number", slowly(daft.col("number")))
write_twin_webdataset(df, sys.argv[1], batch_size=5)
"""


def test_a_killed_process_leaves_nothing_that_is_read_and_the_next_one_cleans_up(
    tmp_path: Path,
) -> None:
    out = tmp_path / "out"
    writer = subprocess.Popen([sys.executable, "-c", KILLED, str(out)])
    deadline = time.monotonic() + 60
    while not list(out.glob(".write-*/number/*.tar")) and time.monotonic() < deadline:
        time.sleep(0.02)
    writer.kill()
    writer.wait()
    left = names_in(out)

    write_twin_webdataset(numbered(), out)

    assert left
    assert all(name.startswith((".write-", ".write.lock")) for name in left)
    assert names_in(out) == {"wdinfo.json", "number/part_000000/000000.tar"}


def test_a_file_that_has_shrunk_is_refused_with_its_sample(tmp_path: Path) -> None:
    make_twin_dataset(tmp_path / "in", num_shards=1, samples_per_shard=4)
    df = read_twin_webdataset(tmp_path / "in").select("__key__", "image").collect()
    tar = tmp_path / "in/image/part_000000/000000.tar"
    tar.write_bytes(tar.read_bytes()[:1500])

    with pytest.raises(RuntimeError, match=r"sample 'id_\d', column 'image'.*000000\.tar"):
        write_twin_webdataset(df, tmp_path / "out")


# ---- what is there already


def test_a_folder_with_something_in_it_is_refused(tmp_path: Path) -> None:
    (tmp_path / "notes.txt").write_text("mine")

    with pytest.raises(LayoutError, match=r"notes\.txt found; expected a new or empty folder"):
        write_twin_webdataset(numbered(), tmp_path)
    with pytest.raises(LayoutError, match=r"notes\.txt found, but no wdinfo\.json"):
        write_twin_webdataset(numbered(), tmp_path, mode="overwrite")

    assert names_in(tmp_path) == {"notes.txt"}


def test_appending_continues_the_numbers_of_shards(tmp_path: Path) -> None:
    write_twin_webdataset(numbered(3), tmp_path / "out", max_shard_samples=1)

    written = write_twin_webdataset(
        numbered(2, first=3), tmp_path / "out", mode="append", max_shard_samples=1
    )

    assert written.to_pydict()["shard"] == ["part_000000/000003.tar", "part_000000/000004.tar"]
    assert numbers_in(tmp_path / "out") == [0, 1, 2, 3, 4]
    manifest = json.loads((tmp_path / "out/wdinfo.json").read_text())
    assert manifest["data_list_key_count"] == [1] * 5
    assert manifest["total_key_count"] == 5


def test_appending_begins_a_new_part_when_the_last_is_full(tmp_path: Path) -> None:
    write_twin_webdataset(numbered(3), tmp_path / "out", max_shard_samples=1)

    written = write_twin_webdataset(
        numbered(1, first=3), tmp_path / "out", mode="append", part_size=2
    )

    assert written.to_pydict()["shard"] == ["part_000001/000000.tar"]


def test_appending_a_key_that_is_there_is_refused_with_its_shard(tmp_path: Path) -> None:
    write_twin_webdataset(numbered(3), tmp_path / "out")
    before = names_in(tmp_path / "out")

    with pytest.raises(AlignmentError, match=r"sample 'id_2': is in .*000000\.tar already"):
        write_twin_webdataset(numbered(2, first=2), tmp_path / "out", mode="append")

    assert names_in(tmp_path / "out") == before


def test_appending_other_modalities_is_refused(tmp_path: Path) -> None:
    write_twin_webdataset(numbered(3), tmp_path / "out")
    df = daft.from_pydict({"__key__": ["z"], "other": [1]})

    with pytest.raises(LayoutError, match=r"modalities \['number'\] found; expected \['other'\]"):
        write_twin_webdataset(df, tmp_path / "out", mode="append")


def test_appending_another_kind_of_member_is_refused(tmp_path: Path) -> None:
    write_twin_webdataset(numbered(3), tmp_path / "out")
    df = daft.from_pydict({"__key__": ["z"], "number": ["text"]})

    with pytest.raises(SchemaError, match=r"suffixes \.cls, \.txt found"):
        write_twin_webdataset(df, tmp_path / "out", mode="append")


@pytest.mark.parametrize("mode", ["append", "overwrite"])
def test_every_mode_writes_into_a_new_folder(tmp_path: Path, mode: Mode) -> None:
    write_twin_webdataset(numbered(3), tmp_path / "out", mode=mode)

    assert numbers_in(tmp_path / "out") == [0, 1, 2]


def test_overwriting_removes_the_old_tars_and_nothing_else(tmp_path: Path) -> None:
    write_twin_webdataset(numbered(3), tmp_path / "out", max_shard_samples=1)
    (tmp_path / "out/notes.txt").write_text("mine")
    (tmp_path / "out/number/part_000000/mine.tar").write_bytes(b"")

    write_twin_webdataset(
        daft.from_pydict({"__key__": ["z"], "number": [9]}), tmp_path / "out", mode="overwrite"
    )

    assert numbers_in(tmp_path / "out") == [9]
    assert names_in(tmp_path / "out") == {
        "notes.txt",
        "wdinfo.json",
        "number/part_000000/mine.tar",
        "number/part_000000/000003.tar",
    }


def test_overwriting_takes_folders_of_modalities_that_are_gone_away(tmp_path: Path) -> None:
    write_twin_webdataset(numbered(3), tmp_path / "out")

    write_twin_webdataset(
        daft.from_pydict({"__key__": ["z"], "x": [9]}), tmp_path / "out", mode="overwrite"
    )

    assert {path.name for path in (tmp_path / "out").iterdir()} == {"x", "wdinfo.json"}


def test_a_data_set_cannot_be_overwritten_from_itself(tmp_path: Path) -> None:
    make_twin_dataset(tmp_path / "in", num_shards=2, samples_per_shard=2)
    (tmp_path / "link").symlink_to(tmp_path / "in")
    before = names_in(tmp_path / "in")
    df = read_twin_webdataset(tmp_path / "in")

    with pytest.raises(RuntimeError, match="which is to be overwritten"):
        write_twin_webdataset(df, tmp_path / "link", mode="overwrite")

    assert names_in(tmp_path / "in") == before


def test_two_writers_are_kept_apart(tmp_path: Path) -> None:
    inner: list[str] = []

    @daft.func
    def write_too(number: int) -> int:
        if number == 0:
            try:
                write_twin_webdataset(numbered(), tmp_path / "out")
            except LayoutError as error:
                inner.append(str(error))
        return number

    write_twin_webdataset(
        numbered().with_column("number", write_too(col("number"))), tmp_path / "out"
    )

    assert len(inner) == 1
    assert "is writing a data set into this folder" in inner[0]
    assert numbers_in(tmp_path / "out") == list(range(ROWS))


# ---- arguments


STRUCT = DataType.struct({"at": DataType.timestamp("us")})


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        pytest.param({"mode": "replace"}, "mode must be one of", id="mode"),
        pytest.param({"max_shard_bytes": 0}, "max_shard_bytes must be at least 1", id="bytes"),
        pytest.param({"max_shard_samples": 0}, "max_shard_samples must be", id="samples"),
        pytest.param({"part_size": 0}, "part_size must be", id="part"),
        pytest.param({"batch_size": 0}, "batch_size must be", id="batch"),
        pytest.param({"jpeg_quality": 0}, "jpeg_quality must be", id="quality"),
        pytest.param({"key": "id"}, "key: no column 'id'", id="no-key"),
        pytest.param({"key": "number"}, "cast it to a string", id="key-type"),
        pytest.param({"modalities": ["x"]}, "modalities: no column 'x'", id="no-column"),
        pytest.param({"modalities": []}, "modalities must name at least one", id="none"),
        pytest.param({"modalities": {"number": "../up"}}, "folders below", id="folder"),
        pytest.param({"suffixes": {"x": "txt"}}, "'x' is none of the columns", id="no-suffix"),
        pytest.param({"suffixes": {"number": ".cls"}}, "without a dot", id="suffix-dot"),
        pytest.param({"suffixes": {"number": "txt"}}, r"\.cls, \.id", id="suffix-kind"),
        pytest.param(
            {"modalities": {"number": "a", "text": "a/b"}}, "one lies in the other", id="nested"
        ),
        pytest.param(
            {"modalities": {"number": "A", "text": "a"}}, "are one on some disks", id="case"
        ),
        pytest.param(
            {"modalities": {"number": "caption"}, "suffixes": {"number": "json"}},
            "written into the folder 'caption'",
            id="caption",
        ),
        pytest.param({"suffixes": {"text": "jpg"}}, "no reader would take for text", id="media"),
    ],
)
def test_wrong_arguments_are_refused_before_anything_is_written(
    tmp_path: Path, arguments: dict[str, Any], message: str
) -> None:
    df = numbered().with_column("text", daft.lit("t"))

    with pytest.raises(ValueError, match=message):
        write_twin_webdataset(df, tmp_path / "out", **arguments)

    assert not (tmp_path / "out").exists()


@pytest.mark.parametrize(
    "dtype",
    [DataType.date(), DataType.timestamp("us"), DataType.null(), STRUCT, DataType.list(STRUCT)],
)
def test_types_that_would_not_be_read_back_are_refused(tmp_path: Path, dtype: DataType) -> None:
    df = numbered().with_column("at", daft.lit(None).cast(dtype))

    with pytest.raises(ValueError, match=r"at: a column of .* cannot be written"):
        write_twin_webdataset(df, tmp_path / "out")


def test_types_that_are_too_deep_are_refused(tmp_path: Path) -> None:
    dtype = DataType.int64()
    for _ in range(65):
        dtype = DataType.list(dtype)

    with pytest.raises(ValueError, match=r"at: a column of .* cannot be written"):
        write_twin_webdataset(
            numbered().with_column("at", daft.lit(None).cast(dtype)), tmp_path / "out"
        )


def test_a_single_name_is_no_list_of_modalities(tmp_path: Path) -> None:
    with pytest.raises(TypeError, match="got the string 'number'"):
        write_twin_webdataset(numbered(), tmp_path / "out", modalities="number")


def test_keys_alone_are_no_data_set(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="no column beside"):
        write_twin_webdataset(numbered().select("__key__"), tmp_path / "out")


def test_nothing_is_written_to_http(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="nothing can be written to http://"):
        write_twin_webdataset(numbered(), "http://127.0.0.1/x")


@pytest.mark.parametrize(
    ("values", "suffix", "message"),
    [
        pytest.param(pa.array([2**63], pa.uint64()), None, "expected it within int64", id="large"),
        pytest.param(
            pa.array([{"x": [2**63]}], pa.struct({"x": pa.list_(pa.uint64())})),
            None,
            "expected it within int64",
            id="large-inside",
        ),
        pytest.param(pa.array(["{x"]), "json", "no readable JSON", id="json"),
        pytest.param(
            pa.array(["x" * ((1 << 26) + 1)]), None, "expected at most 67108864", id="long-text"
        ),
    ],
)
def test_values_that_would_not_be_read_back_are_refused(
    tmp_path: Path, values: pa.Array, suffix: str | None, message: str
) -> None:
    df = daft.from_arrow(pa.table({"__key__": ["a"], "x": values}))
    suffixes = {"x": suffix} if suffix else None

    with pytest.raises(RuntimeError, match=f"sample 'a', column 'x': .*{message}"):
        write_twin_webdataset(df, tmp_path / "out", suffixes=suffixes)


@pytest.mark.parametrize(
    ("shape", "dtype", "suffix"),
    [
        pytest.param((4, 4, 3), np.float32, "png", id="floats"),
        pytest.param((4, 4, 4), np.uint8, "jpg", id="jpeg-with-alpha"),
        pytest.param((4, 4, 5), np.uint8, "png", id="five-channels"),
        pytest.param((4,), np.uint8, "png", id="one-axis"),
    ],
)
def test_tensors_that_are_no_pictures_are_refused_as_such(
    tmp_path: Path, shape: tuple[int, ...], dtype: type, suffix: str
) -> None:
    df = daft.from_pydict({"__key__": ["a"], "x": [np.ones(shape, dtype)]})

    with pytest.raises(RuntimeError, match=rf"sample 'a', column 'x': .*\.{suffix} takes"):
        write_twin_webdataset(df, tmp_path / "out", suffixes={"x": suffix})


def test_ranges_whose_bytes_tell_no_suffix_keep_that_of_their_member(tmp_path: Path) -> None:
    make_twin_dataset(tmp_path / "in", num_shards=1, samples_per_shard=1)
    df = read_twin_webdataset(tmp_path / "in", schema={"caption": DataType.file()})

    write_twin_webdataset(df, tmp_path / "out")

    assert read_twin_webdataset(tmp_path / "out").schema()["caption"].dtype.is_struct()


def test_a_column_of_texts_and_pictures_is_refused(tmp_path: Path) -> None:
    for name in ("a.txt", "b.png"):
        (tmp_path / name).write_bytes(b"x")
    files = [daft.File(str(tmp_path / name)) for name in ("a.txt", "b.png")]
    df = daft.from_pydict({"__key__": ["a", "b"], "x": files})

    with pytest.raises(SchemaError, match=r"column 'x': members with the suffixes \.png, \.txt"):
        write_twin_webdataset(df, tmp_path / "out")

    assert not (tmp_path / "out").exists()


def test_the_sink_and_its_results_pickle(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    pickled: list[tuple[Any, Any]] = []
    write = TwinWebDatasetSink.write

    def write_from_afar(self: TwinWebDatasetSink, parts: Any) -> Any:
        there = pickle.loads(pickle.dumps(self))
        for result in write(there, parts):
            pickled.append((self, there))
            yield pickle.loads(pickle.dumps(result))

    monkeypatch.setattr(TwinWebDatasetSink, "write", write_from_afar)

    write_twin_webdataset(numbered(), tmp_path / "out")

    assert all(here == there for here, there in pickled)
    assert pickled
    assert numbers_in(tmp_path / "out") == list(range(ROWS))
