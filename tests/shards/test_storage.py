"""One way to open a file, whatever it is stored in."""

import os
import subprocess
import sys
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any
from urllib.parse import quote, unquote

import fsspec
import numpy as np
import pytest

from daft_twinwds.errors import MissingDependencyError, StorageError
from daft_twinwds.shards.local import LocalFile
from daft_twinwds.shards.options import (
    AzureOptions,
    GcsOptions,
    HttpOptions,
    S3Options,
    StorageOptions,
)
from daft_twinwds.shards.storage import MissingObjectError, open_file, read_range

if TYPE_CHECKING:
    from tests.conftest import RangeServer, S3Server

CONTENT = np.random.default_rng(0).bytes(300_000)
SPECIAL = [
    "with space",
    "h#sh",
    "pct%20x%",
    "plus+&=",
    "what?",
    "set[1]{a,b}*",
    "\u56fe\u50cf",
    "a@b:c;~'\"",
]
OPTIONS = StorageOptions(backoff=0.01, retries=2)


def check(path: str, options: StorageOptions) -> None:
    """Read a file that holds `CONTENT` in every way there is."""
    with open_file(path, options) as file:
        assert len(file) == len(CONTENT)
        assert file.data()[7:77] == CONTENT[7:77]
        assert file[-5:] == CONTENT[-5:]
        assert file.read(280_000, 20_000) == CONTENT[280_000:]
        assert file.read_many([299_000, 3, 10], [1000, 4, 0]) == [
            CONTENT[299_000:],
            CONTENT[3:7],
            b"",
        ]
        with pytest.raises(
            StorageError, match=r"1 bytes at byte 299999, expected 2; .*cut or repl"
        ):
            file.read(299_999, 2)
    assert read_range(path, 9, 11, options) == CONTENT[9:20]
    assert read_range(path, 299_990, None, options) == CONTENT[-10:]
    with pytest.raises(StorageError, match="1 bytes at byte 299999, expected 2"):
        read_range(path, 299_999, 2, options)


def s3_options(server: "S3Server", **more: Any) -> StorageOptions:
    return replace(
        OPTIONS,
        s3=S3Options(
            key_id=server.key_id,
            access_key=server.access_key,
            endpoint_url=server.endpoint,
            region="us-east-1",
            **more,
        ),
    )


def test_local_paths_and_file_urls_are_read_from_the_disk(tmp_path: Path) -> None:
    path = tmp_path / "a b%20c?.bin"
    path.write_bytes(CONTENT)

    check(str(path), OPTIONS)
    with open_file(f"file://{tmp_path}/a%20b%2520c%3F.bin") as file:
        assert isinstance(file, LocalFile)
        assert file.path == str(path)


@pytest.mark.parametrize("name", SPECIAL)
def test_http_urls_are_read_with_special_characters(range_server: "RangeServer", name: str) -> None:
    range_server.files[f"/{name}/{name}.tar"] = CONTENT

    check(f"{range_server.url}/{quote(name)}/{quote(name)}.tar", OPTIONS)
    assert {one.method for one in range_server.requests} == {"GET"}


@pytest.mark.parametrize("target", ["/a%2Fb.tar", "/a//b.tar", "/a/b.tar/", "/"])
def test_http_paths_that_are_no_list_of_names_are_sent_as_they_are(
    range_server: "RangeServer", target: str
) -> None:
    range_server.files[unquote(target)] = CONTENT

    assert read_range(f"{range_server.url}{target}?sig=1", 3, 5) == CONTENT[3:8]
    assert range_server.requests[0].target == f"{target}?sig=1"


@pytest.mark.parametrize("name", SPECIAL)
def test_keys_of_s3_are_read_with_special_characters(s3_server: "S3Server", name: str) -> None:
    s3_server.client.create_bucket(Bucket="special")
    s3_server.client.put_object(Bucket="special", Key=f"{name}/{name}.tar", Body=CONTENT)

    check(f"s3://special/{name}/{name}.tar", s3_options(s3_server))


def test_presigned_urls_are_read_and_never_shown(s3_server: "S3Server") -> None:
    s3_server.client.create_bucket(Bucket="signed")
    s3_server.client.put_object(Bucket="signed", Key="a b.tar", Body=CONTENT)
    url = s3_server.client.generate_presigned_url(
        "get_object", Params={"Bucket": "signed", "Key": "a b.tar"}
    )

    check(url, OPTIONS)
    with open_file(url) as file:
        assert file.path == f"{s3_server.endpoint}/signed/a%20b.tar"


def test_a_required_query_goes_with_every_request(range_server: "RangeServer") -> None:
    range_server.files["/x"] = CONTENT
    range_server.required_query = "sig=a%2Fb%3D&x=1"

    check(f"{range_server.url}/x?sig=a%2Fb%3D&x=1", OPTIONS)
    with pytest.raises(
        StorageError, match=r"403 Forbidden, AccessDenied\); .*sign the URL again"
    ) as e:
        read_range(f"{range_server.url}/x?sig=expired", 0, 1)
    assert "expired;" not in str(e.value).replace("may have expired;", "")
    assert "sig=" not in str(e.value)


@pytest.mark.parametrize(
    ("http", "header"),
    [
        (HttpOptions(bearer_token="tok"), ("Authorization", "Bearer tok")),
        (HttpOptions(headers=(("x-key", "k"),)), ("x-key", "k")),
        (HttpOptions(user="me:p%40ss"), ("Authorization", "Basic bWU6cEBzcw==")),
    ],
)
def test_http_credentials_go_into_headers(
    range_server: "RangeServer", http: HttpOptions, header: tuple[str, str]
) -> None:
    range_server.files["/x"] = CONTENT
    range_server.required_header = header

    check(f"{range_server.url}/x", replace(OPTIONS, http=http))
    with pytest.raises(StorageError, match="401 Unauthorized"):
        read_range(f"{range_server.url}/x", 0, 1, OPTIONS)


