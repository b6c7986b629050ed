import io
import json
import sys
import tarfile
import tempfile
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager, nullcontext
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from daft import col
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
from daft_twinwds.query.read import read_twin_webdataset
from daft_twinwds.testing import make_twin_dataset, write_tar
from daft_twinwds.tools import demo_query, demo_stream
from daft_twinwds.tools.contact_sheet import GROUP_COLOURS, Tile, make_tile, thumbnail_boxes
from daft_twinwds.tools.demo import run_demo
from daft_twinwds.tools.demo_query import ask, find_all, look, printable, read_plan
from daft_twinwds.tools.demo_steps import BatchStep, DemoResult, RankReading, Step
from daft_twinwds.tools.demo_stream import count_readings

SMALL = (64, 36)


class Recorder:
    """Remembers what it is told."""

    def __init__(self) -> None:
        self.steps: list[Step] = []
        self.wanted: list[int] = []
        self.doings: list[str] = []

    def tell(self, step: Step) -> None:
        self.steps.append(step)

    def busy(self, doing: str) -> AbstractContextManager[object]:
        self.doings.append(doing)
        return nullcontext()

    def streaming(self, rows_per_rank: Sequence[int]) -> AbstractContextManager[object]:
        self.wanted = list(rows_per_rank)
        return nullcontext()


@pytest.fixture(scope="module")
def painted(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path, DemoResult, Recorder]:
    """The demo's own data, its sheet and its result; small pictures, all else as ever."""
    folder = tmp_path_factory.mktemp("demo")
    recorder = Recorder()
    result = run_demo(
        output=folder / "sheet.png", keep=folder / "twins", image_size=SMALL, reporter=recorder
    )
    return folder / "twins", folder / "sheet.png", result, recorder


def members(root: Path, modality: str) -> dict[tuple[str, str], bytes]:
    """Shard and key -> content, by tarfile, in order."""
    found = {}
    for path in sorted(root.glob(f"{modality}/**/*.tar")):
        with tarfile.open(path) as tar:
            for member in tar:
                file = tar.extractfile(member)
                assert file is not None
                found[f"{path.parent.name}/{path.name}", Path(member.name).stem] = file.read()
    return found


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


def test_every_picture_that_the_query_kept_is_streamed_once(
    painted: tuple[Path, Path, DemoResult, Recorder],
) -> None:
    root, _, result, _ = painted
    captions = {key: json.loads(text) for key, text in members(root, "caption").items()}
    pictures = members(root, "image")
    kept = [
        key
        for key, caption in captions.items()
        if "clouds" in caption["prompt"] and caption["score"] >= 2
    ]

    assert result.is_complete
    assert result.data.num_rows == len(pictures) == 32
    assert result.data.num_shards == 4
    assert result.data.picture_bytes == sum(map(len, pictures.values()))
    assert result.query.num_kept == result.stream.num_rows == len(kept) == 16
    assert result.query.num_shards_kept == len({shard for shard, _ in kept})
    read = sum(len(pictures[key]) for key in kept)
    assert result.query.kept_bytes == result.stream.num_bytes == read
    assert result.stream.num_pixels == 16 * 64 * 36
    assert result.stream.sizes == [SMALL]


def test_ranks_share_the_batches(painted: tuple[Path, Path, DemoResult, Recorder]) -> None:
    _, _, result, recorder = painted

    first, second = result.stream.ranks
    bytes_ = result.stream.num_bytes
    assert first == RankReading(rank=0, num_rows=8, num_batches=2, num_bytes=first.num_bytes)
    assert second == RankReading(
        rank=1, num_rows=8, num_batches=2, num_bytes=bytes_ - first.num_bytes
    )
    assert min(first.num_bytes, second.num_bytes) > 0
    assert recorder.wanted == [8, 8]
    batches = [step for step in recorder.steps if isinstance(step, BatchStep)]
    assert [(batch.rank, batch.num_rows) for batch in batches] == [(0, 4), (1, 4), (0, 4), (1, 4)]


def test_reporter_is_told_of_each_step_in_order(
    painted: tuple[Path, Path, DemoResult, Recorder],
) -> None:
    _, _, result, recorder = painted

    steps = [step for step in recorder.steps if not isinstance(step, BatchStep)]
    assert steps == [result.data, result.table, result.query, result.stream, result.sheet]
    assert recorder.doings == ["painting 32 pictures", "listing the samples", "importing torch"]


def test_rates_and_memory_are_those_of_the_run(
    painted: tuple[Path, Path, DemoResult, Recorder],
) -> None:
    stream = painted[2].stream

    assert stream.images_per_second == pytest.approx(16 / stream.seconds)
    assert stream.megabytes_per_second == pytest.approx(stream.num_bytes / 1e6 / stream.seconds)
    assert stream.megapixels_per_second == pytest.approx(0.036864 / stream.seconds)
    # Daft and torch alone take more than 50 MB, and no test machine has given 50 GB away.
    assert 50e6 < stream.peak_memory_bytes < 50e9


def test_table_shows_the_first_rows_and_where_their_pictures_are(
    painted: tuple[Path, Path, DemoResult, Recorder],
) -> None:
    root, _, result, _ = painted
    table = result.table
    pictures = members(root, "image")

    assert list(table.columns) == ["__key__", "__url__", "image", "caption"]
    assert table.columns["image"] == "File[Image]"
    assert [row.key for row in table.rows] == [f"id_{number}" for number in range(6)]
    for row in table.rows:
        assert (row.width, row.height) == SMALL
        assert row.prompt is not None
        assert row.prompt.startswith("A ")
        content = (root / "image/part_000000" / row.tar).read_bytes()
        held = content[row.position : row.position + row.size]
        assert held == pictures["part_000000/000000.tar", row.key]


