import io
import json
import sys
import tarfile
from collections.abc import Sequence
from contextlib import AbstractContextManager, nullcontext
from pathlib import Path

import numpy as np
import pytest
from daft import col
from PIL import Image

from daft_twinwds import read_twin_webdataset
from daft_twinwds.testing import make_twin_dataset
from daft_twinwds.tools import demo_query, demo_stream
from daft_twinwds.tools.contact_sheet import GROUP_COLOURS, make_tile, thumbnail_boxes
from daft_twinwds.tools.demo import run_demo
from daft_twinwds.tools.demo_query import ask, find_all, read_plan
from daft_twinwds.tools.demo_steps import BatchStep, DemoResult, RankReading, Step

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
    assert result.data.num_rows == len(pictures) == 24
    assert result.data.num_shards == 4
    assert result.data.picture_bytes == sum(map(len, pictures.values()))
    assert result.query.num_kept == result.stream.num_rows == len(kept) == 12
    assert result.query.num_shards_kept == len({shard for shard, _ in kept})
    read = sum(len(pictures[key]) for key in kept)
    assert result.query.kept_bytes == result.stream.num_bytes == read
    assert result.stream.num_pixels == 12 * 64 * 36
    assert result.stream.sizes == [SMALL]


def test_ranks_share_the_batches(painted: tuple[Path, Path, DemoResult, Recorder]) -> None:
    _, _, result, recorder = painted

    first, second = result.stream.ranks
    bytes_ = result.stream.num_bytes
    assert first == RankReading(rank=0, num_rows=6, num_batches=2, num_bytes=first.num_bytes)
    assert second == RankReading(
        rank=1, num_rows=6, num_batches=2, num_bytes=bytes_ - first.num_bytes
    )
    assert min(first.num_bytes, second.num_bytes) > 0
    assert recorder.wanted == [6, 6]
    batches = [step for step in recorder.steps if isinstance(step, BatchStep)]
    assert [(batch.rank, batch.num_rows) for batch in batches] == [(0, 4), (1, 4), (0, 2), (1, 2)]


def test_reporter_is_told_of_each_step_in_order(
    painted: tuple[Path, Path, DemoResult, Recorder],
) -> None:
    _, _, result, recorder = painted

    steps = [step for step in recorder.steps if not isinstance(step, BatchStep)]
    assert steps == [result.data, result.table, result.query, result.stream, result.sheet]
    assert recorder.doings == ["painting 24 pictures", "listing the samples", "importing torch"]


def test_rates_and_memory_are_those_of_the_run(
    painted: tuple[Path, Path, DemoResult, Recorder],
) -> None:
    stream = painted[2].stream

    assert stream.images_per_second == pytest.approx(12 / stream.seconds)
    assert stream.megabytes_per_second == pytest.approx(stream.num_bytes / 1e6 / stream.seconds)
    assert stream.megapixels_per_second == pytest.approx(0.027648 / stream.seconds)
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


def test_each_thumbnail_has_the_colour_of_its_picture_and_of_its_rank(
    painted: tuple[Path, Path, DemoResult, Recorder],
) -> None:
    root, path, result, _ = painted
    selection, _ = ask(str(root), word="clouds", least_score=2, everything=find_all(str(root)))
    keys = selection.table.column("__key__").to_pylist()
    # Two ranks in turn, four at a time.
    batches = [[0, 2, 4, 6], [1, 3, 5, 7], [8, 10], [9, 11]]
    order = [(rank % 2, place) for rank, places in enumerate(batches) for place in places]
    contents = {key: content for (_, key), content in members(root, "image").items()}
    sources = [np.asarray(Image.open(io.BytesIO(contents[keys[place]]))) for _, place in order]
    tiles = [make_tile(pixels, title="", text="", group=0) for pixels in sources]

    sheet = np.asarray(Image.open(path))

    assert sheet.shape == (result.sheet.height, result.sheet.width, 3)
    assert result.sheet.num_pictures == 12
    for number, (left, top, right, bottom) in enumerate(thumbnail_boxes(tiles)):
        shown = sheet[top:bottom, left:right].mean(axis=(0, 1))
        assert shown == pytest.approx(sources[number].mean(axis=(0, 1)), abs=2)
        assert tuple(sheet[bottom + 1, left]) == GROUP_COLOURS[order[number][0]]


def test_sheet_shows_the_first_pictures_of_many(
    painted: tuple[Path, Path, DemoResult, Recorder],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(demo_stream, "MOST_TILES", 5)

    result = run_demo(data=painted[0], output=tmp_path / "sheet.png")

    assert result.sheet.num_pictures == 5
    assert result.stream.num_rows == 24
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


def test_kept_data_can_be_read_again(painted: tuple[Path, Path, DemoResult, Recorder]) -> None:
    root, _, result, _ = painted

    assert result.data.kept_at == result.data.root == str(root)
    assert read_twin_webdataset(root).count_rows() == 24
