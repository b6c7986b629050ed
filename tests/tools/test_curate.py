"""Curation: what it keeps, in which bytes, and what it refuses."""

import io
import json
import shutil
import tarfile
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

import daft
import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from PIL import Image, ImageDraw

import daft_twinwds
from daft_twinwds.errors import AlignmentError, LayoutError, SchemaError, TwinWebDatasetError
from daft_twinwds.testing import encode_jpeg, make_twin_dataset, write_tar
from daft_twinwds.tools.curate import CurationProgress, curate
from daft_twinwds.tools.index import build_index
from daft_twinwds.tools.picture_hash import difference_hash

col: Any = daft.col  # Daft types its comparisons as truth values

Tree = dict[str, bytes]


def tree(root: Path) -> Tree:
    return {
        str(path.relative_to(root)): path.read_bytes()
        for path in sorted(root.rglob("*"))
        if path.is_file()
    }


def tar_name(number: int) -> str:
    return f"part_000000/{number:06d}.tar"


def members(path: Path) -> list[tuple[str, bytes]]:
    with tarfile.open(path) as tar:
        return [(info.name, tar.extractfile(info).read()) for info in tar]  # type: ignore[union-attr]


def keys(root: Path) -> list[str]:
    rows: list[str] = daft_twinwds.read_twin_webdataset(root).to_pydict()["__key__"]
    return rows


def dropped_rows(root: Path) -> list[tuple[Any, ...]]:
    """The lines of the report: key, shard, reason, and key and shard of what stays instead."""
    lines = [json.loads(line) for line in (root / "curate_report.jsonl").read_bytes().splitlines()]
    names = ("key", "shard", "reason", "kept_key", "kept_shard")
    assert all(tuple(line) == names for line in lines)
    return [tuple(line.values()) for line in lines]


def picture(seed: int, width: int = 64, height: int = 48) -> np.ndarray[Any, Any]:
    """Some coloured tiles."""
    tiles = np.random.default_rng(seed).integers(0, 256, (6, 8, 3), dtype=np.uint8)
    image = Image.fromarray(tiles).resize((width, height), Image.Resampling.NEAREST)
    return np.asarray(image)


def jpeg(seed: int, width: int = 64, height: int = 48, quality: int = 90) -> bytes:
    return encode_jpeg(picture(seed, width, height), quality)


def write_twins(
    root: Path,
    shards: Sequence[Mapping[str, bytes]],
    captions: Mapping[str, bytes] | None = None,
    suffix: str = "jpg",
) -> Path:
    """Write pictures by key, each with a caption of its own."""
    for number, pictures in enumerate(shards):
        write_tar(
            root / "image" / tar_name(number),
            [(f"{key}.{suffix}", data) for key, data in pictures.items()],
        )
        texts = [
            (
                f"{key}.json",
                (captions or {}).get(key) or json.dumps({"prompt": key, "score": place}).encode(),
            )
            for place, key in enumerate(pictures)
        ]
        write_tar(root / "caption" / tar_name(number), texts)
    return root


@pytest.fixture
def landscapes(tmp_path: Path) -> Path:
    sizes = [(64, 48), (80, 60), (96, 72)]
    return make_twin_dataset(
        tmp_path / "in", num_shards=4, samples_per_shard=5, image_size=sizes, seed=3
    )


def test_without_conditions_all_is_copied(landscapes: Path, tmp_path: Path) -> None:
    report = curate(landscapes, tmp_path / "out")

    assert (report.num_rows, report.num_kept, report.dropped) == (20, 20, {})
    assert (report.num_shards, report.num_written) == (4, 4)
    copied, given_ = tree(tmp_path / "out"), tree(landscapes)
    assert report.num_bytes == sum(map(len, copied.values())) - len(copied["wdinfo.json"])
    assert copied.pop("curate_report.jsonl") == b""
    for name in given_:
        if name.endswith(".tar"):
            assert members(tmp_path / "out" / name) == members(landscapes / name)
    assert copied.keys() == given_.keys()
    assert json.loads(copied["wdinfo.json"]) == {
        "data_keys": ["image", "caption"],
        "data_list": [tar_name(number) for number in range(4)],
        "data_list_key_count": [5] * 4,
        "root": str(tmp_path / "out"),
        "total_key_count": 20,
    }


