"""Law 3: a scan with pushdowns is a full scan, then the same operations in Python."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import daft
import pytest
from daft import DataFrame
from daft.expressions import Expression
from hypothesis import given
from hypothesis import strategies as st

import daft_twinwds
from daft_twinwds.testing import write_tar

col: Any = daft.col  # Daft types its comparisons as truth values

Row = dict[str, Any]
WORDS = ("horse", "lake", "storm")


@pytest.fixture(scope="module")
def root(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Five shards, one empty, three modalities, twins in different orders."""
    root = tmp_path_factory.mktemp("twins")
    number = 0
    for shard, size in enumerate((4, 0, 7, 1, 5)):
        keys = [f"k{number + i}" for i in range(size)]
        captions = [(f"{key}.json", _caption(number + i)) for i, key in enumerate(keys)]
        images = [(f"{key}.jpg", f"jpeg of {key}".encode()) for key in keys]
        labels = [(f"{key}.cls", str((number + i) % 3).encode()) for i, key in enumerate(keys)]
        name = f"part_000000/{shard:06d}.tar"
        write_tar(root / "caption" / name, captions if shard % 2 else captions[::-1])
        write_tar(root / "image" / name, images)
        write_tar(root / "label" / name, labels)
        number += size
    return root


@pytest.fixture(scope="module")
def full(root: Path) -> list[Row]:
    """All rows by a scan that nothing is pushed into."""
    return daft_twinwds.read_twin_webdataset(root).to_pylist()


def _caption(number: int) -> bytes:
    caption: Row = {"prompt": f"a {WORDS[number % 3]} number {number}", "score": number / 2}
    if number % 4:
        caption["source"] = WORDS[number % 2]
    return json.dumps(caption).encode()


def plain(rows: list[Row]) -> list[Row]:
    """Rows with file references as plain values, sorted: order is a matter of other tests."""
    flat = [
        {
            name: (value.path, value.position) if isinstance(value, daft.File) else value
            for name, value in row.items()
        }
        for row in rows
    ]
    return sorted(flat, key=repr)


CONDITIONS: list[tuple[str, Callable[[], Expression], Callable[[Row], bool]]] = [
    ("score", lambda: col("caption")["score"] > 3, lambda r: r["caption"]["score"] > 3),
    ("nothing", lambda: col("caption")["score"] > 99, lambda r: False),
    (
        "contains",
        lambda: col("caption")["prompt"].contains("horse"),
        lambda r: "horse" in r["caption"]["prompt"],
    ),
    ("key", lambda: col("__key__") == "k9", lambda r: r["__key__"] == "k9"),
    (
        "is_in",
        lambda: col("caption")["source"].is_in(["lake", "x"]),
        lambda r: r["caption"]["source"] in ("lake", "x"),
    ),
    (
        "is_null",
        lambda: col("caption")["source"].is_null(),
        lambda r: r["caption"]["source"] is None,
    ),
    ("label", lambda: col("label") < 2, lambda r: r["label"] < 2),
    (
        "or",
        lambda: (col("label") == 0) | (col("caption")["score"] <= 1),
        lambda r: r["label"] == 0 or r["caption"]["score"] <= 1,
    ),
    ("url", lambda: col("__url__").endswith("2.tar"), lambda r: r["__url__"].endswith("2.tar")),
    ("image", lambda: col("image").not_null(), lambda r: r["image"] is not None),
]
COLUMNS = ("__key__", "__url__", "image", "caption", "label")

conditions = st.lists(st.sampled_from(CONDITIONS), max_size=3)
selections = st.lists(st.sampled_from(COLUMNS), min_size=1, unique=True)


