"""What one shard, sample, row or picture costs: the numbers that docs/scaling.md multiplies.

Seconds of CPU unless a cost says otherwise, so that other work on the machine counts little.
Requests are counted by a web server on this machine, so they do not depend on it at all. Memory is
what is held afterwards (Arrow's own count, or the resident memory's growth over many), or the
highest that Python and Arrow allocated meanwhile.

Run: python benchmarks/unit_costs.py [--scale full | tiny] [--only NAME] [--json]
"""

import argparse
import asyncio
import json
import os
import pickle
import random
import re
import shutil
import subprocess
import sys
import tempfile
import threading
import tracemalloc
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from itertools import islice
from pathlib import Path
from time import perf_counter, process_time
from typing import Any
from urllib.parse import parse_qs

import daft
import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
from bench_plan import write_manifest
from daft import col
from daft.io.pushdowns import Pushdowns
from resident import sampled
from twins import WORDS
from typing_extensions import override

import daft_twinwds
from daft_twinwds.partition import Partition
from daft_twinwds.query.infer import infer_columns
from daft_twinwds.query.scan import IndexUse, Policy
from daft_twinwds.query.schema import Column, file_column, parsed_column
from daft_twinwds.query.source import TwinWebDatasetSource
from daft_twinwds.shards.dataset import Dataset, Leaf
from daft_twinwds.shards.index_file import open_index
from daft_twinwds.shards.layout import find_dataset
from daft_twinwds.shards.manifest import read_manifest
from daft_twinwds.shards.options import S3Options, StorageOptions
from daft_twinwds.shards.remote_tree import PAGE
from daft_twinwds.testing import encode_jpeg, make_twin_dataset, write_tar
from daft_twinwds.tools.index import build_index
from daft_twinwds.train import DecodeImage, Selection, TwinLoader
from daft_twinwds.train.buckets import Buckets
from daft_twinwds.train.distributed import read_pieces, write_pieces
from daft_twinwds.train.labels import Labeller
from daft_twinwds.train.order import EpochOrder

PICTURE_BYTES = 2_500_000
CAPTION_WORDS = 130
"""About 1 KB of JSON."""
RANKS, BATCH_SIZE = 512, 4
ALL_ROWS = 1_000_000_000
BUCKET = "bucket"


@dataclass(frozen=True, slots=True, kw_only=True)
class Scale:
    """How much of everything is measured."""

    manifest: int
    """Tars in a manifest."""
    folders: int
    """Shards in folders."""
    tasks: int
    part: int
    """Shards of a few samples in an index of one part folder."""
    shards: int
    samples: int
    """Small samples per shard, of which there are so many ``shards``."""
    pictures: int
    """Pictures of `PICTURE_BYTES` in each of two shards on a web server."""
    rows: int
    """Of a selection."""
    size: tuple[int, int]
    """Width and height of a picture that is decoded."""
    decoded: int


SCALES = {
    "full": Scale(
        manifest=1_000_000,
        folders=10_000,
        tasks=100_000,
        part=300,
        shards=40,
        samples=2500,
        pictures=24,
        rows=1_000_000,
        size=(3840, 2160),
        decoded=96,
    ),
    "tiny": Scale(
        manifest=1000,
        folders=20,
        tasks=200,
        part=4,
        shards=2,
        samples=50,
        pictures=2,
        rows=20_000,
        size=(96, 64),
        decoded=8,
    ),
}

SHOWN = {
    "s": ((1e-6, 1e9, "ns"), (1e-3, 1e6, "us"), (1.0, 1e3, "ms")),
    "bytes": ((1e3, 1, "B"), (1e6, 1e-3, "KB"), (1e9, 1e-6, "MB")),
}
"""What is measured -> up to which value it is shown times a factor in which unit."""

Costs = Iterator[tuple[str, float, str]]
"""Name, value and unit."""


