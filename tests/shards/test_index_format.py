"""The index of a part folder: what is written comes back, or is refused."""

import io
import os
import sys
import time
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given
from hypothesis import strategies as st

from daft_twinwds.errors import StorageError
from daft_twinwds.shards import index_file
from daft_twinwds.shards.index_file import open_index
from daft_twinwds.shards.index_footer import read_footer, require_seal
from daft_twinwds.shards.index_format import (
    LeafStats,
    PartSummary,
    ShardEntry,
    TarEntry,
    UnusableIndexError,
    file_name,
    index_path,
    part_of,
)
from daft_twinwds.shards.index_rows import rows_of, samples_of
from daft_twinwds.shards.index_write import index_schema, write_index, write_index_to
from daft_twinwds.shards.options import ENVIRONMENT
from daft_twinwds.shards.samples import Samples
from daft_twinwds.shards.tar_state import TarState, settled_state_of, state_of

words = st.text(max_size=5)
numbers = st.integers(0, 2**62)
states = st.builds(TarState, size=numbers, mtime_ns=st.none() | numbers, tag=st.none() | words)
tars = st.builds(
    TarEntry,
    state=states,
    count=numbers,
    suffixes=st.frozensets(words, max_size=2),
    notes=st.dictionaries(words, numbers, max_size=2),
    text=st.none() | st.fixed_dictionaries({"kind": words, "seen": st.just({"kinds": ["a"]})}),
    text_fault=st.none() | words,
)
bounds = (
    st.none()
    | st.booleans()
    | st.integers(-(2**63), 2**63 - 1)
    | words
    | st.floats(allow_nan=False)
)
paths: st.SearchStrategy[tuple[str, ...]] = st.tuples(words, words)
stats = st.dictionaries(paths, st.builds(LeafStats, bounds, bounds, numbers), max_size=3)
FOLDERS = ("image", "cap.tion/left")


@st.composite
def summaries(draw: st.DrawFn) -> PartSummary:
    entries = {}
    for name in draw(st.lists(words, unique=True, max_size=3)):
        entries[name] = ShardEntry(
            name=name,
            tars={folder: draw(st.none() | tars) for folder in FOLDERS},
            num_rows=draw(numbers),
            group=draw(st.none() | numbers),
            in_step=draw(st.booleans()),
            fault=draw(st.none() | words),
            stats=draw(stats),
        )
    return PartSummary(
        key_split=draw(st.sampled_from(["last", "first"])),
        folders=FOLDERS,
        has_texts=draw(st.booleans()),
        entries=entries,
    )


@given(summary=summaries())
def test_a_summary_comes_back(summary: PartSummary) -> None:
    again = PartSummary.from_metadata(summary.to_metadata())

    assert again == summary
    for name, entry in summary.entries.items():
        assert repr(again.entries[name].stats) == repr(entry.stats)  # tells -0.0 from 0.0


@pytest.mark.parametrize(
    ("name", "path"),
    [
        ("part_000000/000000.tar", "root/.twin_index/part_000000.parquet"),
        ("a/b/0.tar", "root/.twin_index/a%2Fb.parquet"),
        ("a%2Fb/0.tar", "root/.twin_index/a%252Fb.parquet"),
        ("0.tar", "root/.twin_index/%2F.parquet"),
    ],
)
def test_every_part_folder_has_an_index_of_its_own(name: str, path: str) -> None:
    assert index_path("root", name) == path


@given(parts=st.lists(st.text("a%/2F", min_size=1), unique=True))
def test_no_two_names_are_one(parts: list[str]) -> None:
    names = [part_of(f"{part}/0.tar") for part in parts]

    assert len({file_name(name) for name in names}) == len(set(names))


@st.composite
def twins(draw: st.DrawFn) -> dict[str, Samples | None]:
    found: dict[str, Samples | None] = {}
    for folder in FOLDERS:
        if draw(st.integers(0, 4)) == 0 and any(found.values()):
            found[folder] = None
            continue
        keys = draw(st.lists(st.sampled_from(["a", "b", "x/c", "d.e"]), unique=True))
        suffixes = [draw(st.sampled_from(["jpg", "JPG", "seg.png"])) for _ in keys]
        found[folder] = Samples(
            path=folder,
            keys=keys,
            names=[f"{key}.{suffix}" for key, suffix in zip(keys, suffixes, strict=True)],
            positions=np.array(
                draw(st.lists(numbers, min_size=len(keys), max_size=len(keys))), np.int64
            ),
            sizes=np.array([len(key) for key in keys], np.int64),
            suffixes=frozenset(suffix.lower() for suffix in suffixes),
            notes={"no end marker": 1},
        )
    return found