@given(
    above=conditions,
    inside=conditions,
    columns=st.none() | selections,
    limit=st.none() | st.integers(0, 20),
    on_missing=st.sampled_from(["error", "skip", "null"]),
    on_error=st.sampled_from(["raise", "skip"]),
    batch_size=st.sampled_from([1, 3, 1000]),
)
def test_pushed_down_is_the_same_as_done_afterwards(
    root: Path,
    full: list[Row],
    above: list[Any],
    inside: list[Any],
    columns: list[str] | None,
    limit: int | None,
    on_missing: Any,
    on_error: Any,
    batch_size: int,
) -> None:
    expected = [row for row in full if all(test(row) for _, _, test in [*above, *inside])]
    where = None
    for _, make, _ in inside:
        where = make() if where is None else where & make()

    df = daft_twinwds.read_twin_webdataset(
        root, where=where, on_missing=on_missing, on_error=on_error, batch_size=batch_size
    )
    for _, make, _ in above:
        df = df.where(make())
    if columns is not None:
        df = df.select(*columns)
        expected = [{name: row[name] for name in columns} for row in expected]
    if limit is not None:
        df = df.limit(limit)
    rows = df.to_pylist()

    assert df.count_rows() == len(rows)
    if limit is None:
        assert plain(rows) == plain(expected)
    else:
        assert len(rows) == min(limit, len(expected))
        assert all(row in plain(expected) for row in plain(rows))


def frames(root: Path) -> DataFrame:
    return daft_twinwds.read_twin_webdataset(root)


def test_rows_come_shard_by_shard_in_the_order_of_the_first_modality(root: Path) -> None:
    rows = frames(root).to_pydict()

    assert rows["__key__"] == [f"k{i}" for i in range(17)]
    assert list(rows) == ["__key__", "__url__", "image", "caption", "label"]


def test_modalities_that_were_asked_for_keep_the_order_they_were_asked_in(root: Path) -> None:
    df = daft_twinwds.read_twin_webdataset(root, ["label", "caption"])

    assert df.column_names == ["__key__", "__url__", "label", "caption"]


def test_count_of_everything_and_of_a_filter(root: Path) -> None:
    df = frames(root)

    assert df.count_rows() == 17
    assert df.where(col("label") == 1).count_rows() == 6
    assert df.agg(col("label").count()).to_pydict() == {"label": [17]}


def test_joins_groups_and_sorts(root: Path) -> None:
    df = frames(root)
    scores = daft.from_pydict({"__key__": ["k3", "k5", "nope"], "extra": [1, 2, 3]})

    joined = df.join(scores, on="__key__").select("__key__", "extra").sort("extra").to_pydict()
    groups = df.groupby("label").agg(col("__key__").count()).sort("label").to_pydict()
    twice = df.select("__key__").concat(df.select("__key__")).count_rows()

    assert joined == {"__key__": ["k3", "k5"], "extra": [1, 2]}
    assert groups == {"label": [0, 1, 2], "__key__": [6, 6, 5]}
    assert twice == 34


def test_sql_sees_structs_and_pushes_down(root: Path) -> None:
    df = frames(root)

    rows = daft.sql(
        "select __key__, caption['prompt'] as prompt from df where caption['score'] > 7.5", df=df
    )

    assert rows.to_pydict() == {"__key__": ["k16"], "prompt": ["a lake number 16"]}


def test_a_literal_alone_keeps_the_number_of_rows(root: Path) -> None:
    df = frames(root)

    assert len(df.select(daft.lit(1).alias("one")).to_pylist()) == 17
    assert len(df.where(col("label") == 1).select(daft.lit(1).alias("one")).to_pylist()) == 6


def test_offset_and_limit_after_limit(root: Path) -> None:
    df = frames(root).select("__key__")

    assert len(df.offset(5).limit(3).to_pylist()) == 3
    assert len(df.limit(10).where(col("__key__") != "none").to_pylist()) == 10


def test_show_and_explain_name_the_data_set(root: Path, capsys: pytest.CaptureFixture[str]) -> None:
    df = frames(root).where(col("label") == 1).select("__key__")

    df.show()
    df.explain(True)

    printed = capsys.readouterr().out
    assert "k1" in printed
    assert f"TwinWebDataset({root})" in printed
    assert "Filter pushdown" in printed or "filter" in printed


def test_pictures_open_as_what_they_are(root: Path) -> None:
    (row,) = frames(root).where(col("__key__") == "k12").to_pylist()

    with row["image"].open() as file:
        assert file.read() == b"jpeg of k12"


def test_a_selection_written_as_parquet_comes_back_with_its_files(
    root: Path, tmp_path: Path
) -> None:
    frames(root).select("__key__", "image").write_parquet(str(tmp_path / "rows"))

    rows = daft.read_parquet(str(tmp_path / "rows") + "/*.parquet").to_pylist()

    assert len(rows) == 17
    with rows[3]["image"].open() as file:
        assert file.read() == f"jpeg of {rows[3]['__key__']}".encode()