def manifest(scale: Scale, folder: Path) -> Costs:
    path = folder / "wdinfo.json"
    write_manifest(path, scale.manifest)
    seconds, found = timed(lambda: read_manifest(str(path), with_counts=False))
    yield "manifest_file", path.stat().st_size / scale.manifest, "bytes per shard"
    yield "manifest_read", seconds / scale.manifest, "s per shard"
    yield "manifest_held", found.names.nbytes / scale.manifest, "bytes per shard"


def listing(scale: Scale, folder: Path) -> Costs:
    """The disk's folders; a bucket answers with `PAGE` names per request instead."""
    write_manifest(folder / "wdinfo.json", scale.folders)
    for number in range(scale.folders):
        for modality in ("image", "caption"):
            path = folder / modality / f"part_{number // 1000:06d}" / f"{number:06d}.tar"
            path.parent.mkdir(parents=True, exist_ok=True)
            path.touch()
    seconds, dataset = timed(lambda: find_dataset(folder))
    yield "listing", seconds / len(dataset), "s per shard"
    yield "listing_peak", peak_of(lambda: find_dataset(folder)) / len(dataset), "bytes per shard"
    yield "listing_page", PAGE, "names per request"


def planning(scale: Scale, _: Path) -> Costs:
    """What Daft is handed before it starts: `TwinWebDatasetSource.get_tasks`, to its end."""
    source = remote_source(scale.tasks)
    before = resident_bytes()
    seconds, planned = timed(lambda: tasks_of(source, Pushdowns()))
    yield "task_plan", seconds / scale.tasks, "s per shard"
    yield "task_held", (resident_bytes() - before) / scale.tasks, "bytes per shard"
    yield "task_pickled", len(pickle.dumps(planned[-1])), "bytes per shard"


def tasks_of(source: TwinWebDatasetSource, pushdowns: Pushdowns) -> list[Any]:
    async def tasks() -> list[Any]:
        return [task async for task in source.get_tasks(pushdowns)]

    return asyncio.run(tasks())


def remote_source(shards: int) -> TwinWebDatasetSource:
    names = pa.array([f"part_{n // 1000:06d}/{n:06d}.tar" for n in range(shards)])
    leaf = Leaf(
        root="s3://bucket/set",
        folders={"image": "image", "caption": "caption"},
        names=names,
        counts=None,
        absent={"image": frozenset(), "caption": frozenset()},
    )
    fields = {"prompt": pa.large_string(), "prompt_short": pa.large_string(), "width": pa.int64()}
    dataset = Dataset(leaves=(leaf,), modalities=("image", "caption"), skipped={})
    columns = (
        file_column("image", {"jpg"}),
        parsed_column("caption", "json", pa.struct(fields)),
    )
    return source_of(dataset, columns, index="off")


def source_of(
    dataset: Dataset, columns: tuple[Column, ...], index: IndexUse
) -> TwinWebDatasetSource:
    return TwinWebDatasetSource(
        dataset=dataset,
        columns=columns,
        infos=(),
        where=None,
        policy=Policy(
            on_missing="error",
            on_error="raise",
            extra_fields="error",
            key_split="last",
            sample_keys=None,
        ),
        shards=range(len(dataset)),
        batch_size=8192,
        index=index,
    )


