"""URLs: which parts they have, what is shown of them, and what lies below them."""

from urllib.parse import unquote

import pytest
from hypothesis import given
from hypothesis import strategies as st

from daft_twinwds.errors import StorageError
from daft_twinwds.shards.urls import (
    Url,
    is_url,
    iter_parents,
    join,
    local_path,
    scheme_of,
    shown,
)

NAMES = st.text(alphabet="ab /#?%+&=[]{}*~\u56fe.", min_size=1).filter(
    lambda name: name == name.strip("/") and "//" not in name
)


@pytest.mark.parametrize(
    ("text", "scheme", "authority", "path", "query"),
    [
        ("s3://bucket/a/b.tar", "s3", "bucket", "a/b.tar", ""),
        ("S3://bucket", "s3", "bucket", "", ""),
        ("s3://bucket/a b#c?d%20e.tar", "s3", "bucket", "a b#c?d%20e.tar", ""),
        ("gs://b//a", "gs", "b", "a", ""),
        ("https://host:8080/a%20b?x=1&y=%2F#top", "https", "host:8080", "a%20b", "x=1&y=%2F"),
        ("http://host/a b\u56fe", "http", "host", "a%20b%E5%9B%BE", ""),
        ("http://host?x=1", "http", "host", "", "x=1"),
        (
            "abfs://data@account.dfs.core.windows.net/a",
            "abfs",
            "data@account.dfs.core.windows.net",
            "a",
            "",
        ),
        ("hf://datasets/me/set@main/a", "hf", "datasets", "me/set@main/a", ""),
    ],
)
def test_url_is_taken_apart(text: str, scheme: str, authority: str, path: str, query: str) -> None:
    url = Url.parse(text)

    assert (url.scheme, url.authority, url.path, url.query) == (scheme, authority, path, query)


def test_local_path_is_no_url() -> None:
    with pytest.raises(ValueError, match="expected a URL such as s3://bucket/data, got '/data'"):
        Url.parse("/data")


@pytest.mark.parametrize(
    ("path", "scheme", "remote"),
    [
        ("/data/set", None, False),
        ("data:/set", None, False),
        ("FILE:///data", "file", False),
        ("s3://b", "s3", True),
        ("HTTPS://host/a", "https", True),
    ],
)
def test_scheme_tells_urls_from_local_paths(path: str, scheme: str | None, remote: bool) -> None:
    assert scheme_of(path) == scheme
    assert is_url(path) == remote


@pytest.mark.parametrize(
    ("path", "expected"),
    [
        ("/data/a?b#c", "/data/a?b#c"),
        ("https://me:password@host/a.tar?signature=secret", "https://host/a.tar"),
        ("https://host?signature=secret", "https://host"),
        ("ftp://me:password@host/a.tar", "ftp://host/a.tar"),
        ("s3://bucket/a@b?c", "s3://bucket/a@b?c"),
    ],
)
def test_neither_password_nor_query_is_shown(path: str, expected: str) -> None:
    assert shown(path) == expected
    if is_url(path):
        assert "secret" not in repr(Url.parse(path))
        assert "password" not in repr(Url.parse(path))


def test_secrets_are_kept_for_sending() -> None:
    text = "https://me:password@host/a.tar?signature=secret"

    assert Url.parse(text).with_secrets() == text


@pytest.mark.parametrize(
    ("folder", "names", "expected"),
    [
        ("/data", ("image", "a b.tar"), "/data/image/a b.tar"),
        ("/", ("image",), "/image"),
        ("s3://b/x y", ("image", "a#b?.tar"), "s3://b/x y/image/a#b?.tar"),
        ("s3://b", ("image",), "s3://b/image"),
        ("https://h/x%20y", ("image", "a#b%.tar"), "https://h/x%20y/image/a%23b%25.tar"),
        ("https://h/?s=1", ("wdinfo.json",), "https://h/wdinfo.json?s=1"),
        ("https://h/x", ("", ""), "https://h/x"),
        ("https://h/x", ("", "image"), "https://h/x/image"),
    ],
)
def test_names_are_joined_to_a_folder(folder: str, names: tuple[str, ...], expected: str) -> None:
    assert join(folder, *names) == expected


@given(name=NAMES)
def test_joined_http_names_come_back_by_decoding(name: str) -> None:
    url = Url.parse(join("https://host/data?sig=1", name))

    assert unquote(url.path) == f"data/{name}"
    assert url.query == "sig=1"


@given(name=NAMES)
def test_joined_names_of_object_stores_are_literal(name: str) -> None:
    assert Url.parse(join("s3://bucket/data", name)).path == f"data/{name}"


@pytest.mark.parametrize(
    ("path", "expected"),
    [
        ("/a/b/c", ["/a/b", "/a"]),
        ("/a", []),
        ("s3://bucket/a/b", ["s3://bucket/a", "s3://bucket"]),
        ("s3://bucket", []),
    ],
)
def test_parents_are_the_folders_above(path: str, expected: list[str]) -> None:
    assert list(iter_parents(path)) == expected


def test_file_urls_are_decoded_and_stay_on_this_machine() -> None:
    assert local_path("file:///a%20b") == "/a b"
    assert local_path("FILE://localhost/a") == "/a"
    with pytest.raises(StorageError, match="machine 'other' was found; expected file:///absolute"):
        local_path("file://other/a")
