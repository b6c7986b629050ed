"""Folders of raw files become twin tars, by the same rules every time."""

import io
import json
import tarfile
import tracemalloc
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image
from webdataset.tariterators import (  # type: ignore[import-untyped]
    group_by_keys,
    tar_file_expander,
)

import daft_twinwds
from daft_twinwds.errors import LayoutError, StorageError
from daft_twinwds.testing import encode_jpeg
from daft_twinwds.tools.pack import PackProgress, PackReport, pack
from daft_twinwds.tools.pack_report import LeftOut

WriteFiles = Callable[[Mapping[str, bytes]], Path]


def jpeg(width: int = 48, height: int = 32, seed: int = 0) -> bytes:
    pixels = np.random.default_rng(seed).integers(0, 256, (height, width, 3), np.uint8)
    return encode_jpeg(pixels)


def png(width: int = 48, height: int = 32) -> bytes:
    file = io.BytesIO()
    Image.new("RGB", (width, height)).save(file, "PNG")
    return file.getvalue()


def pairs(*stems: str) -> dict[str, bytes]:
    """A picture and a caption for each stem."""
    files = {}
    for number, stem in enumerate(stems):
        files[f"image/{stem}.jpg"] = jpeg(seed=number)
        files[f"caption/{stem}.json"] = json.dumps({"prompt": stem}).encode()
    return files


def numbered(count: int, size: int = 10) -> dict[str, bytes]:
    """Pairs of files that are no pictures, all of one size."""
    return {
        f"{modality}/{number:03d}.{suffix}": b"x" * size
        for modality, suffix in (("image", "jpg"), ("caption", "txt"))
        for number in range(count)
    }


def plain(source: Path, output: Path, **options: Any) -> PackReport:
    """Pack without looking into the files."""
    return pack(source, output, classify_aspect_ratio=False, **options)


def tree(root: Path) -> dict[str, bytes]:
    """All files below a folder, hidden ones included."""
    files = (path for path in root.rglob("*") if path.is_file())
    return {str(path.relative_to(root)): path.read_bytes() for path in files}


def names_in(tar: Path) -> list[str]:
    with tarfile.open(tar) as archive:
        return archive.getnames()


def shards_of(output: Path, modality: str = "image") -> list[list[str]]:
    return [names_in(tar) for tar in sorted((output / modality).rglob("*.tar"))]


def test_twins_and_manifest_are_written(tmp_path: Path, write_files: WriteFiles) -> None:
    source = write_files(pairs("a", "b", "c"))

    report = plain(source, tmp_path / "out", shard_size=2, shuffle=False)

    assert sorted(tree(tmp_path / "out")) == [
        "caption/part_000000/000000.tar",
        "caption/part_000000/000001.tar",
        "image/part_000000/000000.tar",
        "image/part_000000/000001.tar",
        "pack_plan.jsonl",
        "pack_report.jsonl",
        "wdinfo.json",
    ]
    assert shards_of(tmp_path / "out") == [["a.jpg", "b.jpg"], ["c.jpg"]]
    assert shards_of(tmp_path / "out", "caption") == [["a.json", "b.json"], ["c.json"]]
    assert json.loads((tmp_path / "out" / "wdinfo.json").read_text()) == {
        "data_keys": ["caption", "image"],
        "data_list": ["part_000000/000000.tar", "part_000000/000001.tar"],
        "data_list_key_count": [2, 1],
        "root": str((tmp_path / "out").resolve()),
        "total_key_count": 3,
    }
    assert (report.num_shards, report.num_samples, report.left_out) == (2, 3, ())
    assert report.num_bytes == sum(len(data) for data in pairs("a", "b", "c").values())


def test_webdataset_reads_the_tars(tmp_path: Path, write_files: WriteFiles) -> None:
    files = pairs("a", "b", "c")
    plain(write_files(files), tmp_path / "out", shard_size=2)

    seen: dict[str, bytes] = {}
    for tar in (tmp_path / "out" / "image").rglob("*.tar"):
        # The steps of its WebDataset, which would leave the files open.
        with tar.open("rb") as stream:
            members = tar_file_expander([{"url": str(tar), "stream": stream}])
            seen.update((sample["__key__"], sample["jpg"]) for sample in group_by_keys(members))

    assert seen == {stem: files[f"image/{stem}.jpg"] for stem in "abc"}


