"""Selections: what they keep of a query, what they never keep, how they are told apart."""

import errno
import hashlib
import json
import os
import pickle
import shutil
import struct
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import daft
import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
import pytest
from daft import DataType, col
from daft.datatype import MediaType
from daft.functions import file, to_struct
from daft.io import IOConfig, S3Config
from hypothesis import given
from hypothesis import strategies as st

import daft_twinwds
from daft_twinwds.errors import LayoutError, StorageError
from daft_twinwds.testing import make_twin_dataset
from daft_twinwds.train import Selection, selection_file
from daft_twinwds.train.refs import FileRef, without_codes
from daft_twinwds.train.selection_file import METADATA

SECRET = "wJalrXUtnFEMI-never-to-be-written"
FINGERPRINT = """
import sys
from daft_twinwds import read_twin_webdataset
from daft_twinwds.train import Selection
print(Selection.from_dataframe(read_twin_webdataset(sys.argv[1])).fingerprint)
"""

Ref = tuple[int, int | None] | None
keys = st.text(max_size=4)
refs = st.none() | st.tuples(st.integers(0, 9), st.none() | st.integers(0, 9))
samples = st.lists(st.tuples(keys, refs), max_size=4)


@pytest.fixture(scope="module")
def root(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return make_twin_dataset(tmp_path_factory.mktemp("twins"), num_shards=2, samples_per_shard=3)


@pytest.fixture
def df(root: Path) -> daft.DataFrame:
    return daft_twinwds.read_twin_webdataset(root)


@pytest.fixture
def selection(df: daft.DataFrame) -> Selection:
    return Selection.from_dataframe(df)


def selection_of(rows: Sequence[tuple[str, Ref]], path: str = "/twins/000000.tar") -> Selection:
    """Make a selection of one picture column by hand."""
    pictures = [
        None if ref is None else {"path": path, "position": ref[0], "size": ref[1]}
        for _, ref in rows
    ]
    type_ = pa.struct({"path": pa.string(), "position": pa.int64(), "size": pa.int64()})
    columns = {
        "__key__": pa.array([key for key, _ in rows], pa.large_string()),
        "image": pa.array(pictures, type_),
    }
    return Selection(pa.table(columns), {"image": "image"})


def refs_of(selection: Selection, column: str = "image") -> list[Any]:
    return [row[column] for row in selection.rows(range(len(selection)))]


def with_secret(paths: list[str | None]) -> daft.DataFrame:
    io_config = IOConfig(s3=S3Config(key_id="AKIAEXAMPLE", access_key=SECRET))
    frame = daft.from_pydict({"__key__": [f"id_{i}" for i in range(len(paths))], "path": paths})
    return frame.select("__key__", file(col("path"), io_config=io_config).alias("image"))


def test_references_are_those_of_daft(df: daft.DataFrame, selection: Selection) -> None:
    files = df.to_pydict()["image"]

    ours = refs_of(selection)

    assert len(ours) == 6
    for ref, daft_file in zip(ours, files, strict=True):
        assert (ref.path, ref.position) == (daft_file.path, daft_file.position)
        assert ref.size == daft_file.size()
        with daft_file.open() as stream:
            content = stream.read()
        assert Path(ref.path).read_bytes()[ref.position :][: ref.size] == content


def test_other_columns_are_kept_by_value(df: daft.DataFrame, selection: Selection) -> None:
    rows = selection.rows(range(len(selection)))

    expected = df.exclude("image").to_pylist()
    assert [{k: v for k, v in row.items() if k != "image"} for row in rows] == expected
    assert list(rows[0]) == df.column_names


def test_rows_come_in_the_order_asked_for_and_as_often(selection: Selection) -> None:
    rows = selection.rows(np.array([4, 0, 4]))

    assert [row["__key__"] for row in rows] == ["id_4", "id_0", "id_4"]
    assert rows[0]["image"] == rows[2]["image"] != rows[1]["image"]


def test_only_what_the_query_keeps_is_kept(df: daft.DataFrame) -> None:
    kept = df.where(col("caption")["prompt_short"].not_null()).select("__key__", "image").limit(2)

    selection = Selection.from_dataframe(kept)

    assert selection.table.column_names == ["__key__", "image"]
    assert selection.table["__key__"].to_pylist() == ["id_0", "id_2"]


def test_a_query_without_media_is_kept(df: daft.DataFrame) -> None:
    selection = Selection.from_dataframe(df.select("__key__", col("caption")["width"]))

    assert selection.media == {}
    assert selection.rows([1]) == [{"__key__": "id_1", "width": 64}]


def test_a_query_without_rows_is_kept(df: daft.DataFrame, tmp_path: Path) -> None:
    selection = Selection.from_dataframe(df.where(col("__key__").is_null()))
    selection.save(tmp_path / "empty.parquet")

    assert len(selection) == 0
    assert selection.media == {"image": "image"}
    assert selection.rows([]) == []
    assert Selection.load(tmp_path / "empty.parquet").table.equals(selection.table)


def test_references_may_be_null(df: daft.DataFrame, tmp_path: Path) -> None:
    one = df.select("__key__", "image").limit(1)
    rows = daft.from_pydict({"__key__": ["id_0", "other"]}).join(one, on="__key__", how="left")

    selection = Selection.from_dataframe(rows.sort("__key__"))
    selection.save(tmp_path / "nulls.parquet")

    first, second = refs_of(selection)
    assert isinstance(first, FileRef)
    assert second is None
    assert Selection.load(tmp_path / "nulls.parquet").table.equals(selection.table)


def test_files_that_are_no_byte_ranges_reach_from_begin_to_end(root: Path) -> None:
    frame = daft.from_glob_path(f"{root}/*.json").select(
        col("path").alias("__key__"), file(col("path")).alias("manifest")
    )

    (ref,) = refs_of(Selection.from_dataframe(frame), "manifest")

    assert ref == FileRef(path=f"file://{root}/wdinfo.json", position=0, size=None)


@pytest.mark.parametrize("medium", ["image", "audio", "video", "unknown", "hdf5"])
def test_media_are_told_apart(medium: str) -> None:
    dtype = DataType.file(getattr(MediaType, medium)())
    frame = daft.from_pydict({"__key__": ["id_0"], "path": ["/x"]})
    frame = frame.select("__key__", file(col("path")).cast(dtype).alias("member"))

    selection = Selection.from_dataframe(frame)

    assert selection.media == {"member": "unknown" if medium == "hdf5" else medium}


def test_embeddings_become_lists() -> None:
    vectors = daft.from_pydict({"__key__": ["id_0"], "vector": [[0.5, 1.5]]})
    dtype = DataType.embedding(DataType.float32(), 2)

    selection = Selection.from_dataframe(vectors.with_column("vector", col("vector").cast(dtype)))

    assert selection.rows([0]) == [{"__key__": "id_0", "vector": [0.5, 1.5]}]


def test_a_frame_without_keys_is_refused(df: daft.DataFrame) -> None:
    with pytest.raises(ValueError, match=r"columns \['image'\] but not '__key__'.* keep it in sel"):
        Selection.from_dataframe(df.select("image"))


def test_keys_that_are_no_strings_are_refused() -> None:
    with pytest.raises(TypeError, match=r"'__key__' holds Int64; expected strings; convert it"):
        Selection.from_dataframe(daft.from_pydict({"__key__": [1]}))


def test_null_keys_are_refused() -> None:
    with pytest.raises(ValueError, match=r"'__key__' is null in 1 of 3 rows .* drop such rows"):
        Selection.from_dataframe(daft.from_pydict({"__key__": ["a", None, "b"]}))


@pytest.mark.parametrize(
    "dtype",
    [
        pytest.param(DataType.image("RGB"), id="pictures"),
        pytest.param(DataType.image("RGB", 2, 3), id="pictures-of-one-shape"),
        pytest.param(DataType.tensor(DataType.uint8()), id="tensors"),
        pytest.param(DataType.tensor(DataType.uint8(), (2, 3, 3)), id="tensors-of-one-shape"),
        pytest.param(DataType.sparse_tensor(DataType.uint8()), id="sparse-tensors"),
    ],
)
def test_decoded_pictures_are_refused(dtype: DataType) -> None:
    frame = daft.from_pydict({"__key__": ["id_0"], "pixels": [np.zeros((2, 3, 3), np.uint8)]})
    if dtype.is_sparse_tensor():
        frame = frame.with_column("pixels", col("pixels").cast(DataType.tensor(DataType.uint8())))
    frame = frame.with_column("pixels", col("pixels").cast(dtype))

    with pytest.raises(TypeError, match=r"column 'pixels' holds .*drop it by exclude\('pixels'\)"):
        Selection.from_dataframe(frame)


def test_python_objects_are_refused() -> None:
    with pytest.raises(TypeError, match="column 'thing' holds Python"):
        Selection.from_dataframe(daft.from_pydict({"__key__": ["id_0"], "thing": [object()]}))


def test_the_refusal_comes_before_the_query_runs(root: Path, tmp_path: Path) -> None:
    copy = shutil.copytree(root, tmp_path / "copy")
    frame = daft_twinwds.read_twin_webdataset(copy)
    shutil.rmtree(copy)

    with pytest.raises(TypeError, match="column 'nested' holds Struct"):
        Selection.from_dataframe(frame.with_column("nested", to_struct(image=col("image"))))


def test_credentials_are_kept_nowhere(tmp_path: Path) -> None:
    frame = with_secret(["s3://bucket/a.jpg", None])
    frame.write_parquet(str(tmp_path / "by-daft"))
    (by_daft,) = (tmp_path / "by-daft").glob("*.parquet")
    assert SECRET.encode() in by_daft.read_bytes(), "Daft hides them by now: is this still needed?"

    selection = Selection.from_dataframe(frame)
    selection.save(tmp_path / "selection.parquet")

    assert refs_of(selection)[0].path == "s3://bucket/a.jpg"
    for kept in (
        (tmp_path / "selection.parquet").read_bytes(),
        pickle.dumps(selection),
        repr(selection).encode(),
        str(selection.table.to_pylist()).encode(),
    ):
        assert SECRET.encode() not in kept
        assert b"AKIAEXAMPLE" not in kept


@pytest.mark.parametrize(
    "nested",
    [
        pytest.param(to_struct(image=col("image")), id="struct"),
        pytest.param(daft.functions.to_list(col("image")), id="list"),
        pytest.param(daft.functions.to_list(to_struct(image=col("image"))), id="list-of-structs"),
    ],
)
def test_files_inside_of_other_values_are_refused_with_their_credentials(nested: Any) -> None:
    frame = with_secret(["s3://bucket/a.jpg"]).select("__key__", nested.alias("nested"))

    with pytest.raises(TypeError, match=r"column 'nested' holds .* each in a column of its own"):
        Selection.from_dataframe(frame)


def test_the_text_form_counts_and_names_columns_but_no_paths(selection: Selection) -> None:
    assert repr(selection) == (
        "Selection(6 rows; __key__, __url__, image, caption; fingerprint "
        f"{selection.fingerprint[:12]})"
    )


def test_what_was_saved_is_loaded(selection: Selection, tmp_path: Path) -> None:
    selection.save(tmp_path / "selection.parquet")
    loaded = Selection.load(str(tmp_path / "selection.parquet"))

    assert loaded.table.equals(selection.table)
    assert loaded.media == selection.media
    assert loaded.fingerprint == selection.fingerprint
    assert loaded.rows([5]) == selection.rows([5])


def coded(selection: Selection, paths: list[str]) -> Selection:
    """Return a selection whose paths are coded, as those of a query are."""
    refs = selection.table.column("image").combine_chunks()
    places = pa.array(np.arange(len(refs)) * len(paths) // len(refs), pa.int32())
    fields = [
        pa.DictionaryArray.from_arrays(pc.if_else(refs.is_valid(), places, None), paths),
        *(refs.field(name) for name in ("position", "size")),
    ]
    struct = pa.StructArray.from_arrays(
        fields, names=["path", "position", "size"], mask=refs.is_null()
    )
    return Selection(selection.table.set_column(1, "image", struct), selection.media)


@pytest.fixture
def ten_tars() -> Selection:
    """A hundred rows, ten of each tar; every ninth has no picture."""
    rows: list[tuple[str, Ref]] = [(f"id_{i}", (i, 1) if i % 9 else None) for i in range(100)]
    return coded(selection_of(rows), [f"/{number}.tar" for number in range(10)])


def test_many_row_groups_are_saved_and_loaded_as_one(
    ten_tars: Selection, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(selection_file, "ROWS_PER_GROUP", 7)

    ten_tars.save(tmp_path / "groups.parquet")

    file = pq.ParquetFile(tmp_path / "groups.parquet")
    groups = [file.read_row_group(number)["image"].chunk(0) for number in range(15)]
    assert file.num_row_groups == 15
    assert [len(group) for group in groups] == [7] * 14 + [2]
    assert max(len(group.field("path").dictionary) for group in groups) == 2, "not those of all"
    loaded = Selection.load(tmp_path / "groups.parquet")
    assert loaded.table.equals(ten_tars.table)
    assert loaded.fingerprint == ten_tars.fingerprint
    assert {column.num_chunks for column in loaded.table.columns} == {1}


@pytest.mark.parametrize("plain", [False, True], ids=["coded", "plain-paths"])
def test_files_whose_groups_have_the_paths_of_all_are_loaded(
    ten_tars: Selection, tmp_path: Path, plain: bool
) -> None:
    metadata = {METADATA: json.dumps({"version": 1, "media": {"image": "image"}})}
    table = ten_tars.table.replace_schema_metadata(metadata)
    if plain:
        table = table.set_column(1, "image", without_codes(table["image"]))
    # All paths in each of the groups.
    pq.write_table(table, tmp_path / "old.parquet", row_group_size=7, compression="zstd")

    loaded = Selection.load(tmp_path / "old.parquet")

    assert refs_of(loaded) == refs_of(ten_tars)
    assert loaded.table.equals(table.replace_schema_metadata(None))
    assert loaded.fingerprint == ten_tars.fingerprint


def test_a_slice_is_saved_without_the_paths_of_the_rest(
    ten_tars: Selection, tmp_path: Path
) -> None:
    piece = Selection(ten_tars.table.slice(35, 10), ten_tars.media)

    piece.save(tmp_path / "piece.parquet")

    loaded = Selection.load(tmp_path / "piece.parquet")
    assert refs_of(loaded) == refs_of(piece)
    paths = loaded.table["image"].chunk(0).field("path")
    assert paths.dictionary.to_pylist() == ["/3.tar", "/4.tar"]


def test_damage_anywhere_is_refused_as_a_file_that_is_not_readable(
    ten_tars: Selection, tmp_path: Path
) -> None:
    target = tmp_path / "damaged.parquet"
    ten_tars.save(target)
    whole = target.read_bytes()
    refused = []
    for place in range(4, len(whole), 17):
        target.write_bytes(whole[:place] + bytes([whole[place] ^ 0xFF]) + whole[place + 1 :])
        try:
            Selection.load(target)
        except LayoutError as error:
            refused.append(str(error))

    assert len(refused) > 20
    assert all(message.startswith(f"{target}: ") for message in refused)


def test_a_file_without_the_column_of_a_medium_is_refused(tmp_path: Path) -> None:
    metadata = {METADATA: json.dumps({"version": 1, "media": {"image": "image"}})}
    table = pa.table({"__key__": ["a"]}).replace_schema_metadata(metadata)
    pq.write_table(table, tmp_path / "less.parquet")

    with pytest.raises(LayoutError, match=r"less.parquet: not a readable .*'image' is not in list"):
        Selection.load(tmp_path / "less.parquet")


def test_a_selection_travels_to_other_processes(selection: Selection) -> None:
    copy = pickle.loads(pickle.dumps(selection))

    assert copy.table.equals(selection.table)
    assert copy.media == selection.media
    assert copy.fingerprint == selection.fingerprint


def test_saving_replaces_a_file_and_leaves_nothing_else(
    selection: Selection, tmp_path: Path
) -> None:
    target = tmp_path / "selection.parquet"
    target.write_text("older")
    ordinary = tmp_path / "ordinary"
    ordinary.write_text("made by open()")

    selection.save(target)

    assert len(Selection.load(target)) == 6
    assert sorted(tmp_path.iterdir()) == [ordinary, target]
    assert target.stat().st_mode == ordinary.stat().st_mode


@pytest.mark.parametrize(
    "failure",
    [
        pytest.param(OSError(errno.ENOSPC, os.strerror(errno.ENOSPC)), id="full-disk"),
        pytest.param(KeyboardInterrupt(), id="interrupted"),
    ],
)
def test_saving_that_fails_leaves_the_old_file_and_no_half_of_a_new_one(
    selection: Selection,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    failure: BaseException,
) -> None:
    target = tmp_path / "selection.parquet"
    target.write_text("older")

    write_table = pq.ParquetWriter.write_table

    def write_half(writer: pq.ParquetWriter, *args: Any) -> None:
        write_table(writer, *args)
        raise failure

    monkeypatch.setattr(pq.ParquetWriter, "write_table", write_half)
    expected = StorageError if isinstance(failure, OSError) else KeyboardInterrupt

    with pytest.raises(expected) as caught:
        selection.save(target)

    assert list(tmp_path.iterdir()) == [target]
    assert target.read_text() == "older"
    if isinstance(failure, OSError):
        assert f"{target}: the selection cannot be written (No space left" in str(caught.value)


def test_a_place_that_cannot_be_written_to_is_refused(selection: Selection, tmp_path: Path) -> None:
    (tmp_path / "folder").mkdir()
    (tmp_path / "file").touch()
    places = {
        tmp_path / "nowhere" / "x.parquet": "No such file",
        tmp_path / "file" / "x.parquet": "Not a directory",
        tmp_path / "folder": "Is a directory",
    }

    for place, reason in places.items():
        with pytest.raises(StorageError, match=f"{place}: .*written .{reason}.*expected the name"):
            selection.save(place)

    assert sorted(tmp_path.iterdir()) == [tmp_path / "file", tmp_path / "folder"]


def test_a_foreign_parquet_file_is_refused(tmp_path: Path) -> None:
    pq.write_table(pa.table({"__key__": ["a"]}), tmp_path / "foreign.parquet")

    with pytest.raises(LayoutError, match=r"foreign.parquet: a Parquet file that holds no selec"):
        Selection.load(tmp_path / "foreign.parquet")


def test_a_selection_of_another_version_is_refused(tmp_path: Path) -> None:
    table = pa.table({"__key__": ["a"]}, metadata={METADATA: json.dumps({"version": 2})})
    pq.write_table(table, tmp_path / "later.parquet")

    with pytest.raises(
        LayoutError, match=r"later.parquet: holds a selection of version 2, exp.* 1"
    ):
        Selection.load(tmp_path / "later.parquet")


@pytest.mark.parametrize("kept", [0, 3, 1000])
def test_what_is_no_whole_parquet_file_is_refused(
    selection: Selection, tmp_path: Path, kept: int
) -> None:
    target = tmp_path / "cut.parquet"
    selection.save(target)
    target.write_bytes(target.read_bytes()[:kept])

    with pytest.raises(
        LayoutError, match=r"cut.parquet: not a readable Parquet file .*Selection.sa"
    ):
        Selection.load(target)


def test_a_file_that_cannot_be_read_is_refused(tmp_path: Path) -> None:
    with pytest.raises(StorageError, match=r"nowhere: cannot be read .No such file"):
        Selection.load(tmp_path / "nowhere")
    with pytest.raises(StorageError, match=r"cannot be read .Is a directory"):
        Selection.load(tmp_path)


def test_fingerprints_never_change() -> None:
    """A release with other ones cannot go on where an older one was."""
    rows: list[tuple[str, Ref]] = [
        ("id_0", (0, 5)),
        ("", (2**40, None)),
        ("\u00e4/\u65e5\u672c", None),
        ("x" * 300, (7, 0)),
        ("id_4", (512, 2**33)),
        ("id_5", (1, 1)),
    ]
    table = selection_of(rows).table
    table = table.append_column("umt5", table["image"].take(pa.array([5, 4, 3, 2, 1, 0])))
    keys = pa.array([f"id_{number * 7919 % 1000003}" for number in range(200_003)])
    many = {
        "position": np.arange(len(keys)) * 512,
        "size": np.arange(len(keys)) % 1000 + 1,
    }
    refs = pa.StructArray.from_arrays([pa.array(many[name]) for name in many], names=list(many))

    found = [
        Selection(table, {"umt5": "unknown", "image": "image"}),
        Selection(pa.table({"__key__": keys, "image": refs}), {"image": "image"}),
        Selection(pa.table({"__key__": pa.array([], pa.string())}), {}),
    ]

    assert [selection.fingerprint for selection in found] == [
        "25f68b1eac67bfa6eeb1031e67cc88c542b9805d602332a33ceb66c682777beb",
        "b72e058e756fed0c9b3578e380a8272343e0195077e06dcefc5e7a104050548f",
        "a6685f3b62d57bfc4935263140bae87fcd48088975c238c1c8455fa2c716659d",
    ]


@given(
    names=st.lists(st.text(max_size=4), max_size=9),
    type_=st.sampled_from(
        [
            pa.string(),
            pa.large_string(),
            pa.string_view(),
            pa.dictionary(pa.int32(), pa.string()),
            pa.dictionary(pa.int8(), pa.large_string()),
        ]
    ),
    cuts=st.tuples(st.integers(0, 9), st.integers(0, 9)),
    rows_at_once=st.sampled_from([1, 2, 2**16]),
)
def test_fingerprints_are_of_the_bytes_of_keys_however_arrow_holds_them(
    names: list[str], type_: pa.DataType, cuts: tuple[int, int], rows_at_once: int
) -> None:
    first, last = sorted(cuts)
    column = pa.chunked_array([pa.array([*names, "more"], pa.string()).cast(type_)])
    pieces = [column.slice(first, last - first), column.slice(last), column.slice(0, first)]
    chunks = [chunk for piece in pieces for chunk in piece.chunks]
    values = [value for chunk in chunks for value in chunk.to_pylist()]
    encoded = [value.encode() for value in values]
    digest = hashlib.sha256(f"1:{len(values)}".encode())
    digest.update(struct.pack(f"<{len(values)}q", *map(len, encoded)) + b"".join(encoded))

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("daft_twinwds.train.digest._ROWS_AT_ONCE", rows_at_once)
        found = Selection(pa.table({"__key__": pa.chunked_array(chunks, type_)}), {}).fingerprint

    assert found == digest.hexdigest()


def test_selections_made_by_hand_with_null_keys_have_no_fingerprint() -> None:
    selection = Selection(pa.table({"__key__": ["a", None, "b"]}), {})

    with pytest.raises(ValueError, match=r"1 of 3 keys are null; expected none; drop such rows"):
        _ = selection.fingerprint


@given(ours=samples, theirs=samples)
def test_fingerprints_are_equal_for_equal_samples_only(
    ours: list[tuple[str, Ref]], theirs: list[tuple[str, Ref]]
) -> None:
    same = selection_of(ours).fingerprint == selection_of(theirs).fingerprint

    assert same == (ours == theirs)


@pytest.mark.parametrize(
    "other",
    [
        pytest.param([("b", (1, 2)), ("a", (0, 1))], id="order"),
        pytest.param([("a", (0, 1)), ("c", (1, 2))], id="key"),
        pytest.param([("a", (0, 1)), ("b", (7, 2))], id="position"),
        pytest.param([("a", (0, 1)), ("b", (1, 7))], id="size"),
        pytest.param([("a", (0, 1)), ("b", (1, None))], id="whole-file"),
        pytest.param([("a", (0, 1)), ("b", None)], id="null"),
        pytest.param([("a", (0, 1))], id="fewer"),
        pytest.param([("ab", (0, 1)), ("", (1, 2))], id="same-letters"),
    ],
)
def test_another_sample_has_another_fingerprint(other: list[tuple[str, Ref]]) -> None:
    selection = selection_of([("a", (0, 1)), ("b", (1, 2))])

    assert selection_of(other).fingerprint != selection.fingerprint


def test_a_data_set_that_moved_keeps_its_fingerprint(
    root: Path, selection: Selection, tmp_path: Path
) -> None:
    moved = shutil.copytree(root, tmp_path / "elsewhere")

    there = Selection.from_dataframe(daft_twinwds.read_twin_webdataset(moved))

    assert refs_of(there)[0].path != refs_of(selection)[0].path
    assert there.fingerprint == selection.fingerprint


def test_captions_leave_the_fingerprint_alone(selection: Selection, tmp_path: Path) -> None:
    other = make_twin_dataset(
        tmp_path / "other",
        num_shards=2,
        samples_per_shard=3,
        caption=lambda sample: {"prompt": f"another caption of {sample}"},
    )

    there = Selection.from_dataframe(daft_twinwds.read_twin_webdataset(other))

    assert there.table["caption"] != selection.table["caption"]
    assert there.fingerprint == selection.fingerprint


def test_chunks_leave_the_fingerprint_alone(selection: Selection) -> None:
    table = selection.table
    chunked = pa.concat_tables([table.slice(0, 1), table.slice(1, 4), table.slice(5)])

    assert chunked.column("__key__").num_chunks == 3
    assert Selection(chunked, selection.media).fingerprint == selection.fingerprint


def test_another_process_finds_the_same_fingerprint(root: Path, selection: Selection) -> None:
    package = Path(daft_twinwds.__file__).parent.parent

    found = subprocess.run(
        [sys.executable, "-c", FINGERPRINT, root],
        env={**os.environ, "PYTHONPATH": str(package), "PYTHONHASHSEED": "7"},
        capture_output=True,
        text=True,
        timeout=60,
        check=True,
    )

    assert found.stdout.strip() == selection.fingerprint


def test_signatures_of_urls_are_not_saved(tmp_path: Path) -> None:
    secret = "X-Amz-Signature=0123456789abcdef"
    signed = f"https://user:password@host/data/image/000000.tar?{secret}"
    rows = daft.from_pydict({"__key__": ["a", "b"], "__url__": [signed, signed]}).with_column(
        "image", daft.functions.file(col("__url__"))
    )
    selection = Selection.from_dataframe(rows)
    path = tmp_path / "rows.parquet"

    selection.save(path)

    loaded = Selection.load(path)
    assert secret.encode() not in path.read_bytes()
    assert b"password" not in path.read_bytes()
    assert loaded.rows([1])[0]["image"].path == "https://host/data/image/000000.tar"
    assert loaded.rows([1])[0]["__url__"] == "https://host/data/image/000000.tar"
    assert loaded.fingerprint == selection.fingerprint
    assert selection.rows([1])[0]["image"].path == signed