def test_name_and_password_of_a_url_are_sent_and_never_shown(range_server: "RangeServer") -> None:
    range_server.files["/x"] = CONTENT
    range_server.required_header = ("Authorization", "Basic bWU6cHc=")
    url = range_server.url.replace("http://", "http://me:pw@")

    check(f"{url}/x", OPTIONS)
    with pytest.raises(StorageError, match=f"^{range_server.url}/none: reading") as caught:
        read_range(f"{url}/none", 0, 1)
    assert "pw" not in str(caught.value)


def test_google_storage_is_read_through_its_endpoint(range_server: "RangeServer") -> None:
    range_server.files["/bucket/a b#.tar"] = CONTENT
    range_server.required_header = ("Authorization", "Bearer tok")
    gcs = GcsOptions(endpoint_url=range_server.url, token="tok")

    check("gs://bucket/a b#.tar", replace(OPTIONS, gcs=gcs))


@pytest.mark.parametrize(
    "url", ["az://data/a b#.tar", "abfs://data@mine.dfs.core.windows.net/a b#.tar"]
)
def test_azure_is_read_through_its_endpoint(range_server: "RangeServer", url: str) -> None:
    range_server.files["/data/a b#.tar"] = CONTENT
    range_server.required_header = ("Authorization", "Bearer tok")
    azure = AzureOptions(account="mine", endpoint_url=range_server.url, bearer_token="tok")

    check(url, replace(OPTIONS, azure=azure))


@pytest.mark.parametrize("name", SPECIAL)
def test_other_schemes_are_read_through_fsspec(name: str) -> None:
    system = fsspec.filesystem("memory")
    system.pipe(f"/set/{name}.tar", CONTENT)

    check(f"memory://set/{name}.tar", OPTIONS)
    with pytest.raises(
        MissingObjectError, match=r"^memory://set/none: reading .*\(404 Not Found\)"
    ):
        read_range("memory://set/none", 0, 1)
    system.rm("/set", recursive=True)


def test_a_file_system_without_ranges_of_its_own_is_read_without_reading_ahead(
    tmp_path: Path,
) -> None:
    asked: list[tuple[int, int]] = []

    class BufferedFile(fsspec.spec.AbstractBufferedFile):  # type: ignore[misc]
        def _fetch_range(self, start: int, end: int) -> bytes:
            asked.append((start, end))
            return CONTENT[start:end]

    class BufferedSystem(fsspec.AbstractFileSystem):  # type: ignore[misc]
        protocol = "buffered"

        def info(self, path: str, **kwargs: Any) -> dict[str, Any]:
            return {"name": path, "size": len(CONTENT), "type": "file"}

        def _open(self, path: str, mode: str = "rb", **kwargs: Any) -> BufferedFile:
            kwargs.pop("autocommit")
            return BufferedFile(self, path, mode, **kwargs)

    fsspec.register_implementation("buffered", BufferedSystem, clobber=True)

    check("buffered://x", OPTIONS)
    asked.clear()
    assert read_range("buffered://x", 1000, 10) == CONTENT[1000:1010]
    assert asked == [(1000, 1010)]


def test_an_unknown_scheme_is_refused() -> None:
    with pytest.raises(
        StorageError, match=r"^foo://b/x: scheme 'foo' is not known; expected a loc"
    ):
        open_file("foo://b/x")


def test_a_missing_package_is_named_with_its_pip_command(monkeypatch: pytest.MonkeyPatch) -> None:
    def missing(scheme: str) -> None:
        raise ImportError("Install huggingface_hub to access HfFileSystem")

    monkeypatch.setattr(fsspec, "get_filesystem_class", missing)
    monkeypatch.setitem(sys.modules, "paramiko", None)

    with pytest.raises(MissingDependencyError, match=r"run: pip install 'daft-twinwds\[hf\]'"):
        open_file("hf://datasets/me/set/x.tar")
    with pytest.raises(
        MissingDependencyError, match=r"^sftp://host/x.tar: .*not installed .*paramiko"
    ):
        open_file("sftp://me:pw@host/x.tar")


@pytest.mark.parametrize("key", ["a//x", "a/./x", "a/../x"])
def test_keys_that_cannot_be_asked_for_are_refused(s3_server: "S3Server", key: str) -> None:
    with pytest.raises(StorageError, match=r"a part that is empty, '\.' or '\.\.', which cannot"):
        read_range(f"s3://bucket/{key}", 0, 1, s3_options(s3_server))


def test_a_missing_bucket_and_key_are_told_apart(s3_server: "S3Server") -> None:
    s3_server.client.create_bucket(Bucket="there")

    with pytest.raises(MissingObjectError, match=r"^s3://there/x: .*\(404 Not Found, NoSuchKey\)"):
        read_range("s3://there/x", 0, 1, s3_options(s3_server))
    with pytest.raises(
        MissingObjectError, match=r"^s3://none/x: .*\(404 Not Found, NoSuchBucket\)"
    ):
        read_range("s3://none/x", 0, 1, s3_options(s3_server))


def test_local_files_need_no_client_library(tmp_path: Path) -> None:
    (tmp_path / "x").write_bytes(b"abc")
    code = (
        "import sys; from daft_twinwds.shards.storage import read_range; "
        "from daft_twinwds.shards.layout import find_dataset; "
        f"assert read_range({str(tmp_path / 'x')!r}, 1, 2) == b'bc'; "
        "assert 'obstore' not in sys.modules, 'obstore'"
    )

    subprocess.run(
        [sys.executable, "-c", code], check=True, env={**os.environ, "PYTHONPATH": str(Path.cwd())}
    )
