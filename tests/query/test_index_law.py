"""Law 4: a scan with an index gives what the same scan gives from the tars: rows, order, errors."""

import asyncio
import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import daft
import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from daft.exceptions import DaftCoreException
from daft.io.pushdowns import Pushdowns
from hypothesis import assume, given
from hypothesis import strategies as st

import daft_twinwds
from daft_twinwds.errors import TwinWebDatasetError
from daft_twinwds.query import read
from daft_twinwds.query._daft import check_predicate
from daft_twinwds.query.shard_scan import count_shard, scan_shard
from daft_twinwds.query.source import TwinCountTask, TwinShardTask, TwinWebDatasetSource
from daft_twinwds.testing import encode_jpeg, write_tar
from daft_twinwds.tools.index import build_index

col: Any = daft.col  # Daft types its comparisons as truth values

Row = dict[str, Any]

JPEGS = {
    b"%d x %d" % (width, height): encode_jpeg(np.full((height, width, 3), 100, np.uint8))
    for width, height in [(8, 6), (6, 8)]
}
"""What stands for a picture, so that examples can be read -> the picture."""
DOCUMENTS: list[Any] = [
    {"prompt": "a horse", "score": 1},
    {"prompt": "a lake", "score": 2.5, "tags": ["x", "y"]},
    {"prompt": None, "score": None, "tags": []},
    {"prompt": "", "score": -0.0},
    {"score": 2**60 + 1},
    {"score": float("nan"), "place": {"name": "here"}},
    {"place": {}, "prompt": "a horse by a lake"},
    {"place": {"name": None, "height": 3}},
    {},
    None,
    "bare text",
]

documents = st.sampled_from([json.dumps(document).encode() for document in DOCUMENTS])
bad_documents = st.sampled_from([b"", b"broken", b'{"score": "text"}', b"[1]", b"\xff\xfe"])
pictures = st.sampled_from([*JPEGS, b"no picture", b"\xff\xd8\xff cut", b""])
labels = st.sampled_from([b"0", b"1", b"-7"])


@dataclass(frozen=True)
class Modality:
    """How the tars of one modality are drawn."""

    content: st.SearchStrategy[bytes]
    bad: st.SearchStrategy[bytes]
    suffixes: st.SearchStrategy[str]


MODALITIES = {
    "caption": Modality(documents, bad_documents, st.just("json")),
    "image": Modality(pictures, pictures, st.sampled_from(["jpg", "JPG", "png"])),
    "label": Modality(labels, st.sampled_from([b"one", b""]), st.just("cls")),
}


@dataclass(frozen=True)
class Tar:
    """Members, and the bytes after which the file is cut."""

    members: list[tuple[str, bytes]]
    cut: int | None = None

    def write(self, path: Path) -> None:
        write_tar(path, [(name, JPEGS.get(data, data)) for name, data in self.members])
        if self.cut is not None:
            path.write_bytes(path.read_bytes()[: self.cut])


rarely = st.integers(0, 9).map(lambda number: number == 0)


@st.composite
def tars(draw: st.DrawFn, name: str, keys: list[str], *, has_faults: bool) -> Tar | None:
    """One tar; None for none."""
    modality = MODALITIES[name]
    members = []
    for key in draw(st.permutations(keys)) if draw(st.booleans()) else keys:
        content = draw(modality.bad if has_faults and draw(rarely) else modality.content)
        members.append((f"{key}.{draw(modality.suffixes)}", content))
    if not has_faults:
        return Tar(members)
    if draw(rarely) and members:
        del members[draw(st.integers(0, len(members) - 1))]
    if draw(rarely):
        members.append((draw(st.sampled_from(["odd.npy", "bare", "._k1.jpg", "x.y.cls"])), b"1"))
    if draw(rarely) and members:
        members.append(draw(st.sampled_from(members)))
    if draw(rarely):
        return None
    return Tar(members, cut=draw(st.integers(0, 3000)) if draw(rarely) else None)