@given(shards=st.lists(twins(), min_size=1, max_size=3))
def test_samples_come_back_from_a_written_index(shards: list[dict[str, Samples | None]]) -> None:
    shards = [shard for shard in shards if any(shard.values())]
    rows = {f"{number}.tar": rows_of(shard) for number, shard in enumerate(shards)}
    entries = {
        name: ShardEntry(
            name=name,
            tars={
                folder: None
                if samples is None
                else TarEntry(
                    state=TarState(size=1),
                    count=len(samples.keys),
                    suffixes=samples.suffixes,
                    notes=samples.notes,
                )
                for folder, samples in shard.items()
            },
            num_rows=len(rows[name][0]["key"]),
            in_step=rows[name][1],
        )
        for name, shard in zip(rows, shards, strict=True)
    }
    summary = PartSummary(key_split="last", folders=FOLDERS, has_texts=False, entries=entries)
    file = io.BytesIO()
    schema = index_schema(FOLDERS, pictures=[], texts={})
    write_index_to(file, summary, schema, lambda entry: rows[entry.name][0])

    table = pq.ParquetFile(io.BytesIO(file.getvalue()))
    summary = PartSummary.from_metadata(table.metadata.metadata)
    for shard, entry in zip(shards, summary.entries.values(), strict=True):
        keys = {tuple(samples.keys) for samples in shard.values() if samples is not None}
        is_whole = len(keys) == 1 and None not in shard.values()
        assert entry.in_step == (is_whole or not entry.num_rows)
        if entry.group is None:
            assert not any(samples.keys for samples in shard.values() if samples)
            continue
        group = table.read_row_group(entry.group)
        columns = {name: group[name].combine_chunks() for name in group.column_names}
        for folder, samples in shard.items():
            tar = entry.tars[folder]
            if samples is None or tar is None:
                assert columns[f"{folder}/place"].null_count == entry.num_rows
                continue
            again = samples_of(columns, folder, tar, path=folder)
            assert (again.keys, again.names) == (samples.keys, samples.names)
            assert again.positions.tolist() == samples.positions.tolist()
            assert again.sizes.tolist() == samples.sizes.tolist()
            assert (again.suffixes, again.notes) == (samples.suffixes, samples.notes)


def written(path: Path | str) -> Any:
    entry = ShardEntry(name="0.tar", tars={"a": TarEntry(state=TarState(size=1))}, num_rows=2)
    summary = PartSummary(
        key_split="last", folders=("a",), has_texts=True, entries={"0.tar": entry}
    )
    schema = index_schema(["a"], pictures=["a"], texts={"a": pa.struct([("x", pa.int64())])})
    rows = {"key": pa.array(["k", "l"], pa.large_string())}
    write_index(str(path), summary, schema, lambda entry: rows)
    return path


def test_columns_that_are_not_given_are_null(tmp_path: Path) -> None:
    with open_index(str(written(tmp_path / "i.parquet"))) as file:
        entry = file.summary.entries["0.tar"]
        assert file.read_all(entry)["a/width"].null_count == 2
        assert file.read(entry, ["a/text.x", "key"]).keys() == {"a/text", "key"}
        assert file.read(entry, ["a/text.y"]) == {}
        assert file.text_type("a") == pa.struct([("x", pa.int64())])
        assert file.has_sizes("a")
        assert not file.has_sizes("b")


def test_any_other_parquet_reader_reads_an_index(tmp_path: Path) -> None:
    table = pq.read_table(written(tmp_path / "i.parquet"))

    assert table["key"].to_pylist() == ["k", "l"]


def test_a_new_index_is_seen_at_once(tmp_path: Path) -> None:
    path = written(tmp_path / "i.parquet")
    with open_index(str(path)) as file:
        assert file.summary.folders == ("a",)
    summary = PartSummary(key_split="first", folders=("b",), has_texts=True)
    write_index(str(path), summary, index_schema(["b"], pictures=[], texts={}), lambda entry: {})

    with open_index(str(path)) as file:
        assert file.summary == summary


def test_what_is_not_there_is_unusable(tmp_path: Path) -> None:
    with pytest.raises(UnusableIndexError, match="is not there") as caught:
        open_index(str(tmp_path / "none.parquet"))
    assert caught.value.fault == "not in its index"