def test_dataframe_shows_the_files(tmp_path: Path, write_files: WriteFiles) -> None:
    files = pairs("a", "b.v1", "c")
    pack(write_files(files), tmp_path / "out")

    rows = daft_twinwds.read_twin_webdataset(tmp_path / "out").to_pylist()

    assert {row["__key__"]: row["caption"]["prompt"] for row in rows} == {
        stem: stem for stem in ("a", "b.v1", "c")
    }
    for row in rows:
        with row["image"].open() as file:
            assert file.read() == files[f"image/{row['__key__']}.jpg"]


def test_same_input_gives_the_same_bytes(tmp_path: Path, write_files: WriteFiles) -> None:
    source = write_files(pairs(*"abcdefgh"))

    pack(source, tmp_path / "one", shard_size=3, num_workers=1)
    pack(source, tmp_path / "two", shard_size=3, num_workers=4)

    one, two = tree(tmp_path / "one"), tree(tmp_path / "two")
    assert one.keys() == two.keys()
    for name, data in one.items():
        # A manifest holds the folder that it was written to.
        assert data.replace(b"/one", b"/two") == two[name]


def test_seed_gives_the_order(tmp_path: Path, write_files: WriteFiles) -> None:
    source = write_files(numbered(30))

    orders = []
    choices: dict[str, dict[str, Any]] = {
        "sorted": {"shuffle": False},
        "first": {"seed": 1},
        "again": {"seed": 1},
        "second": {"seed": 2},
    }
    for name, options in choices.items():
        plain(source, tmp_path / name, shard_size=100, **options)
        orders.append(shards_of(tmp_path / name)[0])

    assert orders[0] == [f"{number:03d}.jpg" for number in range(30)]
    assert orders[1] == orders[2]
    assert orders[1] != orders[3]
    assert sorted(orders[1]) == sorted(orders[3]) == orders[0]


def test_order_of_a_seed_is_forever(tmp_path: Path, write_files: WriteFiles) -> None:
    plain(write_files(numbered(8)), tmp_path / "out", seed=0)

    # Another order would make data sets of different versions of this package differ.
    assert [name[2] for name in shards_of(tmp_path / "out")[0]] == list("23640175")


def test_twins_hold_the_same_keys_in_the_same_order(
    tmp_path: Path, write_files: WriteFiles
) -> None:
    plain(write_files(numbered(25)), tmp_path / "out", shard_size=4)

    stems = [
        [[name.partition(".")[0] for name in shard] for shard in shards_of(tmp_path / "out", side)]
        for side in ("image", "caption")
    ]
    assert stems[0] == stems[1]


@pytest.mark.parametrize(
    ("options", "key"),
    [
        pytest.param({}, "a.v1", id="none"),
        pytest.param({"dataset_name": "set"}, "set__a.v1", id="dataset"),
        pytest.param({"key_prefix": "deep/er-"}, "deep/er-a.v1", id="prefix-with-a-folder"),
    ],
)
def test_keys_are_stems_behind_a_prefix(
    tmp_path: Path, write_files: WriteFiles, options: dict[str, str], key: str
) -> None:
    plain(write_files(pairs("a.v1")), tmp_path / "out", **options)

    assert shards_of(tmp_path / "out") == [[f"{key}.jpg"]]
    rows = daft_twinwds.read_twin_webdataset(tmp_path / "out").to_pylist()
    assert [row["__key__"] for row in rows] == [key]


def test_suffixes_are_matched_blind_to_case_and_written_small(
    tmp_path: Path, write_files: WriteFiles
) -> None:
    source = write_files(
        {
            "image/a.JPG": jpeg(),
            "image/b.PnG": png(),
            "image/c.jpeg": jpeg(),
            "umt5/a.pickle": b"1",
            "umt5/b.PKL": b"2",
            "umt5/c.pkl": b"3",
        }
    )

    plain(source, tmp_path / "out", shuffle=False)

    assert shards_of(tmp_path / "out") == [["a.jpg", "b.png", "c.jpeg"]]
    assert shards_of(tmp_path / "out", "umt5") == [["a.pickle", "b.pkl", "c.pkl"]]


