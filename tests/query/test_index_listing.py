"""Buckets with an index: what a listing tells of the tars need not be asked of each."""

import asyncio
import json
import pickle
import random
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import TYPE_CHECKING, Any

import daft
import pytest
from daft.io.pushdowns import Pushdowns

import daft_twinwds
from daft_twinwds.errors import LayoutError
from daft_twinwds.query import read
from daft_twinwds.query.source import TwinShardTask, TwinWebDatasetSource
from daft_twinwds.shards import index_file, remote_tree
from daft_twinwds.shards.options import S3Options, StorageOptions
from daft_twinwds.shards.storage import storage_stats
from daft_twinwds.shards.tar_state import TarState, state_of
from daft_twinwds.testing import make_twin_dataset, write_tar
from daft_twinwds.tools.index import build_index

if TYPE_CHECKING:
    from tests.conftest import RangeServer, S3Server

col: Any = daft.col  # Daft types its comparisons as truth values

BUCKET = "twins"
CAPTION: daft.DataType = daft.DataType.struct(
    {"prompt": daft.DataType.string(), "score": daft.DataType.int64()}
)


def caption(number: int) -> dict[str, Any]:
    return {"prompt": f"picture {number}", "score": number}


def make(root: Path, *, num_shards: int) -> Path:
    """Two samples a shard, ``id_0`` and ``id_1`` in the first."""
    return make_twin_dataset(
        root, num_shards=num_shards, samples_per_shard=2, image_size=(24, 16), caption=caption
    )


class Bucket:
    """Twins with an index in a bucket."""

    def __init__(self, server: "S3Server", root: Path) -> None:
        self.root = root
        self.options = StorageOptions(
            s3=S3Options(
                key_id=server.key_id,
                access_key=server.access_key,
                endpoint_url=server.endpoint,
                region="us-east-1",
            )
        )
        self._server = server
        self.url = server.upload(root, BUCKET, "set")
        self.index()

    def index(self) -> None:
        """Bring the index up to date, and have no reader know of it."""
        build_index(self.url, io_config=self.options)
        forget_indexes()

    def read(self, **kwargs: Any) -> daft.DataFrame:
        return daft_twinwds.read_twin_webdataset(self.url, io_config=self.options, **kwargs)

    def replace(self, shard: int, *documents: Any) -> None:
        """Put other captions in the place of a shard's."""
        name = f"caption/part_000000/{shard:06d}.tar"
        members = [
            (f"id_{2 * shard + place}.json", json.dumps(document).encode())
            for place, document in enumerate(documents)
        ]
        write_tar(self.root / name, members)
        self._server.put(BUCKET, f"set/{name}", (self.root / name).read_bytes())


@pytest.fixture
def bucket(s3_server: "S3Server", tmp_path: Path) -> Bucket:
    """Eight shards, whose captions' scores are 0 to 15."""
    daft_twinwds.reset_scan_report()
    return Bucket(s3_server, make(tmp_path / "twins", num_shards=8))


def forget_indexes() -> None:
    """Have the process know as much of indexes as a new one."""
    index_file._met.clear()
    index_file._kept_footer.cache_clear()


def requests_of(action: Callable[[], object]) -> int:
    before = storage_stats().requests
    action()
    return storage_stats().requests - before


def scores(df: daft.DataFrame) -> list[int]:
    found: list[int] = df.select(col("caption")["score"].alias("score")).to_pydict()["score"]
    return found


def source_of(bucket: Bucket, monkeypatch: pytest.MonkeyPatch, **kwargs: Any) -> Any:
    seen: list[TwinWebDatasetSource] = []
    monkeypatch.setattr(TwinWebDatasetSource, "read", lambda self: seen.append(self))
    read.read_twin_webdataset(bucket.url, io_config=bucket.options, **kwargs)
    monkeypatch.undo()
    return seen[0]


def tasks_of(source: TwinWebDatasetSource, pushdowns: Pushdowns | None = None) -> list[Any]:
    async def collect() -> list[Any]:
        return [task async for task in source.get_tasks(pushdowns or Pushdowns())]

    tasks = asyncio.run(collect())
    assert all(isinstance(task, TwinShardTask) for task in tasks)
    return tasks


