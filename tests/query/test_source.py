"""The Daft source: what is opened, when work stops, what errors say."""

import asyncio
import json
import os
import pickle
import subprocess
import sys
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import daft
import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from daft.exceptions import DaftCoreException
from daft.io.pushdowns import Pushdowns
from daft.io.source import DataSourceTask

import daft_twinwds
from daft_twinwds.errors import AlignmentError, LayoutError, SchemaError, StorageError
from daft_twinwds.partition import Partition
from daft_twinwds.query import read
from daft_twinwds.query.shard_scan import scan_shard
from daft_twinwds.query.source import TwinCountTask, TwinShardTask, TwinWebDatasetSource
from daft_twinwds.testing import make_twin_dataset, write_tar
from daft_twinwds.train.shard_plan import shard_plan

col: Any = daft.col  # Daft types its comparisons as truth values

GARBAGE = b"this is no tar" * 100


@pytest.fixture
def root(tmp_path: Path) -> Path:
    return make_twin_dataset(tmp_path / "twins", num_shards=4, samples_per_shard=3)


def shard_path(root: Path, modality: str, shard: int) -> Path:
    return root / modality / "part_000000" / f"{shard:06d}.tar"


@pytest.fixture
def source_of(monkeypatch: pytest.MonkeyPatch) -> Callable[..., TwinWebDatasetSource]:
    """Return the source behind `read_twin_webdataset`."""

    def source_of(*args: Any, **kwargs: Any) -> TwinWebDatasetSource:
        seen: list[TwinWebDatasetSource] = []
        monkeypatch.setattr(TwinWebDatasetSource, "read", lambda self: seen.append(self))
        read.read_twin_webdataset(*args, **kwargs)
        monkeypatch.undo()
        return seen[0]

    return source_of


def tasks_of(source: TwinWebDatasetSource, pushdowns: Pushdowns) -> list[DataSourceTask]:
    """Plan in this thread, so that coverage and the debugger see it."""

    async def collect() -> list[DataSourceTask]:
        return [task async for task in source.get_tasks(pushdowns)]

    return asyncio.run(collect())


def rows_of(task: DataSourceTask) -> list[dict[str, Any]]:
    assert isinstance(task, TwinShardTask)
    return [row for batch in scan_shard(task.scan, task.shard) for row in batch.to_pylist()]


def test_daft_gets_the_reader_by_importing_the_package() -> None:
    assert daft.read_twin_webdataset is daft_twinwds.read_twin_webdataset


def test_one_task_per_shard_pair(root: Path, source_of: Any) -> None:
    tasks = tasks_of(source_of(root), Pushdowns())

    assert [task.shard.name for task in tasks if isinstance(task, TwinShardTask)] == [
        f"part_000000/{i:06d}.tar" for i in range(4)
    ]


def test_a_modality_that_is_not_needed_is_not_opened(root: Path) -> None:
    for shard in range(4):
        shard_path(root, "image", shard).write_bytes(GARBAGE)
    df = daft_twinwds.read_twin_webdataset(root, schema={"image": daft.DataType.file()})

    assert df.select("__key__").count_rows() == 12
    assert len(df.select("caption").to_pylist()) == 12
    assert df.where(col("caption")["prompt"].not_null()).count_rows() == 12


@pytest.mark.parametrize(
    "policy", [{"on_missing": "skip"}, {"on_missing": "null"}, {"on_error": "skip"}]
)
def test_policies_that_depend_on_all_twins_read_them_all(
    root: Path, policy: dict[str, Any]
) -> None:
    members = {
        "on_missing": [("id_0.jpg", b"x"), ("id_2.jpg", b"x")],
        "on_error": [
            ("id_0.jpg", b"x"),
            ("id_1.jpg", b"x"),
            ("id_2.jpg", b"x"),
            ("id_0.jpg", b"y"),
        ],
    }
    write_tar(shard_path(root, "image", 0), members[next(iter(policy))])
    df = daft_twinwds.read_twin_webdataset(root, **policy)

    keys = df.select("__key__").to_pydict()["__key__"]

    assert len(keys) == (12 if policy == {"on_missing": "null"} else 11)
    assert df.count_rows() == len(keys)
    assert keys == df.to_pydict()["__key__"]


