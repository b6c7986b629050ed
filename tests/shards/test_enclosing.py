from pathlib import Path

import pytest

from daft_twinwds.errors import LayoutError
from daft_twinwds.shards.enclosing import require_outside


def make(path: Path) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(b"")
    return path


@pytest.mark.parametrize("target", ["set/new", "set/image/part_000000/new", "set/a/b/c"])
def test_nothing_is_written_below_a_manifest(tmp_path: Path, target: str) -> None:
    make(tmp_path / "set/wdinfo.json")

    with pytest.raises(LayoutError, match=r"lies in the data set /.*/set, whose wdinfo\.json"):
        require_outside(str(tmp_path / target))


def test_a_manifest_that_is_a_link_to_nothing_counts(tmp_path: Path) -> None:
    (tmp_path / "set").mkdir()
    (tmp_path / "set/wdinfo.json").symlink_to(tmp_path / "gone")

    with pytest.raises(LayoutError, match="lies in the data set"):
        require_outside(str(tmp_path / "set/new"))


@pytest.mark.parametrize("target", ["new", "new/deeper/still", "image2"])
def test_nothing_is_written_beside_modalities_without_a_manifest(
    tmp_path: Path, target: str
) -> None:
    make(tmp_path / "set/image/part_000000/000000.tar")

    with pytest.raises(LayoutError, match=r"lies beside /.*/set/image, which holds tars and no"):
        require_outside(str(tmp_path / "set" / target))


def test_an_empty_folder_that_is_there_already_is_no_way_in(tmp_path: Path) -> None:
    make(tmp_path / "set/image/part_000000/000000.tar")
    (tmp_path / "set/new").mkdir()

    with pytest.raises(LayoutError, match="lies beside"):
        require_outside(str(tmp_path / "set/new"))


@pytest.mark.parametrize("link", ["elsewhere/link", "set/link"])
def test_links_lead_into_data_sets_and_out_of_them(tmp_path: Path, link: str) -> None:
    make(tmp_path / "set/image/part_000000/000000.tar")
    (tmp_path / "elsewhere").mkdir()
    (tmp_path / link).symlink_to(tmp_path / ("elsewhere" if link[0] == "s" else "set"))
    target = link if link[0] == "s" else f"{link}/new"

    with pytest.raises(LayoutError, match="lies beside"):
        require_outside(str(tmp_path / target))


@pytest.mark.parametrize(
    "there",
    [
        pytest.param(["other/wdinfo.json", "other/image/part_000000/000000.tar"], id="data-set"),
        pytest.param(["other/wdinfo.json", "other/000000.tar"], id="flat-data-set"),
        pytest.param(["aspect_ratio_1_1/notes.txt", "duration_0_5/a/000000.tar"], id="no-leaf"),
        pytest.param(["new/image/part_000000/000000.tar"], id="the-folder-itself"),
        pytest.param(["downloads/000000.tar"], id="tars-that-may-be-anything"),
        pytest.param([".hidden/part_0/000000.tar", "a/part_0/.000000.tar"], id="hidden"),
        pytest.param(["a/notes.txt", "a/part_000000/notes.txt", "b.tar"], id="no-tars-in-folders"),
        pytest.param(["other/wdinfo.json", "new.txt"], id="files"),
    ],
)
def test_data_sets_and_leaves_lie_side_by_side(tmp_path: Path, there: list[str]) -> None:
    for name in there:
        make(tmp_path / "root" / name)

    require_outside(str(tmp_path / "root/new"))
    require_outside(str(tmp_path / "root/aspect_ratio_16_9"))


@pytest.mark.parametrize(
    "leaf",
    [
        "aspect_ratio_1_1/wdinfo.json",
        "aspect_ratio_1_1/image/part_000000/000000.tar",
        "duration_0_5/wdinfo.json",
        "aspect_ratio_1_1/duration_0_5/wdinfo.json",
    ],
)
@pytest.mark.parametrize("target", ["new", "new/deeper"])
def test_nothing_but_leaves_is_written_beside_leaves(
    tmp_path: Path, leaf: str, target: str
) -> None:
    make(tmp_path / "set" / leaf)

    with pytest.raises(LayoutError, match=r"lies in the data set /.*/set, one of whose leaves is"):
        require_outside(str(tmp_path / "set" / target))
    require_outside(str(tmp_path / "set/aspect_ratio_16_9"))
    require_outside(str(tmp_path / "set/duration_5_10/deeper"))
