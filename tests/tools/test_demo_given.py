import io
import json
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from daft.exceptions import DaftCoreException
from hypothesis import given
from hypothesis import strategies as st
from PIL import Image

from daft_twinwds.errors import (
    DecodeError,
    LayoutError,
    MissingDependencyError,
    StorageError,
    TwinWebDatasetError,
)
from daft_twinwds.testing import make_twin_dataset, write_tar
from daft_twinwds.tools.contact_sheet import Tile, make_tile, thumbnail_boxes
from daft_twinwds.tools.demo import run_demo
from daft_twinwds.tools.demo_query import look, printable
from daft_twinwds.tools.demo_report import JsonReporter
from daft_twinwds.tools.demo_stream import count_readings

SMALL = (64, 36)


def picture(mode: str, size: tuple[int, int], colour: Any, kind: str = "PNG") -> bytes:
    file = io.BytesIO()
    Image.new(mode, size, colour).save(file, kind)
    return file.getvalue()


def write_twins(root: Path, pictures: dict[str, bytes], text: Callable[[str], bytes]) -> Path:
    """One leaf with one shard; names -> pictures, and a caption for each."""
    write_tar(root / "image/part_000000/000000.tar", list(pictures.items()))
    captions = [(f"{Path(name).stem}.json", text(Path(name).stem)) for name in pictures]
    write_tar(root / "caption/part_000000/000000.tar", captions)
    return root


def prompt(key: str) -> bytes:
    return json.dumps({"prompt": f"a picture of {key}"}).encode()


def mixed_twins(root: Path) -> Path:
    """Two leaves with equal keys: sizes, modes and formats that do not stack."""
    write_twins(
        root / "aspect_ratio_16_9",
        {
            "a.jpg": picture("RGB", (64, 36), (200, 40, 40), "JPEG"),
            "b.png": picture("RGBA", (80, 40), (0, 200, 0, 128)),
            "c.png": picture("L", (48, 27), 90),
        },
        prompt,
    )
    write_twins(
        root / "aspect_ratio_9_16",
        {
            "a.png": picture("LA", (30, 60), (10, 255)),
            "b.jpg": picture("L", (24, 32), 220, "JPEG"),
        },
        prompt,
    )
    return root


# The steps


def blank(size: tuple[int, int]) -> Tile:
    return make_tile(np.zeros((size[1], size[0], 3), np.uint8), title="", text="", group=0)


def test_given_pictures_of_all_shapes_and_modes_are_streamed_whole(tmp_path: Path) -> None:
    root = mixed_twins(tmp_path / "twins")

    result = run_demo(data=root, output=tmp_path / "sheet.png")

    assert result.is_complete
    assert result.data.num_shards == 2
    assert result.query.num_kept == result.query.num_rows == result.stream.num_rows == 5
    assert result.stream.sizes == [(24, 32), (30, 60), (48, 27), (64, 36), (80, 40)]
    assert [rank.num_rows for rank in result.stream.ranks] == [3, 2]
    assert result.table.rows[0].width is None
    sheet = np.asarray(Image.open(tmp_path / "sheet.png"))
    # Half a green lies over white.
    shown: list[tuple[tuple[int, int], tuple[int, int, int]]] = [
        ((64, 36), (200, 40, 40)),
        ((80, 40), (127, 227, 127)),
        ((48, 27), (90, 90, 90)),
        ((30, 60), (10, 10, 10)),
        ((24, 32), (220, 220, 220)),
    ]
    for (_, colour), (left, top, right, bottom) in zip(
        shown, thumbnail_boxes([blank(size) for size, _ in shown]), strict=True
    ):
        mean = sheet[top:bottom, left:right].mean(axis=(0, 1))
        assert mean == pytest.approx(colour, abs=3)


def test_word_keeps_the_prompts_that_hold_it(tmp_path: Path) -> None:
    root = mixed_twins(tmp_path / "twins")

    result = run_demo(data=root, output=tmp_path / "sheet.png", contains="of b")

    assert (result.query.num_kept, result.query.num_rows) == (2, 5)
    assert result.query.num_shards_kept == 2
    assert result.stream.num_rows == 2