def requests(scale: Scale, folder: Path) -> Costs:
    """Requests and bytes over HTTP, of two shards in one part folder.

    The pictures have a JPEG's header and nothing in them, as long as nobody decodes them.
    """
    root = make_large_twins(folder / "set", scale.pictures)
    samples = 2 * scale.pictures
    with serve([root, folder / "index"]) as server:
        bare = daft_twinwds.read_twin_webdataset(server.url).select("__key__", "image", "caption")
        server.reset()
        assert len(bare.to_arrow()) == samples
        yield "scan_requests", server.requests / samples, "requests per sample"
        yield "scan_bytes", server.sent / samples, "bytes per sample"

        server.reset()
        assert build_index(server.url, output=folder / "index").num_rows == samples
        yield "index_requests", server.requests / samples, "requests per sample"
        yield "index_bytes_read", server.sent / samples, "bytes per sample"

        def indexed(numbers: list[int]) -> daft.DataFrame:
            return daft_twinwds.read_twin_webdataset(
                server.url, index="require", partition=numbers
            ).select("__key__", "image", "caption")

        warm = indexed([0])  # inference has met the index's end, which the process keeps
        assert len(warm.to_arrow()) == scale.pictures
        server.reset()
        second = indexed([1])
        inferred = server.requests
        server.reset()
        daft_twinwds.read_twin_webdataset(server.url, index="require", schema=dtypes_of(second))
        yield "infer_requests", (inferred - server.requests) / 2, "requests per shard"
        server.reset()
        assert len(second.to_arrow()) == scale.pictures
        yield "indexed_requests", server.requests, "requests per shard"
        nothing = indexed([0, 1]).where(col("__key__").is_in(["id_x"]))
        server.reset()
        assert len(nothing.to_arrow()) == 0
        yield "excluded_requests", server.requests / 2, "requests per shard"

        selection = Selection.from_dataframe(second.exclude("caption"))
        loader = TwinLoader(selection, batch_size=2, decode={"image": len}, partition=Partition())
        server.reset()
        assert sum(len(batch["image"]) for batch in loader) == scale.pictures
        yield "picture_requests", server.requests / scale.pictures, "requests per picture"
        yield from bucket_requests(server)


def options_of(server: "RangeServer") -> StorageOptions:
    return StorageOptions(s3=S3Options(endpoint_url=server.url, anonymous=True))


def bucket_requests(server: "RangeServer") -> Costs:
    """The same in a bucket, whose listing tells what each tar would else be asked."""
    options = options_of(server)

    def opened(**kwargs: Any) -> daft.DataFrame:
        server.reset()
        return daft_twinwds.read_twin_webdataset(
            f"s3://{BUCKET}", index="require", io_config=options, **kwargs
        )

    df = opened()
    inferred = server.requests
    opened(schema=dtypes_of(df.exclude("__url__")))
    yield "part_requests", inferred - server.requests, "requests per part folder"
    server.reset()
    assert len(df.where(col("__key__").is_in(["id_x"])).to_arrow()) == 0
    assert server.requests == 0
    (leaf,) = find_dataset(f"s3://{BUCKET}", options=options).leaves
    digests = len(leaf.versions) * next(iter(leaf.versions.values())).type.byte_width
    yield "listing_held", digests, "bytes per shard"


def dtypes_of(df: daft.DataFrame) -> dict[str, daft.DataType]:
    """Return the types of the modalities, which need not be inferred if they are given."""
    return {field.name: field.dtype for field in df.schema() if field.name != "__key__"}


def make_large_twins(root: Path, pictures: int) -> Path:
    jpeg = encode_jpeg(np.full((48, 64, 3), 100, np.uint8)).ljust(PICTURE_BYTES, b"\0")
    captions = json.dumps({"prompt": "x" * 1000}).encode()
    names = [f"part_000000/{shard:06d}.tar" for shard in range(2)]
    for shard, name in enumerate(names):
        keys = [f"id_{shard * pictures + number}" for number in range(pictures)]
        write_tar(root / "image" / name, ((f"{key}.jpg", jpeg) for key in keys))
        write_tar(root / "caption" / name, ((f"{key}.json", captions) for key in keys))
    content = {
        "data_keys": ["image", "caption"],
        "data_list": names,
        "data_list_key_count": [pictures] * 2,
        "root": "/data/set",
        "total_key_count": 2 * pictures,
    }
    (root / "wdinfo.json").write_text(json.dumps(content))
    return root


