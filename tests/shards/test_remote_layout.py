"""Datasets on servers: the same shards as on the disk, by few requests."""

import json
import logging
import pickle
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import fsspec
import obstore
import pytest

from daft_twinwds.errors import LayoutError, StorageError
from daft_twinwds.shards.layout import Dataset, find_dataset
from daft_twinwds.shards.options import HttpOptions, S3Options, StorageOptions
from daft_twinwds.shards.storage import MissingObjectError, storage_stats
from daft_twinwds.shards.tar_state import state_of

if TYPE_CHECKING:
    from tests.conftest import RangeServer, S3Server

A, B, C = (f"part_000000/{number:06d}.tar" for number in range(3))
SPECIAL = [
    "with space",
    "hash#tag",
    "set[1]",
    "pct%20x",
    "plus+plus",
    "brace{a,b}",
    "what?",
    "\u56fe",
]


def twins(root: Path, *names: str, folders: Sequence[str] = ("caption", "image")) -> Path:
    for folder in folders:
        for name in names or (A,):
            path = root / folder / name
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_bytes(b"x")
    return root


def manifest(root: Path, *names: str, folders: Sequence[str] = ("caption", "image")) -> Path:
    listed = list(names or (A,))
    root.mkdir(parents=True, exist_ok=True)
    content = {"data_keys": list(folders), "data_list": listed, "total_key_count": len(listed)}
    (root / "wdinfo.json").write_text(json.dumps(content))
    return root


def leaf(root: Path, *names: str, folders: Sequence[str] = ("caption", "image")) -> Path:
    return manifest(twins(root, *names, folders=folders), *names, folders=folders)


def roots_of(dataset: Dataset) -> list[str]:
    return [leaf.root for leaf in dataset.leaves]


def names_of(dataset: Dataset) -> list[str]:
    return [shard.name for shard in dataset.iter_shards()]


class Remote:
    """Where a test's files go, by one scheme or another."""

    def __init__(self, url: str, options: StorageOptions, put: Any) -> None:
        self.url = url
        self.options = options
        self._put = put

    def upload(self, root: Path) -> None:
        self._put(root)

    def find(self, below: str | Sequence[str] = "", **more: Any) -> Dataset:
        paths = [f"{self.url}{item}" for item in ([below] if isinstance(below, str) else below)]
        return find_dataset(paths, options=self.options, **more)


@pytest.fixture(params=["s3", "memory"])
def store(request: pytest.FixtureRequest) -> Remote:
    if request.param == "s3":
        server: S3Server = request.getfixturevalue("s3_server")
        s3 = S3Options(
            key_id=server.key_id,
            access_key=server.access_key,
            endpoint_url=server.endpoint,
            region="us-east-1",
        )
        options = StorageOptions(s3=s3, backoff=0.01)
        return Remote("s3://layout/a", options, lambda root: server.upload(root, "layout", "a"))
    system = fsspec.filesystem("memory")
    system.store.clear()

    def put(root: Path) -> None:
        for path in root.rglob("*"):
            if path.is_file():
                system.pipe(f"/layout/a/{path.relative_to(root)}", path.read_bytes())

    return Remote("memory://layout/a", StorageOptions(), put)


def test_shards_are_those_of_the_disk(store: Remote, tmp_path: Path) -> None:
    leaf(tmp_path / "one", B, A)
    leaf(tmp_path / "two" / "deep", C)
    store.upload(tmp_path)

    dataset = store.find()
    local = find_dataset(tmp_path)

    assert roots_of(dataset) == [f"{store.url}/one", f"{store.url}/two/deep"]
    assert names_of(dataset) == names_of(local) == [B, A, C]
    assert dataset.shard(0).url == f"{store.url}/one/{B}"
    assert dataset.shard(0).paths == {
        "caption": f"{store.url}/one/caption/{B}",
        "image": f"{store.url}/one/image/{B}",
    }


def test_leaves_without_a_manifest_are_found(store: Remote, tmp_path: Path) -> None:
    twins(tmp_path / "aspect_ratio_16_9" / "duration_0_5", B, A)
    twins(tmp_path / "aspect_ratio_1_1", folders=["caption", "image"])
    (tmp_path / "aspect_ratio_1_1" / "notes.txt").write_text("x")
    store.upload(tmp_path)

    dataset = store.find()

    assert roots_of(dataset) == [
        f"{store.url}/aspect_ratio_16_9/duration_0_5",
        f"{store.url}/aspect_ratio_1_1",
    ]
    assert names_of(dataset) == [A, B, A]
    assert dataset.modalities == ("caption", "image")