def test_a_shard_without_a_match_never_opens_its_pictures(root: Path) -> None:
    df = daft_twinwds.read_twin_webdataset(
        root, where=col("caption")["prompt"].length() > 0, schema={"image": daft.DataType.file()}
    ).where(col("__key__").is_in(["id_4", "id_11"]))
    only_keys = df.to_pydict()
    for shard in (0, 2):
        shard_path(root, "image", shard).write_bytes(GARBAGE)

    by_caption = daft_twinwds.read_twin_webdataset(
        root,
        where=col("__key__").is_in(["id_4", "id_11"]) & col("caption").not_null(),
        schema={"image": daft.DataType.file()},
    )

    assert only_keys["__key__"] == ["id_4", "id_11"]
    assert by_caption.to_pydict()["__key__"] == ["id_4", "id_11"]
    with pytest.raises(DaftCoreException, match=r"image/part_000000/00000[02]\.tar"):
        daft_twinwds.read_twin_webdataset(root, schema={"image": daft.DataType.file()}).collect()


def test_limit_plans_only_the_shards_it_needs(root: Path, source_of: Any) -> None:
    source = source_of(root)

    assert len(tasks_of(source, Pushdowns(limit=3))) == 1
    assert len(tasks_of(source, Pushdowns(limit=4))) == 2
    assert len(tasks_of(source, Pushdowns(limit=0))) == 0
    assert len(tasks_of(source, Pushdowns(limit=3, filters=col("__key__") == "id_0"))) == 4
    assert daft_twinwds.read_twin_webdataset(root).limit(0).to_pydict()["__key__"] == []


def test_limit_stops_the_work_of_a_task(root: Path, source_of: Any) -> None:
    texts = shard_path(root, "caption", 0)
    write_tar(
        texts, [("id_0.json", b'{"prompt": "a"}'), ("id_1.json", b"{}"), ("id_2.json", b"broken")]
    )
    source = source_of(
        root,
        on_error="raise",
        schema={"caption": daft.DataType.struct({"prompt": daft.DataType.string()})},
    )

    (task,) = tasks_of(source, Pushdowns(limit=2, columns=["caption"]))

    assert [row["caption"]["prompt"] for row in rows_of(task)] == ["a", None]


def test_count_looks_at_the_tars_not_at_the_manifest(root: Path) -> None:
    manifest = json.loads((root / "wdinfo.json").read_text())
    manifest["data_list_key_count"] = [100] * 4
    manifest["total_key_count"] = 400
    (root / "wdinfo.json").write_text(json.dumps(manifest))

    assert daft_twinwds.read_twin_webdataset(root).count_rows() == 12


def test_a_reader_without_a_shard_reads_nothing_and_says_so(
    root: Path, caplog: pytest.LogCaptureFixture
) -> None:
    empty = Partition(rank=5, world_size=6)

    df = daft_twinwds.read_twin_webdataset(root, partition=empty)

    assert df.count_rows() == 0
    assert df.to_pydict()["__key__"] == []
    (message,) = caplog.messages
    assert "no shard is left for rank 5 of 6, worker 0 of 1; there are 4 in all" in message


@pytest.mark.parametrize(
    "plan", [[3, 0, 3], np.array([3, 0, 3]), lambda num_shards: [num_shards - 1, 0, 3]]
)
def test_a_plan_of_shards_is_followed_in_order(root: Path, plan: Any) -> None:
    df = daft_twinwds.read_twin_webdataset(root, partition=plan)

    keys = [f"id_{number}" for number in [9, 10, 11, 0, 1, 2, 9, 10, 11]]
    assert df.to_pydict()["__key__"] == keys
    assert df.count_rows() == 9
    assert df.limit(4).to_pydict()["__key__"] == keys[:4]


