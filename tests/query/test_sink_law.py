"""Law: ``write_twin_webdataset``, then read, gives the DataFrame back."""

import io
import tarfile
import tempfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import daft
import pyarrow as pa
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from daft_twinwds import read_twin_webdataset
from daft_twinwds.query.infer import SAMPLED_SHARDS
from daft_twinwds.query.sink import write_twin_webdataset
from daft_twinwds.shards.manifest import read_manifest
from daft_twinwds.shards.samples import split_name
from daft_twinwds.shards.tar_write import name_fault, tar_size

SIZES = st.sampled_from([0, 1, 2, 511, 512, 513, 1023, 1024, 1025, 9728, 10240])
BYTES = st.builds(lambda size, byte: bytes([byte]) * size, SIZES, st.integers(0, 255))
INT64 = st.integers(-(2**63), 2**63 - 1)
FLOATS = st.floats(allow_nan=False)
TEXT = st.text(st.characters(codec="utf-8"), max_size=20) | st.just("\ufeffmarked")
LONG = st.sampled_from(["k" * 100, "k" * 300, "d/" * 60 + "k", "\u00e9" * 90])
NAMES = st.text("ab.-_ /\u00e9\u4e2d\U0001f600'\"\n", min_size=1, max_size=12) | LONG

FORMS: Mapping[str, tuple[pa.DataType, st.SearchStrategy[Any]]] = {
    "raw": (pa.large_binary(), BYTES),
    "text": (pa.large_string(), TEXT),
    "number": (pa.int64(), INT64),
    "score": (pa.float64(), FLOATS),
    "flag": (pa.bool_(), st.booleans()),
    "tags": (pa.large_list(pa.large_string()), st.lists(TEXT, max_size=3)),
    "caption": (
        pa.struct(
            {
                "prompt": pa.large_string(),
                "prompt_medium": pa.large_string(),
                "prompt_short": pa.large_string(),
                "sizes": pa.large_list(pa.int64()),
                "inner": pa.struct({"x": pa.float64(), "y": pa.bool_()}),
            }
        ),
        st.fixed_dictionaries(
            {
                "prompt": TEXT,
                "prompt_medium": st.none() | TEXT,
                "prompt_short": st.none() | TEXT,
                "sizes": st.none() | st.lists(st.none() | INT64, max_size=3),
                "inner": st.none()
                | st.fixed_dictionaries({"x": st.none() | FLOATS, "y": st.none() | st.booleans()}),
            }
        ),
    ),
    "file": (pa.large_binary(), BYTES),
}


def can_be_key(name: str) -> bool:
    member = f"{name}.x"
    return name_fault(member) is None and split_name(member, "last") == (name, "x")


@st.composite
def tables(draw: st.DrawFn) -> pa.Table:
    # Each row may get a shard to itself, and types are told from so many.
    most = SAMPLED_SHARDS
    keys = draw(st.lists(NAMES.filter(can_be_key), min_size=1, max_size=most, unique=True))
    names = draw(st.lists(st.sampled_from(sorted(FORMS)), min_size=1, max_size=4, unique=True))
    columns: dict[str, pa.Array] = {"__key__": pa.array(keys, pa.large_string())}
    for name in names:
        type_, values = FORMS[name]
        rows = [draw(values) for _ in keys]
        columns[name] = pa.array(rows, type_)
    return pa.table(columns)


def file_refs(payloads: list[bytes], blob: Path) -> pa.Array:
    """Write payloads one behind the other; return what a File column is in Arrow."""
    with blob.open("wb") as file:
        positions = []
        for payload in payloads:
            positions.append(file.tell())
            file.write(payload + b"|")
    rows = len(payloads)
    return pa.StructArray.from_arrays(
        [
            pa.array([str(blob)] * rows, pa.large_string()),
            pa.nulls(rows, pa.large_binary()),
            pa.array(positions, pa.int64()),
            pa.array([len(payload) for payload in payloads], pa.int64()),
        ],
        names=["url", "io_config", "position", "size"],
    )


def to_dataframe(table: pa.Table, folder: Path) -> daft.DataFrame:
    if "file" not in table.column_names:
        return daft.from_arrow(table)
    number = table.column_names.index("file")
    refs = file_refs(table["file"].to_pylist(), folder / "blob")
    df = daft.from_arrow(table.set_column(number, "file", refs))
    return df.with_column("file", daft.col("file").cast(daft.DataType.file()))


def rows_by_key(columns: Mapping[str, list[Any]]) -> dict[str, dict[str, Any]]:
    names = [name for name in columns if name not in ("__key__", "__url__")]
    return {
        key: {name: columns[name][row] for name in names}
        for row, key in enumerate(columns["__key__"])
    }


@given(
    table=tables(),
    batch_size=st.sampled_from([1, 2, 5, 100]),
    max_shard_bytes=st.sampled_from([1, 10240, 20480, 10**6]),
    max_shard_samples=st.sampled_from([None, 1, 3]),
)
@settings(suppress_health_check=[HealthCheck.too_slow], max_examples=40)
def test_what_is_read_equals_what_was_written(
    table: pa.Table, batch_size: int, max_shard_bytes: int, max_shard_samples: int | None
) -> None:
    with tempfile.TemporaryDirectory() as name:
        folder, output = Path(name), Path(name) / "out"
        written = write_twin_webdataset(
            to_dataframe(table, folder),
            output,
            suffixes={"file": "dat"} if "file" in table.column_names else None,
            batch_size=batch_size,
            max_shard_bytes=max_shard_bytes,
            max_shard_samples=max_shard_samples,
        ).to_pydict()

        eager = {
            name: daft.DataType.binary() for name in ("raw", "file") if name in table.column_names
        }
        found = read_twin_webdataset(output, schema=eager).to_pydict()

        assert rows_by_key(found) == rows_by_key(table.to_pydict())
        check_shards(output, written, max_shard_bytes, max_shard_samples)


def check_shards(
    output: Path,
    written: Mapping[str, list[Any]],
    max_shard_bytes: int,
    max_shard_samples: int | None,
) -> None:
    """Twins hold the same keys in the same order, within the bounds, and are what is reported."""
    manifest = read_manifest(f"{output}/wdinfo.json")
    assert manifest.counts is not None
    assert manifest.names.to_pylist() == written["shard"]
    assert manifest.counts.to_pylist() == written["samples"]
    for shard, samples, sizes in zip(
        written["shard"], written["samples"], written["bytes"], strict=True
    ):
        keys: set[tuple[str, ...]] = set()
        for modality in manifest.modalities:
            data = (output / modality / shard).read_bytes()
            with tarfile.open(fileobj=io.BytesIO(data)) as tar:
                members = [(member.name, member.size) for member in tar]
            assert len(data) == sizes[modality] == tar_size(members)
            assert len(data) <= max_shard_bytes or samples == 1
            keys.add(tuple(split_name(member, "last")[0] for member, _ in members))
        assert len(keys) == 1
        assert len(next(iter(keys))) == samples <= (max_shard_samples or samples)
    assert not list(output.glob(".*"))
