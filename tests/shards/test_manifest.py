import json
import re
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from daft_twinwds.errors import LayoutError, StorageError
from daft_twinwds.shards import manifest as manifest_module
from daft_twinwds.shards import manifest_json
from daft_twinwds.shards.manifest import read_manifest

GOOD: dict[str, Any] = {
    "data_keys": ["caption", "image"],
    "data_list": ["part_000000/000000.tar", "part_000000/000001.tar"],
    "data_list_key_count": [4, 3],
    "root": "/data/set",
    "total_key_count": 7,
}


def write(folder: Path, content: object) -> str:
    path = folder / "wdinfo.json"
    path.write_text(json.dumps(content))
    return str(path)


def without(*keys: str) -> dict[str, Any]:
    return {key: value for key, value in GOOD.items() if key not in keys}


def counts_of(path: str) -> list[int] | None:
    counts = read_manifest(path).counts
    return None if counts is None else list(counts.to_pylist())


def test_all_that_a_manifest_says_is_returned(tmp_path: Path) -> None:
    manifest = read_manifest(write(tmp_path, GOOD))

    assert manifest.path == str(tmp_path / "wdinfo.json")
    assert manifest.root == "/data/set"
    assert manifest.modalities == ("caption", "image")
    assert manifest.names.equals(pa.array(GOOD["data_list"], pa.string()))
    assert manifest.counts is not None
    assert manifest.counts.equals(pa.array([4, 3], pa.int64()))
    assert manifest.total == 7


def test_unknown_keys_and_a_missing_root_do_no_harm(tmp_path: Path) -> None:
    manifest = read_manifest(write(tmp_path, {**without("root"), "made_by": {"tool": [1]}}))

    assert manifest.root is None


def test_byte_order_mark_is_stripped(tmp_path: Path) -> None:
    path = tmp_path / "wdinfo.json"
    path.write_bytes(b"\xef\xbb\xbf" + json.dumps(GOOD).encode())

    assert read_manifest(str(path)).total == 7


def test_manifest_without_counts_has_none(tmp_path: Path) -> None:
    older = {**without("data_list_key_count"), "chunk_size": 4}

    assert counts_of(write(tmp_path, without("data_list_key_count"))) is None
    assert counts_of(write(tmp_path, older)) is None


def test_counts_that_nobody_asks_for_are_not_looked_at(tmp_path: Path) -> None:
    path = write(tmp_path, {**GOOD, "data_list_key_count": [-1, "x", None]})

    manifest = read_manifest(path, with_counts=False)

    assert manifest.counts is None
    assert manifest.names.to_pylist() == GOOD["data_list"]


@pytest.mark.parametrize("with_counts", [True, False])
@given(content=st.data())
def test_odd_manifests_are_parsed_as_plain_json_is(content: Any, with_counts: bool) -> None:
    numbers = st.one_of(st.integers(-2, 2**64), st.booleans(), st.none(), st.floats())
    texts = st.one_of(st.text(max_size=3), st.none(), st.integers())
    lists = st.one_of(st.lists(texts, max_size=3), st.none())
    drawn = content.draw(
        st.fixed_dictionaries(
            {},
            optional={
                "data_keys": lists,
                "data_list": lists,
                "data_list_key_count": st.one_of(st.lists(numbers, max_size=3), st.none()),
                "root": texts,
                "total_key_count": numbers,
                "more": st.one_of(lists, numbers, st.dictionaries(st.text(), numbers)),
            },
        )
    )
    data = content.draw(st.sampled_from([b"", b"\n", b"\xef\xbb\xbf"])) + json.dumps(drawn).encode()

    quick = manifest_json._parse_at_once(data, with_counts=with_counts)

    try:
        slow = manifest_json._parse_with_reasons(data, "m", with_counts=with_counts)
    except LayoutError:
        assert quick is None
    else:
        assert quick in (None, slow)