def test_members_that_stay_keep_their_bytes_and_order(landscapes: Path, tmp_path: Path) -> None:
    curate(landscapes, tmp_path / "out", where="caption.score > 5", min_width=70)

    expected = daft_twinwds.read_twin_webdataset(landscapes, picture_info=True)
    expected = expected.where((col("caption")["score"] > 5) & (col("image_width") >= 70))
    wanted = expected.to_pydict()["__key__"]
    assert 0 < len(wanted) < 20
    assert keys(tmp_path / "out") == wanted
    for name in tree(tmp_path / "out"):
        if name.endswith(".tar"):
            kept = [
                (member, data)
                for member, data in members(landscapes / name)
                if member.rpartition(".")[0] in wanted
            ]
            assert members(tmp_path / "out" / name) == kept


def test_sql_and_expressions_give_equal_bytes_with_any_number_of_workers(
    landscapes: Path, tmp_path: Path
) -> None:
    condition = (col("caption")["score"] > 5) & (col("image_height") >= 60)
    trees = []
    for workers, where in [(1, "caption.score > 5 AND image_height >= 60"), (7, condition)]:
        curate(landscapes, tmp_path / "out", where=where, duplicates="picture", workers=workers)
        trees.append(tree(tmp_path / "out"))
        shutil.rmtree(tmp_path / "out")

    assert trees[0] == trees[1]
    assert len(trees[0]) > 3


def test_an_index_gives_equal_bytes(landscapes: Path, tmp_path: Path) -> None:
    arguments: dict[str, Any] = {"where": "caption.score > 5", "min_width": 70}
    first = curate(landscapes, tmp_path / "out", **arguments)
    expected = tree(tmp_path / "out")
    shutil.rmtree(tmp_path / "out")
    build_index(landscapes)

    second = curate(landscapes, tmp_path / "out", index="require", **arguments)

    assert tree(tmp_path / "out") == expected
    assert asdict(second) | {"seconds": 0} == asdict(first) | {"seconds": 0}


def test_a_source_on_a_server_gives_equal_bytes(
    landscapes: Path, tmp_path: Path, range_server: Any
) -> None:
    arguments: dict[str, Any] = {"where": "caption.score > 5", "duplicates": "picture"}
    curate(landscapes, tmp_path / "out", **arguments)
    expected = tree(tmp_path / "out")
    shutil.rmtree(tmp_path / "out")

    report = curate(range_server.serve(landscapes, "/twins"), tmp_path / "out", **arguments)

    assert tree(tmp_path / "out") == expected
    assert report.num_rows == 20


def test_rows_are_dropped_for_one_reason_each(tmp_path: Path) -> None:
    pictures = {
        "good": jpeg(1, 80),
        "filtered": jpeg(2, 80),
        "small": jpeg(3, 40),
        "low": jpeg(4, 80, 30),
        "cut": jpeg(5, 80)[:-200],
        "equal": jpeg(1, 80),
    }
    root = write_twins(tmp_path / "in", [pictures])

    report = curate(
        root,
        tmp_path / "out",
        where="caption.prompt <> 'filtered'",
        min_width=70,
        min_height=40,
        duplicates="picture",
    )

    assert report.dropped == {"where": 1, "too small": 2, "undecodable": 1, "duplicate": 1}
    assert (report.num_rows, report.num_kept) == (6, 1)
    assert keys(tmp_path / "out") == ["good"]
    assert dropped_rows(tmp_path / "out") == [
        ("cut", tar_name(0), "undecodable", None, None),
        ("equal", tar_name(0), "duplicate", "good", tar_name(0)),
    ]