def test_hidden_and_other_files_are_no_tars(store: Remote, tmp_path: Path) -> None:
    twins(tmp_path, A, "part_000000/B.TAR")
    for name in ("part_000000/.000009.tar", ".cache/000004.tar", "part_000000/000002.tar.tmp"):
        twins(tmp_path, name, folders=["image"])
    store.upload(tmp_path)

    assert names_of(store.find()) == [A, "part_000000/B.TAR"]


def test_name_that_exists_is_never_a_pattern(store: Remote, tmp_path: Path) -> None:
    for folder in (*SPECIAL, "set1", "bracea", "whats"):
        leaf(tmp_path / folder)
    store.upload(tmp_path)

    for name in SPECIAL:
        for path in (f"/{name}", f"/{name}/wdinfo.json", f"/{name}/"):
            assert roots_of(store.find(path)) == [f"{store.url}/{name}"]


@pytest.mark.parametrize(
    ("pattern", "expected"),
    [
        ("/*", ["x1", "x2", "y"]),
        ("/x?", ["x1", "x2"]),
        ("/x[13]", ["x1"]),
        ("/**/wdinfo.json", ["deep/er", "x1", "x2", "y"]),
        ("/**/er", ["deep/er"]),
        ("/{y,x1}", ["y", "x1"]),
    ],
)
def test_patterns_match(store: Remote, tmp_path: Path, pattern: str, expected: list[str]) -> None:
    for name in ("x1", "x2", "y", "deep/er"):
        leaf(tmp_path / name)
    store.upload(tmp_path)

    found = roots_of(store.find(pattern))

    # A folder above a leaf is one that its leaves are found in.
    if pattern == "/*":
        expected = ["deep/er", *expected]
    assert found == [f"{store.url}/{name}" for name in expected]


def test_filters_choose_leaves(store: Remote, tmp_path: Path) -> None:
    for tag in ("gt_1080", "gt_2160"):
        for ratio in ("aspect_ratio_16_9", "aspect_ratio_1_1"):
            leaf(tmp_path / tag / ratio)
    store.upload(tmp_path)

    found = store.find(include="gt_2160", aspect_ratios=["1,1"])

    assert roots_of(found) == [f"{store.url}/gt_2160/aspect_ratio_1_1"]


def test_shard_missing_in_a_modality_is_named(store: Remote, tmp_path: Path) -> None:
    leaf(tmp_path, A, B)
    (tmp_path / "caption" / B).unlink()
    store.upload(tmp_path)

    with pytest.raises(LayoutError, match=rf"{store.url}: missing tars \(1\): caption/{B}; .*on_m"):
        store.find()
    assert names_of(store.find(on_missing="skip")) == [A]
    assert store.find(on_missing="null").shard(1).paths["caption"] is None


def test_what_is_not_there_is_refused(store: Remote, tmp_path: Path) -> None:
    leaf(tmp_path / "set")
    store.upload(tmp_path)

    with pytest.raises(LayoutError, match=f"not found, nothing named 'none' is in {store.url}/set"):
        store.find("/set/none")
    with pytest.raises(LayoutError, match="'depth' is not there; found caption, image;"):
        store.find("/set", modalities=["depth"])
    with pytest.raises(LayoutError, match=r"000000\.tar: a file was found; expected a dataset's"):
        store.find(f"/set/image/{A}")
    with pytest.raises(LayoutError, match=r"tars or part folders lie directly .*the folder above"):
        store.find("/set/image")
    with pytest.raises(LayoutError, match="the pattern matches nothing below"):
        store.find("/none*")


def test_leaf_reached_twice_is_refused(store: Remote, tmp_path: Path) -> None:
    leaf(tmp_path / "set")
    store.upload(tmp_path)

    with pytest.raises(LayoutError, match=f"{store.url}/set: this leaf is reached twice"):
        store.find(["/set", "/*"])


def test_dataset_survives_pickling(store: Remote, tmp_path: Path) -> None:
    store.upload(leaf(tmp_path, A, B))

    dataset = store.find()
    copy = pickle.loads(pickle.dumps(dataset))

    assert copy == dataset
    with copy.shard(1).open("image") as file:
        assert file.read(0, 1) == b"x"


