"""Building an index: only what changed, whole or not at all, one process at a time."""

import fcntl
import json
import os
import signal
import subprocess
import sys
import threading
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from pathlib import Path
from typing import Any

import daft
import pyarrow.parquet as pq
import pytest

import daft_twinwds
from daft_twinwds.errors import LayoutError, StorageError
from daft_twinwds.shards.index_file import open_index
from daft_twinwds.shards.index_format import PartSummary
from daft_twinwds.shards.layout import find_dataset
from daft_twinwds.shards.options import ENVIRONMENT, StorageOptions
from daft_twinwds.shards.samples import read_samples
from daft_twinwds.testing import make_twin_dataset, write_tar
from daft_twinwds.tools.index import IndexProgress, IndexReport, _side_by_side, build_index
from daft_twinwds.tools.index_part import PartJob

col: Any = daft.col  # Daft types its comparisons as truth values


@pytest.fixture
def root(tmp_path: Path) -> Path:
    return make_twin_dataset(
        tmp_path / "twins", num_shards=4, samples_per_shard=2, image_size=(16, 16)
    )


def tar(root: Path, modality: str, shard: int) -> Path:
    return root / modality / "part_000000" / f"{shard:06d}.tar"


def index_of(root: Path, part: str = "part_000000") -> Path:
    return root / ".twin_index" / f"{part}.parquet"


def captions(root: Path, shard: int, *documents: Any) -> None:
    members = [
        (f"id_{2 * shard + number}.json", json.dumps(document).encode())
        for number, document in enumerate(documents)
    ]
    write_tar(tar(root, "caption", shard), members)


def names_in(folder: Path) -> list[str]:
    return sorted(path.name for path in folder.iterdir())


def content(root: Path, part: str = "part_000000") -> Any:
    """Everything that an index says."""
    with open_index(str(index_of(root, part))) as file:
        rows = {
            name: {column: values.to_pylist() for column, values in file.read_all(entry).items()}
            for name, entry in file.summary.entries.items()
            if entry.num_rows
        }
        return file.summary, rows


def rebuilt(root: Path) -> Any:
    """What a build from nothing gives."""
    for path in (root / ".twin_index").iterdir():
        path.unlink()
    build_index(root)
    return content(root)


def test_a_build_tells_what_it_did(root: Path) -> None:
    steps: list[IndexProgress] = []

    report = build_index(root, progress=steps.append, workers=2)

    assert report == IndexReport(
        num_shards=4,
        num_read=4,
        num_rows=8,
        num_written=1,
        not_indexed={},
        texts_left_out={},
        unreadable_pictures=0,
        failed={},
        out_of_date={},
    )
    assert report.is_complete
    assert [step.done for step in steps] == [1, 2, 3, 4]
    assert {step.shard for step in steps} == {
        f"{root}/part_000000/{shard:06d}.tar" for shard in range(4)
    }
    assert all(step.is_read and step.total == 4 for step in steps)
    assert names_in(root / ".twin_index") == [".lock", "part_000000.parquet"]


def test_a_second_build_reads_and_writes_nothing(root: Path) -> None:
    build_index(root)
    before = index_of(root).stat()
    for path in root.rglob("*.tar"):
        state = path.stat()
        path.write_bytes(bytes(state.st_size))
        os.utime(path, ns=(state.st_atime_ns, state.st_mtime_ns))

    report = build_index(root)

    assert (report.num_read, report.num_written, report.num_rows) == (0, 0, 8)
    after = index_of(root).stat()  # its time of access may change
    assert (after.st_ino, after.st_mtime_ns) == (before.st_ino, before.st_mtime_ns)


def test_only_changed_shards_are_read_again(root: Path) -> None:
    build_index(root)
    captions(root, 2, {"prompt": "new", "extra": [1, 2]}, {"prompt": "newer"})
    read: list[str] = []

    report = build_index(root, progress=lambda step: read.extend([step.shard] * step.is_read))

    assert read == [f"{root}/part_000000/000002.tar"]
    assert (report.num_read, report.num_written) == (1, 1)
    assert content(root) == rebuilt(root)


@pytest.mark.parametrize(
    ("before", "after"),
    [
        pytest.param({"a": 0.5}, {"a": 2}, id="numbers are integers now"),
        pytest.param({"o": {"x": 1}}, {"o": {}}, id="objects have no fields any more"),
        pytest.param({"o": {}}, {"o": {"x": 1}}, id="objects have fields now"),
        pytest.param({"l": []}, {"l": [{"x": True}]}, id="lists have items now"),
        pytest.param({"gone": 1}, {"prompt": "x"}, id="a field is gone"),
        pytest.param({"a": "text"}, {"a": 5}, id="a contradiction is gone"),
        pytest.param({"a": 5}, {"a": "text"}, id="a contradiction came"),
    ],
)
def test_going_on_with_an_index_gives_what_building_anew_gives(
    root: Path, before: Any, after: Any
) -> None:
    """Also where the type of all texts has changed, and rows that were kept must change with it."""
    captions(root, 0, {"a": 2**60 + 1, "o": {}, "l": []}, {})
    captions(root, 1, before, {})
    build_index(root)
    captions(root, 1, after, {})

    report = build_index(root)

    assert report.num_read < 4
    kept = content(root)
    assert kept == rebuilt(root)


