"""Writing pictures of a twin data set as a new one, against a plain copying loop over ``tarfile``.

The loop gets the byte ranges from the same query, in memory, and writes the same shards; it checks
nothing, syncs nothing, and what is left of it when it is killed is visible.

Run: python benchmarks/bench_write.py [--samples 2000] [--kilobytes 100] [--batch-sizes 250 2000]
         [--runs 5]
"""

import argparse
import io
import random
import resource
import sys
import tarfile
import tempfile
import time
from collections.abc import Callable
from contextlib import ExitStack
from pathlib import Path
from typing import BinaryIO

import daft

from daft_twinwds import read_twin_webdataset
from daft_twinwds.query.sink import write_twin_webdataset

PER_SHARD = 250


def make_pictures(root: Path, *, samples: int, kilobytes: int) -> Path:
    """Write tars of members with a JPEG's first bytes and random ones after them."""
    draw = random.Random(0)
    for first in range(0, samples, PER_SHARD):
        path = root / "image" / "part_000000" / f"{first // PER_SHARD:06d}.tar"
        path.parent.mkdir(parents=True, exist_ok=True)
        with tarfile.open(path, "w", format=tarfile.USTAR_FORMAT) as tar:
            for number in range(first, min(samples, first + PER_SHARD)):
                size = kilobytes * 1000 + draw.randrange(-1000, 1000)
                info = tarfile.TarInfo(f"id_{number}.jpg")
                info.size = size
                data = b"\xff\xd8\xff" + draw.randbytes(size - 3)
                tar.addfile(info, io.BytesIO(data))
    return root


def plain_loop(df: daft.DataFrame, output: Path) -> None:
    table = df.to_arrow()
    keys = table["__key__"].to_pylist()
    # What a File column is in Arrow; its Python objects would read each range to tell its size.
    refs = [ref for chunk in table["image"].chunks for ref in chunk.storage.to_pylist()]
    folder = output / "image" / "part_000000"
    folder.mkdir(parents=True)
    with ExitStack() as stack:
        files: dict[str, BinaryIO] = {}
        for first in range(0, len(keys), PER_SHARD):
            at = slice(first, first + PER_SHARD)
            with tarfile.open(folder / f"{first // PER_SHARD:06d}.tar", "w") as tar:
                for key, ref in zip(keys[at], refs[at], strict=True):
                    if ref["url"] not in files:
                        files[ref["url"]] = stack.enter_context(Path(ref["url"]).open("rb"))
                    file = files[ref["url"]]
                    file.seek(ref["position"])
                    info = tarfile.TarInfo(f"{key}.jpg")
                    info.size = ref["size"]
                    tar.addfile(info, file)


def seconds_of(function: Callable[[Path], object], output: Path) -> float:
    start = time.perf_counter()
    function(output)
    return time.perf_counter() - start


def peak_mb() -> float:
    unit = 1 if sys.platform == "darwin" else 1024
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * unit / 1e6


def compare(source: Path, folder: Path, *, batch_size: int, runs: int) -> None:
    def frame() -> daft.DataFrame:
        return read_twin_webdataset(source).select("__key__", "image")

    def ours(output: Path) -> None:
        write_twin_webdataset(frame(), output, batch_size=batch_size, max_shard_samples=PER_SHARD)

    def theirs(output: Path) -> None:
        plain_loop(frame(), output)

    # New folders each time: file systems take their time over names that have just been freed.
    outputs = [folder / f"{batch_size}-{number}" for number in range(2 * runs)]
    our_times, their_times = [], []
    # In turns, as other work on the machine should slow both down alike.
    for _ in range(runs):
        their_times.append(seconds_of(theirs, outputs.pop()))
        our_times.append(seconds_of(ours, outputs.pop()))
    our_time, their_time = min(our_times), min(their_times)
    num_bytes = sum(path.stat().st_size for path in source.rglob("*.tar"))
    print(
        f"{num_bytes / 1e6:.0f} MB, {batch_size} rows a task: daft_twinwds {our_time:.2f} s "
        f"({num_bytes / our_time / 1e6:.0f} MB/s), tarfile {their_time:.2f} s: "
        f"{their_time / our_time:.2f} times as fast"
    )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--samples", type=int, default=2000)
    parser.add_argument("--kilobytes", type=int, default=100, help="of each picture")
    parser.add_argument("--batch-sizes", type=int, nargs="+", default=[250, 2000])
    parser.add_argument("--runs", type=int, default=5)
    args = parser.parse_args()
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        source = make_pictures(folder / "in", samples=args.samples, kilobytes=args.kilobytes)
        # Daft's own part of the memory does not depend on what is written.
        write_twin_webdataset(
            read_twin_webdataset(source).select("__key__", "image").limit(1), folder / "warm"
        )
        before = peak_mb()
        for batch_size in args.batch_sizes:
            compare(source, folder, batch_size=batch_size, runs=args.runs)
        print(
            f"peak memory {peak_mb():.0f} MB, {peak_mb() - before:.0f} MB above writing one sample"
        )


if __name__ == "__main__":
    main()