def test_plans_of_all_readers_read_each_shard_as_often_as_planned(root: Path) -> None:
    readers = [Partition(rank=rank, world_size=3) for rank in range(3)]

    keys = [
        daft_twinwds.read_twin_webdataset(
            root, partition=partial(shard_plan, partition=reader)
        ).to_pydict()["__key__"]
        for reader in readers
    ]

    assert [len(of_reader) for of_reader in keys] == [6, 6, 6]
    assert {key for of_reader in keys for key in of_reader} == {f"id_{n}" for n in range(12)}


def test_partitions_share_the_shards_out(root: Path) -> None:
    keys = [
        key
        for rank in range(3)
        for key in daft_twinwds.read_twin_webdataset(
            root, partition=Partition(rank=rank, world_size=3)
        ).to_pydict()["__key__"]
    ]

    assert sorted(keys) == sorted(f"id_{i}" for i in range(12))


def test_source_and_tasks_pickle(root: Path, source_of: Any) -> None:
    source = pickle.loads(pickle.dumps(source_of(root, where=col("caption")["score"] >= 0)))
    tasks = pickle.loads(pickle.dumps(tasks_of(source, Pushdowns(limit=2))))

    assert [row["__key__"] for row in rows_of(tasks[0])] == ["id_0", "id_1"]


def test_a_count_task_gives_one_row(root: Path, source_of: Any) -> None:
    tasks = tasks_of(
        source_of(root), Pushdowns(columns=["__key__"], aggregation=col("__key__").count("all"))
    )

    async def read(task: DataSourceTask) -> list[Any]:
        return [batch.to_pydict() async for batch in task.read()]

    assert all(isinstance(task, TwinCountTask) for task in tasks)
    counts = [asyncio.run(read(task)) for task in tasks]
    assert counts == [[{"__key__": [n]}] for n in (0, 3, 3, 3, 3)]


def test_an_error_in_a_task_names_the_tar_the_member_and_the_byte(root: Path) -> None:
    path = shard_path(root, "caption", 3)
    df = daft_twinwds.read_twin_webdataset(root)
    write_tar(path, [("id_9.json", b"{}"), ("id_10.json", b"oops"), ("id_11.json", b"{}")])

    with pytest.raises(DaftCoreException, match=r"caption/part_000000/000003.tar.*id_10.json"):
        df.select("caption").collect()


def test_missing_twins_follow_the_policy(root: Path) -> None:
    write_tar(shard_path(root, "caption", 1), [("id_3.json", b"{}"), ("id_5.json", b"{}")])

    with pytest.raises(DaftCoreException, match=r"caption\) lacks 1 of 3 keys: 'id_4'"):
        daft_twinwds.read_twin_webdataset(root).collect()
    skipped = daft_twinwds.read_twin_webdataset(root, on_missing="skip").to_pydict()["__key__"]
    nulls = daft_twinwds.read_twin_webdataset(root, on_missing="null").to_pydict()
    assert skipped == [f"id_{i}" for i in range(12) if i != 4]
    assert nulls["__key__"] == [f"id_{i}" for i in range(12)]
    assert [i for i, caption in enumerate(nulls["caption"]) if caption is None] == [4]
    assert nulls["image"][4].position is not None


def test_a_modality_without_the_shard_gives_nulls_or_no_rows(root: Path) -> None:
    shard_path(root, "caption", 2).unlink()

    with pytest.raises(LayoutError, match=r"caption/part_000000/000002\.tar"):
        daft_twinwds.read_twin_webdataset(root)
    daft_twinwds.reset_scan_report()
    assert daft_twinwds.read_twin_webdataset(root, on_missing="skip").count_rows() == 9
    assert daft_twinwds.scan_report() == {"shards missing in a modality": 1}
    nulls = daft_twinwds.read_twin_webdataset(root, on_missing="null")
    assert nulls.count_rows() == 12
    assert nulls.where(col("caption").is_null()).select("__key__").to_pydict()["__key__"] == [
        "id_6",
        "id_7",
        "id_8",
    ]