def index(scale: Scale, folder: Path) -> Costs:
    root = make_small_twins(folder / "many", shards=scale.shards, samples=scale.samples)
    samples = scale.shards * scale.samples
    seconds, report = timed(lambda: build_index(root, workers=1))
    assert report.num_rows == samples
    yield "index_build", seconds / samples, "s per sample"
    yield "index_disk", index_size(root) / samples, "bytes per sample"
    uses: list[tuple[str, IndexUse]] = [("scan_indexed", "require"), ("scan_tars", "off")]
    for name, use in uses:
        df = daft_twinwds.read_twin_webdataset(root, index=use)
        seconds, table = timed(df.select("__key__", "image", "caption").to_arrow)
        assert len(table) == samples
        yield name, seconds / samples, "s per sample"
    # What a process has had in memory before hides what it needs now.
    command = [sys.executable, __file__, "--query", str(root)]
    peak = int(subprocess.run(command, check=True, stdout=subprocess.PIPE).stdout)
    yield "query_peak", peak / samples, "bytes per row"
    build_index(root, text=False)
    yield "index_disk_without_texts", index_size(root) / samples, "bytes per sample"

    root = make_small_twins(folder / "part", shards=scale.part, samples=2)
    build_index(root)
    (path,) = root.glob(".twin_index/*.parquet")
    footer = pq.read_metadata(path).serialized_size
    yield "footer_disk", footer / scale.part, "bytes per shard"
    seconds, file = timed(lambda: open_index(str(path)))
    assert len(file.summary.entries) == scale.part
    yield "footer_read", seconds / scale.part, "s per shard"
    # What has been met is kept, so another one has to be opened.
    another = shutil.copy(path, folder / "another.parquet")
    kept, _ = traced(lambda: open_index(str(another)))
    yield "footer_held", kept / scale.part, "bytes per shard"
    df = daft_twinwds.read_twin_webdataset(root, index="require").select("__key__", "image")
    seconds, table = timed(df.to_arrow)
    assert len(table) == 2 * scale.part
    yield "task_run", seconds / scale.part, "s per shard"
    yield from bucket_planning(root, folder / "listed")


def bucket_planning(root: Path, output: Path) -> Costs:
    """What the driver does with an index that it has met, of a bucket that it has listed."""
    with serve([output, root]) as server:
        options = options_of(server)
        build_index(f"s3://{BUCKET}", output=output, io_config=options)
        dataset = find_dataset(f"s3://{BUCKET}", options=options)

        def columns() -> tuple[Column, ...]:
            return infer_columns(dataset, {}, key_split="last", strict=True, index="require")

        source = source_of(dataset, columns(), index="require")
        nothing = Pushdowns(columns=None, filters=col("__key__").is_in(["id_x"]))
        server.reset()
        yield "infer_indexed", timed(columns)[0] / len(dataset), "s per shard"
        seconds, planned = timed(lambda: tasks_of(source, nothing))
        assert not planned
        assert server.requests == 0
        yield "exclude_indexed", seconds / len(dataset), "s per shard"


def make_small_twins(root: Path, *, shards: int, samples: int) -> Path:
    """Write pictures that are nothing but a JPEG's header, of uneven sizes, and captions."""
    draw = random.Random(0)
    jpeg = encode_jpeg(np.full((48, 64, 3), 100, np.uint8))
    for shard in range(shards):
        name = f"part_000000/{shard:06d}.tar"
        pictures, captions = [], []
        for number in range(shard * samples, (shard + 1) * samples):
            caption = {
                "prompt": " ".join(draw.choices(WORDS, k=CAPTION_WORDS)),
                "prompt_short": " ".join(draw.choices(WORDS, k=5)),
                "aesthetic": round(draw.uniform(0, 10), 3),
            }
            captions.append((f"id_{number}.json", json.dumps(caption).encode()))
            pictures.append((f"id_{number}.jpg", jpeg.ljust(draw.randrange(1000, 4000), b"\0")))
        write_tar(root / "image" / name, pictures)
        write_tar(root / "caption" / name, captions)
    return root


def index_size(root: Path) -> int:
    return sum(path.stat().st_size for path in root.glob(".twin_index/*.parquet"))