def test_pushdowns_are_those_of_the_plan(
    painted: tuple[Path, Path, DemoResult, Recorder],
) -> None:
    table, query = painted[2].table.plan, painted[2].query.plan

    assert table.pushdowns == {"projection": "[__key__, caption, image]", "limit": "6"}
    assert table.num_tasks == 1
    assert query.pushdowns == {"filter": "get(col(caption)) >= lit(2.0)"}
    assert query.num_tasks == 4


def test_long_pushdown_is_read_whole(tmp_path: Path) -> None:
    df = read_twin_webdataset(make_twin_dataset(tmp_path))
    names = [f"id_{number}" for number in range(40)]

    plan = read_plan(df.where(col("__key__").is_in(names)).select("__key__"))

    assert plan.num_tasks == 2
    assert plan.pushdowns["projection"] == "[__key__]"
    assert all(f'"{name}"' in plan.pushdowns["filter"] for name in names)


def test_bytes_read_are_unknown_where_the_system_does_not_count(
    painted: tuple[Path, Path, DemoResult, Recorder],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    root = str(painted[0])
    monkeypatch.setattr(demo_query, "IO_COUNTERS", tmp_path / "nothing")

    _, step = ask(root, word="lake", least_score=None, everything=find_all(root))

    assert step.read_bytes is None


def test_query_reads_captions_but_no_pictures(tmp_path: Path) -> None:
    root = str(
        make_twin_dataset(
            tmp_path, num_shards=1, samples_per_shard=2, image_size=(3840, 2160), quality=100
        )
    )
    everything = find_all(root)
    ask(root, word=None, least_score=0, everything=everything)  # Daft imports things the first time

    _, step = ask(root, word=None, least_score=0, everything=everything)

    assert (step.read_bytes is None) == (sys.platform != "linux")
    assert step.read_bytes is None or 512 < step.read_bytes < step.kept_bytes / 4


# The contact sheet


def test_each_thumbnail_has_the_colour_of_its_picture_and_of_its_rank(
    painted: tuple[Path, Path, DemoResult, Recorder],
) -> None:
    root, path, result, _ = painted
    selection, _ = ask(str(root), word="clouds", least_score=2, everything=find_all(str(root)))
    keys = selection.table.column("__key__").to_pylist()
    # Two ranks in turn, four at a time.
    order = [[0, 2, 4, 6], [1, 3, 5, 7], [8, 10, 12, 14], [9, 11, 13, 15]]
    contents = {key: content for (_, key), content in members(root, "image").items()}
    sources = [
        np.asarray(Image.open(io.BytesIO(contents[keys[place]])))
        for places in order
        for place in places
    ]
    tiles = [make_tile(pixels, title="", text="", group=0) for pixels in sources]

    sheet = np.asarray(Image.open(path))

    assert sheet.shape == (result.sheet.height, result.sheet.width, 3)
    assert result.sheet.num_pictures == 16
    for number, (left, top, right, bottom) in enumerate(thumbnail_boxes(tiles)):
        shown = sheet[top:bottom, left:right].mean(axis=(0, 1))
        assert shown == pytest.approx(sources[number].mean(axis=(0, 1)), abs=2)
        assert tuple(sheet[bottom + 1, left]) == GROUP_COLOURS[number // 4 % 2]


def test_sheet_shows_the_first_pictures_of_many(
    painted: tuple[Path, Path, DemoResult, Recorder],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(demo_stream, "MOST_TILES", 5)

    result = run_demo(data=painted[0], output=tmp_path / "sheet.png")

    assert result.sheet.num_pictures == 5
    assert result.stream.num_rows == 32
    assert result.is_complete


def test_old_sheet_is_replaced_and_that_is_told(
    painted: tuple[Path, Path, DemoResult, Recorder], tmp_path: Path
) -> None:
    path = tmp_path / "sheet.png"

    first = run_demo(data=painted[0], output=path, contains="lake")
    path.write_bytes(b"old")
    second = run_demo(data=painted[0], output=path, contains="lake")

    assert not first.sheet.replaced
    assert second.sheet.replaced
    with Image.open(path) as sheet:
        assert sheet.size == (second.sheet.width, second.sheet.height)


# Data that is given


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


def blank(size: tuple[int, int]) -> Tile:
    return make_tile(np.zeros((size[1], size[0], 3), np.uint8), title="", text="", group=0)


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

    with pytest.raises(TwinWebDatasetError):
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

    with pytest.raises(DaftCoreException, match="AlignmentError: .*lacks 7 of 8 keys: 'id_9'"):
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


# Places


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


def test_kept_data_can_be_read_again(painted: tuple[Path, Path, DemoResult, Recorder]) -> None:
    root, _, result, _ = painted

    assert result.data.kept_at == result.data.root == str(root)
    assert read_twin_webdataset(root).count_rows() == 32


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


# Arguments and extras


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
    monkeypatch.setitem(sys.modules, "torch", None)
    recorder = Recorder()

    with pytest.raises(MissingDependencyError, match=r"pip install 'daft-twinwds\[train\]'"):
        run_demo(data=root, output=tmp_path / "sheet.png", reporter=recorder)

    assert [step.step for step in recorder.steps] == ["data", "table", "query"]


# Counting


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
