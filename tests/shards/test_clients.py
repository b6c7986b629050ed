"""Clients: one per process and place, never across a fork, and with the right credentials."""

import os
import subprocess
import sys
import threading
import time
from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from obstore.store import S3Store

from daft_twinwds.errors import StorageError
from daft_twinwds.shards.clients import _azure, _gcs, object_store, request_pool
from daft_twinwds.shards.options import AzureOptions, GcsOptions, S3Options, StorageOptions
from daft_twinwds.shards.storage import read_range
from daft_twinwds.shards.urls import Url

if TYPE_CHECKING:
    from tests.conftest import RangeServer, S3Server

CONTENT = b"some bytes of an object"
OPTIONS = StorageOptions(backoff=0.01, retries=1, connect_timeout=1)


@pytest.fixture
def key(s3_server: "S3Server") -> str:
    """An object's URL."""
    s3_server.client.create_bucket(Bucket="clients")
    s3_server.client.put_object(Bucket="clients", Key="x", Body=CONTENT)
    return "s3://clients/x"


@pytest.fixture
def no_aws(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> pytest.MonkeyPatch:
    """An environment without anything of AWS's."""
    for name in os.environ:
        if name.startswith("AWS_"):
            monkeypatch.delenv(name)
    monkeypatch.setenv("HOME", str(tmp_path))
    return monkeypatch


@dataclass(frozen=True)
class Keys:
    """As `daft.io.S3Credentials`."""

    key_id: str
    access_key: str
    session_token: str | None = None
    expiry: datetime | None = None


def test_a_place_has_one_client() -> None:
    first, name = object_store(Url.parse("https://host/a%20b/c"), OPTIONS)
    second, other = object_store(Url.parse("https://host/d"), OPTIONS)

    assert first is second
    assert (name, other) == ("a b/c", "d")
    assert object_store(Url.parse("https://other/d"), OPTIONS)[0] is not first
    assert object_store(Url.parse("https://host/d"), replace(OPTIONS, retries=2))[0] is not first


def test_requests_side_by_side_are_as_many_as_the_options_say() -> None:
    few, many = replace(OPTIONS, max_requests=3), replace(OPTIONS, max_requests=20)
    barrier = threading.Barrier(20, timeout=20)

    assert len(list(request_pool(many).map(lambda _: barrier.wait(), range(20)))) == 20
    assert request_pool() is request_pool(OPTIONS)
    assert request_pool(few) is not request_pool(many)


FORK = """
import multiprocessing, sys
from daft_twinwds.shards.storage import read_range
url, used_before = sys.argv[1], sys.argv[2] == "used"
if used_before:
    read_range(url, 0, 4)
else:
    import daft_twinwds.shards.remote

def child(queue):
    try:
        queue.put(read_range(url, 0, 4).decode())
    except Exception as error:
        queue.put(f"{type(error).__name__}: {error}")

context = multiprocessing.get_context("fork")
queue = context.Queue()
process = context.Process(target=child, args=(queue,))
process.start()
print(queue.get(timeout=20))
process.join()
"""


@pytest.mark.parametrize(
    ("before", "expected"),
    [
        ("unused", "some"),
        (
            "used",
            "StorageError: {url}: this process was forked from one that had read from servers",
        ),
    ],
)
def test_a_fork_works_or_says_that_it_cannot(
    range_server: "RangeServer", before: str, expected: str
) -> None:
    range_server.files["/x"] = CONTENT
    url = f"{range_server.url}/x"

    done = subprocess.run(
        [sys.executable, "-W", "ignore", "-c", FORK, url, before],
        capture_output=True,
        text=True,
        check=True,
        timeout=60,
        env={**os.environ, "PYTHONPATH": str(Path.cwd())},
    )

    assert done.stdout.startswith(expected.format(url=url))
    assert "forkserver" in done.stdout or before == "unused"


def test_keys_come_from_the_environment(
    s3_server: "S3Server", key: str, no_aws: pytest.MonkeyPatch
) -> None:
    no_aws.setenv("AWS_ACCESS_KEY_ID", s3_server.key_id)
    no_aws.setenv("AWS_SECRET_ACCESS_KEY", s3_server.access_key)
    no_aws.setenv("AWS_ENDPOINT_URL", s3_server.endpoint)
    # Options of its own, as clients are kept for those that were used before.
    options = replace(OPTIONS, timeout=41)

    assert read_range(key, 0, 4, options) == CONTENT[:4]


def test_keys_come_from_the_shared_file(
    s3_server: "S3Server", key: str, no_aws: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    (tmp_path / ".aws").mkdir()
    (tmp_path / ".aws" / "credentials").write_text(
        f"[default]\naws_access_key_id = {s3_server.key_id}\n"
        f"aws_secret_access_key = {s3_server.access_key}\n"
    )
    options = replace(OPTIONS, timeout=42, s3=S3Options(endpoint_url=s3_server.endpoint))

    assert read_range(key, 0, 4, options) == CONTENT[:4]


def s3_on(server: "RangeServer", **more: Any) -> StorageOptions:
    """An S3 that takes any signature, and notes what it was sent."""
    server.files["/clients/x"] = CONTENT
    s3 = replace(S3Options(endpoint_url=server.url, region="eu-west-9"), **more)
    return replace(OPTIONS, s3=s3)


def test_given_keys_are_not_mixed_with_a_token_of_the_environment(
    range_server: "RangeServer", no_aws: pytest.MonkeyPatch
) -> None:
    no_aws.setenv("AWS_SESSION_TOKEN", "of-other-keys")

    read_range("s3://clients/x", 0, 4, s3_on(range_server, key_id="AKIA1", access_key="s"))

    headers = range_server.requests[0].headers
    assert "Credential=AKIA1/" in headers["authorization"]
    assert "/eu-west-9/s3/" in headers["authorization"]
    assert "x-amz-security-token" not in headers


def test_temporary_keys_are_sent_with_their_token(range_server: "RangeServer") -> None:
    options = s3_on(range_server, key_id="AKIA1", access_key="s", session_token="tok")

    read_range("s3://clients/x", 0, 4, options)

    assert range_server.requests[0].headers["x-amz-security-token"] == "tok"


def test_anonymous_requests_are_not_signed(range_server: "RangeServer") -> None:
    read_range("s3://clients/x", 0, 4, s3_on(range_server, anonymous=True))

    assert "authorization" not in range_server.requests[0].headers


def test_who_pays_is_told_with_each_request(range_server: "RangeServer") -> None:
    options = s3_on(range_server, key_id="A", access_key="s", requester_pays=True)

    read_range("s3://clients/x", 0, 4, options)

    assert range_server.requests[0].headers["x-amz-request-payer"] == "requester"


def test_a_refusal_tells_of_keys_and_of_readers_who_pay(range_server: "RangeServer") -> None:
    range_server.fail_always(
        "/clients/x", status=403, body=b"<Code>AccessDenied</Code>AKIA1 s3cr3t"
    )
    options = s3_on(range_server, key_id="AKIA1", access_key="s3cr3t")

    with pytest.raises(StorageError) as caught:
        read_range("s3://clients/x", 0, 4, options)

    assert "403 Forbidden, AccessDenied" in str(caught.value)
    assert "requester_pays=True" in str(caught.value)
    assert "anonymous=True" in str(caught.value)
    assert "AKIA1" not in str(caught.value)
    with pytest.raises(StorageError) as caught:
        read_range(
            "s3://clients/x", 0, 4, replace(options, s3=replace(options.s3, requester_pays=True))
        )
    assert "requester_pays" not in str(caught.value)


def test_expired_keys_are_told_with_the_cure(range_server: "RangeServer") -> None:
    range_server.fail_always("/clients/x", status=400, body=b"<Code>ExpiredToken</Code>")

    with pytest.raises(
        StorageError, match=r"400 Bad Request, ExpiredToken\); .*credentials_provider"
    ):
        read_range("s3://clients/x", 0, 4, s3_on(range_server, key_id="A", access_key="s"))

    assert len(range_server.requests) == 1


def test_a_provider_is_asked_once_while_its_keys_last(range_server: "RangeServer") -> None:
    asked: list[int] = []

    def provider() -> Keys:
        asked.append(len(asked))
        # A time without a zone is UTC's.
        soon = datetime.now(UTC).replace(tzinfo=None) + timedelta(hours=1)
        return Keys(f"AKIA{len(asked)}", "s", "tok", soon)

    options = s3_on(range_server, provider=provider)
    for _ in range(3):
        read_range("s3://clients/x", 0, 4, options)

    assert asked == [0]
    assert "Credential=AKIA1/" in range_server.requests[-1].headers["authorization"]


def test_a_provider_is_asked_again_before_its_keys_expire(range_server: "RangeServer") -> None:
    asked: list[int] = []

    def provider() -> Keys:
        asked.append(len(asked))
        return Keys(f"AKIA{len(asked)}", "s", None, datetime.now(UTC) + timedelta(seconds=30))

    options = s3_on(range_server, provider=provider)
    for _ in range(3):
        read_range("s3://clients/x", 0, 4, options)
        time.sleep(0.15)  # the client asks no more than ten times a second

    used = [
        one.headers["authorization"].split("Credential=")[1][:5] for one in range_server.requests
    ]
    assert used == ["AKIA1", "AKIA2", "AKIA3"]


def test_a_provider_that_fails_is_told_without_its_text(range_server: "RangeServer") -> None:
    def provider() -> Keys:
        raise RuntimeError("hunter2")

    with pytest.raises(StorageError, match="the credentials provider failed") as caught:
        read_range("s3://clients/x", 0, 4, s3_on(range_server, provider=provider))

    assert "hunter2" not in f"{caught.value} {caught.value.__cause__}"
    assert range_server.requests == []


def test_half_a_key_is_refused(range_server: "RangeServer") -> None:
    with pytest.raises(ValueError, match="both key_id and access_key, or none of them"):
        read_range("s3://clients/x", 0, 4, s3_on(range_server, key_id="A"))


@pytest.mark.parametrize(
    ("options", "expected"),
    [
        (GcsOptions(), {}),
        (GcsOptions(anonymous=True, token="t"), {"skip_signature": True}),
        (GcsOptions(token="t", credentials="c"), {"bearer_token": "t"}),
        (GcsOptions(credentials=' {"type": 1}'), {"service_account_key": ' {"type": 1}'}),
        (GcsOptions(credentials="/key.json"), {"application_credentials": "/key.json"}),
        (GcsOptions(endpoint_url="http://e"), {"base_url": "http://e"}),
    ],
)
def test_options_of_google_become_settings(options: GcsOptions, expected: dict[str, Any]) -> None:
    assert _gcs(options) == expected


@pytest.mark.parametrize(
    ("options", "host", "expected"),
    [
        (AzureOptions(), "", {}),
        (AzureOptions(account="a"), "other.dfs.core.windows.net", {"account_name": "a"}),
        (AzureOptions(), "a.dfs.core.windows.net", {"account_name": "a"}),
        (
            AzureOptions(),
            "a.dfs.fabric.microsoft.com",
            {"account_name": "a", "use_fabric_endpoint": True},
        ),
        (AzureOptions(anonymous=True, access_key="k"), "", {"skip_signature": True}),
        (
            AzureOptions(access_key="k", sas_token="s"),
            "",
            {"account_key": "k", "credential_type": "access_key"},
        ),
        (AzureOptions(sas_token="s"), "", {"sas_key": "s", "credential_type": "sas_token"}),
        (AzureOptions(bearer_token="b"), "", {"token": "b", "credential_type": "bearer_token"}),
        (
            AzureOptions(client_id="c", client_secret="x", tenant_id="t"),
            "",
            {
                "client_id": "c",
                "client_secret": "x",
                "tenant_id": "t",
                "credential_type": "client_secret",
            },
        ),
        (AzureOptions(endpoint_url="http://e"), "", {"endpoint": "http://e"}),
    ],
)
def test_options_of_azure_become_settings(
    monkeypatch: pytest.MonkeyPatch, options: AzureOptions, host: str, expected: dict[str, Any]
) -> None:
    monkeypatch.delenv("AZURE_STORAGE_ACCOUNT", raising=False)

    assert _azure(options, host=host) == expected


def test_azure_s_account_may_come_from_the_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("AZURE_STORAGE_ACCOUNT", "a")

    assert _azure(AzureOptions(), host="") == {"account_name": "a"}


def test_certificates_are_checked_unless_told_otherwise(range_server: "RangeServer") -> None:
    options = s3_on(range_server, anonymous=True, verify_ssl=False)

    store, _ = object_store(Url.parse("s3://clients/x"), options)
    checked, _ = object_store(Url.parse("s3://clients/x"), s3_on(range_server, anonymous=True))

    assert isinstance(store, S3Store)
    assert isinstance(checked, S3Store)
    assert "allow_invalid_certificates" in (store.client_options or {})
    assert "allow_invalid_certificates" not in (checked.client_options or {})