def test_what_is_skipped_is_counted(root: Path) -> None:
    write_tar(
        shard_path(root, "caption", 0),
        [("id_0.json", b'{"prompt": "x"}'), ("id_1.json", b"broken"), ("id_2.json", b"{}")],
    )
    write_tar(
        shard_path(root, "image", 1),
        [("id_3.jpg", b"a"), ("id_3.jpg", b"b"), ("id_4.jpg", b"c"), ("id_5.jpg", b"d")],
    )
    whole = shard_path(root, "image", 2).read_bytes()
    shard_path(root, "image", 2).write_bytes(whole[: len(whole) // 3])
    daft_twinwds.reset_scan_report()

    df = daft_twinwds.read_twin_webdataset(root, on_error="skip")
    keys = df.to_pydict()["__key__"]

    report = daft_twinwds.scan_report()
    assert "id_1" not in keys
    assert "id_3" not in keys
    assert report["text that could not be parsed"] == 1
    assert report["duplicate key"] == 1
    assert report["damaged tar"] == 1
    assert len(keys) + 2 + report["key lost in a damaged tar"] == 12
    again = daft_twinwds.read_twin_webdataset(root, on_error="skip")
    assert again.count_rows() == len(keys)


def test_a_member_of_another_kind_is_refused_or_skipped(root: Path) -> None:
    members = [("id_0.jpg", b"a"), ("id_1.jpg", b"b"), ("id_2.npy", b"c")]
    df = daft_twinwds.read_twin_webdataset(root)
    skipping = daft_twinwds.read_twin_webdataset(root, on_error="skip")
    write_tar(shard_path(root, "image", 0), members)

    with pytest.raises(DaftCoreException, match=r"id_2.npy.*suffix 'npy'"):
        df.collect()
    daft_twinwds.reset_scan_report()
    assert "id_2" not in skipping.to_pydict()["__key__"]
    assert daft_twinwds.scan_report() == {"suffix that does not fit its column": 1}
    as_files = daft_twinwds.read_twin_webdataset(root, schema={"image": daft.DataType.file()})
    assert as_files.count_rows() == 12


def test_sample_keys_restrict_and_order(root: Path, tmp_path: Path) -> None:
    path = tmp_path / "keys.parquet"
    pq.write_table(pa.table({"key": ["id_11", "id_2", "id_0", "gone", "id_9"]}), path)

    df = daft_twinwds.read_twin_webdataset(root, sample_keys=path)

    assert df.to_pydict()["__key__"] == ["id_2", "id_0", "id_11", "id_9"]
    assert df.count_rows() == 4
    assert df.limit(3).count_rows() == 3


def test_sample_keys_may_be_changed_but_not_under_a_query(root: Path, tmp_path: Path) -> None:
    path = tmp_path / "keys.parquet"
    pq.write_table(pa.table({"key": ["id_1"]}), path)
    first = daft_twinwds.read_twin_webdataset(root, sample_keys=path)
    pq.write_table(pa.table({"key": ["id_2", "id_0"]}), path)

    second = daft_twinwds.read_twin_webdataset(root, sample_keys=path)

    assert first.to_pydict()["__key__"] == ["id_1"]
    assert second.to_pydict()["__key__"] == ["id_2", "id_0"]


def test_extra_fields_are_refused_or_counted(root: Path) -> None:
    declared = {"caption": daft.DataType.struct({"prompt": daft.DataType.string()})}
    daft_twinwds.reset_scan_report()

    with pytest.raises(DaftCoreException, match="extra_fields"):
        daft_twinwds.read_twin_webdataset(root, schema=declared).collect()
    df = daft_twinwds.read_twin_webdataset(root, schema=declared, extra_fields="ignore")

    assert df.to_pydict()["caption"][0].keys() == {"prompt"}
    assert any(reason.startswith("extra field caption.") for reason in daft_twinwds.scan_report())


@pytest.mark.parametrize(
    ("arguments", "error", "message"),
    [
        ({"on_missing": "drop"}, ValueError, "on_missing must be one of"),
        ({"on_error": "ignore"}, ValueError, "on_error must be one of"),
        ({"key_split": "middle"}, ValueError, "key_split must be one of"),
        ({"extra_fields": "keep"}, ValueError, "extra_fields must be one of"),
        ({"partition": [0, 4]}, ValueError, r"partition: shard 4 of 4; expected .* \[0, 4\)"),
        ({"partition": [-1]}, ValueError, "partition: shard -1 of 4"),
        ({"partition": [True]}, TypeError, r"the numbers of shards, got \[True\]"),
        ({"partition": ["0"]}, TypeError, "partition must be a Partition, or the numbers"),
        ({"partition": 3}, TypeError, "partition must be a Partition, or the numbers"),
        ({"batch_size": 0}, ValueError, "batch_size must be at least 1"),
        ({"where": "prompt like 'x'"}, TypeError, "where must be a Daft expression"),
        ({"where": col("caption")}, SchemaError, "where: col"),
        ({"where": col("nope") > 1}, SchemaError, "nope"),
        ({"sample_keys": "missing.parquet"}, StorageError, "missing.parquet"),
        ({"schema": {"nope": daft.DataType.string()}}, ValueError, "no column 'nope'"),
    ],
)
def test_wrong_arguments_are_refused_at_once(
    root: Path, arguments: dict[str, Any], error: type[Exception], message: str
) -> None:
    with pytest.raises(error, match=message):
        daft_twinwds.read_twin_webdataset(root, **arguments)


def test_a_doubled_key_is_an_error_when_the_schema_is_inferred(root: Path) -> None:
    write_tar(shard_path(root, "caption", 0), [("a.json", b"{}"), ("a.json", b"{}")])

    with pytest.raises(AlignmentError, match="key 'a' is held by 2 members"):
        daft_twinwds.read_twin_webdataset(root)


NO_HANG = """
import sys
import daft_twinwds
from daft import col
df = daft_twinwds.read_twin_webdataset(sys.argv[1])
assert df.count_rows() == 128, df.count_rows()
rows = df.where(col("caption")["prompt"].not_null()).to_pydict()
assert len(rows["image"]) == 128
with rows["image"][0].open() as file:
    assert file.read(2) == b"\\xff\\xd8"
print("done")
"""


@pytest.mark.parametrize("cpus", [1, 2])
def test_many_shards_on_few_cpus_do_not_hang(tmp_path: Path, cpus: int) -> None:
    """Daft's own readers wait for themselves here: every task holds a thread of Daft's IO pool."""
    root = make_twin_dataset(tmp_path, num_shards=64, samples_per_shard=2, image_size=(16, 16))
    allowed = sorted(os.sched_getaffinity(0))[:cpus]
    command = [sys.executable, "-c", NO_HANG, str(root)]

    done = subprocess.run(
        ["taskset", "-c", ",".join(map(str, allowed)), *command],
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )

    assert done.returncode == 0, done.stderr
    assert done.stdout.strip() == "done"


def test_a_text_too_large_to_hold_is_refused_or_skipped(
    root: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("daft_twinwds.query.text.MAX_TEXT_BYTES", 2000)
    monkeypatch.setattr("daft_twinwds.query.tar_reading.MAX_TEXT_BYTES", 2000)
    df = daft_twinwds.read_twin_webdataset(root)
    skipping = daft_twinwds.read_twin_webdataset(root, on_error="skip")
    large = json.dumps({"prompt": "x" * 3000}).encode()
    write_tar(shard_path(root, "caption", 0), [(f"id_{i}.json", large) for i in range(3)])
    daft_twinwds.reset_scan_report()

    with pytest.raises(DaftCoreException, match=r"id_0.json.*holds 3014 bytes"):
        df.collect()
    assert skipping.count_rows() == 9
    assert daft_twinwds.scan_report() == {"text larger than MAX_TEXT_BYTES": 3}