def test_a_modality_may_have_a_root_of_its_own(store: Remote, tmp_path: Path) -> None:
    for name in ("aspect_ratio_1_1", "aspect_ratio_16_9"):
        leaf(tmp_path / "pictures" / name, A, B, folders=["image"])
        twins(tmp_path / "texts", A, B, folders=[name])
    store.upload(tmp_path / "pictures")

    dataset = store.find(modalities={"image": "image", "text": str(tmp_path / "texts")})

    assert len(dataset) == 4
    assert dataset.shard(0).paths == {
        "image": f"{store.url}/aspect_ratio_16_9/image/{A}",
        "text": f"{tmp_path}/texts/aspect_ratio_16_9/{A}",
    }
    with dataset.shard(3).open("text") as file:
        assert file.path == f"{tmp_path}/texts/aspect_ratio_1_1/{B}"


def test_a_root_of_its_own_that_is_not_there_is_refused(store: Remote, tmp_path: Path) -> None:
    store.upload(leaf(tmp_path))

    with pytest.raises(LayoutError, match=rf"{tmp_path}/none: a modality's folder that is not the"):
        store.find(modalities={"image": "image", "caption": f"{tmp_path}/none"})
    (tmp_path / "elsewhere" / "part_000000").mkdir(parents=True)
    with pytest.raises(LayoutError, match=r"missing tars \(1\): .*/elsewhere/part_000000"):
        store.find(modalities={"image": "image", "caption": f"{tmp_path}/elsewhere"})


def test_a_listing_that_changes_is_seen_by_the_next_reading(store: Remote, tmp_path: Path) -> None:
    store.upload(twins(tmp_path, A))
    assert names_of(store.find()) == [A]

    store.upload(twins(tmp_path, B))
    assert names_of(store.find()) == [A, B]


def test_a_modality_of_an_empty_manifest_needs_no_folder(store: Remote, tmp_path: Path) -> None:
    content = {"data_keys": ["image"], "data_list": [], "total_key_count": 0}
    (tmp_path / "wdinfo.json").write_text(json.dumps(content))
    store.upload(tmp_path)

    assert len(store.find()) == 0


# --- S3 alone


def s3_of(server: "S3Server", **more: Any) -> StorageOptions:
    return StorageOptions(
        s3=S3Options(
            key_id=server.key_id, access_key=server.access_key, endpoint_url=server.endpoint, **more
        ),
        backoff=0.01,
        retries=1,
    )


def test_a_leaf_costs_a_request_per_thousand_tars(s3_server: "S3Server", tmp_path: Path) -> None:
    names = [f"part_{part:06d}/{number:06d}.tar" for part in range(3) for number in range(10)]
    url = s3_server.upload(leaf(tmp_path, *names), "requests")
    before = storage_stats()

    dataset = find_dataset(url, options=s3_of(s3_server))

    assert len(dataset) == 30
    # The root, the manifest, and each of the two modalities.
    assert (storage_stats() - before).requests == 4


def test_more_than_a_page_of_tars_is_listed(s3_server: "S3Server") -> None:
    s3_server.client.create_bucket(Bucket="pages")
    names = [f"{number:06d}.tar" for number in range(1100)]
    for name in names:
        s3_server.put("pages", f"image/{name}", b"x")

    assert names_of(find_dataset("s3://pages", options=s3_of(s3_server))) == names


def test_the_listing_tells_which_versions_are_there(s3_server: "S3Server", tmp_path: Path) -> None:
    leaf(tmp_path / "one", B, A)
    twins(tmp_path / "one", C, folders=["image"])
    manifest(tmp_path / "one", C, B, A)
    leaf(tmp_path / "two", B)
    for number, tar in enumerate(sorted(tmp_path.rglob("*.tar"))):
        tar.write_bytes(bytes(number + 1))
    url, options = s3_server.upload(tmp_path, "versions"), s3_of(s3_server)

    dataset = find_dataset(url, options=options, on_missing="null")

    assert names_of(dataset) == [C, B, A, B]
    told = list(dataset.iter_listed())
    assert [shard for shard, _ in told] == list(dataset.iter_shards())
    for shard, listed in told:
        there = {
            column: state_of(path, options)
            for column, path in shard.paths.items()
            if path is not None
        }
        assert listed == {column: state.digest for column, state in there.items() if state}
    assert [len(listed) for _, listed in told] == [1, 2, 2, 2]
    assert len({digest for _, listed in told for digest in listed.values()}) == 7
    complete = find_dataset(url, options=options, on_missing="skip")
    assert list(complete.iter_listed()) == told[1:]
    assert list(complete.iter_listed([2, 0, 0])) == [told[3], told[1], told[1]]


