import io
import json
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import pytest
from rich.console import Console

from daft_twinwds.testing import make_twin_dataset
from daft_twinwds.tools.demo import run_demo
from daft_twinwds.tools.demo_report import ConsoleReporter, JsonReporter
from daft_twinwds.tools.demo_steps import (
    BatchStep,
    DataStep,
    DemoResult,
    PreviewRow,
    QueryStep,
    RankReading,
    ScanPlan,
    SheetStep,
    Step,
    StreamStep,
    TableStep,
)

DATA = DataStep(
    root="/data/twins",
    made=False,
    kept_at=None,
    num_rows=32,
    num_shards=4,
    picture_bytes=64_100_000,
    seconds=0.25,
)
TABLE = TableStep(
    columns={"__key__": "String", "image": "File[Image]"},
    rows=[
        PreviewRow(
            key="id_0",
            prompt="[bold]hills[/bold] at dusk",
            width=3840,
            height=2160,
            tar="000000.tar",
            position=512,
            size=1000,
        ),
        PreviewRow(
            key="id_1", prompt=None, width=None, height=None, tar="0.tar", position=0, size=1
        ),
    ],
    num_rows=32,
    plan=ScanPlan(num_tasks=1, pushdowns={"projection": "[__key__, image]", "limit": "6"}),
    seconds=0.5,
)
QUERY = QueryStep(
    word="clouds",
    least_score=2.0,
    num_rows=32,
    num_kept=16,
    num_shards_kept=3,
    kept_bytes=31_700_000,
    read_bytes=348_000,
    plan=ScanPlan(num_tasks=4, pushdowns={"filter": "get(col(caption)) >= lit(2.0)"}),
    seconds=0.03,
)
STREAM = StreamStep(
    ranks=[
        RankReading(rank=0, num_rows=8, num_batches=2, num_bytes=15_000_000),
        RankReading(rank=1, num_rows=8, num_batches=2, num_bytes=16_700_000),
    ],
    num_rows=16,
    num_bytes=31_700_000,
    num_pixels=132_710_400,
    sizes=[(3840, 2160)],
    num_lost=0,
    num_repeated=0,
    seconds=2.0,
    images_per_second=8.0,
    megabytes_per_second=15.85,
    megapixels_per_second=66.36,
    peak_memory_bytes=1_250_000_000,
)
SHEET = SheetStep(
    path="contact_sheet.png", width=1432, height=1360, num_pictures=16, replaced=False
)


def shown(*steps: Step, width: int = 100, terminal: bool = False) -> str:
    file = io.StringIO()
    console = Console(file=file, width=width, force_terminal=terminal, color_system=None)
    reporter = ConsoleReporter(console)
    for step in steps:
        reporter.tell(step)
    return file.getvalue()


def batches(rank: int, rows: Sequence[int]) -> list[BatchStep]:
    return [BatchStep(rank=rank, num_rows=number, width=3840, height=2160) for number in rows]


@pytest.fixture(scope="module")
def real(tmp_path_factory: pytest.TempPathFactory) -> tuple[DemoResult, str, list[str]]:
    """One run, told to a person at a pipe; another one, told to a program."""
    folder = tmp_path_factory.mktemp("report")
    root = make_twin_dataset(folder / "twins")
    people, programs = io.StringIO(), io.StringIO()
    result = run_demo(
        data=root,
        output=folder / "sheet.png",
        reporter=ConsoleReporter(Console(file=people, width=100)),
    )
    run_demo(data=root, output=folder / "sheet.png", reporter=JsonReporter(programs))
    return result, people.getvalue(), programs.getvalue().splitlines()


def test_people_see_all_steps_in_order(real: tuple[DemoResult, str, list[str]]) -> None:
    _, text, _ = real

    titles = [line for line in text.splitlines() if line[:1].isdigit()]
    assert titles == [
        "1  Data",
        "2  Table",
        "3  Query",
        "4  Stream",
        "5  Result",
        "6  Contact sheet",
    ]
    assert "every sample was read once (0 lost, 0 seen twice)" in text
    assert "\x1b" not in text
    assert all(line == line.rstrip() for line in text.splitlines())
    assert max(map(len, text.splitlines())) <= 100


def test_programs_see_one_line_of_json_per_step(
    real: tuple[DemoResult, str, list[str]],
) -> None:
    result, _, lines = real

    steps = {line.pop("step"): line for line in map(json.loads, lines)}
    assert list(steps) == ["data", "table", "query", "stream", "sheet"]
    assert len(lines) == 5
    assert steps["query"]["num_kept"] == result.query.num_kept == 16
    assert steps["stream"]["ranks"][1]["num_rows"] == 8
    assert steps["stream"]["num_lost"] == 0
    assert steps["table"]["rows"][0]["key"] == "id_0"
    assert steps["table"]["plan"]["pushdowns"]["limit"] == "6"


def test_given_data_is_named() -> None:
    text = shown(DATA)

    assert "32 samples in 4 shards, 64.1 MB of pictures; listed in 0.2 s" in text
    assert "/data/twins" in text


@pytest.mark.parametrize(
    ("kept_at", "fate"),
    [(None, "removed at the end; --keep DIR leaves it"), ("/data/twins", "stays there")],
)
def test_painted_data_is_named_with_its_fate(kept_at: str | None, fate: str) -> None:
    text = shown(replace(DATA, made=True, kept_at=kept_at))

    assert "painted in 0.2 s" in text
    assert f"/data/twins ({fate})" in text