def selection(scale: Scale, folder: Path) -> Costs:
    """Keys and references of pictures, a thousand per shard; with captions, these come on top."""
    made, path = make_selection(scale.rows), folder / "rows.parquet"
    yield "selection_held", made.table.nbytes / scale.rows, "bytes per row"
    yield "selection_save", timed(lambda: made.save(path))[0] / scale.rows, "s per row"
    yield "selection_disk", path.stat().st_size / scale.rows, "bytes per row"
    seconds, loaded = timed(lambda: Selection.load(path))
    yield "selection_load", seconds / scale.rows, "s per row"
    pieces: list[Any] = []
    seconds, _ = timed(lambda: write_pieces(made.table, lambda piece: pieces.append(piece.copy())))
    size = sum(map(len, pieces))
    yield "selection_sent", size / scale.rows, "bytes per row"
    more, _ = timed(lambda: read_pieces(size, lambda piece: np.copyto(piece, pieces.pop(0))))
    yield "selection_broadcast", (seconds + more) / scale.rows, "s per row"
    yield "fingerprint", timed(lambda: made.fingerprint)[0] / scale.rows, "s per row"
    fresh = Selection(made.table, made.media)
    yield "fingerprint_peak", peak_of(lambda: fresh.fingerprint) / scale.rows, "bytes per row"
    draw = np.random.default_rng(0)
    places = [draw.integers(0, scale.rows, 256) for _ in range(20)]
    seconds, _ = timed(lambda: [loaded.rows(some) for some in places])
    yield "row_lookup", seconds / (20 * 256), "s per row"


