"""S3: settings of the client, and AWS's shared files."""

import os
from pathlib import Path

import pytest

from daft_twinwds.errors import StorageError
from daft_twinwds.shards.aws_profile import shared_profile
from daft_twinwds.shards.options import S3Options
from daft_twinwds.shards.s3_settings import credential_provider, s3_config


@pytest.fixture
def home(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Path:
    """A home folder of AWS's files, and nothing of AWS's in the environment."""
    for name in os.environ:
        if name.startswith("AWS_"):
            monkeypatch.delenv(name)
    monkeypatch.setenv("HOME", str(tmp_path))
    (tmp_path / ".aws").mkdir()
    (tmp_path / ".aws" / "credentials").write_text(
        "[default]\naws_access_key_id = A\naws_secret_access_key = s%s\n"
        "[work]\naws_access_key_id = B\naws_secret_access_key = t\naws_session_token = u\n"
        "[half]\naws_access_key_id = C\n"
    )
    (tmp_path / ".aws" / "config").write_text(
        "[default]\nregion = eu-west-1\n[profile work]\nregion = eu-west-2\noutput = json\n"
        "[profile sso]\nsso_start_url = https://example.org\n"
    )
    return tmp_path


def test_profiles_are_put_together_from_both_files(home: Path) -> None:
    assert shared_profile(None) == {
        "aws_access_key_id": "A",
        "aws_secret_access_key": "s%s",
        "region": "eu-west-1",
    }
    assert shared_profile("work") == {
        "aws_access_key_id": "B",
        "aws_secret_access_key": "t",
        "aws_session_token": "u",
        "region": "eu-west-2",
    }


def test_profile_and_files_may_be_named_by_the_environment(
    home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (home / ".aws" / "credentials").rename(home / "elsewhere")
    monkeypatch.setenv("AWS_SHARED_CREDENTIALS_FILE", str(home / "elsewhere"))
    monkeypatch.setenv("AWS_PROFILE", "work")

    assert shared_profile(None)["aws_access_key_id"] == "B"


def test_without_files_there_is_nothing(home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HOME", str(home / "nobody"))

    assert shared_profile(None) == {}
    assert credential_provider(S3Options()) is None


@pytest.mark.parametrize(
    ("name", "message"),
    [
        (
            "nobody",
            r"credentials: no profile 'nobody' was found there or in .*/config; .*profile_name",
        ),
        ("half", r"profile 'half' holds no keys; .*credentials_provider"),
        ("sso", r"profile 'sso' holds no keys; .*single sign-on"),
    ],
)
def test_a_profile_without_keys_is_refused(home: Path, name: str, message: str) -> None:
    with pytest.raises(StorageError, match=message):
        shared_profile(name)


def test_a_damaged_file_is_refused_without_its_lines(home: Path) -> None:
    (home / ".aws" / "credentials").write_text("aws_secret_access_key hunter2")

    with pytest.raises(StorageError, match=r"not a readable AWS configuration .Missing") as caught:
        shared_profile(None)
    assert "hunter2" not in f"{caught.value} {caught.value.__cause__}"


def test_explicit_keys_need_no_shared_file(home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("AWS_PROFILE", "nobody")
    options = S3Options(key_id="X", access_key="y", session_token="z")

    provider = credential_provider(options)

    assert provider is not None
    assert provider() == {
        "access_key_id": "X",
        "secret_access_key": "y",
        "token": "z",
        "expires_at": None,
    }
    assert s3_config(options, bucket="b") == {}


@pytest.mark.parametrize(
    "name",
    ["AWS_ACCESS_KEY_ID", "AWS_WEB_IDENTITY_TOKEN_FILE", "AWS_CONTAINER_CREDENTIALS_FULL_URI"],
)
def test_the_environment_comes_before_the_default_profile(
    home: Path, monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    monkeypatch.setenv(name, "x")

    assert credential_provider(S3Options()) is None
    asked = credential_provider(S3Options(profile="work"))
    assert asked is not None
    assert asked()["access_key_id"] == "B"


@pytest.mark.parametrize(
    ("options", "expected"),
    [
        (S3Options(), {"region": "eu-west-1"}),
        (S3Options(profile="work"), {"region": "eu-west-2"}),
        (S3Options(region="x"), {"region": "x"}),
        (
            S3Options(endpoint_url="https://s3.example.org:9000/"),
            {"endpoint": "https://s3.example.org:9000/"},
        ),
        (
            S3Options(endpoint_url="https://s3.example.org:9000", virtual_addressing=True),
            {
                "endpoint": "https://bucket.s3.example.org:9000",
                "virtual_hosted_style_request": True,
            },
        ),
        (
            S3Options(anonymous=True, requester_pays=True),
            {"skip_signature": True, "request_payer": True},
        ),
    ],
)
def test_options_become_settings(home: Path, options: S3Options, expected: dict[str, str]) -> None:
    assert s3_config(options, bucket="bucket") == expected


def test_a_region_of_the_environment_is_left_to_the_client(
    home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("AWS_REGION", "us-west-2")

    assert s3_config(S3Options(), bucket="b") == {}
