"""From a bucket or a web server to batches: read, filter, train; and no secret on the way."""

import io
import logging
import pickle
import traceback
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any
from urllib.parse import quote

import daft
import pytest
from daft import col
from daft.functions import decode_image_file
from daft.io import IOConfig, S3Config

from daft_twinwds import read_twin_webdataset, reset_scan_report, scan_report
from daft_twinwds.errors import StorageError
from daft_twinwds.query.io_options import storage_options
from daft_twinwds.shards.options import StorageOptions
from daft_twinwds.shards.storage import storage_stats
from daft_twinwds.testing import make_twin_dataset
from daft_twinwds.tools.index import build_index
from daft_twinwds.train import DecodeImage, Selection, to_torch_iter_dataset

if TYPE_CHECKING:
    from tests.conftest import RangeServer, S3Server

SAMPLES = 12
OPTIONS = StorageOptions(backoff=0.01, retries=4)
IMPATIENT = replace(OPTIONS, read_timeout=0.3, rate_window=0.2, min_rate=1e5)


@pytest.fixture(scope="session")
def root(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return make_twin_dataset(
        tmp_path_factory.mktemp("remote") / "set",
        num_shards=3,
        samples_per_shard=4,
        image_size=(320, 200),
    )


@pytest.fixture(scope="session")
def expected(root: Path) -> dict[str, list[Any]]:
    """The rows as they are on the disk."""
    return rows_of(read_twin_webdataset(root))


def rows_of(df: daft.DataFrame) -> dict[str, list[Any]]:
    rows: dict[str, list[Any]] = df.select("__key__", "caption").sort("__key__").to_pydict()
    return rows


def config_of(server: "S3Server") -> IOConfig:
    return IOConfig(
        s3=S3Config(
            key_id=server.key_id,
            access_key=server.access_key,
            endpoint_url=server.endpoint,
            region_name="us-east-1",
        )
    )


def trained_keys(data: daft.DataFrame | Selection, **more: Any) -> list[str]:
    """Read, decode and check all pictures; return their keys."""
    batches = to_torch_iter_dataset(
        data, decode={"image": DecodeImage()}, batch_size=2, num_threads=2, **more
    )
    keys: list[str] = []
    for batch in batches:
        assert batch["image"].shape[1:] == (3, 200, 320)
        keys += batch["__key__"]
    return sorted(keys)


# --- the whole way


def test_a_bucket_is_read_filtered_and_trained_on(
    s3_server: "S3Server", root: Path, expected: dict[str, list[Any]]
) -> None:
    url = s3_server.upload(root, "set", "a b/h#sh 100%/q?")
    config = config_of(s3_server)

    df = read_twin_webdataset(url, io_config=config)
    good = df.where(col("caption")["score"] > daft.lit(5))

    assert rows_of(df) == expected
    keys = [
        key
        for key, caption in zip(expected["__key__"], expected["caption"], strict=True)
        if caption["score"] > 5
    ]
    assert 0 < len(keys) < SAMPLES
    assert trained_keys(good, io_config=config) == keys
    assert df.count_rows() == SAMPLES


def test_daft_opens_the_files_of_a_bucket_itself(
    s3_server: "S3Server", root: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    url = s3_server.upload(root, "set", "a b/h#sh 100%/q?")
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", s3_server.key_id)
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", s3_server.access_key)
    monkeypatch.setenv("AWS_ENDPOINT_URL", s3_server.endpoint)
    monkeypatch.setenv("AWS_REGION", "us-east-1")

    df = read_twin_webdataset(url, io_config=config_of(s3_server))
    pictures = df.select(decode_image_file(col("image"))).to_pydict()

    assert len(pictures["image"]) == SAMPLES


@pytest.mark.parametrize("query", ["", "?sig=a%2Fb%3D"])
def test_a_web_server_is_read_filtered_and_trained_on(
    range_server: "RangeServer", root: Path, expected: dict[str, list[Any]], query: str
) -> None:
    range_server.serve(root, "/a b/h#sh 100%")
    range_server.required_query = query[1:]
    url = f"{range_server.url}{quote('/a b/h#sh 100%')}"

    df = read_twin_webdataset(f"{url}{query}")

    assert rows_of(df) == expected
    assert df.select("__url__").limit(1).to_pydict() == {
        "__url__": [f"{url}/part_000000/000000.tar"]
    }
    assert trained_keys(df) == expected["__key__"]
    assert len(df.select(decode_image_file(col("image"))).to_pydict()["image"]) == SAMPLES
    assert {one.method for one in range_server.requests} == {"GET"}


def test_each_picture_costs_one_request(range_server: "RangeServer", root: Path) -> None:
    selection = Selection.from_dataframe(read_twin_webdataset(range_server.serve(root)))
    range_server.requests.clear()

    dataset = to_torch_iter_dataset(selection, batch_size=2)
    assert sum(len(batch["__key__"]) for batch in dataset) == SAMPLES

    assert len(range_server.requests) == SAMPLES
    report = dataset.report()
    assert report["storage"]["requests"] == SAMPLES
    assert report["storage"]["bytes"] == report["bytes"]
    assert report["storage"]["retries"] == 0
    assert report["storage"]["seconds"] > 0


@pytest.fixture
def indexed(range_server: "RangeServer", tmp_path: Path) -> str:
    """A shard of 100 pictures on a web server, and its index; no request is counted yet."""
    root = make_twin_dataset(
        tmp_path / "set", num_shards=1, samples_per_shard=100, image_size=(640, 400)
    )
    url = range_server.serve(root)
    report = build_index(url, output=tmp_path / "index")
    assert report.is_complete
    range_server.serve(tmp_path / "index")
    range_server.requests.clear()
    return url


def test_with_an_index_ten_of_a_hundred_cost_hardly_more_than_themselves(
    range_server: "RangeServer", indexed: str
) -> None:
    df = read_twin_webdataset(indexed, index="require")
    keys = [f"id_{number}" for number in range(3, 100, 10)]
    range_server.requests.clear()
    range_server.sent = 0

    selection = Selection.from_dataframe(df.where(col("__key__").is_in(keys)))
    planning = len(range_server.requests)
    dataset = to_torch_iter_dataset(selection, batch_size=2)

    assert sorted(key for batch in dataset for key in batch["__key__"]) == sorted(keys)
    assert planning <= 3
    assert len(range_server.requests) == planning + 10
    assert range_server.sent <= 1.1 * sum(
        selection.table["image"].combine_chunks().field("size").to_pylist()
    )


def test_an_index_that_was_built_again_is_used_at_once(
    range_server: "RangeServer", indexed: str, tmp_path: Path
) -> None:
    df = read_twin_webdataset(indexed)
    assert df.limit(1).to_pydict()["__key__"] == ["id_0"]
    tar = "/caption/part_000000/000000.tar"
    content = range_server.files[tar]
    assert isinstance(content, Path)
    range_server.files[tar] = content.read_bytes().replace(b"A low sun", b"A low arc")
    build_index(indexed, output=tmp_path / "index")
    path = "/.twin_index/part_000000.parquet"
    range_server.files[path] = (tmp_path / "index" / path[1:]).read_bytes()
    reset_scan_report()

    prompts = df.select(col("caption")["prompt"]).to_pydict()["prompt"]

    assert any(prompt.startswith("A low arc") for prompt in prompts)
    assert scan_report() == {}


def test_modalities_of_two_stores_make_one_row(
    s3_server: "S3Server", range_server: "RangeServer", root: Path, expected: dict[str, list[Any]]
) -> None:
    url = s3_server.upload(root, "set")
    texts = range_server.serve(root / "caption", "/texts")
    range_server.required_header = ("Authorization", "Bearer tok")
    configs = {
        "*": config_of(s3_server),
        "caption": IOConfig(http=daft.io.HTTPConfig(bearer_token="tok")),
    }

    df = read_twin_webdataset(url, {"image": "image", "caption": texts}, io_config=configs)

    assert rows_of(df) == expected
    assert trained_keys(df, io_config=configs) == expected["__key__"]


def test_source_and_selection_travel_with_their_options(
    s3_server: "S3Server", root: Path, expected: dict[str, list[Any]]
) -> None:
    config = config_of(s3_server)
    df = read_twin_webdataset(s3_server.upload(root, "set"), io_config=config)
    dataset = to_torch_iter_dataset(df, batch_size=2, io_config=config)

    copy = pickle.loads(pickle.dumps(dataset))

    assert sorted(key for batch in copy for key in batch["__key__"]) == expected["__key__"]


# --- with faults


FAULTS = [
    pytest.param({"status": 503}, id="server-error"),
    pytest.param({"cut_after": 700}, id="closed-in-mid-body"),
    pytest.param({"cut_after": 700, "is_reset": True}, id="reset-in-mid-body"),
    pytest.param({"pause": 0.1, "piece": 500}, id="slow"),
    pytest.param({"silence": 0.8}, id="silent"),
    pytest.param({"pause": 0.8, "piece": 700}, id="stalled"),
    pytest.param({"is_whole": True}, id="ranges-ignored"),
]


@pytest.mark.parametrize("fault", FAULTS)
def test_faults_that_pass_change_no_row_and_no_picture(
    range_server: "RangeServer",
    root: Path,
    expected: dict[str, list[Any]],
    fault: dict[str, Any],
) -> None:
    url = range_server.serve(root)
    waits = "silence" in fault or "pause" in fault
    options = IMPATIENT if waits else OPTIONS
    before = storage_stats()
    for path in list(range_server.files):
        range_server.fail(path, **fault)

    df = read_twin_webdataset(url, io_config=options)

    assert rows_of(df) == expected
    for path in list(range_server.files):
        range_server.fail(path, **fault)
    assert trained_keys(df, io_config=options) == expected["__key__"]
    assert (storage_stats() - before).retries > 0 or "is_whole" in fault


@pytest.mark.parametrize(
    ("fault", "message"),
    [
        ({"status": 404}, "404 Not Found"),
        ({"status": 403}, "403 Forbidden"),
        ({"status": 500}, "500 Internal Server Error"),
        ({"cut_after": 10}, "after 5 tries"),
        ({"silence": 0.8}, "after 5 tries"),
        ({"shift": 5}, "000001.tar"),
    ],
)
def test_faults_that_stay_are_our_error_with_the_tar(
    range_server: "RangeServer", root: Path, fault: dict[str, Any], message: str
) -> None:
    url = range_server.serve(root)
    options = IMPATIENT if "silence" in fault else OPTIONS
    df = read_twin_webdataset(url, io_config=options)
    selection = Selection.from_dataframe(df)
    range_server.fail_always("/image/part_000000/000001.tar", **fault)

    with pytest.raises(StorageError, match=message) as caught:
        trained_keys(selection, io_config=options)
    assert f"{url}/image/part_000000/000001.tar: 'id_" in str(caught.value)
    with pytest.raises(daft.exceptions.DaftCoreException, match=message):
        df.select("image").collect()


def test_samples_behind_faults_that_stay_can_be_skipped(
    range_server: "RangeServer", root: Path
) -> None:
    selection = Selection.from_dataframe(read_twin_webdataset(range_server.serve(root)))
    range_server.fail_always("/image/part_000000/000001.tar", status=403)

    dataset = to_torch_iter_dataset(selection, on_error="skip", io_config=OPTIONS)

    assert len(list(dataset)) == SAMPLES - 4
    assert dataset.report()["skipped"] == {"StorageError": 4}


# --- secrets


def test_keys_are_in_no_text_and_no_file(
    s3_server: "S3Server",
    range_server: "RangeServer",
    root: Path,
    tmp_path: Path,
    caplog: pytest.LogCaptureFixture,
    capfd: pytest.CaptureFixture[str],
) -> None:
    url = s3_server.upload(root, "set")
    config = IOConfig(
        s3=S3Config(
            key_id=s3_server.key_id,
            access_key=s3_server.access_key,
            session_token="hunter2token",
            endpoint_url=s3_server.endpoint,
            num_tries=2,
            retry_initial_backoff_ms=10,
        )
    )
    options = storage_options(config)
    texts = io.StringIO()

    with caplog.at_level(logging.DEBUG):
        df = read_twin_webdataset(url, io_config=config)
        df.explain(True, file=texts)
        selection = Selection.from_dataframe(df)
        selection.save(tmp_path / "selection.parquet")
        df.select("__key__", "image").write_parquet(str(tmp_path / "rows"))
        dataset = to_torch_iter_dataset(selection, batch_size=2, io_config=config)
        print(df.limit(2).to_pydict(), selection, dataset, dataset.report(), file=texts)
        print(options, next(iter(dataset))["__key__"], file=texts)
        for broken in (s3_server.endpoint, range_server.url, "http://127.0.0.1:9"):
            assert isinstance(options, StorageOptions)
            bad = replace(options, s3=replace(options.s3, endpoint_url=broken))
            with pytest.raises(StorageError) as caught:
                read_twin_webdataset("s3://none/set", io_config=bad)
            texts.write("".join(traceback.format_exception(caught.value)))
            texts.write(repr(caught.value.__context__))

    out, err = capfd.readouterr()
    files = list(tmp_path.rglob("*.parquet"))
    assert len(files) >= 2
    written = b"".join(path.read_bytes() for path in files)
    for secret in (s3_server.key_id, s3_server.access_key, "hunter2token"):
        assert secret not in f"{texts.getvalue()} {caplog.text} {out} {err}"
        assert secret.encode() not in written


def test_a_signature_is_in_no_text(
    range_server: "RangeServer",
    root: Path,
    caplog: pytest.LogCaptureFixture,
    capfd: pytest.CaptureFixture[str],
) -> None:
    url = f"{range_server.serve(root)}?sig=hunter2"
    texts = io.StringIO()

    with caplog.at_level(logging.DEBUG):
        df = read_twin_webdataset(url)
        df.explain(True, file=texts)
        selection = Selection.from_dataframe(df)
        range_server.fail("/image/part_000000/000000.tar", status=500)
        dataset = to_torch_iter_dataset(selection, io_config=OPTIONS)
        print(df.select("__key__", "__url__").to_pydict(), selection, dataset, file=texts)
        print(next(iter(dataset))["__key__"], file=texts)
        range_server.required_query = "another"
        for broken in (lambda: read_twin_webdataset(url), lambda: list(dataset)):
            with pytest.raises(StorageError, match="403 Forbidden") as caught:
                broken()
            texts.write("".join(traceback.format_exception(caught.value)))

    out, err = capfd.readouterr()
    assert "hunter2" not in f"{texts.getvalue()} {caplog.text} {out} {err}"
