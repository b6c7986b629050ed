from typing import TYPE_CHECKING

import pytest
from obstore.store import S3Store

from daft_twinwds.errors import LayoutError, StorageError
from daft_twinwds.shards import new_object as module
from daft_twinwds.shards.clients import object_store
from daft_twinwds.shards.new_object import copy_object, new_object, put_object, version_of
from daft_twinwds.shards.options import S3Options, StorageOptions
from daft_twinwds.shards.storage import read_range
from daft_twinwds.shards.urls import Url

if TYPE_CHECKING:
    from tests.conftest import S3Server

MIB = 1 << 20


@pytest.fixture
def options(s3_server: "S3Server") -> StorageOptions:
    s3_server.client.create_bucket(Bucket="target")
    return StorageOptions(
        s3=S3Options(
            key_id=s3_server.key_id,
            access_key=s3_server.access_key,
            endpoint_url=s3_server.endpoint,
            region="us-east-1",
        ),
        retries=1,
        backoff=0.01,
    )


def state_of(server: "S3Server") -> tuple[list[str], int]:
    """Objects, and uploads that were begun and not ended."""
    objects = server.client.list_objects_v2(Bucket="target").get("Contents", [])
    begun = server.client.list_multipart_uploads(Bucket="target").get("Uploads", [])
    return [item["Key"] for item in objects], len(begun)


@pytest.mark.parametrize(
    "size",
    [
        pytest.param(0, id="empty"),
        pytest.param(3, id="small"),
        pytest.param(8 * MIB, id="one-part"),
        pytest.param(17 * MIB + 5, id="three-parts"),
    ],
)
def test_an_object_holds_what_was_written(
    s3_server: "S3Server", options: StorageOptions, size: int
) -> None:
    content = (bytes(range(256)) * (size // 256 + 1))[:size]

    with new_object("s3://target/a b/x", options) as file:
        for start in range(0, size, 700_001):
            file.write(content[start : start + 700_001])

    stored = s3_server.client.get_object(Bucket="target", Key="a b/x")["Body"].read()
    assert stored == content
    assert state_of(s3_server) == (["a b/x"], 0)


def test_an_object_appears_only_when_it_is_whole(
    s3_server: "S3Server", options: StorageOptions
) -> None:
    with new_object("s3://target/x", options) as file:
        file.write(bytes(9 * MIB))
        during = state_of(s3_server)[0]

    assert during == []
    assert state_of(s3_server) == (["x"], 0)


@pytest.mark.parametrize("size", [pytest.param(10, id="small"), pytest.param(20 * MIB, id="parts")])
@pytest.mark.parametrize("kind", [RuntimeError, StorageError])
def test_after_an_error_the_old_object_stays_and_nothing_else(
    s3_server: "S3Server", options: StorageOptions, size: int, kind: type[Exception]
) -> None:
    s3_server.put("target", "x", b"old")

    def write_half() -> None:
        with new_object("s3://target/x", options) as file:
            file.write(bytes(size))
            raise kind("half way")

    with pytest.raises(kind, match="half way"):
        write_half()

    assert s3_server.client.get_object(Bucket="target", Key="x")["Body"].read() == b"old"
    assert state_of(s3_server) == (["x"], 0)


def test_a_bucket_that_is_not_there_is_named_without_secrets(options: StorageOptions) -> None:
    def write() -> None:
        with new_object("s3://nowhere/x", options) as file:
            file.write(b"data")

    with pytest.raises(StorageError, match=r"s3://nowhere/x: writing failed") as caught:
        write()

    secret = options.s3.access_key
    assert secret is not None
    assert secret not in f"{caught.value}{caught.value.__cause__}"


def test_objects_are_copied_by_the_store(s3_server: "S3Server", options: StorageOptions) -> None:
    s3_server.put("target", "x", b"content")

    copy_object("s3://target/x", "s3://target/a b/y", options)

    assert read_range("s3://target/a b/y", 0, options=options) == b"content"


def test_objects_too_large_for_that_are_sent_again(
    s3_server: "S3Server", options: StorageOptions, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "_LARGEST_COPY", MIB)
    content = bytes(range(256)) * (9 * MIB // 256) + b"end"
    s3_server.put("target", "x", content)

    copy_object("s3://target/x", "s3://target/y", options)

    assert read_range("s3://target/y", 0, options=options) == content


def test_copying_what_is_not_there_is_an_error(options: StorageOptions) -> None:
    with pytest.raises(StorageError, match="copying s3://target/x"):
        copy_object("s3://target/x", "s3://target/y", options)


def test_a_small_object_replaces_only_the_version_that_was_seen(options: StorageOptions) -> None:
    url = "s3://target/wdinfo.json"

    put_object(url, b"one", options, replaces=version_of(url, options))
    first = version_of(url, options)
    put_object(url, b"two", options, replaces=first)

    with pytest.raises(LayoutError, match="written by another process meanwhile"):
        put_object(url, b"three", options, replaces=first)
    with pytest.raises(LayoutError, match="written by another process meanwhile"):
        put_object(url, b"three", options, replaces=None)
    assert read_range(url, 0, options=options) == b"two"


def test_what_a_lost_answer_was_about_is_no_conflict(options: StorageOptions) -> None:
    url = "s3://target/wdinfo.json"
    put_object(url, b"one", options, replaces=None)

    put_object(url, b"one", options, replaces=None)

    assert read_range(url, 0, options=options) == b"one"


def test_only_clients_that_send_in_parts_repeat_requests_by_themselves(
    options: StorageOptions,
) -> None:
    url = Url.parse("s3://target/x")

    for repeats, retries in ((False, 0), (True, options.retries)):
        store, _ = object_store(url, options, repeats=repeats)
        assert isinstance(store, S3Store)
        assert store.retry_config is not None
        assert store.retry_config["max_retries"] == retries