def make_selection(rows: int) -> Selection:
    """Return a selection as that of a query is, made directly."""
    numbers = np.arange(rows)
    keys = pc.binary_join_element_wise("id_", pa.array(numbers).cast(pa.string()), "")
    shards = range(-(-rows // 1000))
    sizes = np.random.default_rng(0).integers(1_500_000, 3_500_000, rows)
    # Tars are cut after every 1000 pictures, each of which is padded to whole blocks of 512 bytes.
    ends = np.cumsum(sizes // 512 * 512 + 1024)
    starts = np.concatenate([[0], ends[:-1]])
    paths = pa.DictionaryArray.from_arrays(
        pa.array((numbers // 1000).astype(np.int32)),
        pa.array([f"s3://bucket/set/image/part_{n // 1000:06d}/{n:06d}.tar" for n in shards]),
    )
    refs = pa.StructArray.from_arrays(
        [paths, pa.array(starts - starts[numbers // 1000 * 1000] + 512), pa.array(sizes)],
        names=["path", "position", "size"],
    )
    table = pa.table({"__key__": keys.cast(pa.large_string()), "image": refs})
    return Selection(table, {"image": "image"})


def order(scale: Scale, _: Path) -> Costs:
    """The order of a billion rows; what one of 512 ranks looks up at once for batches of 4."""
    made = EpochOrder(
        buckets=Buckets.whole(ALL_ROWS),
        global_batch=RANKS * BATCH_SIZE,
        seed=0,
        shuffle=True,
        remainder="drop",
    )
    share = made.slice_for(Partition(rank=7, world_size=RANKS))
    steps = range(1000, 1000 + 256 // BATCH_SIZE)
    seconds, _ = timed(lambda: [made.some(0, steps, share) for _ in range(20)])
    yield "order", seconds / 20 / len(steps) / BATCH_SIZE, "s per sample"
    yield "order_peak", peak_of(lambda: made.some(0, steps, share)), "bytes in all"
    seconds, _ = timed(lambda: made.rows(0, made.num_steps // 2, share))
    yield "order_seek", seconds, "s in all"
    table = make_selection(scale.rows).table
    labels = pa.array(np.array(["16_9", "1_1", "3_2"])[np.arange(scale.rows) % 3])
    labelled = Selection(table.append_column("ratio", labels), {"image": "image"})
    labeller = Labeller(
        bucket_by="ratio", picture="image", storage={}, num_threads=1, skip_bad=False
    )
    seconds, buckets = timed(lambda: labeller.buckets_of(labelled))
    yield "buckets", seconds / scale.rows, "s per row"
    yield "buckets_held", buckets.rows.nbytes / scale.rows, "bytes per row"
    peak = peak_of(lambda: labeller.buckets_of(labelled))
    yield "buckets_peak", peak / scale.rows, "bytes per row"


def training(scale: Scale, folder: Path) -> Costs:
    make_twin_dataset(folder, num_shards=1, samples_per_shard=2, image_size=scale.size)
    painted = Selection.from_dataframe(daft_twinwds.read_twin_webdataset(folder, ["image"]))
    pictures = Selection(painted.table.take(np.arange(scale.decoded) % 2), painted.media)
    loader = TwinLoader(
        pictures,
        batch_size=BATCH_SIZE,
        decode={"image": DecodeImage()},
        partition=Partition(),
        num_threads=1,
    )
    seconds, _ = timed(lambda: sum(len(batch["image"]) for batch in loader))
    report = loader.report()
    yield "decode", seconds / report["rows"], "s per picture"
    yield "decoded_jpeg", report["bytes"] / report["rows"], "bytes per picture"

    loader = TwinLoader(
        make_selection(scale.rows), batch_size=BATCH_SIZE, decode={}, partition=Partition()
    )
    batches = iter(loader)
    next(batches)
    seconds, some = timed(lambda: list(islice(batches, 400)))
    yield "loader", seconds / len(some) / BATCH_SIZE, "s per sample"
    state = {**loader.state_dict(), "step": len(loader) // 10 * 9}
    yield "state", len(json.dumps(state)), "bytes in all"

    def resume() -> None:
        loader.load_state_dict(state)
        next(iter(loader))

    start = perf_counter()
    resume()
    yield "resume", perf_counter() - start, "s of wall clock"
    loader.close()


SECTIONS: tuple[Callable[[Scale, Path], Costs], ...] = (
    manifest,
    listing,
    planning,
    requests,
    index,
    selection,
    order,
    training,
)


def timed(work: Callable[[], Any]) -> tuple[float, Any]:
    """Return seconds of CPU, over all threads, and the result."""
    start = process_time()
    result = work()
    return process_time() - start, result


def traced(work: Callable[[], Any]) -> tuple[int, int]:
    """Return the bytes that Python and NumPy have come to hold, and the most at any time."""
    tracemalloc.start()
    try:
        result = work()
        held, peak = tracemalloc.get_traced_memory()
        del result
        return held, peak
    finally:
        tracemalloc.stop()


def peak_of(work: Callable[[], Any]) -> int:
    """Return the most bytes that Python, NumPy and Arrow have come to hold, each at its worst."""
    before = pa.default_memory_pool()
    pool = pa.proxy_memory_pool(before)
    pa.set_memory_pool(pool)
    try:
        return traced(work)[1] + int(pool.max_memory())
    finally:
        pa.set_memory_pool(before)


def query_peak(root: str) -> int:
    """Return the memory that a query takes until it is a selection; some 20 MB in any case."""
    df = daft_twinwds.read_twin_webdataset(root, index="require").select("__key__", "image")
    Selection.from_dataframe(df.limit(1))
    return peak_resident_of(lambda: Selection.from_dataframe(df))


def peak_resident_of(work: Callable[[], Any]) -> int:
    """Return the most bytes that the process has in memory at once beyond those before."""
    before = resident_bytes()
    with sampled(resident_bytes) as peak:
        result = work()
        peak[0] = max(peak[0], resident_bytes())
        del result
    return peak[0] - before


def resident_bytes() -> int:
    command = ["ps", "-o", "rss=", "-p", str(os.getpid())]
    return int(subprocess.run(command, check=True, stdout=subprocess.PIPE).stdout) * 1024


class RangeServer(ThreadingHTTPServer):
    """Files of some folders over HTTP, by range; it counts what it is asked for."""

    daemon_threads = True

    def __init__(self, folders: list[Path]) -> None:
        super().__init__(("127.0.0.1", 0), RangeHandler)
        self.folders = folders
        self.url = f"http://127.0.0.1:{self.server_address[1]}"
        self.reset()

    def reset(self) -> None:
        self.requests = self.sent = 0

    def find(self, path: str) -> Path | None:
        found = [folder / path[1:] for folder in self.folders if (folder / path[1:]).is_file()]
        return found[0] if found else None


class RangeHandler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    disable_nagle_algorithm = True
    server: RangeServer

    @override
    def log_message(self, format: str, *args: Any) -> None:
        pass

    def do_GET(self) -> None:
        self.server.requests += 1
        place, _, query = self.path.partition("?")
        if place == f"/{BUCKET}":
            self._list(parse_qs(query))
            return
        path = self.server.find(place.removeprefix(f"/{BUCKET}"))
        if path is None:
            self.send_response(404)
            self.send_header("Content-Length", "0")
            self.end_headers()
            return
        size = path.stat().st_size
        asked = re.fullmatch(r"bytes=(\d+)-(\d+)", self.headers.get("Range") or "")
        start, stop = (int(asked[1]), min(int(asked[2]) + 1, size)) if asked else (0, size)
        self.send_response(206 if asked else 200)
        self.send_header("Content-Range", f"bytes {start}-{stop - 1}/{size}")
        self.send_header("Content-Length", str(stop - start))
        self.send_header("ETag", tag_of(path))
        self.end_headers()
        with path.open("rb") as file:
            file.seek(start)
            self.server.sent += stop - start  # before its client can go on
            self.wfile.write(file.read(stop - start))

    def _list(self, query: dict[str, list[str]]) -> None:
        """Answer as S3 does, on one page."""
        prefix, flat = query.get("prefix", [""])[0], "delimiter" not in query
        files: list[str] = []
        folders: set[str] = set()
        for root in self.server.folders:
            for path in sorted(root.rglob("*")):
                name = str(path.relative_to(root))
                if not path.is_file() or not name.startswith(prefix):
                    continue
                below, slash, _ = name[len(prefix) :].partition("/")
                if slash and not flat:
                    folders.add(f"{prefix}{below}/")
                    continue
                files.append(
                    f"<Contents><Key>{name}</Key><Size>{path.stat().st_size}</Size>"
                    f"<LastModified>2026-01-01T00:00:00.000Z</LastModified>"
                    f"<ETag>{tag_of(path)}</ETag></Contents>"
                )
        common = [
            f"<CommonPrefixes><Prefix>{name}</Prefix></CommonPrefixes>" for name in sorted(folders)
        ]
        body = f"<ListBucketResult>{''.join(files + common)}</ListBucketResult>".encode()
        self.send_response(200)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)


def tag_of(path: Path) -> str:
    return f'"{path.stat().st_mtime_ns:x}-{path.stat().st_size}"'


@contextmanager
def serve(folders: list[Path]) -> Iterator[RangeServer]:
    server = RangeServer(folders)
    thread = threading.Thread(target=server.serve_forever, args=(0.05,))
    thread.start()
    try:
        yield server
    finally:
        server.shutdown()
        thread.join()
        server.server_close()


def run(section: Callable[[Scale, Path], Costs], scale: Scale) -> Costs:
    with tempfile.TemporaryDirectory() as folder:
        yield from section(scale, Path(folder))


def shown(value: float, unit: str) -> str:
    """Return a cost as people read it: ``0.42 us per shard``."""
    what, _, rest = unit.partition(" ")
    for limit, factor, name in SHOWN.get(what, ()):
        if value < limit:
            return f"{value * factor:.3g} {name} {rest}"
    return f"{value:,.4g} {unit}"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--scale", choices=SCALES, default="full")
    parser.add_argument("--only", choices=[section.__name__ for section in SECTIONS])
    parser.add_argument("--json", action="store_true", help="one JSON object a line")
    parser.add_argument("--query", help=argparse.SUPPRESS)
    args = parser.parse_args()
    if args.query:
        print(query_peak(args.query))
        return
    for section in SECTIONS:
        if args.only in (None, section.__name__):
            for name, value, unit in run(section, SCALES[args.scale]):
                if args.json:
                    line = json.dumps({"name": name, "value": float(value), "unit": unit})
                else:
                    line = f"{name:26} {shown(value, unit)}"
                print(line, flush=True)
    print(f"load average {os.getloadavg()[0]:.1f} on {os.cpu_count()} CPUs", file=sys.stderr)


if __name__ == "__main__":
    main()