def test_samples_of_all_modalities_are_packed_and_all_others_named(
    tmp_path: Path, write_files: WriteFiles
) -> None:
    source = write_files(
        {
            "image/a.jpg": jpeg(seed=0),
            "image/b.JPG": jpeg(seed=1),
            "image/c.jpeg": jpeg(seed=2),
            "image/d.PNG": png(),
            "image/e.jpg": jpeg(seed=4),
            "image/e.png": png(),
            "image/f.jpg": b"",
            "image/.hidden.jpg": jpeg(seed=6),
            "image/g.v1.jpg": jpeg(seed=7),
            "image/h.jpg": jpeg(seed=8),
            **{
                f"caption/{stem}.json": b"{}"
                for stem in ("a", "b", "c", "d", "e", "f", "g.v1", "z")
            },
        }
    )

    with pytest.raises(LayoutError, match=r"image: e\.jpg and e\.png have the same name"):
        pack(source, tmp_path / "out")
    assert not (tmp_path / "out").exists()
    report = pack(source, tmp_path / "out", on_double="skip")

    rows = daft_twinwds.read_twin_webdataset(tmp_path / "out").to_pylist()
    assert sorted(row["__key__"] for row in rows) == ["a", "b", "c", "d", "e", "g.v1"]
    lines = (tmp_path / "out" / "pack_report.jsonl").read_text().splitlines()
    assert tuple(LeftOut(**json.loads(line)) for line in lines) == report.left_out
    assert [(item.key, item.file, item.reason) for item in report.left_out] == [
        (".hidden", ".hidden.jpg", "hidden"),
        ("e", "e.png", "double"),
        ("f", "f.jpg", "0 bytes"),
        ("h", "h.jpg", "no caption"),
        ("z", "z.json", "no image"),
    ]
    assert report.reasons == {
        "hidden": 1,
        "double": 1,
        "0 bytes": 1,
        "no caption": 1,
        "no image": 1,
    }


def test_optional_modality_may_be_missing_in_a_sample_and_in_a_whole_shard(
    tmp_path: Path, write_files: WriteFiles
) -> None:
    source = write_files({**pairs("a", "b"), "image/c.jpg": jpeg(), "image/d.jpg": jpeg()})

    report = plain(source, tmp_path / "out", optional=["caption"], shuffle=False, shard_size=2)

    assert report.left_out == ()
    assert shards_of(tmp_path / "out", "caption") == [["a.json", "b.json"], []]
    rows = daft_twinwds.read_twin_webdataset(tmp_path / "out", on_missing="null").to_pylist()
    captions = {row["__key__"]: row["caption"] and row["caption"]["prompt"] for row in rows}
    assert captions == {"a": "a", "b": "b", "c": None, "d": None}


def test_only_the_modalities_asked_for_are_packed(tmp_path: Path, write_files: WriteFiles) -> None:
    source = write_files({**pairs("a"), "notes/x.txt": b"x", "image/left/a.jpg": jpeg()})

    report = plain(source, tmp_path / "out", modalities=["image/left", "caption"])

    assert report.leaves[0].num_bytes.keys() == {"caption", "image/left"}
    assert shards_of(tmp_path / "out", "image/left") == [["a.jpg"]]
    assert report.left_out == ()


def test_shards_fill_up_to_the_bytes_of_one_modality(
    tmp_path: Path, write_files: WriteFiles
) -> None:
    sizes = {"a": 40, "b": 60, "c": 1, "d": 500, "e": 50, "f": 50, "g": 50}
    source = write_files(
        {f"image/{stem}.jpg": b"x" * size for stem, size in sizes.items()}
        | {f"caption/{stem}.txt": b"y" * 1000 for stem in sizes}
    )

    plain(source, tmp_path / "out", max_shard_bytes=100, shuffle=False)

    assert [[name[0] for name in shard] for shard in shards_of(tmp_path / "out")] == [
        ["a", "b"],
        ["c"],
        ["d"],
        ["e", "f"],
        ["g"],
    ]
    manifest = json.loads((tmp_path / "out" / "wdinfo.json").read_text())
    assert manifest["data_list_key_count"] == [2, 1, 1, 2, 1]


def test_size_can_be_based_on_another_modality(tmp_path: Path, write_files: WriteFiles) -> None:
    source = write_files(
        {f"image/{n}.jpg": b"x" for n in range(4)} | {f"umt5/{n}.pkl": b"y" * 60 for n in range(4)}
    )

    plain(source, tmp_path / "out", max_shard_bytes=120, size_based_on="umt5")

    assert [len(shard) for shard in shards_of(tmp_path / "out")] == [2, 2]


