"""Options: hidden in every text, the same after pickling, checked."""

import pickle
from typing import Any

import pytest

from daft_twinwds.shards.options import (
    ENVIRONMENT,
    AzureOptions,
    GcsOptions,
    HfOptions,
    HttpOptions,
    S3Options,
    StorageOptions,
    options_of,
)


def provider() -> Any:
    raise AssertionError("never asked here")


FULL = StorageOptions(
    s3=S3Options(
        key_id="secret-1",
        access_key="secret-2",
        session_token="secret-3",
        provider=provider,
        region="eu-west-1",
        endpoint_url="http://127.0.0.1:9000",
    ),
    gcs=GcsOptions(credentials="secret-4", token="secret-5"),
    azure=AzureOptions(
        account="mine",
        access_key="secret-6",
        sas_token="secret-7",
        bearer_token="secret-8",
        client_secret="secret-9",
    ),
    http=HttpOptions(
        bearer_token="secret-10",
        headers=(("x-key", "secret-11"),),
        user="secret-12",
        query="secret-13",
    ),
    hf=HfOptions(token="secret-14"),
)


def test_no_secret_is_part_of_a_repr() -> None:
    text = f"{FULL!r} {FULL} {[FULL]}"

    assert "secret" not in text
    assert "eu-west-1" in text


def test_options_survive_pickling() -> None:
    assert pickle.loads(pickle.dumps(FULL)) == FULL


def test_options_are_keys() -> None:
    assert len({FULL, pickle.loads(pickle.dumps(FULL)), ENVIRONMENT}) == 2


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("timeout", 0),
        ("read_timeout", -1),
        ("connect_timeout", 0),
        ("rate_window", 0),
        ("retries", -1),
        ("backoff", -0.1),
        ("min_rate", -1),
        ("request_cost", -1),
        ("max_requests", 0),
    ],
)
def test_numbers_that_cannot_be_are_refused(name: str, value: Any) -> None:
    with pytest.raises(ValueError, match=f"{name} must be .*, got {value}"):
        StorageOptions(**{name: value})


def test_password_and_query_of_a_url_go_into_the_options() -> None:
    options = ENVIRONMENT.with_secrets_of("https://me:pw@host/a?sig=1")

    assert (options.http.user, options.http.query) == ("me:pw", "sig=1")
    assert options.reference("https://host/a/b.tar") == "https://me:pw@host/a/b.tar?sig=1"


@pytest.mark.parametrize("path", ["/data/a?b", "s3://bucket/a?b", "https://host/a"])
def test_paths_without_secrets_change_no_options(path: str) -> None:
    assert ENVIRONMENT.with_secrets_of(path) is ENVIRONMENT


@pytest.mark.parametrize("path", ["/data/a", "s3://bucket/a", "https://host/a?own=1"])
def test_what_is_not_below_the_url_refers_to_itself(path: str) -> None:
    options = ENVIRONMENT.with_secrets_of("https://host/a?sig=1")

    assert options.reference(path) == path
    assert ENVIRONMENT.reference("https://host/a") == "https://host/a"


def test_options_by_column_have_a_rest() -> None:
    assert options_of(FULL, "image") is FULL
    assert options_of({"image": FULL}, "image") is FULL
    assert options_of({"image": FULL}, "caption") is ENVIRONMENT
    assert options_of({"*": FULL}, "caption") is FULL