@given(
    names=st.lists(
        st.one_of(
            st.text("ab./\\\0\u00e9", max_size=6).map(lambda text: f"{text}.tar"),
            st.text("ab./\\\0", max_size=6),
        ),
        max_size=4,
    ),
    start=st.integers(0, 2),
    piece=st.integers(1, 9),
)
def test_names_that_look_plain_together_are_so_one_by_one(
    names: list[str], start: int, piece: int
) -> None:
    array = pa.array(names, pa.string()).slice(start)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(manifest_module, "_PIECE", piece)
        is_plain = manifest_module._are_plain(array)

    if is_plain:
        rule = re.compile(manifest_module._TAR)
        assert all(rule.fullmatch(name) for name in array.to_pylist())
    elif all(re.fullmatch(r"\w+(/\w+)*\.tar", name) for name in array.to_pylist()):
        assert not len(array)


def test_manifest_of_no_tars_is_one(tmp_path: Path) -> None:
    content = {**GOOD, "data_list": [], "data_list_key_count": [], "total_key_count": 0}

    path = write(tmp_path, content)

    assert read_manifest(path).names.equals(pa.array([], pa.string()))
    assert counts_of(path) == []


@pytest.mark.parametrize(
    ("change", "message"),
    [
        pytest.param(
            {"data_keys": "image"}, "data_keys is of type str; expected a list", id="keys-str"
        ),
        pytest.param({"data_keys": [3]}, r"data_keys\[0\] is 3; expected a string", id="key-int"),
        pytest.param({"data_keys": ["a", "a"]}, "data_keys holds 'a' 2 times", id="keys-twice"),
        pytest.param({"data_keys": ["a/../b"]}, r"data_keys\[0\] is 'a/../b'", id="key-climbs"),
        pytest.param(
            {"data_list": {}}, "data_list is of type dict; expected a list", id="list-dict"
        ),
        pytest.param(
            {"data_list": ["a.tar", None]}, r"data_list\[1\] is None; expected a str", id="null"
        ),
        pytest.param(
            {"data_list": ["b.tar", "b.tar"]}, "data_list holds 'b.tar' 2 times", id="twice"
        ),
        pytest.param(
            {"data_list_key_count": 4}, "key_count is of type int; expected a list", id="int"
        ),
        pytest.param(
            {"data_list_key_count": [4]}, "2 tars in data_list and 1 counts", id="lengths"
        ),
        pytest.param(
            {"data_list_key_count": [4, -3]}, r"key_count\[1\] is -3; expected", id="negative"
        ),
        pytest.param(
            {"data_list_key_count": [4.0, 3]}, r"key_count\[0\] is 4.0; expected", id="float"
        ),
        pytest.param(
            {"data_list_key_count": [4, True]}, r"key_count\[1\] is True; expected", id="bool"
        ),
        pytest.param(
            {"data_list_key_count": [4, 2**63]}, r"key_count\[1\] is 9223372036", id="above-int64"
        ),
        pytest.param({"total_key_count": -1}, "total_key_count is -1; expected", id="total"),
        pytest.param({"total_key_count": "7"}, "total_key_count is '7'; expected", id="total-str"),
        pytest.param({"root": 5}, "root is 5; expected a string", id="root"),
    ],
)
def test_wrong_value_is_refused_with_file_and_entry(
    tmp_path: Path, change: dict[str, Any], message: str
) -> None:
    path = write(tmp_path, {**GOOD, **change})

    with pytest.raises(LayoutError, match=f"^{path}: .*{message}"):
        read_manifest(path)


@pytest.mark.parametrize("key", ["data_keys", "data_list", "total_key_count"])
def test_missing_key_is_refused_with_those_found(tmp_path: Path, key: str) -> None:
    path = write(tmp_path, without(key))

    with pytest.raises(LayoutError, match=f"^{path}: key '{key}' is missing, found .'data_"):
        read_manifest(path)