def test_sizes_are_of_all_modalities_where_there_is_no_picture(
    tmp_path: Path, write_files: WriteFiles
) -> None:
    source = write_files(
        {f"audio/{n}.wav": b"x" * 40 for n in range(4)}
        | {f"text/{n}.txt": b"y" * 20 for n in range(4)}
    )

    plain(source, tmp_path / "out", max_shard_bytes=120)

    assert [len(shard) for shard in shards_of(tmp_path / "out", "audio")] == [2, 2]


def test_parts_hold_so_many_shards(tmp_path: Path, write_files: WriteFiles) -> None:
    plain(write_files(numbered(5)), tmp_path / "out", shard_size=1, part_size=2)

    manifest = json.loads((tmp_path / "out" / "wdinfo.json").read_text())
    assert manifest["data_list"] == [
        "part_000000/000000.tar",
        "part_000000/000001.tar",
        "part_000001/000000.tar",
        "part_000001/000001.tar",
        "part_000002/000000.tar",
    ]
    assert all((tmp_path / "out" / "image" / name).exists() for name in manifest["data_list"])


def test_limit_takes_the_first_of_the_order(tmp_path: Path, write_files: WriteFiles) -> None:
    source = write_files(numbered(9))

    plain(source, tmp_path / "all", shard_size=100)
    report = plain(source, tmp_path / "some", shard_size=100, limit=4)

    assert shards_of(tmp_path / "some")[0] == shards_of(tmp_path / "all")[0][:4]
    assert (report.num_samples, report.beyond_limit) == (4, 5)
    assert report.left_out == ()


def test_strict_writes_nothing_when_something_would_be_left_out(
    tmp_path: Path, write_files: WriteFiles
) -> None:
    source = write_files({**pairs("a"), "image/b.jpg": jpeg(), "image/c.jpg": b"no picture"})

    message = r"2 files or samples would be left out: image/b\.jpg \(no caption\), image/c"
    with pytest.raises(LayoutError, match=message):
        pack(source, tmp_path / "new" / "out", strict=True)

    assert not (tmp_path / "new").exists()


def test_strict_lets_hidden_files_pass(tmp_path: Path, write_files: WriteFiles) -> None:
    source = write_files({**pairs("a"), "image/.DS_Store": b"x"})

    assert pack(source, tmp_path / "out", strict=True).reasons == {"hidden": 1}


def test_dry_run_tells_what_would_be_written_and_writes_nothing(
    tmp_path: Path, write_files: WriteFiles
) -> None:
    source = write_files({**pairs("a", "b", "c"), "image/z.jpg": jpeg()})

    dry = pack(source, tmp_path / "out", dry_run=True, shard_size=2)

    assert not (tmp_path / "out").exists()
    real = pack(source, tmp_path / "out", shard_size=2)
    assert dry.dry_run
    assert not real.dry_run
    assert (dry.leaves, dry.left_out) == (real.leaves, real.left_out)


def test_progress_counts_samples_then_tars(tmp_path: Path, write_files: WriteFiles) -> None:
    steps: list[PackProgress] = []

    pack(write_files(pairs("a", "b", "c")), tmp_path / "out", shard_size=2, progress=steps.append)

    inspected = [step for step in steps if step.stage == "inspect"]
    written = [step for step in steps if step.stage == "write"]
    assert steps == inspected + written
    assert (inspected[-1].done, inspected[-1].total) == (3, 3)
    assert [(step.done, step.total) for step in written[:4]] == [(n, 4) for n in range(1, 5)]
    assert {step.tar for step in written[:4]} == {
        f"aspect_ratio_3_2/{modality}/part_000000/{number:06d}.tar"
        for modality in ("image", "caption")
        for number in range(2)
    }


def test_error_of_a_worker_comes_out_and_no_manifest_is_written(
    tmp_path: Path, write_files: WriteFiles
) -> None:
    source = write_files(numbered(400))

    def spoil(step: PackProgress) -> None:
        if step.done == 1:
            (source / "image" / "399.jpg").write_bytes(b"longer than it was")

    with pytest.raises(StorageError, match=r"399\.jpg: more bytes than the 10"):
        plain(source, tmp_path / "out", shard_size=1, shuffle=False, progress=spoil)

    names = tree(tmp_path / "out")
    assert "wdinfo.json" not in names
    assert not [name for name in names if name.endswith(".tmp") or "lock" in name]