@st.composite
def data_sets(draw: st.DrawFn) -> dict[str, Tar]:
    """Path -> tar."""
    has_faults = draw(st.sampled_from([False, False, True]))
    files = {}
    for shard in range(draw(st.integers(1, 3))):
        size = draw(st.sampled_from([0, 1, 3, 5, 6]))
        keys = [f"{'v1.5/' if number % 3 == 1 else ''}k{shard}.{number}" for number in range(size)]
        for name in MODALITIES:
            tar = draw(tars(name, keys, has_faults=has_faults))
            if tar is not None:
                files[f"{name}/part_00000{shard % 2}/{shard:06d}.tar"] = tar
    return files


WHERE: dict[str, tuple[set[str], Callable[[], daft.Expression]]] = {
    "above": ({"caption"}, lambda: col("caption")["score"] > 2),
    "nothing": ({"caption"}, lambda: col("caption")["score"] > 10.0**30),
    "zero": ({"caption"}, lambda: col("caption")["score"] < 0.0),
    "is_in": ({"caption"}, lambda: col("caption")["prompt"].is_in(["a horse", "x", "y", "z"])),
    "null": ({"caption"}, lambda: col("caption")["prompt"].is_null()),
    "whole": ({"caption"}, lambda: col("caption").is_null()),
    "function": ({"caption"}, lambda: col("caption")["prompt"].contains("lake")),
    "key": (set(), lambda: col("__key__") >= "k1"),
    "url": (set(), lambda: ~col("__url__").contains("000000.tar")),
    "or": ({"label", "caption"}, lambda: (col("label") == 0) | (col("caption")["score"] <= 1)),
    "label": ({"label"}, lambda: col("label") < 0),
    "image": ({"image"}, lambda: col("image").not_null()),
    "width": ({"image_width"}, lambda: col("image_width") == 8),
    "format": ({"image_format"}, lambda: ~(col("image_format") == "JPEG")),
}
"""Name -> columns that it needs, condition."""
COLUMNS = ("__key__", "__url__", "image", "caption", "label", "image_width", "image_format")
SCHEMAS: dict[str, Mapping[str, daft.DataType]] = {
    "inferred": {},
    "files": {"image": daft.DataType.file(), "caption": daft.DataType.file()},
    "bytes": {"caption": daft.DataType.binary()},
    "text": {"caption": daft.DataType.string(), "label": daft.DataType.int32()},
    "some fields": {"caption": daft.DataType.struct({"score": daft.DataType.float64()})},
    "more fields": {
        "caption": daft.DataType.struct(
            {
                "tags": daft.DataType.list(daft.DataType.string()),
                "prompt": daft.DataType.string(),
                "score": daft.DataType.float64(),
                "never": daft.DataType.int64(),
                "place": daft.DataType.struct(
                    {"height": daft.DataType.float64(), "name": daft.DataType.string()}
                ),
            }
        )
    },
}


@dataclass(frozen=True, kw_only=True)
class Query:
    """One scan."""

    arguments: dict[str, Any]
    schema: str
    where: list[str]
    pushed: list[str]
    columns: list[str] | None
    limit: int | None
    modalities: list[str] | None


queries = st.builds(
    Query,
    arguments=st.fixed_dictionaries(
        {
            "on_missing": st.sampled_from(["error", "skip", "null"]),
            "on_error": st.sampled_from(["raise", "skip"]),
            "extra_fields": st.sampled_from(["error", "ignore"]),
            "key_split": st.sampled_from(["last"] * 6 + ["first"]),
            "batch_size": st.sampled_from([1, 2, 1000]),
            "picture_info": st.booleans(),
        },
        optional={"sample_keys": st.just("keys.parquet")},
    ),
    schema=st.sampled_from(["inferred"] * 6 + [*SCHEMAS]),
    where=st.just([]) | st.lists(st.sampled_from(sorted(WHERE)), max_size=1),
    pushed=st.just([]) | st.lists(st.sampled_from(sorted(WHERE)), max_size=2),
    columns=st.none() | st.lists(st.sampled_from(COLUMNS), unique=True),
    limit=st.none() | st.none() | st.integers(0, 6),
    modalities=st.sampled_from([None, None, ["caption"], ["image", "caption"], ["label", "image"]]),
)


def condition(names: list[str], there: set[str]) -> daft.Expression | None:
    """All of these at once that name nothing but columns that are there."""
    predicate = None
    for needed, make in (WHERE[name] for name in names):
        if needed <= there:
            predicate = make() if predicate is None else predicate & make()
    return predicate