@pytest.mark.parametrize(
    "name",
    [
        "",
        "/etc/000000.tar",
        "../000000.tar",
        "part_000000/../../000000.tar",
        "part_000000/..",
        "./000000.tar",
        "part_000000//000000.tar",
        "part_000000/",
        "part_000000/.000000.tar",
        ".hidden/000000.tar",
        "..\\000000.tar",
        "part_000000\\000000.tar",
        "C:\\000000.tar",
        "000000.tar\0",
        "000\0.tar",
        "000000.tar\n",
        "000000.tar.gz",
        "000000",
        ".tar",
    ],
)
def test_name_that_is_no_plain_relative_tar_is_refused(tmp_path: Path, name: str) -> None:
    content = {**GOOD, "data_list": ["part_000000/000000.tar", name]}

    with pytest.raises(LayoutError, match=r"data_list\[1\] is .*expected a tar below a modality's"):
        read_manifest(write(tmp_path, content))


@pytest.mark.parametrize(
    "name",
    ["a.tar", "A.TAR", "a/b/c.tar", "with space/#1.tar", "%20/a..b.tar", "\u56fe/\u50cf.tar"],
)
def test_unusual_but_plain_names_are_read(tmp_path: Path, name: str) -> None:
    content = {**without("data_list_key_count"), "data_list": [name]}

    assert read_manifest(write(tmp_path, content)).names.to_pylist() == [name]


@given(name=st.text(alphabet="a./\\\0 \n\u50cf", max_size=12))
def test_names_that_are_read_stay_inside_their_folder(
    tmp_path_factory: pytest.TempPathFactory, name: str
) -> None:
    folder = tmp_path_factory.mktemp("leaf")
    path = write(folder, {**without("data_list_key_count"), "data_list": [f"{name}.tar"]})

    try:
        names = read_manifest(path).names.to_pylist()
    except LayoutError:
        parts = f"{name}.tar".split("/")
        assert any(part.startswith(".") or not part for part in parts) or {*"\\\0"} & {*name}
    else:
        tar = folder / "image" / names[0]
        assert str(tar) == f"{folder}/image/{name}.tar"
        assert tar.resolve().is_relative_to(folder.resolve() / "image")


@pytest.mark.parametrize(
    "data",
    [
        pytest.param(b"", id="empty"),
        pytest.param(b'{"data_keys": [', id="cut-short"),
        pytest.param(b'{"root": "\xff"}', id="not-utf-8"),
        pytest.param(b"[" * 100_000, id="too-deep"),
        pytest.param(b'{"total_key_count": ' + b"9" * 10_000 + b"}", id="too-many-digits"),
    ],
)
def test_bad_json_is_refused_with_its_path(tmp_path: Path, data: bytes) -> None:
    path = tmp_path / "wdinfo.json"
    path.write_bytes(data)

    with pytest.raises(LayoutError, match=f"^{path}: not valid JSON in UTF-8") as caught:
        read_manifest(str(path))
    assert caught.value.__cause__ is not None


def test_half_of_a_surrogate_pair_is_refused(tmp_path: Path) -> None:
    path = write(tmp_path, {**GOOD, "data_list": ["a.tar", "\ud800.tar"]})

    with pytest.raises(LayoutError, match=r"data_list holds '\\ud800.tar', which has half"):
        read_manifest(path)


def test_json_of_another_shape_is_refused(tmp_path: Path) -> None:
    with pytest.raises(LayoutError, match="a JSON list was found; expected an object"):
        read_manifest(write(tmp_path, ["image"]))


def test_manifest_beyond_the_size_limit_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = write(tmp_path, GOOD)
    monkeypatch.setattr(manifest_module, "MAX_BYTES", Path(path).stat().st_size)
    read_manifest(path)
    monkeypatch.setattr(manifest_module, "MAX_BYTES", Path(path).stat().st_size - 1)

    with pytest.raises(LayoutError, match=r"176 bytes, more than 175; a manifest of this size"):
        read_manifest(path)


def test_manifest_that_is_not_there_is_a_storage_error(tmp_path: Path) -> None:
    with pytest.raises(StorageError, match=r"wdinfo.json: cannot be opened \(No such file"):
        read_manifest(str(tmp_path / "wdinfo.json"))
