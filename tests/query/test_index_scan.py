"""Scans with an index: what they need not read, and which entries they do not believe."""

import asyncio
import json
import os
import struct
from collections.abc import Callable
from pathlib import Path
from typing import Any

import daft
import pyarrow.parquet as pq
import pytest
from daft.exceptions import DaftCoreException
from daft.io.pushdowns import Pushdowns

import daft_twinwds
from daft_twinwds.errors import LayoutError, SchemaError
from daft_twinwds.query import read
from daft_twinwds.query.source import TwinShardTask, TwinWebDatasetSource
from daft_twinwds.shards import index_file
from daft_twinwds.shards.arrow_file import ArrowFile
from daft_twinwds.testing import make_twin_dataset, write_tar
from daft_twinwds.tools.index import build_index

col: Any = daft.col  # Daft types its comparisons as truth values

PART = "part_000000"


def caption(number: int) -> dict[str, Any]:
    return {"prompt": f"picture {number}", "score": number / 2, "source": "ab"[number % 2]}


@pytest.fixture
def root(tmp_path: Path) -> Path:
    """Four shards of three samples, with an index."""
    root = make_twin_dataset(
        tmp_path / "twins",
        num_shards=4,
        samples_per_shard=3,
        image_size=[(64, 48), (40, 60)],
        caption=caption,
    )
    build_index(root)
    daft_twinwds.reset_scan_report()
    return root


def tar(root: Path, modality: str, shard: int) -> Path:
    return root / modality / PART / f"{shard:06d}.tar"


def index_of(root: Path) -> Path:
    return root / ".twin_index" / f"{PART}.parquet"


def spoil(path: Path) -> None:
    """Overwrite a file with zeros, in a way that nobody notices who does not read it."""
    state = path.stat()
    path.write_bytes(bytes(state.st_size))
    os.utime(path, ns=(state.st_atime_ns, state.st_mtime_ns))


def spoil_all(root: Path, *modalities: str) -> None:
    for modality in modalities:
        for path in (root / modality).rglob("*.tar"):
            spoil(path)


def keys(df: daft.DataFrame) -> list[str]:
    found: list[str] = df.select("__key__").to_pydict()["__key__"]
    return found


def names(*numbers: int) -> list[str]:
    return [f"id_{number}" for number in numbers]


@pytest.fixture
def shards_of(monkeypatch: pytest.MonkeyPatch) -> Callable[..., list[str]]:
    """Return the shards that are planned for a scan."""

    def shards_of(root: Path, pushdowns: Pushdowns, **kwargs: Any) -> list[str]:
        seen: list[TwinWebDatasetSource] = []
        monkeypatch.setattr(TwinWebDatasetSource, "read", lambda self: seen.append(self))
        read.read_twin_webdataset(root, **kwargs)
        monkeypatch.undo()

        async def collect() -> list[Any]:
            return [task async for task in seen[0].get_tasks(pushdowns)]

        tasks = asyncio.run(collect())
        assert all(isinstance(task, TwinShardTask) for task in tasks)
        return [task.shard.name.removeprefix(f"{PART}/").removesuffix(".tar") for task in tasks]

    return shards_of


def test_no_tar_is_read_where_the_index_holds(root: Path) -> None:
    before = daft_twinwds.read_twin_webdataset(root, index="off", picture_info=True).to_pylist()
    spoil_all(root, "image", "caption")

    df = daft_twinwds.read_twin_webdataset(root, index="require", picture_info=True)

    after = df.to_pylist()
    assert [row["caption"] for row in after] == [caption(i) | NO_PROMPTS for i in range(12)]
    assert [plain(row) for row in after] == [plain(row) for row in before]
    assert df.count_rows() == 12
    assert keys(df.limit(4)) == names(0, 1, 2, 3)
    assert keys(df.where(col("caption")["score"] >= 5)) == names(10, 11)
    assert keys(df.where(col("image_width") == 40)) == names(1, 3, 5, 7, 9, 11)
    assert daft_twinwds.scan_report() == {}


NO_PROMPTS = {"prompt_medium": None, "prompt_short": None}


def plain(row: dict[str, Any]) -> dict[str, Any]:
    return {**row, "image": (row["image"].path, row["image"].position)}