def test_shards_that_come_and_go(root: Path) -> None:
    build_index(root)
    for modality in ("image", "caption"):
        tar(root, modality, 1).unlink()
    manifest = json.loads((root / "wdinfo.json").read_text())
    del manifest["data_list"][1], manifest["data_list_key_count"][1]
    (root / "wdinfo.json").write_text(json.dumps(manifest))

    report = build_index(root)

    assert (report.num_read, report.num_written, report.num_rows) == (0, 1, 6)
    assert [Path(name).name for name in content(root)[0].entries] == [
        "000000.tar",
        "000002.tar",
        "000003.tar",
    ]


def test_every_part_folder_has_a_file_and_old_ones_go(tmp_path: Path) -> None:
    for name in ("0.tar", "a/0.tar", "a/b/0.tar"):
        write_tar(tmp_path / "image" / name, [(f"{name}.jpg", b"x")])

    report = build_index(tmp_path)

    folder = tmp_path / ".twin_index"
    assert report.num_written == 3
    assert {path.name for path in folder.glob("*.parquet")} == {
        "%2F.parquet",
        "a.parquet",
        "a%2Fb.parquet",
    }
    (tmp_path / "image" / "a" / "0.tar").unlink()
    (folder / ".stage").mkdir()
    (folder / ".stage" / "left.tmp").touch()
    assert build_index(tmp_path).num_written == 0
    assert {path.name for path in folder.iterdir()} == {".lock", "%2F.parquet", "a%2Fb.parquet"}


