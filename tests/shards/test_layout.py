import json
import logging
import os
import pickle
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from typing_extensions import override

from daft_twinwds.errors import LayoutError, StorageError
from daft_twinwds.shards.layout import Dataset, find_dataset

A, B, C = (f"part_000000/{number:06d}.tar" for number in range(3))


def touch(root: Path, *names: str) -> Path:
    for name in names:
        path = root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.touch()
    return root


def twins(root: Path, *names: str, folders: Iterable[str] = ("caption", "image")) -> Path:
    return touch(root, *(f"{folder}/{name}" for folder in folders for name in names or (A,)))


def manifest(
    root: Path, /, *names: str, folders: Sequence[str] = ("caption", "image"), **more: Any
) -> Path:
    listed = list(names or (A,))
    content = {"data_keys": list(folders), "data_list": listed, "total_key_count": len(listed)}
    root.mkdir(parents=True, exist_ok=True)
    (root / "wdinfo.json").write_text(json.dumps(content | more))
    return root


def leaf(root: Path, *names: str, folders: Sequence[str] = ("caption", "image")) -> Path:
    return manifest(twins(root, *names, folders=folders), *names, folders=folders)


def roots_of(dataset: Dataset) -> list[str]:
    return [leaf.root for leaf in dataset.leaves]


def names_of(dataset: Dataset) -> list[str]:
    return [shard.name for shard in dataset.iter_shards()]


# --- datasets, leaves and shards


def test_shard_has_root_name_url_and_a_path_per_column(tmp_path: Path) -> None:
    leaf(tmp_path, A, B)

    dataset = find_dataset(tmp_path)
    shard = dataset.shard(1)

    assert (len(dataset), dataset.modalities, dataset.skipped) == (2, ("caption", "image"), {})
    assert (shard.root, shard.name, shard.url) == (str(tmp_path), B, f"{tmp_path}/{B}")
    assert shard.paths == {
        "caption": f"{tmp_path}/caption/{B}",
        "image": f"{tmp_path}/image/{B}",
    }


@given(sizes=st.lists(st.integers(0, 4), min_size=1, max_size=5))
def test_shards_are_numbered_through_the_leaves(
    tmp_path_factory: pytest.TempPathFactory, sizes: list[int]
) -> None:
    root = tmp_path_factory.mktemp("set")
    for number, size in enumerate(sizes):
        names = [f"{shard}.tar" for shard in range(size)]
        touch(root / f"{number}", *(f"image/{name}" for name in names))
        manifest(root / f"{number}", folders=["image"], data_list=names)

    dataset = find_dataset(root)

    expected = [f"{root}/{n}/{shard}.tar" for n, size in enumerate(sizes) for shard in range(size)]
    assert len(dataset) == len(expected)
    assert [shard.url for shard in dataset.iter_shards()] == expected
    assert [dataset.shard(number).url for number in range(len(dataset))] == expected


def test_given_shard_numbers_are_yielded_in_their_order(tmp_path: Path) -> None:
    dataset = find_dataset(twins(tmp_path, A, B, C))

    assert [shard.name for shard in dataset.iter_shards([2, 0, 2])] == [C, A, C]
    assert [shard.name for shard in dataset.iter_shards(range(0, 3, 2))] == [A, C]
    assert [shard.name for shard in dataset.iter_shards(np.array([1]))] == [B]


@pytest.mark.parametrize("number", [-1, 2])
def test_shard_number_out_of_range_is_an_index_error(tmp_path: Path, number: int) -> None:
    dataset = find_dataset(twins(tmp_path, A, B))

    with pytest.raises(IndexError, match=rf"in \[0, 2\), got {number}"):
        dataset.shard(number)


def test_dataset_survives_pickling(tmp_path: Path) -> None:
    dataset = find_dataset(leaf(tmp_path, A, B))

    copy = pickle.loads(pickle.dumps(dataset))

    assert copy == dataset
    assert list(copy.iter_shards()) == list(dataset.iter_shards())


def test_shards_come_in_the_order_of_the_manifest(tmp_path: Path) -> None:
    manifest(twins(tmp_path, A, B, C), C, A, B)

    assert names_of(find_dataset(tmp_path)) == [C, A, B]


def test_shards_without_a_manifest_come_sorted(tmp_path: Path) -> None:
    twins(tmp_path, "part_000001/000000.tar", C, A, "000007.tar")

    assert names_of(find_dataset(tmp_path)) == ["000007.tar", A, C, "part_000001/000000.tar"]


def test_shards_are_found_by_listing_their_folders_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    tars = [f"{number:06d}.tar" for number in range(1000)]
    touch(tmp_path / "store", *tars)
    names = [f"part_{part:06d}/{tar}" for part in range(50) for tar in tars]
    manifest(tmp_path / "set", *names)
    for folder in ("caption", "image"):
        (tmp_path / "set" / folder).mkdir()
        for part in range(50):
            (tmp_path / "set" / folder / f"part_{part:06d}").symlink_to(tmp_path / "store")

    listed: list[str] = []
    looked_at: list[str] = []
    scan, stat = os.scandir, os.stat

    def noted_scan(path: str) -> Any:
        listed.append(path)
        return scan(path)

    def noted_stat(path: Any, **options: Any) -> os.stat_result:
        looked_at.append(str(path))
        return stat(path, **options)

    monkeypatch.setattr(os, "scandir", noted_scan)
    monkeypatch.setattr(os, "stat", noted_stat)

    dataset = find_dataset(tmp_path / "set")

    assert len(dataset) == 50_000
    assert dataset.shard(49_999).name == names[-1]
    assert len(listed) == len(set(listed)) == 2 * 50 + 3, "the root, two modalities and their parts"
    assert not [path for path in looked_at if path.endswith(".tar")]