def numbers_of(tasks: Iterable[Any]) -> list[int]:
    return [int(task.shard.name[-10:-4]) for task in tasks]


@pytest.mark.parametrize("num_shards", [2, 8])
def test_opening_asks_for_listings_and_the_index_and_for_no_tar(
    s3_server: "S3Server", tmp_path: Path, num_shards: int
) -> None:
    bucket = Bucket(s3_server, make(tmp_path / "twins", num_shards=num_shards))

    count = requests_of(lambda: bucket.read(index="require"))

    # The root is listed, and the tars of both modalities; the manifest is read; the index is asked
    # for its state, and for its end.
    assert count == 3 + 1 + 2


def test_shards_that_a_filter_excludes_cost_no_request(
    bucket: Bucket, monkeypatch: pytest.MonkeyPatch
) -> None:
    source = source_of(bucket, monkeypatch)
    pushdowns = Pushdowns(columns=None, filters=col("caption")["score"] >= 13)

    def plan() -> None:
        assert numbers_of(tasks_of(source, pushdowns)) == [6, 7]

    assert requests_of(plan) == 0


def test_a_process_that_only_plans_asks_for_the_index_alone(
    bucket: Bucket, monkeypatch: pytest.MonkeyPatch
) -> None:
    source = pickle.loads(pickle.dumps(source_of(bucket, monkeypatch)))
    pushdowns = Pushdowns(columns=None, filters=col("caption")["score"] >= 100)
    forget_indexes()

    def plan() -> None:
        assert tasks_of(source, pushdowns) == []

    assert requests_of(plan) == 2


def test_tasks_hold_nothing_of_the_listing(bucket: Bucket, monkeypatch: pytest.MonkeyPatch) -> None:
    source = source_of(bucket, monkeypatch)
    (leaf,) = source.dataset.leaves
    digest = leaf.versions["image"][0].as_py()

    task = pickle.dumps(tasks_of(source)[0])

    assert digest in pickle.dumps(source)
    assert digest not in task
    validity = 1
    assert {column: digests.nbytes for column, digests in leaf.versions.items()} == {
        "caption": 8 * 16 + validity,
        "image": 8 * 16 + validity,
    }


def test_all_tasks_share_a_schema(bucket: Bucket, monkeypatch: pytest.MonkeyPatch) -> None:
    source = source_of(bucket, monkeypatch)

    tasks = tasks_of(source)

    assert len({id(task.schema) for task in tasks}) == 1
    assert tasks[0].schema == source.schema


def test_a_tar_that_the_listing_shows_to_be_another_is_looked_into(bucket: Bucket) -> None:
    # Of shards that inference does not sample only an index knows the fields.
    bucket.replace(3, caption(6) | {"new": 1.5}, caption(7) | {"new": 2.5})

    df = bucket.read()

    assert "new" in [field.name for field in fields_of(df)]
    assert scores(df) == list(range(16))
    with pytest.raises(LayoutError, match=r"000003\.tar has changed since.*index='require'"):
        bucket.read(index="require")


def test_a_tar_that_the_listing_shows_to_be_another_is_not_excluded(bucket: Bucket) -> None:
    bucket.replace(3, {"prompt": "a", "score": 99}, {"prompt": "b", "score": 6})

    df = bucket.read(schema={"caption": CAPTION})

    assert scores(df.where(col("caption")["score"] > 90)) == [99]
    assert daft_twinwds.scan_report() == {"shard changed since its index was built": 1}


def test_an_index_that_is_newer_than_the_listing_is_believed(
    bucket: Bucket, monkeypatch: pytest.MonkeyPatch
) -> None:
    source = source_of(bucket, monkeypatch)
    bucket.replace(3, {"prompt": "a", "score": 99}, {"prompt": "b", "score": 98})
    bucket.index()
    high = Pushdowns(columns=None, filters=col("caption")["score"] > 90)
    old = Pushdowns(columns=None, filters=col("caption")["score"] == 6)

    assert numbers_of(tasks_of(source, high)) == [3]
    assert tasks_of(source, old) == []


def test_a_shard_that_is_left_out_has_the_rows_that_it_had_when_it_was_listed(
    bucket: Bucket,
) -> None:
    df = bucket.read()
    bucket.replace(3, {"prompt": "a", "score": 99}, {"prompt": "b", "score": 98})

    assert scores(df.where(col("caption")["score"] > 90)) == []
    assert scores(bucket.read().where(col("caption")["score"] > 90)) == [99, 98]