def test_a_build_that_waits_for_the_end_of_another_has_its_folder(
    root: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    ended: list[int] = []

    def lock(descriptor: int, operation: int) -> None:
        # Another build ends just now, and removes what it has put shards aside in.
        with suppress(FileNotFoundError):
            (root / ".twin_index" / ".stage").rmdir()
        ended.append(operation)

    monkeypatch.setattr(fcntl, "flock", lock)

    assert build_index(root).num_read == 4
    assert len(ended) == 1


def test_other_arguments_build_anew(root: Path) -> None:
    build_index(root)

    assert build_index(root, ["caption"]).num_read == 4
    assert build_index(root, ["caption"], text=False).num_read == 4
    assert build_index(root, key_split="first").num_read == 4
    assert build_index(root).num_read == 4
    assert build_index(root).num_read == 0


def test_faults_are_told_and_do_not_end_a_build(root: Path) -> None:
    whole = tar(root, "image", 0).read_bytes()
    tar(root, "image", 0).write_bytes(whole[:700])
    write_tar(tar(root, "image", 1), [("id_2.jpg", b"x"), ("id_2.jpg", b"y")])
    write_tar(tar(root, "caption", 2), [("id_4.json", b"broken"), ("id_5.json", b"{}")])
    write_tar(tar(root, "image", 3), [("id_6.jpg", b"no picture"), ("id_7.png", b"")])

    report = build_index(root)

    assert {Path(name).name: fault.split(":")[0] for name, fault in report.not_indexed.items()} == {
        "000000.tar": str(tar(root, "image", 0)),
        "000001.tar": str(tar(root, "image", 1)),
    }
    ((shard, fault),) = report.texts_left_out.items()
    assert shard.endswith("000002.tar")
    assert "'id_4.json' at byte 512: found no readable JSON" in fault
    assert report.unreadable_pictures == 2
    check = build_index(root, check=True)
    assert check.is_complete
    assert (check.not_indexed, check.texts_left_out, check.num_rows) == (
        report.not_indexed,
        report.texts_left_out,
        report.num_rows,
    )
    assert report.is_complete
    assert build_index(root).num_read == 0


def test_a_tar_that_cannot_be_read_is_tried_again(
    root: Path, monkeypatch: pytest.MonkeyPatch
) -> None:

    def failing(file: Any, **kw: Any) -> Any:
        if file.path == str(tar(root, "caption", 1)):
            raise StorageError(f"{file.path}: the disk fails")
        return read_samples(file, **kw)

    with monkeypatch.context() as patch:
        patch.setattr("daft_twinwds.query.index_build.read_samples", failing)
        report = build_index(root)

    shard = f"{root}/part_000000/000001.tar"
    assert report.failed == {shard: f"{tar(root, 'caption', 1)}: the disk fails"}
    assert not report.is_complete
    assert report.num_rows == 6
    assert build_index(root, check=True).out_of_date.keys() == {shard}
    assert build_index(root).num_read == 1
    assert build_index(root, check=True).is_complete


def test_a_tar_that_changes_while_it_is_read_is_not_indexed(
    root: Path, monkeypatch: pytest.MonkeyPatch
) -> None:

    def changing(file: Any, **kw: Any) -> Any:
        found = read_samples(file, **kw)
        if file.path == str(tar(root, "caption", 3)):
            captions(root, 3, {"prompt": "changed"}, {})
        return found

    monkeypatch.setattr("daft_twinwds.query.index_build.read_samples", changing)

    report = build_index(root)

    assert list(report.failed) == [f"{root}/part_000000/000003.tar"]
    assert "were replaced while they were read" in report.failed[f"{root}/part_000000/000003.tar"]
    assert report.num_rows == 6


def test_a_check_writes_nothing_and_finds_what_does_not_hold(root: Path) -> None:
    nothing = build_index(root, check=True)
    assert len(nothing.out_of_date) == 4
    assert not (root / ".twin_index").exists()
    build_index(root)

    assert build_index(root, check=True).is_complete
    captions(root, 1, {}, {})
    data = bytearray(index_of(root).read_bytes())
    column = pq.ParquetFile(index_of(root)).metadata.row_group(3).column(2)
    data[column.data_page_offset + column.total_compressed_size - 1] ^= 1
    index_of(root).write_bytes(data)
    report = build_index(root, check=True)

    assert {Path(name).name: fault for name, fault in report.out_of_date.items()}.keys() == {
        "000001.tar",
        "000003.tar",
    }
    assert report.out_of_date[f"{root}/part_000000/000001.tar"] == "a tar has changed since"
    assert "CRC" in report.out_of_date[f"{root}/part_000000/000003.tar"]
    assert not report.is_complete
    assert set(build_index(root, key_split="first", check=True).out_of_date.values()) == {
        f"{index_of(root)}: was built with other arguments"
    }


@pytest.mark.parametrize("text", [True, False])
def test_an_index_without_texts_holds_as_well(root: Path, text: bool) -> None:
    build_index(root, text=False)

    assert build_index(root, text=text, check=True).is_complete


def test_damaged_rows_of_an_old_index_are_read_again(root: Path) -> None:
    build_index(root)
    expected = content(root)
    data = bytearray(index_of(root).read_bytes())
    column = pq.ParquetFile(index_of(root)).metadata.row_group(0).column(2)
    data[column.data_page_offset + column.total_compressed_size - 1] ^= 1
    index_of(root).write_bytes(data)
    touched = tar(root, "image", 3)
    os.utime(touched, ns=(0, touched.stat().st_mtime_ns + 1))

    report = build_index(root)

    assert report.num_read == 4
    assert content(root)[1] == expected[1]


def test_a_node_without_the_folder_of_the_machine_that_asks_indexes_its_part(
    root: Path, tmp_path: Path
) -> None:
    leaf = find_dataset(root).leaves[0]
    head = PartSummary(key_split="last", folders=tuple(leaf.folders.values()), has_texts=True)
    job = PartJob(
        path=str(index_of(root)),
        shards=[leaf.shard(number) for number in range(4)],
        folders=leaf.folders,
        head=head,
        stage=tmp_path / "of_another_machine",
        options=ENVIRONMENT,
    )

    with ThreadPoolExecutor(2) as executor:
        outcome = job.run(executor)

    assert outcome.is_written
    written = content(root)
    index_of(root).unlink()
    build_index(root)
    assert content(root) == written


def test_a_build_that_is_killed_leaves_nothing_half_and_is_gone_on_with(tmp_path: Path) -> None:
    root = make_twin_dataset(tmp_path, num_shards=12, samples_per_shard=2, image_size=(8, 8))
    program = (
        "import os, signal, sys\n"
        "from daft_twinwds.tools.index import build_index\n"
        "def step(progress):\n"
        "    if progress.done == 5:\n"
        "        os.kill(os.getpid(), signal.SIGKILL)\n"
        "build_index(sys.argv[1], workers=1, progress=step)\n"
    )
    done = subprocess.run([sys.executable, "-c", program, str(root)], check=False, timeout=60)
    assert done.returncode == -signal.SIGKILL
    assert not index_of(root).exists()
    assert daft_twinwds.read_twin_webdataset(root).count_rows() == 24

    report = build_index(root)

    assert report.num_read <= 7
    assert report.num_rows == 24
    assert names_in(root / ".twin_index") == [".lock", "part_000000.parquet"]
    kept = content(root)
    assert kept == rebuilt(root)


def test_what_was_put_aside_holds_only_while_the_tars_are_the_same(root: Path) -> None:
    with pytest.raises(RuntimeError, match="stop"):
        build_index(root, progress=_stop, workers=1)
    aside = sorted((root / ".twin_index" / ".stage").glob("*.parquet"))
    assert aside
    captions(root, 0, {"prompt": "changed"}, {})
    aside[-1].write_bytes(aside[-1].read_bytes()[:-1])

    build_index(root)

    kept = content(root)
    assert kept[1]["part_000000/000000.tar"]["caption/text"][0]["prompt"] == "changed"
    assert kept == rebuilt(root)


def _stop(progress: IndexProgress) -> None:
    if progress.done == 3:
        raise RuntimeError("stop")


def test_two_builds_at_a_time_are_one_too_many(root: Path) -> None:
    started, go_on = threading.Event(), threading.Event()

    def wait(progress: IndexProgress) -> None:
        started.set()
        go_on.wait(30)

    first = threading.Thread(target=build_index, args=(root,), kwargs={"progress": wait})
    first.start()
    assert started.wait(30)

    with pytest.raises(LayoutError, match=r"process \d+ on .* is indexing this data set"):
        build_index(root)
    go_on.set()
    first.join()
    assert build_index(root).num_read == 0


def test_a_folder_that_cannot_be_written_is_an_error(root: Path) -> None:
    (root / ".twin_index").touch()

    with pytest.raises(StorageError, match=r"\.twin_index: cannot be written"):
        build_index(root)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [({"workers": 0}, "workers must be at least 1"), ({"key_split": "dot"}, "key_split must be")],
)
def test_wrong_arguments_are_refused(root: Path, arguments: Any, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        build_index(root, **arguments)


def test_many_leaves_have_an_index_each(tmp_path: Path) -> None:
    for ratio in ("16_9", "1_1"):
        leaf = tmp_path / f"aspect_ratio_{ratio}"
        make_twin_dataset(leaf, num_shards=1, samples_per_shard=2, image_size=(8, 8))
    df = daft_twinwds.read_twin_webdataset

    assert build_index(tmp_path, aspect_ratios=["1,1"]).num_shards == 1
    assert not (tmp_path / "aspect_ratio_16_9" / ".twin_index").exists()
    assert build_index(tmp_path).num_read == 1

    assert df(tmp_path, index="require").count_rows() == 4


def test_a_dataset_may_move_with_its_index(root: Path) -> None:
    build_index(root)
    moved = root.rename(root.parent / "elsewhere")

    df = daft_twinwds.read_twin_webdataset(moved, index="require")

    assert df.where(col("caption")["prompt"].not_null()).count_rows() == 8
    assert str(moved) in df.to_pydict()["image"][0].path


def test_a_missing_modality_is_indexed_as_such(root: Path) -> None:
    tar(root, "image", 2).unlink()

    build_index(root)

    df = daft_twinwds.read_twin_webdataset(root, on_missing="null", index="require")
    assert df.where(col("image").is_null()).count_rows() == 2


def test_an_index_in_a_bucket(root: Path, s3_server: Any) -> None:
    url = s3_server.upload(root, "twins", "set")
    config = daft.io.IOConfig(
        s3=daft.io.S3Config(
            endpoint_url=s3_server.endpoint,
            key_id=s3_server.key_id,
            access_key=s3_server.access_key,
            region_name="us-east-1",
        )
    )

    report = build_index(url, io_config=config)
    assert (report.num_read, report.num_rows) == (4, 8)
    assert build_index(url, io_config=config).num_read == 0
    assert build_index(url, io_config=config, check=True).is_complete

    df = daft_twinwds.read_twin_webdataset(url, index="require", io_config=config)
    assert df.where(col("caption")["score"] >= 0).count_rows() == 8
    assert df.count_rows() == 8
    captions(root, 1, {"prompt": "new"}, {})
    key = "set/caption/part_000000/000001.tar"
    s3_server.client.put_object(Bucket="twins", Key=key, Body=tar(root, "caption", 1).read_bytes())
    daft_twinwds.reset_scan_report()
    again = daft_twinwds.read_twin_webdataset(url, io_config=config)
    assert "new" in [row["prompt"] for row in again.to_pydict()["caption"]]
    assert daft_twinwds.scan_report() == {"shard changed since its index was built": 1}


def test_each_worker_may_have_a_request_under_way() -> None:
    few = StorageOptions(max_requests=2)

    assert _side_by_side(few, 40) == StorageOptions(max_requests=40)
    assert _side_by_side({"image": few, "*": StorageOptions()}, 5) == {
        "image": StorageOptions(max_requests=5),
        "*": StorageOptions(),
    }