# --- leaves


def test_folder_of_the_manifest_wins_over_its_root(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    manifest(twins(tmp_path), root="/somewhere/else")

    with caplog.at_level(logging.INFO):
        dataset = find_dataset(tmp_path)

    assert roots_of(dataset) == [str(tmp_path)]
    assert "root '/somewhere/else' is stale" in caplog.text


def test_root_that_is_still_true_is_not_remarked_on(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    manifest(twins(tmp_path), root=f"{tmp_path}/")

    with caplog.at_level(logging.INFO):
        find_dataset(tmp_path)

    assert "stale" not in caplog.text


def test_manifests_are_found_at_any_depth_and_sorted(tmp_path: Path) -> None:
    for name in ("b", "a/y", "a/x/deep"):
        leaf(tmp_path / name)

    expected = [f"{tmp_path}/a/x/deep", f"{tmp_path}/a/y", f"{tmp_path}/b"]
    assert roots_of(find_dataset(tmp_path)) == expected


def test_nothing_is_looked_for_in_leaves_hidden_folders_and_parts(tmp_path: Path) -> None:
    leaf(tmp_path / "a")
    leaf(tmp_path / "a" / "below")
    leaf(tmp_path / ".trash")
    leaf(tmp_path / "part_000000")

    assert roots_of(find_dataset(tmp_path)) == [f"{tmp_path}/a"]


def test_manifest_itself_may_be_given(tmp_path: Path) -> None:
    leaf(tmp_path / "a")

    assert roots_of(find_dataset(tmp_path / "a" / "wdinfo.json")) == [f"{tmp_path}/a"]


def test_linked_leaf_is_read_once_and_link_cycles_end(tmp_path: Path) -> None:
    leaf(tmp_path / "a")
    (tmp_path / "latest").symlink_to("a")
    (tmp_path / "loop").symlink_to(".")
    (tmp_path / "self").symlink_to("self")
    (tmp_path / "a" / "image" / "loop").symlink_to("..")

    dataset = find_dataset(tmp_path)

    assert roots_of(dataset) == [f"{tmp_path}/a"]
    assert names_of(dataset) == [A]


def test_modalities_and_parts_may_be_links(tmp_path: Path) -> None:
    twins(tmp_path / "store")
    (tmp_path / "set" / "image").mkdir(parents=True)
    (tmp_path / "set" / "caption").symlink_to(tmp_path / "store" / "caption")
    (tmp_path / "set" / "image" / "part_000000").symlink_to(
        tmp_path / "store" / "image" / "part_000000"
    )

    assert names_of(find_dataset(tmp_path / "set")) == [A]


def test_manifest_that_links_to_nothing_is_not_passed_over(tmp_path: Path) -> None:
    twins(tmp_path)
    (tmp_path / "wdinfo.json").symlink_to("/nowhere/wdinfo.json")

    with pytest.raises(StorageError, match=r"wdinfo\.json: cannot be opened \(No such file"):
        find_dataset(tmp_path)


def test_tars_beside_manifests_are_counted(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    leaf(tmp_path / "aspect_ratio_1_1")
    twins(tmp_path / "aspect_ratio_16_9")
    touch(tmp_path / "flat", "000000.tar")

    dataset = find_dataset(tmp_path)

    assert roots_of(dataset) == [f"{tmp_path}/aspect_ratio_1_1"]
    assert dataset.skipped == {"folders of tars without a manifest": 3}
    assert f"{tmp_path}/aspect_ratio_16_9/image" in caplog.text


def test_filtered_out_tars_beside_manifests_are_not_counted(tmp_path: Path) -> None:
    leaf(tmp_path / "a")
    twins(tmp_path / "b")

    assert find_dataset(tmp_path, exclude="b").skipped == {}


def test_class_folders_are_leaves_without_a_manifest(tmp_path: Path) -> None:
    for name in ("aspect_ratio_16_9/duration_0_5", "aspect_ratio_16_9/duration_5_10"):
        twins(tmp_path / name)
    twins(tmp_path / "aspect_ratio_1_1")
    (tmp_path / "aspect_ratio_3_2" / "image").mkdir(parents=True)
    (tmp_path / "logs").mkdir()
    (tmp_path / "aspect_ratio_16_9" / "aspect_ratio_up").symlink_to(tmp_path)

    assert roots_of(find_dataset(tmp_path)) == [
        f"{tmp_path}/aspect_ratio_16_9/duration_0_5",
        f"{tmp_path}/aspect_ratio_16_9/duration_5_10",
        f"{tmp_path}/aspect_ratio_1_1",
    ]


def test_modalities_beside_class_folders_are_refused(tmp_path: Path) -> None:
    twins(tmp_path)
    twins(tmp_path / "aspect_ratio_1_1")

    with pytest.raises(LayoutError, match=r"modalities \(caption, image\) and .*aspect_ratio_1_1"):
        find_dataset(tmp_path)


def test_class_folder_with_tars_directly_in_it_is_refused(tmp_path: Path) -> None:
    twins(tmp_path / "aspect_ratio_1_1")
    touch(tmp_path / "aspect_ratio_3_2", A)

    with pytest.raises(LayoutError, match="aspect_ratio_3_2: tars or part folders lie directly"):
        find_dataset(tmp_path)


@pytest.mark.parametrize("name", ["image", "image/part_000000"])
def test_folder_of_one_modality_is_refused_with_a_hint(tmp_path: Path, name: str) -> None:
    twins(tmp_path)

    with pytest.raises(LayoutError, match=r"tars or part folders lie directly .*the folder above"):
        find_dataset(tmp_path / name)


def test_folder_without_tars_is_refused(tmp_path: Path) -> None:
    touch(tmp_path, "image/000000.jpg")

    with pytest.raises(LayoutError, match=r"no wdinfo\.json and no sub-folder with tars"):
        find_dataset(tmp_path)


def test_other_file_is_refused(tmp_path: Path) -> None:
    twins(tmp_path)

    with pytest.raises(LayoutError, match=r"000000\.tar: a file was found; expected a dataset's"):
        find_dataset(tmp_path / "image" / A)


def test_hidden_and_temporary_files_are_no_tars_and_suffixes_may_be_upper_case(
    tmp_path: Path,
) -> None:
    twins(tmp_path, A, "part_000000/B.TAR")
    touch(
        tmp_path / "image",
        "part_000000/.000009.tar",
        "part_000000/._000000.tar",
        "part_000000/.000001.tar.tmp",
        "part_000000/000002.tar.tmp",
        "part_000000/000003.tar.gz",
        ".cache/000004.tar",
    )

    assert names_of(find_dataset(tmp_path)) == [A, "part_000000/B.TAR"]


# --- modalities


def test_order_of_modalities_is_the_manifests(tmp_path: Path) -> None:
    folders = ["image", "umt5", "caption"]
    leaf(tmp_path, folders=folders)

    assert find_dataset(tmp_path).modalities == tuple(folders)


def test_order_of_modalities_is_sorted_without_a_manifest(tmp_path: Path) -> None:
    twins(tmp_path, folders=["umt5", "image", "caption"])
    touch(tmp_path, "notes/readme.txt")

    assert find_dataset(tmp_path).modalities == ("caption", "image", "umt5")


def test_asked_modalities_come_in_the_order_asked(tmp_path: Path) -> None:
    twins(tmp_path, folders=["a", "b", "c"])

    assert find_dataset(tmp_path, modalities=["c", "a"]).modalities == ("c", "a")


def test_folder_that_the_manifest_does_not_name_may_be_asked_for(tmp_path: Path) -> None:
    twins(leaf(tmp_path), folders=["caption_v2"])

    dataset = find_dataset(tmp_path, modalities=["image", "caption_v2"])

    assert dataset.shard(0).paths["caption_v2"] == f"{tmp_path}/caption_v2/{A}"


def test_mapping_names_the_columns(tmp_path: Path) -> None:
    twins(tmp_path, folders=["image/left", "image/right", "caption"])

    dataset = find_dataset(tmp_path, modalities={"picture": "image/left", "text": "caption"})

    assert dataset.modalities == ("picture", "text")
    assert dataset.shard(0).paths == {
        "picture": f"{tmp_path}/image/left/{A}",
        "text": f"{tmp_path}/caption/{A}",
    }


def test_nested_folder_of_a_manifest_has_a_column_with_underscores(tmp_path: Path) -> None:
    leaf(tmp_path, folders=["image/left", "caption"])

    dataset = find_dataset(tmp_path)

    assert dataset.modalities == ("image_left", "caption")
    assert dataset.leaves[0].folders["image_left"] == "image/left"


@pytest.mark.parametrize("is_asked", [True, False])
def test_two_folders_of_one_column_name_are_refused(tmp_path: Path, is_asked: bool) -> None:
    folders = ["image/left", "image_left"]
    leaf(tmp_path, folders=folders)

    with pytest.raises(LayoutError, match=r"'image/left' and 'image_left' both make .*\{column: f"):
        find_dataset(tmp_path, modalities=folders if is_asked else None)


def test_reserved_column_names_are_refused(tmp_path: Path) -> None:
    twins(tmp_path, folders=["__key__", "image"])

    with pytest.raises(LayoutError, match=r"'__key__' makes a column of that name, .*reserved"):
        find_dataset(tmp_path)
    with pytest.raises(ValueError, match=r"must have a name other than .*__url__"):
        find_dataset(tmp_path, modalities={"__url__": "image"})
    assert find_dataset(tmp_path, modalities={"key": "__key__"}).modalities == ("key",)


def test_manifest_without_modalities_is_refused(tmp_path: Path) -> None:
    manifest(twins(tmp_path), folders=[])

    with pytest.raises(LayoutError, match=r"wdinfo\.json: no modality is named"):
        find_dataset(tmp_path)


@pytest.mark.parametrize("on_missing", ["error", "skip", "null"])
def test_modality_without_a_folder_is_refused_with_those_there(
    tmp_path: Path, on_missing: Any
) -> None:
    twins(tmp_path)
    touch(tmp_path, "depth")

    for name in ("dpeth", "depth", "image/left"):
        with pytest.raises(LayoutError, match=f"'{name}' is not there; found caption, image;"):
            find_dataset(tmp_path, modalities=["image", name], on_missing=on_missing)


def test_modality_of_the_manifest_without_a_folder_is_refused(tmp_path: Path) -> None:
    manifest(twins(tmp_path), folders=["image", "umt5"])

    with pytest.raises(LayoutError, match=r"modality 'umt5' is not there; .*modalities="):
        find_dataset(tmp_path)


def test_empty_manifest_needs_no_folders(tmp_path: Path) -> None:
    manifest(tmp_path, data_list=[])

    dataset = find_dataset(tmp_path)

    assert (len(dataset), list(dataset.iter_shards())) == (0, [])
    assert dataset.modalities == ("caption", "image")
    with pytest.raises(LayoutError, match="'imgae' is not there; found no folder with tars"):
        find_dataset(tmp_path, modalities=["imgae"])


def test_leaves_that_differ_in_modalities_are_refused(tmp_path: Path) -> None:
    leaf(tmp_path / "a", folders=["image", "caption"])
    leaf(tmp_path / "b", folders=["image", "umt5"])

    message = "b: modalities image, umt5 were found; expected image, caption, as in .*/a; .*ies="
    with pytest.raises(LayoutError, match=message):
        find_dataset(tmp_path)
    assert len(find_dataset(tmp_path, modalities=["image"])) == 2


def test_leaves_may_differ_in_the_order_of_modalities(tmp_path: Path) -> None:
    leaf(tmp_path / "a", folders=["image", "caption"])
    leaf(tmp_path / "b", folders=["caption", "image"])

    dataset = find_dataset(tmp_path)

    assert dataset.modalities == ("image", "caption")
    assert all(tuple(shard.paths) == dataset.modalities for shard in dataset.iter_shards())
    assert dataset.shard(1).paths["image"] == f"{tmp_path}/b/image/{A}"


@pytest.mark.parametrize(
    ("modalities", "error", "message"),
    [
        pytest.param("image", TypeError, r"the string 'image'; write \['image'\]", id="string"),
        pytest.param(3, TypeError, "got int", id="int"),
        pytest.param({"image", "caption"}, TypeError, "got set", id="set"),
        pytest.param(["image", 3], TypeError, "must hold strings, got 3", id="int-in-list"),
        pytest.param({"image": None}, TypeError, "must hold strings, got None", id="none"),
        pytest.param([], ValueError, "at least one folder", id="empty-list"),
        pytest.param({}, ValueError, "at least one folder", id="empty-mapping"),
        pytest.param({"": "image"}, ValueError, "must have a name", id="empty-column"),
        pytest.param(["../image"], ValueError, r"such as 'image' or .*got '\.\./image'", id="up"),
        pytest.param(["/image"], ValueError, "folders below the dataset's", id="absolute"),
        pytest.param(["image/"], ValueError, "folders below the dataset's", id="slash"),
        pytest.param([""], ValueError, "folders below the dataset's", id="empty-folder"),
    ],
)
def test_wrong_modalities_are_refused(
    tmp_path: Path, modalities: Any, error: type[Exception], message: str
) -> None:
    with pytest.raises(error, match=message):
        find_dataset(twins(tmp_path), modalities=modalities)


# --- missing shards


@pytest.fixture
def gap(tmp_path: Path) -> Path:
    """Three shards; caption lacks the second."""
    twins(tmp_path, A, B, C)
    (tmp_path / "caption" / B).unlink()
    return tmp_path


@pytest.mark.parametrize("has_manifest", [True, False])
def test_shard_missing_in_a_modality_is_an_error_that_names_the_tar(
    gap: Path, has_manifest: bool
) -> None:
    if has_manifest:
        manifest(gap, A, B, C)

    with pytest.raises(LayoutError, match=rf"{gap}: missing tars \(1\): caption/{B}; .*on_missing"):
        find_dataset(gap)


def test_shard_missing_in_a_modality_can_be_skipped_and_counted(
    gap: Path, caplog: pytest.LogCaptureFixture
) -> None:
    dataset = find_dataset(gap, on_missing="skip")

    assert names_of(dataset) == [A, C]
    assert dataset.skipped == {"shards missing in a modality": 1}
    assert dataset.leaves[0].absent == {"caption": frozenset(), "image": frozenset()}
    assert f"1 shards missing in a modality are not read, first {B}" in caplog.text


def test_shard_missing_in_a_modality_can_be_kept_without_its_path(gap: Path) -> None:
    dataset = find_dataset(gap, on_missing="null")

    assert names_of(dataset) == [A, B, C]
    assert dataset.shard(1).paths == {"caption": None, "image": f"{gap}/image/{B}"}
    assert None not in dataset.shard(0).paths.values()
    assert dataset.leaves[0].absent == {"caption": frozenset({B}), "image": frozenset()}
    assert dataset.skipped == {}


def test_gap_in_a_modality_that_is_not_read_does_not_matter(gap: Path) -> None:
    assert len(find_dataset(gap, modalities=["image"])) == 3


def test_link_to_nothing_is_a_missing_tar(gap: Path) -> None:
    (gap / "caption" / B).symlink_to("/nowhere/000001.tar")

    with pytest.raises(LayoutError, match=rf"missing tars \(1\): caption/{B}"):
        find_dataset(gap)


def test_shard_missing_in_all_modalities_is_an_error_or_counted(tmp_path: Path) -> None:
    manifest(twins(tmp_path, A), A, B)

    with pytest.raises(LayoutError, match=rf"missing tars \(2\): caption/{B}, image/{B};"):
        find_dataset(tmp_path)
    for policy in ("skip", "null"):
        dataset = find_dataset(tmp_path, on_missing=policy)
        assert names_of(dataset) == [A]
        assert dataset.skipped == {"shards missing in all modalities": 1}


def test_only_the_first_missing_tars_are_named(tmp_path: Path) -> None:
    twins(tmp_path, *(f"{number:06d}.tar" for number in range(9)), folders=["image"])
    touch(tmp_path, "caption/000000.tar")

    with pytest.raises(LayoutError, match=r"tars \(8\): .*caption/000005.tar and 3 more;"):
        find_dataset(tmp_path)


def test_folder_that_lost_all_its_tars_is_not_taken_for_no_modality(tmp_path: Path) -> None:
    manifest(twins(tmp_path, folders=["image"]))
    (tmp_path / "caption").mkdir()

    with pytest.raises(LayoutError, match=rf"missing tars \(1\): caption/{A}"):
        find_dataset(tmp_path)
    assert find_dataset(tmp_path, on_missing="null").shard(0).paths["caption"] is None


def test_shards_that_only_the_disk_has_are_counted_and_logged(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    manifest(twins(tmp_path, A, B, C), B)
    touch(tmp_path, "image/part_000009/000000.tar")

    dataset = find_dataset(tmp_path)

    assert names_of(dataset) == [B]
    assert dataset.skipped == {"shards not in the manifest": 2}
    assert f"2 shards not in the manifest are not read, first {A}" in caplog.text


def test_skipped_shards_add_up_over_leaves(tmp_path: Path) -> None:
    for name in ("a", "b"):
        twins(tmp_path / name, A, B)
        touch(tmp_path / name, f"image/{C}")

    dataset = find_dataset([tmp_path / "a", tmp_path / "b"], on_missing="skip")

    assert dataset.skipped == {"shards missing in a modality": 2}


@given(
    listed=st.sets(st.integers(0, 5)),
    image=st.sets(st.integers(0, 5), min_size=1),
    caption=st.sets(st.integers(0, 5), min_size=1),
)
def test_every_shard_is_read_or_counted(
    tmp_path_factory: pytest.TempPathFactory, listed: set[int], image: set[int], caption: set[int]
) -> None:
    root = tmp_path_factory.mktemp("set")
    touch(root, *(f"image/{n}.tar" for n in image), *(f"caption/{n}.tar" for n in caption))
    manifest(root, data_list=[f"{n}.tar" for n in sorted(listed)])
    unlisted = len((image & caption) - listed)

    skip = find_dataset(root, on_missing="skip")
    null = find_dataset(root, on_missing="null")

    assert names_of(skip) == [f"{n}.tar" for n in sorted(listed & image & caption)]
    assert names_of(null) == [f"{n}.tar" for n in sorted(listed & (image | caption))]
    assert len(skip) + sum(skip.skipped.values()) == len(listed) + unlisted
    assert len(null) + sum(null.skipped.values()) == len(listed) + unlisted
    for shard in null.iter_shards():
        number = int(shard.name.removesuffix(".tar"))
        assert (shard.paths["image"] is not None) == (number in image)
        assert (shard.paths["caption"] is not None) == (number in caption)


@pytest.mark.parametrize("on_missing", ["drop", None, ["skip"]])
def test_unknown_policy_is_refused(tmp_path: Path, on_missing: Any) -> None:
    with pytest.raises(ValueError, match=r"on_missing must be one of .*'error', 'skip', 'null'"):
        find_dataset(twins(tmp_path), on_missing=on_missing)


def test_tar_name_that_is_not_text_is_refused(tmp_path: Path) -> None:
    twins(tmp_path)
    try:
        Path(os.fsdecode(os.fsencode(tmp_path / "image") + b"/\xff.tar")).touch()
    except OSError:
        pytest.skip("this file system takes only Unicode names")

    with pytest.raises(LayoutError, match=r"the tar name b'\\xff.tar' is not UTF-8"):
        find_dataset(tmp_path)


def test_folder_whose_path_is_not_text_is_refused_unless_a_link_names_it(tmp_path: Path) -> None:
    odd = Path(os.fsdecode(os.fsencode(tmp_path) + b"/\xff"))
    try:
        odd.mkdir()
    except OSError:
        pytest.skip("this file system takes only Unicode names")
    twins(odd)
    (tmp_path / "link").symlink_to(odd)

    with pytest.raises(LayoutError, match=r"\\xff': the folder's path is not UTF-8; .*rename it"):
        find_dataset(odd)
    assert len(find_dataset(tmp_path / "link")) == 1


# --- paths

SPECIAL = [
    "with space",
    "hash#tag",
    "set[1]",
    "pct%20x",
    "plus+plus",
    "brace{a,b}",
    "star*",
    "what?",
    "two**stars",
    "\u56fe\u50cf",
]


@pytest.mark.parametrize("name", SPECIAL)
def test_name_that_exists_is_never_a_pattern(tmp_path: Path, name: str) -> None:
    for folder in (name, "set1", "bracea", "braceb", "starry", "whats"):
        leaf(tmp_path / folder)

    assert roots_of(find_dataset(tmp_path / name)) == [f"{tmp_path}/{name}"]
    assert roots_of(find_dataset(f"{tmp_path}/{name}/wdinfo.json")) == [f"{tmp_path}/{name}"]


@pytest.mark.parametrize("name", SPECIAL)
def test_pattern_begins_after_the_names_that_exist(tmp_path: Path, name: str) -> None:
    leaf(tmp_path / name / "a")
    leaf(tmp_path / name / "b")

    expected = [f"{tmp_path}/{name}/a", f"{tmp_path}/{name}/b"]
    assert roots_of(find_dataset(f"{tmp_path}/{name}/*")) == expected
    assert roots_of(find_dataset(f"{tmp_path}/{name}/{{a,b}}/wdinfo.json")) == expected


@pytest.mark.parametrize(
    ("pattern", "expected"),
    [
        ("*", ["a1", "a2", "b1"]),
        ("a?", ["a1", "a2"]),
        ("[!b]*", ["a1", "a2"]),
        ("{b1,a*}", ["b1", "a1", "a2"]),
        ("{a{1,2},b1}", ["a1", "b1", "a2"]),
        ("*/wdinfo.json", ["a1", "a2", "b1"]),
        ("**/wdinfo.json", ["a1", "a2", "b1"]),
        ("**", ["a1", "a2", "b1"]),
        ("a*/**/wdinfo.json", ["a1", "a2"]),
        ("*1/../a2", ["a2"]),
    ],
)
def test_patterns_match(tmp_path: Path, pattern: str, expected: list[str]) -> None:
    for name in ("b1", "a2", "a1", ".a3"):
        leaf(tmp_path / name)
    touch(tmp_path, "readme.txt", "logs/a1.log")

    assert roots_of(find_dataset(f"{tmp_path}/{pattern}")) == [f"{tmp_path}/{n}" for n in expected]


def test_pattern_is_no_way_into_a_leaf_that_it_matches_as_well(tmp_path: Path) -> None:
    leaf(tmp_path / "set", folders=["image/left", "image/right"])

    assert roots_of(find_dataset(f"{tmp_path}/**")) == [f"{tmp_path}/set"]


def test_pattern_with_link_cycles_ends(tmp_path: Path) -> None:
    leaf(tmp_path / "a")
    (tmp_path / "a" / "up").symlink_to("..")
    (tmp_path / "b").symlink_to(".")

    assert roots_of(find_dataset(f"{tmp_path}/**/wdinfo.json")) == [f"{tmp_path}/a"]


@pytest.mark.parametrize("pattern", ["**a/x", "a**", "x/***/y", "{**a,b}"])
def test_two_stars_inside_a_part_are_refused_with_a_hint(tmp_path: Path, pattern: str) -> None:
    with pytest.raises(LayoutError, match=r"'\*\*' was found inside .*a whole part .*any depth"):
        find_dataset(f"{leaf(tmp_path)}/{pattern}")


def test_pattern_that_matches_nothing_is_refused(tmp_path: Path) -> None:
    leaf(tmp_path / "a")

    with pytest.raises(LayoutError, match=rf"b\*: the pattern matches nothing below {tmp_path};"):
        find_dataset(f"{tmp_path}/b*")
    with pytest.raises(LayoutError, match=r"not found, nothing named 'b' is in"):
        find_dataset(f"{tmp_path}/{{a,b}}")


def test_pattern_that_matches_no_dataset_is_refused(tmp_path: Path) -> None:
    touch(tmp_path, "a.txt", "b/c.txt")

    message = f"matches {tmp_path}/a.txt, {tmp_path}/b, none of which is a dataset's root"
    with pytest.raises(LayoutError, match=message):
        find_dataset(f"{tmp_path}/*")


def test_path_that_is_not_there_is_refused_with_the_part_that_lacks(tmp_path: Path) -> None:
    (tmp_path / "a").mkdir()

    with pytest.raises(LayoutError, match=f"not found, nothing named 'b' is in {tmp_path}/a;"):
        find_dataset(tmp_path / "a" / "b" / "c")
    with pytest.raises(LayoutError, match=r"nothing named 'wdinfo.json' is in"):
        find_dataset(tmp_path / "wdinfo.json")
    with pytest.raises(LayoutError, match=r"nothing named 'no-such-folder' is in /;"):
        find_dataset("/no-such-folder/a")


def test_relative_paths_and_the_home_folder_become_absolute(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    leaf(tmp_path / "a")
    monkeypatch.chdir(tmp_path / "a")
    monkeypatch.setenv("HOME", str(tmp_path))

    for path in (".", "./", "../a/", "~/a", "~/*", "wdinfo.json"):
        assert roots_of(find_dataset(path)) == [f"{tmp_path}/a"]


def test_folder_above_a_link_is_the_one_on_the_disk(tmp_path: Path) -> None:
    leaf(tmp_path / "real" / "a")
    (tmp_path / "real" / "b").mkdir()
    (tmp_path / "link").symlink_to("real/b")

    assert roots_of(find_dataset(f"{tmp_path}/link/../a")) == [f"{tmp_path}/real/a"]


def test_unknown_home_folder_is_refused(tmp_path: Path) -> None:
    with pytest.raises(LayoutError, match="~nobody-of-this-name/a: cannot be followed"):
        find_dataset("~nobody-of-this-name/a")


@pytest.mark.parametrize("prefix", ["file://", "FILE://", "file://localhost"])
@pytest.mark.parametrize("name", ["pct%20x", "hash#tag", "with space"])
def test_file_urls_are_percent_decoded(tmp_path: Path, prefix: str, name: str) -> None:
    leaf(tmp_path / name)
    encoded = name.replace("%", "%25").replace("#", "%23").replace(" ", "%20")

    expected = [f"{tmp_path}/{name}"]
    assert roots_of(find_dataset(f"{prefix}{tmp_path}/{encoded}")) == expected
    assert roots_of(find_dataset(f"{prefix}{tmp_path}/{encoded[:3]}*")) == expected


@pytest.mark.parametrize("url", ["foo://bucket/set", "foo://b/*"])
def test_unknown_schemes_are_refused(url: str) -> None:
    with pytest.raises(StorageError, match="scheme 'foo' is not known; expected a local path, fi"):
        find_dataset(url)


@pytest.mark.parametrize("url", ["file://host/set", "file://set"])
def test_file_urls_of_other_machines_are_refused(url: str) -> None:
    with pytest.raises(StorageError, match=r"machine '.*' was found; expected file:///absolute"):
        find_dataset(url)


@pytest.mark.parametrize(
    ("path", "error", "message"),
    [
        pytest.param([], ValueError, "at least one dataset, got an empty list", id="none"),
        pytest.param("", ValueError, "got an empty string", id="empty"),
        pytest.param("a\0b", ValueError, "no NUL", id="nul"),
        pytest.param("file:///a%00b", ValueError, "no NUL", id="nul-in-url"),
        pytest.param(b"/data", TypeError, "got bytes", id="bytes"),
        pytest.param([b"/data"], TypeError, "got bytes", id="bytes-in-list"),
        pytest.param({"/data"}, TypeError, "got set", id="set"),
        pytest.param(["/data", 3], TypeError, "a path object, got int", id="int"),
        pytest.param(Path("s3://b/a"), ValueError, "only one slash .*s3:/.*as a string", id="url"),
    ],
)
def test_wrong_paths_are_refused(path: Any, error: type[Exception], message: str) -> None:
    with pytest.raises(error, match=message):
        find_dataset(path)


def test_path_object_of_bytes_is_refused() -> None:
    class BytesPath(os.PathLike[bytes]):
        @override
        def __fspath__(self) -> bytes:
            return b"/data"

    with pytest.raises(TypeError, match="must be text, got bytes"):
        find_dataset(BytesPath())  # type: ignore[arg-type]


def test_items_come_in_the_order_given(tmp_path: Path) -> None:
    for name in ("a/x", "b", "c"):
        leaf(tmp_path / name)

    dataset = find_dataset([tmp_path / "c", str(tmp_path / "a"), f"{tmp_path}/b/wdinfo.json"])

    assert roots_of(dataset) == [f"{tmp_path}/{name}" for name in ("c", "a/x", "b")]


@pytest.mark.parametrize(
    "second", ["a", "a/", "a/wdinfo.json", "*", "b/../a", "link", "link/wdinfo.json", "."]
)
def test_leaf_reached_twice_is_refused_with_both_ways(tmp_path: Path, second: str) -> None:
    leaf(tmp_path / "a")
    (tmp_path / "b").mkdir()
    (tmp_path / "link").symlink_to("a")
    first, second = f"{tmp_path}/a", f"{tmp_path}/{second}"

    with pytest.raises(LayoutError) as caught:
        find_dataset([first, second])
    assert f"{first}: this leaf is reached twice, through item 1, {first!r}" in str(caught.value)
    assert f"item 2, {second!r}; expected each leaf once; drop one" in str(caught.value)


@pytest.mark.parametrize("denied", ["", "image", "image/part_000000"])
def test_folder_that_cannot_be_listed_is_a_storage_error(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, denied: str
) -> None:
    twins(tmp_path)
    real: Callable[[str], Any] = os.scandir

    def scandir(folder: str) -> Any:
        if folder == str(tmp_path / denied):
            raise PermissionError(13, "Permission denied")
        return real(folder)

    monkeypatch.setattr(os, "scandir", scandir)

    message = f"{tmp_path / denied}: cannot be listed .Permission denied."
    with pytest.raises(StorageError, match=message) as caught:
        find_dataset(tmp_path)
    assert isinstance(caught.value.__cause__, PermissionError)


def test_path_that_may_not_be_looked_at_is_not_taken_for_absent(tmp_path: Path) -> None:
    with pytest.raises(StorageError, match=r"xxx: cannot be listed \(File name too long\)"):
        find_dataset(tmp_path / ("x" * 300))


def test_link_that_may_not_be_followed_is_not_taken_for_absent(tmp_path: Path) -> None:
    twins(tmp_path)
    (tmp_path / "image" / "000001.tar").symlink_to("x" * 300)

    with pytest.raises(StorageError, match=r"image: cannot be listed \(File name too long\)"):
        find_dataset(tmp_path)


def test_folder_that_vanishes_during_the_walk_is_a_storage_error(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    leaf(tmp_path / "a")
    (tmp_path / "b").mkdir()
    real: Callable[[str], Any] = os.scandir

    def scandir(folder: str) -> Any:
        if folder == str(tmp_path / "a"):
            (tmp_path / "b").rmdir()
        return real(folder)

    monkeypatch.setattr(os, "scandir", scandir)

    with pytest.raises(StorageError, match=rf"{tmp_path}/b: cannot be listed \(No such file"):
        find_dataset(tmp_path)


# --- filters


@pytest.fixture
def tagged(tmp_path: Path) -> Path:
    for tag in ("resolution_gt_1080", "resolution_gt_2160"):
        for ratio in ("aspect_ratio_16_9", "aspect_ratio_1_1", "aspect_ratio_1_10"):
            leaf(tmp_path / tag / ratio)
    return tmp_path


@pytest.mark.parametrize(
    ("filters", "expected"),
    [
        ({"include": "gt_1080"}, 3),
        ({"include": ["gt_1080", "gt_2160"]}, 6),
        ({"include": ["gt_1080", "nowhere"]}, 3),
        ({"exclude": "gt_1080"}, 3),
        ({"exclude": ["gt_1080", "_1_1"]}, 1),
        ({"include": ["gt_1080"], "exclude": ["16_9"]}, 2),
        ({"include": [], "exclude": [], "aspect_ratios": []}, 6),
        ({"include": None, "exclude": None, "aspect_ratios": None}, 6),
        ({"aspect_ratios": ["1,1"]}, 2),
        ({"aspect_ratios": "16:9"}, 2),
        ({"aspect_ratios": ["1_1", " 16 / 9 "]}, 4),
        ({"aspect_ratios": ["1,1"], "include": "2160"}, 1),
    ],
)
def test_filters_choose_leaves(tagged: Path, filters: dict[str, Any], expected: int) -> None:
    assert len(find_dataset(tagged, **filters)) == expected


def test_include_keeps_any_of_its_words(tagged: Path) -> None:
    dataset = find_dataset(tagged, include=["gt_1080/aspect_ratio_16_9", "gt_2160/aspect_ratio_16"])

    assert roots_of(dataset) == [
        f"{tagged}/resolution_gt_1080/aspect_ratio_16_9",
        f"{tagged}/resolution_gt_2160/aspect_ratio_16_9",
    ]


def test_words_are_looked_for_below_the_item_only(tmp_path: Path) -> None:
    leaf(tmp_path / "test" / "a")
    leaf(tmp_path / "other" / "a")

    assert len(find_dataset(tmp_path / "test", exclude="test")) == 1
    assert len(find_dataset(tmp_path / "test" / "a" / "wdinfo.json", exclude="test")) == 1
    assert len(find_dataset(f"{tmp_path}/test/*", exclude="test")) == 1
    assert len(find_dataset(f"{tmp_path}/test/*/wdinfo.json", include="a")) == 1
    assert len(find_dataset(f"{tmp_path}/{{test,other}}/a", include="test")) == 1
    with pytest.raises(LayoutError, match="1 leaves were found, none of which"):
        find_dataset(f"{tmp_path}/te*", exclude="test")


def test_ratio_may_be_part_of_the_item(tagged: Path) -> None:
    folder = tagged / "resolution_gt_1080" / "aspect_ratio_16_9"

    assert roots_of(find_dataset(folder, aspect_ratios=["16,9"])) == [str(folder)]


def test_filters_that_leave_nothing_name_the_leaves(tagged: Path) -> None:
    first = f"{tagged}/resolution_gt_1080/aspect_ratio_16_9"

    with pytest.raises(LayoutError, match=f"6 leaves were found, none .*: {first}, .*and 1 more"):
        find_dataset(tagged, aspect_ratios=["4,3"])


def test_manifest_of_a_leaf_that_is_not_wanted_is_not_read(tmp_path: Path) -> None:
    leaf(tmp_path / "a")
    touch(tmp_path, "b/wdinfo.json")

    assert len(find_dataset(tmp_path, exclude="b")) == 1


@pytest.mark.parametrize(
    ("filters", "error", "message"),
    [
        ({"include": 3}, TypeError, "include must be a string or a list of strings, got 3"),
        ({"exclude": [3]}, TypeError, r"exclude must hold nothing but strings, got \[3\]"),
        ({"aspect_ratios": {"1,1"}}, TypeError, "aspect_ratios must be a string or a list"),
        ({"include": ["a", ""]}, ValueError, "include must hold no empty string"),
        ({"aspect_ratios": ["wide"]}, ValueError, "two whole numbers .*got 'wide'"),
        ({"aspect_ratios": ["16,0"]}, ValueError, "two whole numbers .*got '16,0'"),
        ({"aspect_ratios": [""]}, ValueError, "aspect_ratios must hold no empty string"),
    ],
)
def test_wrong_filters_are_refused(
    tmp_path: Path, filters: dict[str, Any], error: type[Exception], message: str
) -> None:
    with pytest.raises(error, match=message):
        find_dataset(twins(tmp_path), **filters)