def test_of_equal_pictures_the_first_in_the_order_of_the_data_set_stays(tmp_path: Path) -> None:
    shards = [
        {"a": jpeg(1), "b": jpeg(2), "c": jpeg(1)},
        {"d": jpeg(3)},
        {"e": jpeg(2), "f": jpeg(3), "g": jpeg(4)},
    ]
    root = write_twins(tmp_path / "in", shards)

    report = curate(root, tmp_path / "out", duplicates="bytes", workers=3)

    assert keys(tmp_path / "out") == ["a", "b", "d", "g"]
    assert report.dropped == {"duplicate": 3}
    assert dropped_rows(tmp_path / "out") == [
        ("c", tar_name(0), "duplicate", "a", tar_name(0)),
        ("e", tar_name(2), "duplicate", "b", tar_name(0)),
        ("f", tar_name(2), "duplicate", "d", tar_name(1)),
    ]


def test_only_hashes_of_what_is_shown_find_copies_in_other_sizes_and_formats(
    tmp_path: Path,
) -> None:
    # Of even tiles, so that no difference is near the threshold.
    image = Image.fromarray(picture(1, 160, 96))
    png = io.BytesIO()
    image.save(png, "PNG")
    small = encode_jpeg(np.asarray(image.resize((80, 48))), 95)
    shards = [{"a": jpeg(1, 160, 96), "b": png.getvalue(), "c": small, "d": jpeg(2, 160, 96)}]
    root = write_twins(tmp_path / "in", shards)

    curate(root, tmp_path / "shown", duplicates="picture")
    curate(root, tmp_path / "bytes", duplicates="bytes")

    assert keys(tmp_path / "shown") == ["a", "d"]
    assert [row[0::3] for row in dropped_rows(tmp_path / "shown")] == [("b", "a"), ("c", "a")]
    assert keys(tmp_path / "bytes") == ["a", "b", "c", "d"]


def on_white(colour: str, text: str = "") -> bytes:
    """A large circle."""
    image = Image.new("RGB", (400, 400), "white")
    draw = ImageDraw.Draw(image)
    draw.ellipse((100, 100, 300, 300), fill=colour)
    draw.text((150, 180), text, fill="white", font_size=30)
    return encode_jpeg(np.asarray(image), 92)


def test_pictures_that_only_have_a_hash_in_common_stay(tmp_path: Path) -> None:
    pictures = {
        "red": on_white("#b41414"),
        "blue": on_white("#1414b4"),
        "black": on_white("#1e1e1e", "SALE 50%"),
    }
    copies = {f"{key} again": data for key, data in reversed(pictures.items())}
    assert len({difference_hash(data) for data in pictures.values()}) == 1
    root = write_twins(tmp_path / "in", [pictures, copies])

    curate(root, tmp_path / "out", duplicates="picture")

    assert keys(tmp_path / "out") == ["red", "blue", "black"]
    # Each goes for its own first, though all have one hash.
    assert [row[0::3] for row in dropped_rows(tmp_path / "out")] == [
        ("black again", "black"),
        ("blue again", "blue"),
        ("red again", "red"),
    ]


def test_no_scene_of_many_is_taken_for_another(tmp_path: Path) -> None:
    # Those of id_212 and id_287 have the same hash.
    root = make_twin_dataset(
        tmp_path / "in", num_shards=12, samples_per_shard=40, image_size=(480, 270)
    )

    report = curate(root, tmp_path / "out", duplicates="picture")

    assert (report.num_rows, report.num_kept, report.dropped) == (480, 480, {})


def test_each_candidate_is_compared_with_those_that_stay_in_order(tmp_path: Path) -> None:
    # Steps of one level: the third is too far from the first, and close to the second alone.
    blocks = np.kron(np.arange(8) % 2 * 100 + 50, np.ones(8)).astype(np.uint8)
    pictures = {}
    for place in range(9):
        pixels = np.broadcast_to(blocks[None, :, None] + np.uint8(place), (64, 64, 3))
        buffer = io.BytesIO()
        Image.fromarray(np.ascontiguousarray(pixels)).save(buffer, "PNG")
        pictures[f"{place}"] = buffer.getvalue()
    assert len({difference_hash(data) for data in pictures.values()}) == 1
    root = write_twins(tmp_path / "in", [pictures], suffix="png")

    curate(root, tmp_path / "out", duplicates="picture")

    # Two levels apart are close, three are not.
    assert keys(tmp_path / "out") == ["0", "3", "6"]
    assert [row[0::3] for row in dropped_rows(tmp_path / "out")] == [
        ("1", "0"), ("2", "0"), ("4", "3"), ("5", "3"), ("7", "6"), ("8", "6"),
    ]  # fmt: skip