def outcome(root: Path, query: Query, index: str) -> tuple[Any, dict[str, int]]:
    """Types, rows in order and their number, or the error; and what was left out."""
    daft_twinwds.reset_scan_report()
    there = set(query.modalities or MODALITIES)
    arguments = dict(query.arguments)
    if arguments["picture_info"] and "image" in there and query.schema != "files":
        there |= {"image_width", "image_format"}
    if "sample_keys" in arguments:
        arguments["sample_keys"] = root / arguments["sample_keys"]
    seen: list[TwinWebDatasetSource] = []
    patch = pytest.MonkeyPatch()
    patch.setattr(TwinWebDatasetSource, "read", lambda self: seen.append(self))
    try:
        read.read_twin_webdataset(
            root,
            query.modalities,
            index=index,  # type: ignore[arg-type]
            schema={name: type_ for name, type_ in SCHEMAS[query.schema].items() if name in there},
            where=condition(query.where, there),
            **arguments,
        )
        result: Any = rows_of(seen[0], query, condition(query.pushed, there))
    except (TwinWebDatasetError, DaftCoreException, ValueError) as error:
        result = (type(error), str(error))
    finally:
        patch.undo()
    return result, daft_twinwds.scan_report()


def rows_of(
    source: TwinWebDatasetSource, query: Query, filters: daft.Expression | None
) -> tuple[Any, list[str], int]:
    """What the tasks of a scan give, one after the other, so that the first error is certain."""
    dtypes = source.dtypes()
    if filters is not None:
        # Daft refuses such a filter before it asks for anything.
        check_predicate(filters, dtypes)
    columns = query.columns
    if columns is not None:
        columns = [name for name in columns if name in dtypes]
    rows = []
    for task in tasks_of(source, Pushdowns(filters=filters, columns=columns, limit=query.limit)):
        assert isinstance(task, TwinShardTask)
        for batch in scan_shard(task.scan, task.shard):
            assert 0 < len(batch) <= source.batch_size
            rows += [plain(row, asked_for=task.scan.whole) for row in batch.to_pylist()]
    counting = Pushdowns(columns=["__key__"], aggregation=col("__key__").count("all"))
    count = 0
    for task in tasks_of(source, counting):
        assert isinstance(task, TwinCountTask)
        if task.shard is not None:
            count += count_shard(task.scan, task.shard)
    return dtypes, rows, count


def tasks_of(source: TwinWebDatasetSource, pushdowns: Pushdowns) -> list[Any]:
    async def collect() -> list[Any]:
        return [task async for task in source.get_tasks(pushdowns)]

    return asyncio.run(collect())


def plain(row: Row, *, asked_for: frozenset[str]) -> str:
    """A row as text, which tells both zeros apart; columns for the filter only are left out."""
    return repr(
        {
            name: (value.path, value.position) if isinstance(value, daft.File) else value
            for name, value in row.items()
            if name in asked_for
        }
    )


@given(files=data_sets(), query=queries, text=st.booleans(), change=st.data())
def test_a_scan_with_an_index_is_the_same_scan_from_the_tars(
    tmp_path_factory: pytest.TempPathFactory,
    files: dict[str, Tar],
    query: Query,
    text: bool,
    change: st.DataObject,
) -> None:
    assume(files)
    root = tmp_path_factory.mktemp("twins")
    for name, tar in files.items():
        tar.write(root / name)
    keys = ["k0.4", "k2.2", "k0.0", "v1.5/k1.1", "k1.2", "gone"]
    pq.write_table(pa.table({"key": keys}), root / "keys.parquet")
    build_index(root, text=text or change.draw(st.integers(0, 3)) > 0, workers=1)
    if change.draw(rarely):
        victim = change.draw(st.sampled_from(sorted(files)))
        Tar([("k0.0.json", b"{}")]).write(root / victim)

    without, left_out = outcome(root, query, "off")
    with_index, left_out_with = outcome(root, query, "auto")

    assert with_index == without
    if not query.pushed and not query.where and query.limit is None:
        reasons = {k: v for k, v in left_out_with.items() if not k.startswith("shard ")}
        assert reasons == left_out