def test_off_reads_the_tars(root: Path) -> None:
    spoil_all(root, "caption")

    with pytest.raises(Exception, match=r"caption/part_000000/00000\d\.tar"):
        daft_twinwds.read_twin_webdataset(root, index="off").collect()


def test_without_texts_in_it_an_index_still_saves_the_headers_of_pictures(root: Path) -> None:
    build_index(root, text=False)
    spoil_all(root, "image")

    rows = daft_twinwds.read_twin_webdataset(root).where(col("caption")["score"] > 5).to_pylist()

    assert [row["__key__"] for row in rows] == ["id_11"]
    assert rows[0]["image"].position > 0
    assert daft_twinwds.scan_report() == {}


def rewritten(path: Path) -> None:
    members = [(f"{name}.json", json.dumps({"prompt": "new"}).encode()) for name in names(3, 4, 5)]
    write_tar(path, members)


def touched(path: Path) -> None:
    os.utime(path, ns=(0, path.stat().st_mtime_ns + 1))


def longer(path: Path) -> None:
    state = path.stat()
    with path.open("ab") as file:
        file.write(bytes(512))
    os.utime(path, ns=(state.st_atime_ns, state.st_mtime_ns))


@pytest.mark.parametrize("change", [rewritten, touched, longer])
def test_a_tar_that_has_changed_is_read(root: Path, change: Callable[[Path], None]) -> None:
    change(tar(root, "caption", 1))
    spoil_all(root, "image")
    expected = daft_twinwds.read_twin_webdataset(root, ["caption"], index="off").to_pylist()

    rows = daft_twinwds.read_twin_webdataset(root, ["caption"]).to_pylist()

    assert rows == expected
    assert daft_twinwds.scan_report() == {"shard changed since its index was built": 1}
    with pytest.raises(
        LayoutError,
        match=r"twins/part_000000/000001.tar: .*caption/part_000000/000001.tar has changed since; "
        r"expected an index that holds.*daft-twinwds index /.*/twins",
    ):
        daft_twinwds.read_twin_webdataset(root, ["caption"], index="require")


def test_only_the_tars_that_a_query_needs_must_be_those_that_were_indexed(root: Path) -> None:
    write_tar(tar(root, "image", 2), [("id_6.jpg", b"x")])

    df = daft_twinwds.read_twin_webdataset(root)

    assert keys(df.where(col("caption")["source"] == "a")) == names(0, 2, 4, 6, 8, 10)
    assert daft_twinwds.scan_report() == {}
    with pytest.raises(DaftCoreException, match="lacks 2 of 3 keys"):
        df.collect()
    assert daft_twinwds.scan_report() == {"shard changed since its index was built": 1}


def test_a_tar_that_is_gone_or_new_is_noticed(root: Path) -> None:
    taken = tar(root, "image", 3).read_bytes()
    tar(root, "image", 3).unlink()

    gone = daft_twinwds.read_twin_webdataset(root, on_missing="null")
    with_nulls = gone.where(col("image").is_null())
    assert keys(with_nulls) == names(9, 10, 11)
    assert keys(daft_twinwds.read_twin_webdataset(root, on_missing="skip")) == names(*range(9))
    with pytest.raises(LayoutError, match=r"image/part_000000/000003\.tar"):
        daft_twinwds.read_twin_webdataset(root)

    build_index(root)
    tar(root, "image", 3).write_bytes(taken)
    daft_twinwds.reset_scan_report()
    back = daft_twinwds.read_twin_webdataset(root, on_missing="null")
    assert back.where(col("image").not_null()).count_rows() == 12
    assert daft_twinwds.scan_report() == {"shard changed since its index was built": 1}


def test_a_shard_that_is_new_is_read(root: Path) -> None:
    for modality, suffix in (("image", "jpg"), ("caption", "json")):
        write_tar(tar(root, modality, 4), [(f"id_12.{suffix}", b'{"prompt": "new"}')])
    manifest = json.loads((root / "wdinfo.json").read_text())
    manifest["data_list"].append(f"{PART}/000004.tar")
    manifest["data_list_key_count"].append(1)
    manifest["total_key_count"] += 1
    (root / "wdinfo.json").write_text(json.dumps(manifest))

    assert keys(daft_twinwds.read_twin_webdataset(root)) == names(*range(13))
    assert daft_twinwds.read_twin_webdataset(root).count_rows() == 13
    assert daft_twinwds.scan_report() == {"shard not in its index": 2}
    with pytest.raises(LayoutError, match=r"does not tell of part_000000/000004\.tar"):
        daft_twinwds.read_twin_webdataset(root, index="require")