@pytest.mark.parametrize("size", [0, 3, 8, 11, 12, 100])
def test_short_and_foreign_files_are_unusable(tmp_path: Path, size: int) -> None:
    path = tmp_path / "i.parquet"
    for content in (b"\xff" * size, (b"PAR1" + b"\xff" * size)[: max(0, size - 4)] + b"PAR1"):
        path.write_bytes(content)
        with pytest.raises(UnusableIndexError, match="cannot be read"):
            open_index(str(path))


def test_every_bit_of_a_footer_is_under_its_seal(tmp_path: Path) -> None:
    data = written(tmp_path / "i.parquet").read_bytes()
    _, footer = read_footer(pa.BufferReader(data))
    require_seal(footer)

    for place in range(len(footer)):
        flipped = bytearray(footer)
        flipped[place] ^= 1 << place % 8
        with pytest.raises(ValueError, match="checksum"):
            require_seal(bytes(flipped))


def test_an_index_in_a_folder_that_cannot_be_written_is_an_error(tmp_path: Path) -> None:
    (tmp_path / "file").touch()

    with pytest.raises(StorageError, match="cannot be written"):
        written(tmp_path / "file" / "i.parquet")
    with pytest.raises(StorageError, match="web servers take no files"):
        written("http://127.0.0.1:9/i.parquet")


def test_the_state_of_a_file_tells_versions_apart(tmp_path: Path) -> None:
    path = tmp_path / "x.tar"
    assert state_of(str(path)) is None
    assert state_of(f"{path}/below") is None
    path.write_bytes(b"one")
    first = state_of(str(path))
    path.write_bytes(b"two")
    os.utime(path, ns=(0, 5))

    second = state_of(path.as_uri())

    assert first is not None
    assert first.is_telling
    assert second == TarState(size=3, mtime_ns=5)
    assert second != first
    assert not TarState(size=3).is_telling


states = st.builds(
    TarState,
    size=st.integers(0, 3),
    mtime_ns=st.none() | st.integers(0, 3),
    tag=st.none() | st.sampled_from(["", "1", "2", "12", "None", '"1"', '"2"']),
)


@given(first=states, second=states)
def test_digests_are_equal_exactly_where_states_are_but_for_quotes(
    first: TarState, second: TarState
) -> None:
    unquoted = [
        replace(state, tag=None if state.tag is None else state.tag.strip('"'))
        for state in (first, second)
    ]

    if first.is_telling and second.is_telling:
        assert (first.digest == second.digest) == (unquoted[0] == unquoted[1])
    assert [state.digest is None for state in (first, second)] == [
        not state.is_telling for state in (first, second)
    ]


def test_a_state_is_settled_once_a_change_would_show(tmp_path: Path) -> None:
    path = tmp_path / "x.tar"
    path.write_bytes(b"one")

    before = settled_state_of(str(path))

    assert before is not None
    assert before.mtime_ns is not None
    assert time.time_ns() - before.mtime_ns > 10_000_000
    path.write_bytes(b"two")
    assert state_of(str(path)) != before
    assert settled_state_of(str(tmp_path / "none")) is None


def test_threads_that_meet_many_indexes_do_not_disturb_each_other(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    met: dict[Any, TarState] = {}
    monkeypatch.setattr(index_file, "_met", met)
    interval = sys.getswitchinterval()

    def meet(thread: int) -> None:
        for number in range(20_000):
            path = f"s3://bucket/{thread}-{number}"
            index_file._remember(path, ENVIRONMENT, TarState(size=number, tag="a"))

    try:
        sys.setswitchinterval(1e-6)
        with ThreadPoolExecutor(8) as pool:
            list(pool.map(meet, range(8)))
    finally:
        sys.setswitchinterval(interval)

    assert len(met) == index_file._KEPT


def test_of_remembered_indexes_the_one_met_longest_ago_goes_first(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    met: dict[Any, TarState] = {}
    monkeypatch.setattr(index_file, "_met", met)
    state = TarState(size=1, tag="a")
    paths = [f"s3://bucket/{number}" for number in range(index_file._KEPT)]

    for path in (*paths, paths[0], "s3://bucket/new"):
        index_file._remember(path, ENVIRONMENT, state)

    assert [path for path, _ in met] == [*paths[2:], paths[0], "s3://bucket/new"]
