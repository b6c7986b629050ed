"""Writing to a bucket, and from files that come with their own credentials."""

import json
from pathlib import Path
from typing import TYPE_CHECKING, Any

import daft
import pytest
from daft import col
from daft.io import IOConfig, S3Config

from daft_twinwds import read_twin_webdataset
from daft_twinwds.errors import LayoutError, StorageError
from daft_twinwds.query.sink import write_twin_webdataset
from daft_twinwds.query.sink_files import PIECE
from daft_twinwds.shards import write_remote
from daft_twinwds.shards.write_remote import RemoteFolder
from daft_twinwds.testing import make_twin_dataset

if TYPE_CHECKING:
    from tests.conftest import RangeServer, S3Server


def config_of(server: "S3Server", **changes: Any) -> IOConfig:
    settings = {
        "key_id": server.key_id,
        "access_key": server.access_key,
        "endpoint_url": server.endpoint,
        "region_name": "us-east-1",
        **changes,
    }
    return IOConfig(s3=S3Config(**settings))


@pytest.fixture
def bucket(s3_server: "S3Server") -> str:
    s3_server.client.create_bucket(Bucket="target")
    return "target"


def keys_in(server: "S3Server", bucket: str) -> list[str]:
    """Every object, and every upload that was begun and not ended."""
    found = server.client.list_objects_v2(Bucket=bucket).get("Contents", [])
    begun = server.client.list_multipart_uploads(Bucket=bucket).get("Uploads", [])
    return [item["Key"] for item in found] + [f"begun: {item['Key']}" for item in begun]


def numbered(count: int, *, first: int = 0) -> daft.DataFrame:
    numbers = list(range(first, first + count))
    return daft.from_pydict({"__key__": [f"id_{number}" for number in numbers], "number": numbers})


def test_a_bucket_holds_the_data_set_and_nothing_else(
    s3_server: "S3Server", bucket: str, tmp_path: Path
) -> None:
    make_twin_dataset(tmp_path / "in", num_shards=2, samples_per_shard=3)
    df = read_twin_webdataset(tmp_path / "in")
    config = config_of(s3_server)

    written = write_twin_webdataset(
        df, f"s3://{bucket}/some data/set", io_config=config, max_shard_samples=4
    )

    names = written.to_pydict()["shard"]
    found = read_twin_webdataset(f"s3://{bucket}/some data/set", io_config=config)
    assert found.sort("__key__").to_pydict()["caption"] == df.sort("__key__").to_pydict()["caption"]
    assert sorted(keys_in(s3_server, bucket)) == sorted(
        ["some data/set/wdinfo.json"]
        + [
            f"some data/set/{modality}/{name}"
            for modality in ("image", "caption")
            for name in names
        ]
    )


def test_appending_and_overwriting_work_in_a_bucket(s3_server: "S3Server", bucket: str) -> None:
    path, config = f"s3://{bucket}/set", config_of(s3_server)
    write_twin_webdataset(numbered(2), path, io_config=config)

    write_twin_webdataset(numbered(2, first=2), path, io_config=config, mode="append")
    appended = sorted(read_twin_webdataset(path, io_config=config).to_pydict()["number"])
    write_twin_webdataset(numbered(1, first=9), path, io_config=config, mode="overwrite")

    assert appended == [0, 1, 2, 3]
    assert read_twin_webdataset(path, io_config=config).to_pydict()["number"] == [9]
    assert len(keys_in(s3_server, bucket)) == 2


def test_a_bucket_with_something_in_it_is_refused(s3_server: "S3Server", bucket: str) -> None:
    s3_server.put(bucket, "set/notes.txt", b"mine")

    with pytest.raises(LayoutError, match=r"notes\.txt found; expected a new or empty folder"):
        write_twin_webdataset(numbered(1), f"s3://{bucket}/set", io_config=config_of(s3_server))

    assert keys_in(s3_server, bucket) == ["set/notes.txt"]


def test_a_failing_task_leaves_nothing_in_a_bucket(s3_server: "S3Server", bucket: str) -> None:
    @daft.func
    def fail_late(number: int) -> int:
        if number == 5:
            raise ValueError("number too large")
        return number

    df = numbered(6).into_batches(1).with_column("number", fail_late(col("number")))

    with pytest.raises(Exception, match="number too large"):
        write_twin_webdataset(
            df, f"s3://{bucket}/set", io_config=config_of(s3_server), batch_size=1
        )

    left = [key for key in keys_in(s3_server, bucket) if not key.startswith("set/.write-")]
    assert left == []