def test_the_result_does_not_depend_on_how_many_are_compared_at_a_time(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    shards = [
        {f"{quality}_{seed}": jpeg(seed, 160, 96, quality) for seed in seeds}
        for quality, seeds in ((90, range(6)), (95, range(3, 9)), (97, range(8, -1, -1)))
    ]
    root = write_twins(tmp_path / "in", shards)
    first = curate(root, tmp_path / "out", duplicates="picture")
    expected = tree(tmp_path / "out")
    shutil.rmtree(tmp_path / "out")
    monkeypatch.setattr("daft_twinwds.tools.curate_doubles._MOST_THUMBNAILS", 3)
    monkeypatch.setattr("daft_twinwds.tools.curate_dropped._AT_ONCE", 2)

    second = curate(root, tmp_path / "out", duplicates="picture")

    assert tree(tmp_path / "out") == expected
    assert second.dropped == first.dropped
    # Hashes do not find all of the twelve.
    assert first.dropped["duplicate"] > 6


def test_a_curated_data_set_is_read_and_curated_as_any_other(tmp_path: Path) -> None:
    shards = [{"\u2028 \u00e9 1": jpeg(1), "b": jpeg(1)}, {"c": jpeg(1), "d": jpeg(2)}]
    root = write_twins(tmp_path / "in", shards)
    curate(root, tmp_path / "out", duplicates="picture")
    first = "\u2028 \u00e9 1"

    curate(tmp_path / "out", tmp_path / "second", duplicates="picture")

    assert keys(tmp_path / "out") == keys(tmp_path / "second") == [first, "d"]
    assert dropped_rows(tmp_path / "out") == [
        ("b", tar_name(0), "duplicate", first, tar_name(0)),
        ("c", tar_name(1), "duplicate", first, tar_name(0)),
    ]
    report = (tmp_path / "out" / "curate_report.jsonl").read_text()
    assert len(report.splitlines()) == 2
    assert (tmp_path / "second" / "curate_report.jsonl").read_bytes() == b""


def test_a_picture_without_a_readable_header_has_no_size(tmp_path: Path) -> None:
    root = write_twins(tmp_path / "in", [{"a": jpeg(1), "b": b"no picture"}])

    report = curate(root, tmp_path / "out", min_width=1)

    assert keys(tmp_path / "out") == ["a"]
    assert report.dropped == {"undecodable": 1}


def test_a_folder_with_signs_of_patterns_is_no_pattern(tmp_path: Path) -> None:
    root = write_twins(tmp_path / "in", [{"a": jpeg(1), "b": jpeg(1)}])
    output = tmp_path / "o[u]t {a,b} *?\\"

    curate(root, output, duplicates="bytes")

    assert sorted(tree(output)) == [
        f"caption/{tar_name(0)}",
        "curate_report.jsonl",
        f"image/{tar_name(0)}",
        "wdinfo.json",
    ]
    assert [name for name, _ in members(output / "image" / tar_name(0))] == ["a.jpg"]


def test_shards_without_a_row_are_left_out(tmp_path: Path) -> None:
    shards = [{"a": jpeg(1)}, {"b": jpeg(2)}, {"c": jpeg(3)}]
    root = write_twins(tmp_path / "in", shards)

    report = curate(root, tmp_path / "out", where="caption.prompt <> 'b'")

    assert sorted(tree(tmp_path / "out")) == [
        *(f"caption/{tar_name(n)}" for n in (0, 2)),
        "curate_report.jsonl",
        *(f"image/{tar_name(n)}" for n in (0, 2)),
        "wdinfo.json",
    ]
    assert (report.num_shards, report.num_written) == (3, 2)
    assert keys(tmp_path / "out") == ["a", "c"]


def test_a_data_set_that_nothing_is_left_of_is_read_as_one_without_rows(
    landscapes: Path, tmp_path: Path
) -> None:
    report = curate(landscapes, tmp_path / "out", where="caption.score > 100", duplicates="picture")

    assert (report.num_kept, report.num_written, report.num_bytes) == (0, 0, 0)
    assert keys(tmp_path / "out") == []


def test_leaves_keep_their_folders(tmp_path: Path) -> None:
    for number, ratio in enumerate(("1_1", "16_9", "9_16")):
        pictures = {f"{ratio}_{place}": jpeg(place + number) for place in range(2)}
        write_twins(tmp_path / "in" / f"aspect_ratio_{ratio}", [pictures])

    report = curate(tmp_path / "in", tmp_path / "out", exclude="9_16", duplicates="bytes")

    assert sorted(tree(tmp_path / "out")) == [
        f"aspect_ratio_{ratio}/{name}"
        for ratio in ("16_9", "1_1")
        for name in (f"caption/{tar_name(0)}", f"image/{tar_name(0)}", "wdinfo.json")
    ] + ["curate_report.jsonl"]
    assert dropped_rows(tmp_path / "out") == [
        ("1_1_1", f"aspect_ratio_1_1/{tar_name(0)}", "duplicate", "16_9_0",
         f"aspect_ratio_16_9/{tar_name(0)}"),
    ]  # fmt: skip
    assert report.dropped == {"duplicate": 1}
    assert keys(tmp_path / "out") == ["16_9_0", "16_9_1", "1_1_0"]


def test_only_the_modalities_asked_for_are_copied(landscapes: Path, tmp_path: Path) -> None:
    absolute = {"picture": str(landscapes / "image")}

    curate(landscapes, tmp_path / "out", modalities=["image"], duplicates="bytes")
    curate(landscapes, tmp_path / "other", modalities=absolute, min_height=50)

    files = {"curate_report.jsonl", "wdinfo.json"}
    assert {path.name for path in (tmp_path / "out").iterdir()} == {"image", *files}
    assert {path.name for path in (tmp_path / "other").iterdir()} == {"picture", *files}


def test_of_several_columns_of_pictures_one_has_to_be_named(tmp_path: Path) -> None:
    root = tmp_path / "in"
    for name, seeds in (("image", (1, 1)), ("depth", (3, 4))):
        pictures = [(f"{key}.jpg", jpeg(seed)) for key, seed in zip("ab", seeds, strict=True)]
        write_tar(root / name / tar_name(0), pictures)

    with pytest.raises(ValueError, match=r"picture must be one of .*'depth', 'image'.*got None"):
        curate(root, tmp_path / "out", duplicates="bytes")
    curate(root, tmp_path / "by_image", duplicates="bytes", picture="image")
    curate(root, tmp_path / "by_depth", duplicates="bytes", picture="depth")

    assert keys(tmp_path / "by_image") == ["a"]
    assert keys(tmp_path / "by_depth") == ["a", "b"]


def test_keys_that_a_twin_lacks_are_an_error_or_counted(tmp_path: Path) -> None:
    root = write_twins(tmp_path / "in", [{"a": jpeg(1), "b": jpeg(2)}])
    write_tar(root / "caption" / tar_name(0), [("a.json", b'{"prompt": "x"}')])

    with pytest.raises(AlignmentError, match="lacks 1 of 2 keys: 'b'"):
        curate(root, tmp_path / "strict", duplicates="bytes")
    report = curate(root, tmp_path / "out", duplicates="bytes", on_missing="skip")

    assert keys(tmp_path / "out") == ["a"]
    assert report.left_out == {"key missing in a modality": 1}
    assert (report.num_rows, report.num_kept) == (1, 1)


@pytest.mark.parametrize("where", [None, "caption.score >= 0"])
def test_texts_that_cannot_be_parsed_are_left_out_and_counted(
    tmp_path: Path, where: str | None
) -> None:
    pictures = {"a": jpeg(1), "b": jpeg(2), "c": jpeg(3)}
    root = write_twins(tmp_path / "in", [pictures], captions={"b": b'{"prompt": '})

    report = curate(root, tmp_path / "out", where=where, on_error="skip")

    assert keys(tmp_path / "out") == ["a", "c"]
    assert report.left_out == {"sample that could not be read": 1}
    assert (report.num_rows, report.dropped) == (2, {})


def test_damaged_tars_are_an_error_or_counted(tmp_path: Path) -> None:
    root = write_twins(tmp_path / "in", [{"a": jpeg(1), "b": jpeg(2)}, {"c": jpeg(3)}])
    damaged = root / "image" / tar_name(0)
    with tarfile.open(damaged) as tar:
        inside = tar.getmember("b.jpg").offset_data + 100
    damaged.write_bytes(damaged.read_bytes()[:inside])

    with pytest.raises(TwinWebDatasetError, match=f"{damaged}"):
        curate(root, tmp_path / "strict", duplicates="bytes")
    report = curate(root, tmp_path / "out", duplicates="bytes", on_error="skip")

    assert keys(tmp_path / "out") == ["a", "c"]
    assert report.left_out["damaged tar"] == 1


def test_names_that_no_tar_should_have_are_an_error_or_dropped(tmp_path: Path) -> None:
    root = tmp_path / "in"
    for modality, suffix in (("image", "jpg"), ("caption", "json")):
        data = jpeg(1) if suffix == "jpg" else b'{"prompt": "x"}'
        names = [f"../../b.{suffix}", f"a.{suffix}"]
        write_tar(root / modality / tar_name(0), [(name, data) for name in names])

    with pytest.raises(AlignmentError, match=r"'\.\./\.\./b.json' \(empty part, '.' or '..'"):
        curate(root, tmp_path / "strict")
    report = curate(root, tmp_path / "out", on_error="skip")

    assert keys(tmp_path / "out") == ["a"]
    assert report.dropped == {"unfit name": 1}
    assert dropped_rows(tmp_path / "out") == [("../../b", tar_name(0), "unfit name", None, None)]


@settings(max_examples=15, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    shards=st.lists(st.lists(st.integers(0, 5), min_size=1, max_size=5), min_size=1, max_size=4),
    least=st.integers(0, 4),
    workers=st.integers(1, 4),
)
def test_what_is_kept_is_what_a_plain_loop_keeps(
    tmp_path: Path, shards: list[list[int]], least: int, workers: int
) -> None:
    for folder in ("in", "out"):
        shutil.rmtree(tmp_path / folder, ignore_errors=True)
    pictures = [
        {f"{number}_{place}": b"%d" % content for place, content in enumerate(contents)}
        for number, contents in enumerate(shards)
    ]
    root = write_twins(tmp_path / "in", pictures)

    report = curate(
        root, tmp_path / "out", where=col("caption")["score"] >= least, duplicates="bytes",
        workers=workers,
    )  # fmt: skip

    expected, seen = [], set()
    for shard in pictures:
        for place, (key, data) in enumerate(shard.items()):
            if place >= least and data not in seen:
                seen.add(data)
                expected.append(key)
    assert keys(tmp_path / "out") == expected
    assert report.num_rows == sum(map(len, shards))
    assert report.num_rows == report.num_kept + sum(report.dropped.values())
    assert report.num_kept == len(expected)


def test_progress_tells_of_both_stages(landscapes: Path, tmp_path: Path) -> None:
    told: list[CurationProgress] = []

    curate(landscapes, tmp_path / "out", progress=told.append)

    assert [(state.stage, state.done, state.total) for state in told] == [
        *(("look", done, 4) for done in range(1, 5)),
        *(("copy", done, 4) for done in range(1, 5)),
    ]


@pytest.mark.parametrize(
    ("arguments", "kind", "message"),
    [
        ({"min_width": 0}, ValueError, "min_width must be at least 1, got 0"),
        ({"min_height": -1}, ValueError, "min_height must be at least 1, got -1"),
        ({"workers": 0}, ValueError, "workers must be at least 1, got 0"),
        ({"min_width": "5"}, TypeError, "min_width must be a whole number of at least 1, .*'5'"),
        ({"min_height": 2.5}, TypeError, "min_height must be a whole number .* got 2.5"),
        ({"workers": True}, TypeError, "workers must be a whole number .* got True"),
        (
            {"modalities": ["caption"], "min_width": 3},
            ValueError,
            "need a column of pictures, and there is none among caption; .* add its folder",
        ),
        ({"duplicates": "near"}, ValueError, "duplicates must be one of .*'near'"),
        ({"on_missing": "null"}, ValueError, "on_missing must be one of .*'null'"),
        ({"on_error": "no"}, ValueError, "on_error must be one of"),
        ({"index": "no"}, ValueError, "index must be one of"),
        ({"key_split": "no"}, ValueError, "key_split must be one of"),
        ({"extra_fields": "no"}, ValueError, "extra_fields must be one of"),
        ({"picture": "caption"}, ValueError, "picture must be one of .*got 'caption'"),
        ({"where": 3}, TypeError, "where must be SQL or a Daft expression"),
        ({"where": "caption.score >"}, ValueError, "is no condition in SQL"),
        ({"where": "(SELECT 1)"}, ValueError, "a query inside it"),
        ({"where": "nothing > 1"}, SchemaError, "where: .* cannot be applied"),
    ],
)
def test_arguments_that_cannot_be_are_refused(
    landscapes: Path,
    tmp_path: Path,
    arguments: dict[str, Any],
    kind: type[Exception],
    message: str,
) -> None:
    with pytest.raises(kind, match=message):
        curate(landscapes, tmp_path / "out", **arguments)

    assert not (tmp_path / "out").exists()


def test_a_url_is_refused_as_output(landscapes: Path) -> None:
    with pytest.raises(ValueError, match=r"output: s3://bucket/x is a URL; expected a local"):
        curate(landscapes, "s3://bucket/x")


def test_a_folder_in_the_source_is_refused_as_output(landscapes: Path, tmp_path: Path) -> None:
    (tmp_path / "link").symlink_to(landscapes)

    for output in (landscapes / "out", tmp_path / "link" / "out"):
        with pytest.raises(ValueError, match=r"in/out lies in the source .*/in;"):
            curate(landscapes, output)


@pytest.mark.parametrize(
    ("modalities", "message"),
    [
        ({"a": "image", "image": "{other}/image"}, "columns 'a' and 'image' would both be the fo"),
        ({"a": "image", "b": "image"}, "columns 'a' and 'b' would both be the folder 'image'"),
        ({"../out": "{other}/image"}, r"column '\.\./out' has a root of its own"),
        ({"caption": "caption", ".a": "{other}/image"}, r"column '\.a' has a root of its own"),
    ],
)
def test_columns_that_can_have_no_folder_of_their_own_are_refused(
    landscapes: Path, tmp_path: Path, modalities: dict[str, str], message: str
) -> None:
    other = make_twin_dataset(tmp_path / "other", num_shards=4, samples_per_shard=5)
    modalities = {name: folder.format(other=other) for name, folder in modalities.items()}

    with pytest.raises(ValueError, match=message):
        curate(landscapes, tmp_path / "new", modalities=modalities)

    assert not (tmp_path / "new").exists()


def test_leaves_without_a_folder_in_common_are_refused(landscapes: Path, tmp_path: Path) -> None:
    make_twin_dataset(tmp_path / ".hidden" / "deep", num_shards=1)

    with pytest.raises(ValueError, match=r"have no folder in common .*; curate them one by one"):
        curate([landscapes, tmp_path / ".hidden" / "deep"], tmp_path / "out")


def test_a_folder_that_holds_something_is_refused_and_left_alone(
    landscapes: Path, tmp_path: Path
) -> None:
    (tmp_path / "out").mkdir()
    (tmp_path / "out" / "note.txt").write_text("mine")

    with pytest.raises(LayoutError, match=r"out: note.txt found; expected a new or empty folder"):
        curate(landscapes, tmp_path / "out")

    assert tree(tmp_path / "out") == {"note.txt": b"mine"}


def test_a_curated_data_set_is_not_written_again(landscapes: Path, tmp_path: Path) -> None:
    curate(landscapes, tmp_path / "out")
    before = tree(tmp_path / "out")

    with pytest.raises(
        LayoutError, match=r"caption, curate_report.jsonl, image, wdinfo.json found"
    ):
        curate(landscapes, tmp_path / "out")

    assert tree(tmp_path / "out") == before