def test_only_buckets_tell_versions(s3_server: "S3Server", tmp_path: Path) -> None:
    leaf(tmp_path / "here", A, folders=["image"])
    twins(tmp_path / "there", A, folders=["caption"])
    url = s3_server.upload(tmp_path / "here", "some")
    memory = fsspec.filesystem("memory")
    memory.pipe(f"/listed/{A}", b"x")

    for texts in (str(tmp_path / "there" / "caption"), "memory://listed"):
        dataset = find_dataset(
            url, modalities={"image": "image", "caption": texts}, options=s3_of(s3_server)
        )
        ((_, listed),) = dataset.iter_listed()
        assert listed.keys() == {"image"}


def test_weak_tags_and_none_tell_no_version(
    s3_server: "S3Server", tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    url = s3_server.upload(leaf(tmp_path, A, B), "weak")
    usual = obstore.list
    tags: dict[str, str | None] = {A: None, B: 'W/"1"'}

    def weakened(*args: Any, **kwargs: Any) -> Any:
        for page in usual(*args, **kwargs):
            yield [{**meta, "e_tag": tags[meta["path"].split("/", 1)[1]]} for meta in page]

    monkeypatch.setattr(obstore, "list", weakened)
    assert find_dataset(url, options=s3_of(s3_server)).leaves[0].versions == {}
    tags[B] = '"1"'
    told = [listed for _, listed in find_dataset(url, options=s3_of(s3_server)).iter_listed()]
    assert [set(listed) for listed in told] == [set(), {"caption", "image"}]


def test_a_bucket_that_is_not_there_is_told(s3_server: "S3Server") -> None:
    with pytest.raises(
        MissingObjectError, match=r"^s3://none/set: listing failed \(404 Not Found, N"
    ):
        find_dataset("s3://none/set", options=s3_of(s3_server))


def test_a_bucket_may_be_a_root(s3_server: "S3Server", tmp_path: Path) -> None:
    url = s3_server.upload(leaf(tmp_path), "rooted")

    dataset = find_dataset(f"{url}/", options=s3_of(s3_server))

    assert roots_of(dataset) == ["s3://rooted"]
    assert dataset.shard(0).paths["image"] == f"s3://rooted/image/{A}"


def test_modalities_may_be_in_two_stores_with_two_keys(
    s3_server: "S3Server", range_server: "RangeServer", tmp_path: Path
) -> None:
    url = s3_server.upload(leaf(tmp_path / "pictures", A, folders=["image"]), "pictures")
    texts = range_server.serve(twins(tmp_path / "texts", A, folders=["x"]), "/texts")
    range_server.required_header = ("Authorization", "Bearer tok")

    dataset = find_dataset(
        url,
        modalities={"image": "image", "caption": f"{texts}/x?sig=1"},
        options={
            "*": s3_of(s3_server),
            "caption": StorageOptions(http=HttpOptions(bearer_token="tok")),
        },
    )

    shard = dataset.shard(0)
    assert shard.paths["caption"] == f"{texts}/x/{A}"
    assert shard.reference("caption") == f"{texts}/x/{A}?sig=1"
    for column in ("image", "caption"):
        with shard.open(column) as file:
            assert file.read(0, 1) == b"x"
    assert range_server.requests[0].target.endswith("?sig=1")


def test_a_modality_below_the_root_may_have_keys_of_its_own(
    range_server: "RangeServer", tmp_path: Path
) -> None:
    url = range_server.serve(leaf(tmp_path), "/set")
    range_server.required_query = "sig=1"

    dataset = find_dataset(
        f"{url}?sig=1", options={"image": StorageOptions(http=HttpOptions(bearer_token="tok"))}
    )
    for column in ("image", "caption"):
        with dataset.shard(0).open(column) as file:
            file.read(0, 1)

    by_path = {one.path: one.headers.get("authorization") for one in range_server.requests}
    assert by_path == {
        "/set/wdinfo.json": None,
        f"/set/image/{A}": "Bearer tok",
        f"/set/caption/{A}": None,
    }


def test_options_of_an_unknown_column_are_refused(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match=r"options are given for 'imgae'; the columns are \['capt"):
        find_dataset(leaf(tmp_path), options={"imgae": StorageOptions()})


def test_a_refused_listing_names_the_folder_and_no_key(s3_server: "S3Server") -> None:
    s3_server.client.create_bucket(Bucket="refused")
    s3 = S3Options(key_id="AKIAHIDDEN", access_key="hunter2", endpoint_url="http://127.0.0.1:9")
    options = StorageOptions(s3=s3, backoff=0.01, retries=1)

    with pytest.raises(
        StorageError, match=r"^s3://refused/x: listing failed after 2 tries \(no con"
    ) as e:
        find_dataset("s3://refused/x", options=options)
    assert "HIDDEN" not in str(e.value)
    assert "hunter2" not in str(e.value)


# --- HTTP, which lists nothing


def test_manifest_behind_http_is_believed(range_server: "RangeServer", tmp_path: Path) -> None:
    url = range_server.serve(leaf(tmp_path, B, A), "/my set")
    del range_server.files[f"/my set/image/{A}"]

    dataset = find_dataset(url.replace(" ", "%20"))

    assert roots_of(dataset) == [f"{range_server.url}/my%20set"]
    assert names_of(dataset) == [B, A]
    assert [(one.method, one.path) for one in range_server.requests] == [
        ("GET", "/my set/wdinfo.json")
    ]
    with pytest.raises(StorageError, match=f"image/{A}: reading bytes 0 to 1 failed .404"):
        dataset.shard(1).open("image").read(0, 1)


@pytest.mark.parametrize("end", ["", "/", "/wdinfo.json"])
def test_query_of_a_url_goes_with_all_its_files(
    range_server: "RangeServer", tmp_path: Path, end: str, caplog: pytest.LogCaptureFixture
) -> None:
    url = range_server.serve(leaf(tmp_path), "/set")
    range_server.required_query = "sig=hunter2"

    with caplog.at_level(logging.DEBUG):
        dataset = find_dataset(f"{url}{end}?sig=hunter2")
        with dataset.shard(0).open("image") as file:
            assert file.read(0, 1) == b"x"

    shard = dataset.shard(0)
    assert shard.url == f"{url}/{A}"
    assert shard.reference("image") == f"{url}/image/{A}?sig=hunter2"
    assert "hunter2" not in f"{dataset!r} {shard!r} {caplog.text}"


def test_special_names_in_a_manifest_are_encoded(
    range_server: "RangeServer", tmp_path: Path
) -> None:
    names = [f"{name}/0.tar" for name in SPECIAL]
    url = range_server.serve(leaf(tmp_path, *names))

    dataset = find_dataset(url)

    for shard in dataset.iter_shards():
        with shard.open("image") as file:
            assert file.read(0, 1) == b"x"


def test_several_leaves_behind_http_are_named(range_server: "RangeServer", tmp_path: Path) -> None:
    for name in ("a", "b", "c"):
        leaf(tmp_path / name)
    url = range_server.serve(tmp_path)

    assert roots_of(find_dataset(f"{url}/{{c,a}}")) == [f"{url}/c", f"{url}/a"]
    assert roots_of(find_dataset(f"{url}/{{a,b}}", include="b")) == [f"{url}/b"]
    assert len(find_dataset([f"{url}/b", f"{url}/a"])) == 2


def test_folder_without_a_manifest_behind_http_is_refused(range_server: "RangeServer") -> None:
    with pytest.raises(
        LayoutError, match=r"/set: no wdinfo.json was found in it; .*lists no folde"
    ):
        find_dataset(f"{range_server.url}/set")


@pytest.mark.parametrize("pattern", ["/*", "/**/wdinfo.json"])
def test_patterns_that_need_a_listing_are_refused_behind_http(
    range_server: "RangeServer", pattern: str
) -> None:
    with pytest.raises(
        LayoutError, match=r"the pattern '\*' was found; .*name each leaf, or write"
    ):
        find_dataset(f"{range_server.url}{pattern}")


def test_a_damaged_manifest_behind_http_is_told_without_its_query(
    range_server: "RangeServer",
) -> None:
    range_server.files["/set/wdinfo.json"] = b"{"

    with pytest.raises(
        LayoutError, match=f"^{range_server.url}/set/wdinfo.json: not valid JSON"
    ) as e:
        find_dataset(f"{range_server.url}/set?sig=hunter2")
    assert "hunter2" not in str(e.value)


def test_requests_of_several_leaves_run_side_by_side(
    range_server: "RangeServer", tmp_path: Path
) -> None:
    for number in range(8):
        leaf(tmp_path / f"{number}")
    url = range_server.serve(tmp_path)
    range_server.latency = 0.2

    dataset = find_dataset([f"{url}/{number}" for number in range(8)])

    assert len(dataset) == 8
    # One after another there would never be more than one.
    assert range_server.most_in_flight > 1
    assert replace(dataset, skipped={}) == dataset
