"""Daft's IOConfig becomes our options, nothing lost and nothing shown."""

import pickle
from typing import Any

import daft
import pytest
from daft.io import (
    AzureConfig,
    GCSConfig,
    HTTPConfig,
    HuggingFaceConfig,
    IOConfig,
    S3Config,
    S3Credentials,
)
from typing_extensions import override

from daft_twinwds.query import io_options
from daft_twinwds.query._daft import bearer_token
from daft_twinwds.query.io_options import storage_options
from daft_twinwds.shards.options import (
    ENVIRONMENT,
    AzureOptions,
    GcsOptions,
    HfOptions,
    HttpOptions,
    S3Options,
    StorageOptions,
)


def provider() -> S3Credentials:
    return S3Credentials("a", "b", None, None)


CONFIGS = [
    (
        IOConfig(
            s3=S3Config(
                key_id="k",
                access_key="a",
                session_token="t",
                region_name="r",
                endpoint_url="http://e",
                profile_name="p",
                anonymous=True,
                force_virtual_addressing=True,
                requester_pays=True,
                verify_ssl=False,
            )
        ),
        StorageOptions(
            s3=S3Options(
                key_id="k",
                access_key="a",
                session_token="t",
                region="r",
                endpoint_url="http://e",
                profile="p",
                anonymous=True,
                virtual_addressing=True,
                requester_pays=True,
                verify_ssl=False,
            )
        ),
    ),
    (
        IOConfig(s3=S3Config(credentials_provider=provider)),
        StorageOptions(s3=S3Options(provider=provider)),
    ),
    (
        IOConfig(gcs=GCSConfig(credentials="c", token="t", anonymous=True)),
        StorageOptions(gcs=GcsOptions(credentials="c", token="t", anonymous=True)),
    ),
    (
        IOConfig(
            azure=AzureConfig(
                storage_account="s",
                access_key="a",
                sas_token="t",
                bearer_token="b",
                tenant_id="i",
                client_id="c",
                client_secret="x",
                endpoint_url="http://e",
                use_fabric_endpoint=True,
                anonymous=True,
            )
        ),
        StorageOptions(
            azure=AzureOptions(
                account="s",
                access_key="a",
                sas_token="t",
                bearer_token="b",
                tenant_id="i",
                client_id="c",
                client_secret="x",
                endpoint_url="http://e",
                use_fabric_endpoint=True,
                anonymous=True,
            )
        ),
    ),
    (
        IOConfig(http=HTTPConfig(bearer_token="tok\u20ac")),
        StorageOptions(http=HttpOptions(bearer_token="tok\u20ac")),
    ),
    (
        IOConfig(hf=HuggingFaceConfig(token="t", anonymous=True)),
        StorageOptions(hf=HfOptions(token="t", anonymous=True)),
    ),
    (IOConfig(), ENVIRONMENT),
]


@pytest.mark.parametrize(("config", "expected"), CONFIGS)
def test_each_setting_is_taken_over(config: IOConfig, expected: StorageOptions) -> None:
    assert storage_options(config) == expected


@pytest.mark.parametrize(
    ("config", "changed"),
    [
        (S3Config(connect_timeout_ms=1500), {"connect_timeout": 1.5}),
        (S3Config(read_timeout_ms=2500), {"read_timeout": 2.5}),
        (S3Config(num_tries=1), {"retries": 0}),
        (S3Config(retry_initial_backoff_ms=10), {"backoff": 0.01}),
        (GCSConfig(num_tries=9), {"retries": 8}),
        (S3Config(), {}),
    ],
)
def test_times_and_tries_are_daft_s_where_they_were_set(
    config: Any, changed: dict[str, float]
) -> None:
    name = "s3" if isinstance(config, S3Config) else "gcs"

    options = storage_options(IOConfig(**{name: config}))

    assert options == StorageOptions(**changed)  # type: ignore[arg-type]


def test_own_options_pass_through_and_columns_have_their_own() -> None:
    own = StorageOptions(min_rate=5e7)

    assert storage_options(own) is own
    assert storage_options({"image": own, "*": IOConfig()}) == {"image": own, "*": ENVIRONMENT}


def test_without_a_configuration_daft_s_default_counts(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(
        io_options, "default_io_config", lambda: IOConfig(s3=S3Config(region_name="r"))
    )

    assert storage_options(None) == StorageOptions(s3=S3Options(region="r"))


def test_daft_s_default_is_empty_unless_set() -> None:
    before = daft.context.get_context().daft_planning_config.default_io_config
    try:
        daft.set_planning_config(default_io_config=IOConfig(s3=S3Config(region_name="r")))
        assert storage_options(None) == StorageOptions(s3=S3Options(region="r"))
    finally:
        daft.set_planning_config(default_io_config=before)
    assert storage_options(None) == ENVIRONMENT


@pytest.mark.parametrize("config", [3, "s3", S3Config(), {"image": S3Config()}])
def test_other_things_are_refused(config: Any) -> None:
    with pytest.raises(TypeError, match=r"io_config must be a daft\.io\.IOConfig or a mapping"):
        storage_options(config)


def test_options_of_a_configuration_pickle_and_show_no_secret() -> None:
    for config, expected in CONFIGS:
        options = storage_options(config)
        assert pickle.loads(pickle.dumps(options)) == expected
    shown = repr(storage_options(IOConfig(s3=S3Config(key_id="hunter2", access_key="hunter2"))))
    assert "hunter2" not in shown


@pytest.mark.parametrize(
    "pickled",
    [
        pytest.param(b"", id="empty"),
        pytest.param(b"\x01" + bytes(7) + b"a\x01\xff" + bytes(40), id="too-long"),
        pytest.param(b"\x01" + bytes(7) + b"a\x00" + bytes(28), id="another-user-agent"),
        pytest.param(b"\x01" + bytes(7) + b"\xff\x00" + bytes(28), id="no-text"),
    ],
)
def test_a_token_that_cannot_be_found_is_not_guessed(pickled: bytes) -> None:
    class OtherConfig:
        @override
        def __reduce__(self) -> tuple[Any, ...]:
            return (bytes, (pickled,))

    with pytest.raises(
        TypeError, match=r"the HTTPConfig of this Daft cannot be read; .*StorageOpt"
    ):
        bearer_token(OtherConfig())  # type: ignore[arg-type]