def test_of_two_writers_of_a_bucket_the_second_fails_and_harms_nothing(
    s3_server: "S3Server", bucket: str
) -> None:
    path, config = f"s3://{bucket}/set", config_of(s3_server)

    @daft.func
    def write_too(number: int) -> int:
        if number == 0:
            write_twin_webdataset(numbered(3, first=10), path, io_config=config)
        return number

    df = numbered(3).with_column("number", write_too(col("number")))
    with pytest.raises(LayoutError, match="was written by another process meanwhile"):
        write_twin_webdataset(df, path, io_config=config)

    found = read_twin_webdataset(path, io_config=config).to_pydict()["number"]
    assert sorted(found) == [10, 11, 12]
    assert len(keys_in(s3_server, bucket)) == 2


def test_what_a_killed_writer_left_goes_only_when_it_is_old(
    s3_server: "S3Server", bucket: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    config = config_of(s3_server)
    left = f"set/.write-{'0' * 32}/number/x.tar"
    s3_server.put(bucket, left, b"half of a data set")

    write_twin_webdataset(numbered(1), f"s3://{bucket}/set", io_config=config)
    young = keys_in(s3_server, bucket)
    monkeypatch.setattr(write_remote, "LEFT_AFTER", write_remote.LEFT_AFTER * -1)
    write_twin_webdataset(
        numbered(1, first=1), f"s3://{bucket}/set", io_config=config, mode="append"
    )

    assert left in young
    assert left not in keys_in(s3_server, bucket)


def test_a_bucket_that_is_not_there_is_an_error_without_secrets(s3_server: "S3Server") -> None:
    with pytest.raises(StorageError, match="s3://nowhere/set") as caught:
        write_twin_webdataset(numbered(1), "s3://nowhere/set", io_config=config_of(s3_server))

    assert s3_server.access_key not in str(caught.value)


def test_files_are_read_with_the_credentials_that_they_come_with(
    s3_server: "S3Server", tmp_path: Path
) -> None:
    make_twin_dataset(tmp_path / "in", num_shards=1, samples_per_shard=3)
    root = s3_server.upload(tmp_path / "in", "source")
    config = config_of(s3_server)
    whole = [daft.File(f"{root}/image/part_000000/000000.tar", config)]
    df = daft.from_pydict({"__key__": ["a"], "tar": whole})

    write_twin_webdataset(df, tmp_path / "out", suffixes={"tar": "bin"})

    content = (tmp_path / "in/image/part_000000/000000.tar").read_bytes()
    assert content in (tmp_path / "out/tar/part_000000/000000.tar").read_bytes()


def test_files_without_credentials_are_read_with_those_of_their_column(
    s3_server: "S3Server", tmp_path: Path
) -> None:
    make_twin_dataset(tmp_path / "in", num_shards=2, samples_per_shard=3)
    root = s3_server.upload(tmp_path / "in", "source")
    config = config_of(s3_server)
    df = read_twin_webdataset(root, io_config=config)

    write_twin_webdataset(df, tmp_path / "out", io_config={"image": config})

    read = read_twin_webdataset(tmp_path / "out").sort("__key__").to_pydict()
    source = read_twin_webdataset(tmp_path / "in").sort("__key__").to_pydict()
    assert read["caption"] == source["caption"]
    assert json.loads((tmp_path / "out/wdinfo.json").read_text())["total_key_count"] == 6


def test_a_file_that_is_replaced_while_it_is_copied_is_an_error(
    range_server: "RangeServer", tmp_path: Path
) -> None:
    range_server.files["/a.bin"] = b"a" * (3 * PIECE)
    whole = [daft.File(f"{range_server.url}/a.bin")]
    df = daft.from_pydict({"__key__": ["a"], "data": whole})
    write_twin_webdataset(df, tmp_path / "before")
    num_requests = len(range_server.requests)

    # Of the three pieces the first is of the old version.
    range_server.fail("/a.bin", times=num_requests - 2)
    range_server.fail("/a.bin", replaces=b"b" * (3 * PIECE))
    with pytest.raises(RuntimeError, match=r"a\.bin: was replaced while it was read"):
        write_twin_webdataset(df, tmp_path / "after")

    assert not (tmp_path / "after").exists()


def test_a_bucket_cannot_be_overwritten_from_itself(s3_server: "S3Server", tmp_path: Path) -> None:
    make_twin_dataset(tmp_path / "in", num_shards=1, samples_per_shard=2)
    root = s3_server.upload(tmp_path / "in", "source")
    config = config_of(s3_server)
    before = keys_in(s3_server, "source")
    df = read_twin_webdataset(root, io_config=config)

    with pytest.raises(RuntimeError, match="which is to be overwritten"):
        write_twin_webdataset(
            df, root.replace("s3://", "s3a://"), io_config=config, mode="overwrite"
        )

    assert keys_in(s3_server, "source") == before


def test_a_remote_folder_shows_no_secrets(s3_server: "S3Server") -> None:
    from daft_twinwds.query.io_options import storage_options
    from daft_twinwds.shards.options import StorageOptions

    options = storage_options(config_of(s3_server))
    assert isinstance(options, StorageOptions)

    assert s3_server.access_key not in repr(RemoteFolder(path="s3://b/x", options=options))
