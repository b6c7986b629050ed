"""Planning a manifest of a million shards for one of 512 readers, against a list of objects.

Both read the same ``wdinfo.json`` and end with the shards of (rank 3 of 64, worker 1 of 8); no
folder is listed. The peer is PiD's way: one attrs object per shard, the list repeated to a multiple
of the readers, sliced by rank and by worker, and shuffled. Seconds are of CPU, so that other work on the
machine counts little; memory is what is held in the end.

Run: python benchmarks/bench_plan.py [--shards 1000000] [--runs 3]
"""

import argparse
import json
import random
import subprocess
import sys
import tempfile
from pathlib import Path
from statistics import median
from time import process_time
from typing import Any

import attrs
import pyarrow as pa
from resident import resident

from daft_twinwds.partition import Partition
from daft_twinwds.shards.manifest import read_manifest
from daft_twinwds.train.shard_plan import shard_plan

READER = Partition(rank=3, world_size=64, worker=1, num_workers=8)
NAMES_SHOWN = 2


@attrs.define(slots=False)
class TarSample:
    """A shard, with the fields that PiD's loader gives it."""

    path: str
    root: str
    keys: list[str]
    meta: dict[str, Any]
    dset_id: str
    sample_keys_full_list: str | None = None


def plan_by_objects(path: str) -> tuple[Any, list[str]]:
    with Path(path).open() as file:
        content = json.load(file)
    per_dataset_keys: list[str] = []
    meta: dict[str, Any] = {"source": path}
    of_manifest = [
        TarSample(
            path=tar,
            root=content["root"],
            keys=per_dataset_keys or content["data_keys"],
            meta=meta,
            dset_id="set_0",
            sample_keys_full_list=None,
        )
        for tar in content["data_list"]
    ]
    chunk_size = sum(content["data_list_key_count"]) // len(of_manifest)
    tars: list[TarSample] = []
    tars.extend(of_manifest)
    length = -(-len(tars) // READER.num_readers) * READER.num_readers
    repeated: list[TarSample] = []
    while len(repeated) < length:
        repeated.extend(tars)
    mine = repeated[:length][READER.rank :: READER.world_size][READER.worker :: READER.num_workers]
    random.Random(READER.rank * READER.num_workers + READER.worker).shuffle(mine)
    return (tars, chunk_size), [tar.path for tar in mine]


def plan(path: str) -> tuple[Any, list[str]]:
    manifest = read_manifest(path, with_counts=False)
    numbers = shard_plan(len(manifest.names), READER)
    return manifest, manifest.names.take(pa.array(numbers)).to_pylist()


def measure(way: str, path: str, warm_up: str) -> None:
    """Print seconds and memory; imports, clients and allocators are there before the clock runs."""
    work = {"objects": plan_by_objects, "ours": plan}[way]
    work(warm_up)
    before = resident()
    start = process_time()
    held, names = work(path)
    seconds = process_time() - start
    print(json.dumps([seconds, resident() - before, len(names), names[:NAMES_SHOWN]]))
    del held


def write_manifest(path: Path, shards: int) -> None:
    content = {
        "data_keys": ["image", "caption"],
        "data_list": [f"part_{n // 1000:06d}/{n:06d}.tar" for n in range(shards)],
        "data_list_key_count": [1000 + n % 7 for n in range(shards)],
        "root": "/data/set",
        "total_key_count": sum(1000 + n % 7 for n in range(shards)),
    }
    path.write_text(json.dumps(content, indent=2))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--shards", type=int, default=1_000_000)
    parser.add_argument("--runs", type=int, default=3)
    parser.add_argument("--measure", nargs=3, help=argparse.SUPPRESS)
    args = parser.parse_args()
    if args.measure:
        measure(*args.measure)
        return
    with tempfile.TemporaryDirectory() as folder:
        large, small = Path(folder) / "large.json", Path(folder) / "small.json"
        write_manifest(large, args.shards)
        write_manifest(small, 1000)
        found: dict[str, list[Any]] = {"objects": [], "ours": []}
        for _ in range(args.runs):
            for way, results in found.items():
                command = [sys.executable, __file__, "--measure", way, str(large), str(small)]
                done = subprocess.run(command, check=True, stdout=subprocess.PIPE)
                results.append(json.loads(done.stdout))
    assert [run[2:] for run in found["ours"]] == [run[2:] for run in found["objects"]]
    seconds = {way: min(run[0] for run in runs) for way, runs in found.items()}
    held = {way: median(run[1] for run in runs) for way, runs in found.items()}
    print(
        f"plan {args.shards} shards for {READER}: {found['ours'][0][2]} shards; daft_twinwds "
        f"{seconds['ours']:.2f} s of CPU and {held['ours'] / 2**20:.0f} MiB, attrs objects "
        f"{seconds['objects']:.2f} s and {held['objects'] / 2**20:.0f} MiB: "
        f"{seconds['objects'] / seconds['ours']:.1f} times as fast in "
        f"{held['ours'] / held['objects']:.2f} of the memory (at least 10 and at most 0.25 are "
        "asked for)"
    )


if __name__ == "__main__":
    main()