def test_texts_are_prompts_too(tmp_path: Path) -> None:
    write_tar(tmp_path / "image/0.tar", [("a.png", picture("RGB", (8, 8), (1, 2, 3)))])
    write_tar(tmp_path / "text/0.tar", [("a.txt", b"a quiet harbour")])

    result = run_demo(data=tmp_path, output=tmp_path / "sheet.png", contains="harbour")

    assert result.table.rows[0].prompt == "a quiet harbour"
    assert result.stream.num_rows == 1
    assert [rank.num_rows for rank in result.stream.ranks] == [1, 0]


def test_pictures_alone_are_streamed(tmp_path: Path) -> None:
    write_tar(tmp_path / "photo/0.tar", [("a.png", picture("RGB", (8, 8), (1, 2, 3)))])

    result = run_demo(data=tmp_path, output=tmp_path / "sheet.png")

    assert result.table.rows[0].prompt is None
    assert result.is_complete


def test_word_needs_prompts(tmp_path: Path) -> None:
    write_tar(tmp_path / "photo/0.tar", [("a.png", picture("RGB", (8, 8), (1, 2, 3)))])

    with pytest.raises(LayoutError, match=r"'photo'\]; expected one of captions"):
        run_demo(data=tmp_path, output=tmp_path / "sheet.png", contains="harbour")


def test_data_without_pictures_is_refused(tmp_path: Path) -> None:
    write_tar(tmp_path / "caption/0.tar", [("a.json", b'{"prompt": "a"}')])

    with pytest.raises(LayoutError, match=r"'caption'\]; expected one of pictures"):
        run_demo(data=tmp_path, output=tmp_path / "sheet.png")


def test_data_without_samples_is_refused(tmp_path: Path) -> None:
    write_tar(tmp_path / "image/0.tar", [])

    with pytest.raises(LayoutError, match="expected one of pictures"):
        run_demo(data=tmp_path, output=tmp_path / "sheet.png")


def test_word_that_nobody_says_is_refused(tmp_path: Path) -> None:
    root = mixed_twins(tmp_path / "twins")

    with pytest.raises(TwinWebDatasetError, match="none of 5 prompts contains 'submarine'; exp"):
        run_demo(data=root, output=tmp_path / "sheet.png", contains="submarine")
    assert not (tmp_path / "sheet.png").exists()


def test_damaged_picture_is_refused_by_name(tmp_path: Path) -> None:
    broken = picture("RGB", (64, 64), (9, 9, 9), "JPEG")[:-40]
    root = write_twins(tmp_path / "twins", {"bad.jpg": broken}, prompt)

    with pytest.raises(DecodeError, match=r"000000\.tar: 'bad' \(image"):
        run_demo(data=root, output=tmp_path / "sheet.png")


def test_sample_without_its_twin_is_refused_by_name(tmp_path: Path) -> None:
    root = make_twin_dataset(tmp_path / "twins")
    # The table needs the first shard only, so it is the query that finds out, inside Daft.
    write_tar(root / "caption/part_000000/000001.tar", [("id_8.json", prompt("id_8"))])

    with pytest.raises(DaftCoreException, match="lacks 7 of 8 keys: 'id_9'"):
        run_demo(data=root, output=tmp_path / "sheet.png")


def test_keys_and_prompts_cannot_command_a_terminal(tmp_path: Path) -> None:
    root = write_twins(
        tmp_path / "twins",
        {"a.png": picture("RGB", (8, 8), (1, 2, 3))},
        lambda _: json.dumps({"prompt": "red \x1b[31m\n alert"}).encode(),
    )

    step = look(str(root), num_rows=1)

    assert step.rows[0].prompt == "red [31m alert"


@given(st.text())
def test_printable_text_is_one_line_without_controls(text: str) -> None:
    shown = printable(text)

    assert shown is not None
    assert shown.isprintable()
    assert [letter for letter in shown if letter != " "] == [
        letter for letter in text if letter.isprintable() and letter != " "
    ]


def test_painted_data_goes_away(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))

    result = run_demo(output=tmp_path / "sheet.png", image_size=SMALL)

    assert Path(result.data.root).parent == tmp_path
    assert [path.name for path in tmp_path.iterdir()] == ["sheet.png"]