def test_table_has_rows_types_and_pushdowns() -> None:
    lines = shown(TABLE).splitlines()

    rows = [line.split() for line in lines]
    assert ["image", "File[Image]"] in rows
    assert "[bold]hills[/bold] at dusk" in shown(TABLE)
    assert ["dusk", "3840", "2160", "000000.tar", "[512:1512]"] in [row[-5:] for row in rows]
    assert ["id_1", "0.tar", "[0:1]"] in rows
    assert ["limit", "pushed", "down", "6"] in rows
    assert ["scan", "tasks", "1"] in rows


@pytest.mark.parametrize("width", [30, 60, 200])
def test_table_fits_terminals_of_any_width(width: int) -> None:
    row = replace(TABLE.rows[0], key="key_" * 30, prompt="word " * 100)

    lines = shown(replace(TABLE, rows=[row]), width=width).splitlines()

    assert max(map(len, lines)) <= width


def test_query_tells_what_was_asked_and_what_was_kept() -> None:
    text = shown(QUERY)

    assert "prompt contains 'clouds', by read_twin_webdataset(where=...)" in text
    assert "score >= 2, by DataFrame.where(...)" in text
    assert "16 of 32 rows, in 3 shards; 0.03 s" in text
    assert "get(col(caption)) >= lit(2.0)" in text
    assert "348.0 kB by the query" in text
    assert "31.7 MB of pictures" in text


def test_query_without_conditions_tells_no_more_than_is_known() -> None:
    plan = ScanPlan(num_tasks=None, pushdowns={})

    text = shown(replace(QUERY, word=None, least_score=None, read_bytes=None, plan=plan))

    assert "all rows" in text
    assert "by the query" not in text
    assert "scan tasks" not in text
    assert "pushed down" not in text


def test_result_has_counts_rates_and_memory() -> None:
    text = shown(STREAM)

    rows = [line.split() for line in text.splitlines()]
    assert ["rank", "1", "8", "2", "16.7", "MB"] in rows
    assert ["together", "16", "4", "31.7", "MB"] in rows
    assert "133 megapixels in 2.00 s" in text
    assert "8.0 images/s, 15.8 MB/s, 66 megapixels/s" in text
    assert "1.2 GB" in text
    assert "every sample was read once (0 lost, 0 seen twice)" in text


def test_result_tells_of_lost_samples_and_many_sizes() -> None:
    text = shown(replace(STREAM, sizes=[(24, 32), (48, 27), (64, 36)], num_lost=1, num_repeated=2))

    assert "3, 24 x 32 to 64 x 36" in text
    assert "1 lost, 2 seen twice" in text
    assert "every sample" not in text


@pytest.mark.parametrize(
    ("num_bytes", "words"),
    [(0, "0 B"), (999, "999 B"), (1000, "1.0 kB"), (2_500_000, "2.5 MB"), (7e12, "7,000.0 GB")],
)
def test_bytes_have_a_unit_that_suits_them(num_bytes: int, words: str) -> None:
    assert f"shards, {words} of pictures" in shown(replace(DATA, picture_bytes=int(num_bytes)))


def test_replaced_sheet_is_told() -> None:
    assert "replaced" not in shown(SHEET)
    assert "16 pictures on 1432 x 1360 pixels, replaced" in shown(replace(SHEET, replaced=True))


def test_pipe_gets_few_lines_however_many_samples_there_are() -> None:
    file = io.StringIO()
    reporter = ConsoleReporter(Console(file=file, width=100))

    with reporter.streaming([1000, 3]):
        for step in [*batches(0, [1] * 1000), *batches(1, [2, 1])]:
            reporter.tell(step)

    lines = [line for line in file.getvalue().splitlines() if "rank" in line]
    assert lines[0] == "   rank 0: 125 of 1000 pictures, last 3840 x 2160"
    assert lines[7] == "   rank 0: 1000 of 1000 pictures, last 3840 x 2160"
    assert lines[8:] == [
        "   rank 1: 2 of 3 pictures, last 3840 x 2160",
        "   rank 1: 3 of 3 pictures, last 3840 x 2160",
    ]


def test_terminal_gets_a_bar_per_rank() -> None:
    file = io.StringIO()
    reporter = ConsoleReporter(Console(file=file, width=100, force_terminal=True))

    with reporter.streaming([8, 4]):
        for step in [*batches(0, [4, 4]), *batches(1, [4])]:
            reporter.tell(step)

    last = file.getvalue()
    assert "8/8" in last
    assert "4/4" in last
    assert "of 8 pictures" not in last


def test_terminal_shows_what_is_being_done() -> None:
    file = io.StringIO()
    console = Console(file=file, width=100, force_terminal=True)

    with ConsoleReporter(console).busy("painting 32 pictures"):
        pass

    assert "painting 32 pictures ..." in file.getvalue()


def test_pipe_shows_no_spinner(tmp_path: Path) -> None:
    file = io.StringIO()

    with ConsoleReporter(Console(file=file, width=100)).busy("painting 32 pictures"):
        pass

    assert file.getvalue().strip() == ""