def test_a_shard_that_is_read_has_the_rows_that_it_has_then(bucket: Bucket) -> None:
    df = bucket.read()
    bucket.replace(3, {"prompt": "a", "score": 99}, {"prompt": "b", "score": 6})

    assert scores(df.where(col("caption")["score"] == 6)) == [6]
    assert scores(df) == [0, 1, 2, 3, 4, 5, 99, 6, *range(8, 16)]
    assert daft_twinwds.scan_report() == {"shard changed since its index was built": 2}


@pytest.mark.parametrize("seed", range(3))
def test_whatever_is_replaced_and_indexed_again_rows_are_those_of_the_tars(
    bucket: Bucket, seed: int
) -> None:
    draw = random.Random(seed)
    for _ in range(6):
        documents = ({"prompt": "new", "score": draw.randrange(16)} for _ in range(2))
        bucket.replace(draw.randrange(8), *documents)
        if draw.random() < 0.4:
            bucket.index()
        low = draw.randrange(16)

        found = [
            scores(bucket.read(index=index).where(col("caption")["score"] > low))
            for index in ("auto", "off")
        ]

        assert found[0] == found[1]


@pytest.mark.parametrize(
    "tag",
    [
        pytest.param(lambda tag: None, id="none"),
        pytest.param(lambda tag: f"{tag}-of-the-listing", id="another"),
    ],
)
def test_where_listings_have_not_the_tags_of_files_tars_are_asked_about(
    bucket: Bucket, monkeypatch: pytest.MonkeyPatch, tag: Callable[[str], str | None]
) -> None:
    usual = requests_of(lambda: bucket.read(index="require"))
    monkeypatch.setattr(remote_tree, "strong_tag", tag)
    df = None

    def open_again() -> None:
        nonlocal df
        df = bucket.read(index="require")

    forget_indexes()
    assert requests_of(open_again) == usual + 2 * 8
    assert df is not None
    assert requests_of(lambda: scores(df.where(col("caption")["score"] > 90))) == 8
    assert scores(df) == list(range(16))


def test_a_listing_may_have_the_tags_of_files_without_their_quotes(
    bucket: Bucket, monkeypatch: pytest.MonkeyPatch
) -> None:
    usual = requests_of(lambda: bucket.read(index="require"))
    monkeypatch.setattr(remote_tree, "strong_tag", lambda tag: tag.strip('"'))
    forget_indexes()

    assert requests_of(lambda: bucket.read(index="require")) == usual


def test_a_server_that_lists_nothing_is_asked_about_each_tar(
    range_server: "RangeServer", tmp_path: Path
) -> None:
    root = make(tmp_path / "twins", num_shards=4)
    build_index(range_server.serve(root), output=tmp_path / "index")
    url = range_server.serve(tmp_path / "index")
    range_server.requests.clear()

    daft_twinwds.read_twin_webdataset(url, index="require")

    tars = [request.path for request in range_server.requests if request.path.endswith(".tar")]
    assert len(tars) == len(set(tars)) == 2 * 4


def test_each_index_is_met_once_however_many_shards_it_tells_of(
    s3_server: "S3Server", tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    root = make(tmp_path / "twins", num_shards=6)
    for modality in ("image", "caption"):
        (root / modality / "part_000001").mkdir()
        for number in (3, 4, 5):
            name = f"{number:06d}.tar"
            tar = root / modality / "part_000000" / name
            tar.rename(root / modality / "part_000001" / name)
    (root / "wdinfo.json").unlink()
    bucket = Bucket(s3_server, root)

    asked: list[str] = []

    def noted(path: str, options: StorageOptions) -> TarState | None:
        asked.append(path)
        return state_of(path, options)

    monkeypatch.setattr(index_file, "state_of", noted)
    df = bucket.read(index="require")

    assert sorted(asked) == [
        f"{bucket.url}/.twin_index/part_000000.parquet",
        f"{bucket.url}/.twin_index/part_000001.parquet",
    ]
    assert scores(df) == list(range(12))


def fields_of(df: daft.DataFrame) -> Any:
    return df.schema()["caption"].dtype.to_arrow_dtype()