def test_painted_data_goes_away_after_an_error(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))

    with pytest.raises(TwinWebDatasetError, match="contains 'submarine' and scores at least 2;"):
        run_demo(output=tmp_path / "sheet.png", image_size=SMALL, contains="submarine")

    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("there", ["file", "full folder"])
def test_data_is_not_painted_over_what_is_there(tmp_path: Path, there: str) -> None:
    keep = tmp_path / "keep"
    if there == "file":
        keep.write_bytes(b"mine")
    else:
        keep.mkdir()
        (keep / "mine").write_bytes(b"mine")

    with pytest.raises(StorageError, match="keep: something is there already; expected a new or"):
        run_demo(keep=keep, output=tmp_path / "sheet.png", image_size=SMALL)


def test_folder_that_cannot_be_made_is_refused(tmp_path: Path) -> None:
    (tmp_path / "file").write_bytes(b"")

    with pytest.raises(StorageError, match=r"file/twins: the painted data cannot be written \(Not"):
        run_demo(keep=tmp_path / "file/twins", output=tmp_path / "sheet.png", image_size=SMALL)


@pytest.mark.parametrize(
    ("name", "message"),
    [
        pytest.param("", "is a folder; expected a file", id="folder"),
        pytest.param("nowhere/sheet.png", "its folder does not exist", id="no-folder"),
        pytest.param("x" * 300 + ".png", r"File name too long\); expected", id="long-name"),
    ],
)
def test_place_for_the_sheet_is_checked_before_anything_else(
    tmp_path: Path, name: str, message: str
) -> None:
    with pytest.raises(StorageError, match=message):
        run_demo(data=tmp_path / "no data", output=tmp_path / name)


def test_sheet_that_cannot_be_written_is_refused(tmp_path: Path) -> None:
    root = mixed_twins(tmp_path / "twins")
    (tmp_path / "sheet.png").symlink_to(tmp_path / "nowhere/sheet.png")

    with pytest.raises(StorageError, match=r"sheet\.png: the contact sheet cannot be written \(No"):
        run_demo(data=root, output=tmp_path / "sheet.png")


def test_data_cannot_be_given_and_kept(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="keep is for data that the demo makes"):
        run_demo(data=tmp_path, keep=tmp_path)


def test_ranks_need_a_thread(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="threads must be at least 1, got 0"):
        run_demo(data=tmp_path, threads=0)


def test_missing_torch_is_named_after_the_query(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    root = mixed_twins(tmp_path / "twins")
    monkeypatch.delitem(sys.modules, "daft_twinwds.train.torch", raising=False)
    for name in ("torch", "torch.utils.data"):
        monkeypatch.setitem(sys.modules, name, None)
    told = io.StringIO()

    with pytest.raises(MissingDependencyError, match=r"pip install 'daft-twinwds\[train\]'"):
        run_demo(data=root, output=tmp_path / "sheet.png", reporter=JsonReporter(told))

    steps = [json.loads(line)["step"] for line in told.getvalue().splitlines()]
    assert steps == ["data", "table", "query"]


@pytest.mark.parametrize(
    ("read", "expected"),
    [
        pytest.param(["a", "b", "c"], (0, 0), id="each-once"),
        pytest.param(["c", "a"], (1, 0), id="one-lost"),
        pytest.param(["a", "b", "b", "b", "c"], (0, 2), id="one-thrice"),
        pytest.param(["a", "a", "b"], (1, 1), id="one-in-the-place-of-another"),
        pytest.param(["a", "b", "c", "d"], (0, 1), id="one-unasked"),
        pytest.param([], (3, 0), id="nothing"),
    ],
)
def test_lost_and_repeated_samples_are_counted(read: list[str], expected: tuple[int, int]) -> None:
    wanted = [("shard", key) for key in "abc"]
    often = {("shard", key): read.count(key) for key in read}

    assert count_readings(wanted, often) == expected


def test_equal_keys_of_two_shards_are_two_samples() -> None:
    assert count_readings([("0", "a"), ("1", "a")], {("0", "a"): 2}) == (1, 1)