def test_without_an_index_nothing_is_counted_and_require_says_so(root: Path) -> None:
    index_of(root).unlink()

    assert daft_twinwds.read_twin_webdataset(root).count_rows() == 12
    assert daft_twinwds.scan_report() == {}
    with pytest.raises(LayoutError, match=r"\.twin_index/part_000000\.parquet: is not there"):
        daft_twinwds.read_twin_webdataset(root, index="require")


def cut(data: bytes) -> bytes:
    return data[: len(data) // 2]


def emptied(data: bytes) -> bytes:
    return b""


def foreign(data: bytes) -> bytes:
    return b"PAR1" + bytes(100) + b"PAR1"


def without_summary(data: bytes) -> bytes:
    return data.replace(b"daft_twinwds.index", b"some_other.summary")


def with_a_spoilt_summary(data: bytes) -> bytes:
    place = data.rindex(b"daft_twinwds.index_version") - 500
    return data[:place] + bytes([data[place] ^ 1]) + data[place + 1 :]


@pytest.mark.parametrize("damage", [cut, emptied, foreign, without_summary, with_a_spoilt_summary])
def test_a_damaged_index_is_not_used(root: Path, damage: Callable[[bytes], bytes]) -> None:
    index_of(root).write_bytes(damage(index_of(root).read_bytes()))

    assert keys(daft_twinwds.read_twin_webdataset(root)) == names(*range(12))
    assert sum(daft_twinwds.scan_report().values()) == 4
    with pytest.raises(LayoutError, match=r"part_000000\.parquet: .*daft-twinwds index"):
        daft_twinwds.read_twin_webdataset(root, index="require")


def test_no_flipped_bit_of_an_index_changes_a_row(root: Path) -> None:
    sound = index_of(root).read_bytes()
    query = ["__key__", "image", "caption", "image_height"]
    expected = [
        plain(row)
        for row in daft_twinwds.read_twin_webdataset(root, index="off", picture_info=True)
        .select(*query)
        .to_pylist()
    ]

    for place in range(0, len(sound), 41):
        flipped = bytearray(sound)
        flipped[place] ^= 1 << place % 8
        index_of(root).write_bytes(flipped)
        df = daft_twinwds.read_twin_webdataset(root, picture_info=True)
        rows = [plain(row) for row in df.select(*query).to_pylist()]
        assert rows == expected, place


def test_damage_inside_the_rows_is_found_when_they_are_read(root: Path) -> None:
    data = bytearray(index_of(root).read_bytes())
    first = pq.ParquetFile(index_of(root)).metadata.row_group(2).column(0)
    data[first.data_page_offset + first.total_compressed_size - 2] ^= 0xFF
    index_of(root).write_bytes(data)

    assert keys(daft_twinwds.read_twin_webdataset(root)) == names(*range(12))
    assert daft_twinwds.scan_report() == {"shard in an unreadable index": 1}
    with pytest.raises(DaftCoreException, match=r"000002\.tar: .*part_000000\.parquet: cannot be"):
        daft_twinwds.read_twin_webdataset(root, index="require").collect()


def test_an_index_of_another_version_is_not_used(root: Path) -> None:
    table = pq.ParquetFile(index_of(root))
    metadata = {**table.metadata.metadata, b"daft_twinwds.index_version": b"0"}
    rows = table.read().replace_schema_metadata(metadata)
    table.close()
    pq.write_table(rows, index_of(root))

    assert daft_twinwds.read_twin_webdataset(root).count_rows() == 12
    assert daft_twinwds.scan_report() == {"shard in an index of another version": 4}
    with pytest.raises(LayoutError, match="version 0 was found, expected 1"):
        daft_twinwds.read_twin_webdataset(root, index="require")


def test_an_index_of_another_key_rule_is_not_used(tmp_path: Path) -> None:
    write_tar(tmp_path / "image/0.tar", [("a.b.jpg", b"x")])
    build_index(tmp_path)
    daft_twinwds.reset_scan_report()

    assert keys(daft_twinwds.read_twin_webdataset(tmp_path)) == ["a.b"]
    assert keys(daft_twinwds.read_twin_webdataset(tmp_path, key_split="first")) == ["a"]
    assert daft_twinwds.scan_report() == {"shard in an index of another key_split": 1}
    with pytest.raises(LayoutError, match="built with key_split='last', wanted 'first'"):
        daft_twinwds.read_twin_webdataset(tmp_path, key_split="first", index="require")
    build_index(tmp_path, key_split="first")
    spoil_all(tmp_path, "image")
    assert keys(daft_twinwds.read_twin_webdataset(tmp_path, key_split="first")) == ["a"]


def test_an_index_of_other_modalities_is_used_for_those_that_it_has(root: Path) -> None:
    build_index(root, ["caption"])
    spoil_all(root, "caption")

    df = daft_twinwds.read_twin_webdataset(root, ["caption"])
    assert df.where(col("caption")["score"] > 5).count_rows() == 1
    assert daft_twinwds.scan_report() == {}
    with pytest.raises(LayoutError, match=r"image/part_000000/000000\.tar, only of caption"):
        daft_twinwds.read_twin_webdataset(root, index="require")


def test_renamed_columns_use_the_index(root: Path) -> None:
    spoil_all(root, "image", "caption")

    df = daft_twinwds.read_twin_webdataset(
        root, {"words": "caption", "picture": "image"}, index="require", picture_info=True
    )

    assert df.column_names[2:4] == ["words", "picture"]
    assert df.where(col("words")["score"] == 2).select("picture_width").to_pydict() == {
        "picture_width": [64]
    }


def test_a_declared_type_is_served_as_far_as_the_values_are_the_same(root: Path) -> None:
    part = {"caption": daft.DataType.struct({"prompt": daft.DataType.string()})}
    more = {
        "caption": daft.DataType.struct(
            {
                "source": daft.DataType.string(),
                "never": daft.DataType.int64(),
                "score": daft.DataType.float64(),
                "prompt": daft.DataType.string(),
            }
        )
    }

    with pytest.raises(DaftCoreException, match=r"\.tar: 'id_\d+.json' .*field 'score'"):
        daft_twinwds.read_twin_webdataset(root, schema=part).collect()
    ignored = daft_twinwds.read_twin_webdataset(root, schema=part, extra_fields="ignore")
    assert ignored.to_pydict()["caption"][5] == {"prompt": "picture 5"}
    assert daft_twinwds.scan_report()["extra field caption.score"] >= 12
    spoil_all(root, "caption")
    df = daft_twinwds.read_twin_webdataset(root, schema=more)
    assert df.to_pydict()["caption"][5] == {
        "source": "b",
        "never": None,
        "score": 2.5,
        "prompt": "picture 5",
    }


def test_the_index_tells_fields_that_no_sampled_shard_has(tmp_path: Path) -> None:
    for shard in range(20):
        document = {"prompt": "x", "rare": 1} if shard == 3 else {"prompt": "x"}
        members = [("a.json", json.dumps(document).encode())]
        write_tar(tmp_path / f"caption/{PART}/{shard:06d}.tar", members)
    sampled = daft_twinwds.read_twin_webdataset(tmp_path)
    with pytest.raises(DaftCoreException, match="rare"):
        sampled.collect()

    build_index(tmp_path)

    df = daft_twinwds.read_twin_webdataset(tmp_path)
    assert "rare" in df.schema()["caption"].dtype.fields
    assert df.where(col("caption")["rare"] == 1).count_rows() == 1


def test_shards_that_contradict_each_other_are_an_error_as_without_an_index(
    tmp_path: Path,
) -> None:
    for shard, document in enumerate([{"a": 1}, {"a": "text"}]):
        write_tar(tmp_path / f"c/{shard}.tar", [("k.json", json.dumps(document).encode())])

    report = build_index(tmp_path)

    assert list(report.texts_left_out) == [f"{tmp_path}/1.tar"]
    with pytest.raises(SchemaError, match=r"integer in .*0\.tar.* and text in .*1\.tar"):
        daft_twinwds.read_twin_webdataset(tmp_path)


PRUNED: dict[str, tuple[Callable[[], Any], list[str]]] = {
    "number": (lambda: col("caption")["score"] > 4.9, ["000003"]),
    "both sides": (
        lambda: (col("caption")["score"] >= 2) & ~(col("caption")["score"] >= 3),
        ["000001"],
    ),
    "text": (lambda: col("caption")["prompt"] == "picture 0", ["000000"]),
    "key": (lambda: col("__key__").is_in(["id_1", "id_9"]), ["000000", "000003"]),
    "url": (lambda: col("__url__").is_null(), []),
    "picture": (lambda: col("image_height") > 60, []),
    "null": (lambda: col("caption")["source"].is_null(), []),
    "never": (lambda: (col("caption")["score"] < 0) | (col("image_format") == "PNG"), []),
    "function": (
        lambda: col("caption")["prompt"].contains("zzz"),
        ["000000", "000001", "000002", "000003"],
    ),
}


@pytest.mark.parametrize("name", PRUNED)
def test_shards_that_a_filter_excludes_are_not_planned(
    root: Path, shards_of: Callable[..., list[str]], name: str
) -> None:
    condition, left = PRUNED[name]

    assert shards_of(root, Pushdowns(filters=condition()), picture_info=True) == left
    assert shards_of(root, Pushdowns(), picture_info=True, where=condition()) == left
    assert len(shards_of(root, Pushdowns(filters=condition()), picture_info=True, index="off")) == 4


def test_a_stale_entry_excludes_nothing(root: Path, shards_of: Callable[..., list[str]]) -> None:
    rewritten(tar(root, "caption", 1))

    condition = col("caption")["score"] > 4.9
    assert shards_of(root, Pushdowns(filters=condition)) == ["000001", "000003"]


def test_twins_that_disagree_are_an_error_even_if_no_row_matches(tmp_path: Path) -> None:
    write_tar(tmp_path / "label/0.tar", [("a.cls", b"1"), ("b.cls", b"2")])
    write_tar(tmp_path / "index/0.tar", [("a.index", b"1")])
    build_index(tmp_path)
    df = daft_twinwds.read_twin_webdataset(tmp_path)

    assert df.where(col("label") > 5).count_rows() == 0
    with pytest.raises(DaftCoreException, match="lacks 1 of 2 keys"):
        df.where((col("label") > 5) & (col("index") > 5)).count_rows()


def test_limit_plans_by_the_index(root: Path, shards_of: Callable[..., list[str]]) -> None:
    spoil_all(root, "image", "caption")

    assert shards_of(root, Pushdowns(limit=4)) == ["000000", "000001"]
    assert shards_of(root, Pushdowns(limit=3)) == ["000000"]


def test_a_filter_reads_only_the_fields_that_it_looks_at(
    root: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked: list[list[str]] = []
    read_columns = index_file.IndexFile.read

    def noted(self: Any, entry: Any, columns: list[str]) -> Any:
        asked.append(list(columns))
        return read_columns(self, entry, columns)

    monkeypatch.setattr(index_file.IndexFile, "read", noted)
    df = daft_twinwds.read_twin_webdataset(root).where(col("caption")["score"] > 4.9)

    assert df.count_rows() == 2
    assert {name for names in asked for name in names} <= {"caption/text.score", "key"}
    asked.clear()
    assert df.select("image").to_pydict()["image"]
    late = {name for names in asked for name in names} - {"caption/text.score"}
    assert late == {"image/position", "image/size"}


def test_picture_columns_are_made_only_if_they_are_asked_for(
    root: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    df = daft_twinwds.read_twin_webdataset(root, index="off", picture_info=True)
    monkeypatch.setattr("daft_twinwds.query.tar_reading.read_infos", None)

    assert df.column_names[-3:] == ["image_width", "image_height", "image_format"]
    assert df.select("image").count_rows() == 12
    assert df.where(col("caption")["score"] > 5).select("__key__", "image").count_rows() == 1
    with pytest.raises(DaftCoreException, match="not callable"):
        df.select("image_format").collect()


@pytest.mark.parametrize("index", ["auto", "off"])
def test_pictures_without_a_header_have_nulls_and_are_counted(tmp_path: Path, index: Any) -> None:
    good = make_twin_dataset(tmp_path / "good", num_shards=1, samples_per_shard=1)
    (picture,) = daft_twinwds.read_twin_webdataset(good).to_pydict()["image"]
    with picture.open() as file:
        content = file.read()
    root = tmp_path / "twins"
    members = [("a.jpg", content), ("b.jpg", b"no picture"), ("c.jpg", content[:30])]
    write_tar(root / "image/0.tar", members)
    report = build_index(root)
    daft_twinwds.reset_scan_report()

    df = daft_twinwds.read_twin_webdataset(root, index=index, picture_info=True)

    assert df.select("image_width", "image_height", "image_format").to_pydict() == {
        "image_width": [64, None, None],
        "image_height": [48, None, None],
        "image_format": ["JPEG", None, None],
    }
    assert report.unreadable_pictures == 2
    assert daft_twinwds.scan_report() == {"picture header that could not be read": 2}


def test_sizes_are_those_of_the_picture_as_it_is_shown(root: Path) -> None:
    (picture, *_) = daft_twinwds.read_twin_webdataset(root).to_pydict()["image"]
    with picture.open() as file:
        content = file.read()
    tiff = b"II*\0" + struct.pack("<IHHHIII", 8, 1, 0x0112, 3, 1, 6, 0)
    segment = b"Exif\0\0" + tiff
    turned = content[:2] + b"\xff\xe1" + struct.pack(">H", len(segment) + 2) + segment + content[2:]
    members = [("id_0.jpg", turned), ("id_1.jpg", content), ("id_2.jpg", content)]
    write_tar(tar(root, "image", 0), members)

    for _ in range(2):
        sizes = daft_twinwds.read_twin_webdataset(root, picture_info=True).select(
            "image_width", "image_height"
        )
        assert sizes.to_pylist()[:2] == [
            {"image_width": 48, "image_height": 64},
            {"image_width": 64, "image_height": 48},
        ]
        build_index(root)


def test_a_modality_that_has_the_name_of_a_picture_column_is_refused(tmp_path: Path) -> None:
    write_tar(tmp_path / "image/0.tar", [("a.jpg", b"x")])
    write_tar(tmp_path / "image_width/0.tar", [("a.cls", b"1")])

    assert daft_twinwds.read_twin_webdataset(tmp_path).count_rows() == 1
    with pytest.raises(ValueError, match="picture_info: 'image_width' is a modality already"):
        daft_twinwds.read_twin_webdataset(tmp_path, picture_info=True)


def test_an_index_that_is_replaced_while_it_is_read_is_not_mixed_with_the_new_one(
    root: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    df = daft_twinwds.read_twin_webdataset(root)
    new = index_of(root).read_bytes()

    def replacing(*arguments: Any) -> ArrowFile:
        index_of(root).with_suffix(".new").write_bytes(new + b"PAR1")
        index_of(root).with_suffix(".new").replace(index_of(root))
        return ArrowFile(*arguments)

    monkeypatch.setattr(index_file, "ArrowFile", replacing)

    assert keys(df) == names(*range(12))
    assert daft_twinwds.scan_report().keys() == {"shard in an unreadable index"}


def test_wrong_use_of_the_index_is_refused(root: Path) -> None:
    with pytest.raises(ValueError, match="index must be one of"):
        daft_twinwds.read_twin_webdataset(root, index="always")  # type: ignore[arg-type]


@pytest.mark.parametrize("index", ["auto", "off"])
def test_the_engine_sees_the_same_rows(root: Path, index: Any) -> None:
    df = daft_twinwds.read_twin_webdataset(root, index=index, picture_info=True)

    scores = df.where(col("caption")["score"].between(1, 3) & (col("image_width") == 64))
    joined = df.select("__key__", "image_format").join(
        daft.from_pydict({"__key__": names(3, 5), "extra": [1, 2]}), on="__key__"
    )
    groups = df.groupby(col("caption")["source"].alias("source")).agg(col("__key__").count())

    assert scores.select(col("caption")["prompt"]).to_pydict() == {
        "prompt": ["picture 2", "picture 4", "picture 6"]
    }
    assert sorted(joined.to_pydict()["extra"]) == [1, 2]
    assert sorted(groups.to_pydict()["__key__"]) == [6, 6]
    assert len(df.select(daft.lit(1).alias("one")).to_pylist()) == 12
    assert keys(df.offset(5).limit(3)) == names(5, 6, 7)