def test_memory_does_not_depend_on_the_size_of_files(tmp_path: Path) -> None:
    for modality in ("image", "video"):
        (tmp_path / "raw" / modality).mkdir(parents=True)
        for stem in "ab":
            with (tmp_path / "raw" / modality / f"{stem}.bin").open("wb") as file:
                file.truncate(64 << 20)

    tracemalloc.start()
    plain(tmp_path / "raw", tmp_path / "out", num_workers=2)
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()

    assert peak < 16 << 20


@pytest.mark.parametrize(
    ("options", "message"),
    [
        pytest.param({"shard_size": 0}, "shard_size must be at least 1, got 0", id="shard-size"),
        pytest.param({"limit": 0}, "limit must be at least 1", id="limit"),
        pytest.param({"num_workers": 0}, "num_workers must be at least 1", id="workers"),
        pytest.param({"on_double": "first"}, "on_double must be one of", id="on-double"),
        pytest.param({"duration_bins": [5]}, "at least two increasing seconds", id="one-border"),
        pytest.param({"duration_bins": [5, 0]}, "at least two increasing", id="falling-borders"),
        pytest.param({"duration_bins": [-1, 5]}, "increasing seconds from 0", id="negative"),
        pytest.param(
            {"key_prefix": "a", "dataset_name": "b"}, "give one of them", id="two-prefixes"
        ),
        pytest.param({"key_prefix": "../a"}, "must begin a relative path", id="prefix-dots"),
        pytest.param({"key_prefix": "/a"}, "absolute name", id="prefix-absolute"),
        pytest.param({"key_prefix": ".a"}, "not with a dot", id="prefix-hidden"),
        pytest.param({"dataset_name": "a\0"}, "NUL in its name", id="prefix-nul"),
        pytest.param({"dataset_name": "a\\"}, "backslash in its name", id="prefix-backslash"),
    ],
)
def test_arguments_out_of_range_are_refused(
    tmp_path: Path, options: dict[str, Any], message: str
) -> None:
    with pytest.raises(ValueError, match=message):
        pack(tmp_path / "raw", tmp_path / "out", **options)


def test_optional_must_be_a_list(tmp_path: Path) -> None:
    with pytest.raises(TypeError, match="optional must be a list of folder names"):
        pack(tmp_path / "raw", tmp_path / "out", optional="caption")


@pytest.mark.parametrize(
    ("options", "message"),
    [
        pytest.param({"size_based_on": "video"}, "expected 'video' among them", id="no-main"),
        pytest.param({"optional": ["image"]}, "expected it in every sample", id="optional-main"),
        pytest.param({"optional": ["umt5"]}, "expected the optional umt5", id="no-optional"),
        pytest.param(
            {"optional": ["image", "caption"]},
            "expected at least one that every",
            id="all-optional",
        ),
        pytest.param({"modalities": ["depth"]}, "expected the modality 'depth'", id="no-modality"),
        pytest.param({"output_dir": "raw/out"}, "lies in the input folder", id="output-in-input"),
    ],
)
def test_choices_that_do_not_fit_the_input_are_refused(
    tmp_path: Path, write_files: WriteFiles, options: dict[str, Any], message: str
) -> None:
    source = write_files(pairs("a"))
    output = tmp_path / options.pop("output_dir", "out")

    with pytest.raises(LayoutError, match=message):
        pack(source, output, **options)

    assert not output.exists()


def test_nothing_to_classify_by_is_an_error_that_names_the_ways_out(
    tmp_path: Path, write_files: WriteFiles
) -> None:
    source = write_files({"audio/a.wav": b"x"})

    with pytest.raises(LayoutError, match="expected 'image' or 'video' to classify samples by"):
        pack(source, tmp_path / "out")


@pytest.mark.parametrize(
    ("files", "message"),
    [
        pytest.param({}, "No such file or directory", id="no-folder"),
        pytest.param({"image/.x": b""}, "left out are: no file", id="nothing-visible"),
        pytest.param(
            {"image/a.jpg": b"1", "caption/b.txt": b"2"},
            r"left out are: image/a.jpg \(no caption\), caption/b.txt \(no image\)",
            id="nothing-in-common",
        ),
    ],
)
def test_input_without_a_sample_is_refused(
    tmp_path: Path, write_files: WriteFiles, files: dict[str, bytes], message: str
) -> None:
    write_files(files)

    with pytest.raises((LayoutError, StorageError), match=message):
        plain(tmp_path / "raw", tmp_path / "out")
