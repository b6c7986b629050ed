"""TwinLoader: what it costs, how fast it resumes, and what its memory is, beside its peers.

Each round runs all contenders, so that a machine that others use as well slows all of them down;
ratios are medians over rounds. Pictures that are decoded whole are a few 4K JPEGs read again and
again; overhead and resuming are measured on 100,000 rows of one byte each.

Run: python benchmarks/bench_loader.py [--only NAME] [--rounds 3] [--pictures 96] [--threads 2]
"""

import argparse
import io
import json
import os
import statistics
import tarfile
import tempfile
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from itertools import islice
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import simplejpeg
import torch
import webdataset  # type: ignore[import-untyped]
from PIL import Image
from resident import resident, sampled
from torch.utils.data import DataLoader, Dataset
from typing_extensions import override

import daft_twinwds
from daft_twinwds.partition import Partition
from daft_twinwds.testing import make_twin_dataset
from daft_twinwds.train import DecodeImage, Selection, TwinLoader, TwinRandomAccessSource

WIDTH, HEIGHT = 3840, 2160
BATCH_SIZE = 4
ROWS = 100_000
Place = tuple[str, int, int]


def first(content: bytes) -> int:
    return content[0]


def make_numbers(folder: Path) -> Selection:
    path = folder / "bytes.bin"
    path.write_bytes(bytes(256))
    refs = [{"path": str(path), "position": row % 256, "size": 1} for row in range(ROWS)]
    type_ = pa.struct({"path": pa.string(), "position": pa.int64(), "size": pa.int64()})
    keys = [f"id_{row}" for row in range(ROWS)]
    return Selection(
        pa.table({"__key__": keys, "byte": pa.array(refs, type_)}), {"byte": "unknown"}
    )


def make_pictures(folder: Path, pictures: int) -> Selection:
    make_twin_dataset(folder, num_shards=2, samples_per_shard=4, image_size=(WIDTH, HEIGHT))
    painted = Selection.from_dataframe(daft_twinwds.read_twin_webdataset(folder, ["image"]))
    rows = [row % len(painted) for row in range(pictures)]
    return Selection(painted.table.take(rows), painted.media)


def seconds(work: Callable[[], Any]) -> float:
    begin = time.perf_counter()
    work()
    return time.perf_counter() - begin


def ratio(slow: list[float], fast: list[float]) -> str:
    ratios = [a / b for a, b in zip(slow, fast, strict=True)]
    return f"{statistics.median(ratios):.2f} ({min(ratios):.2f} to {max(ratios):.2f})"


def loader_of(selection: Selection, **how: Any) -> TwinLoader:
    return TwinLoader(selection, **{"batch_size": BATCH_SIZE, "partition": Partition(), **how})


def bench_resume(args: argparse.Namespace, folder: Path) -> None:
    """Resume at 90 % of 100,000 samples, against a fresh start and a webdataset that skips."""
    selection = make_numbers(folder)
    tar_path = folder / "numbers.tar"
    with tarfile.open(tar_path, "w") as tar:
        for row in range(ROWS):
            member = tarfile.TarInfo(f"id_{row}.bin")
            member.size = 1
            tar.addfile(member, io.BytesIO(b"x"))
    how: dict[str, Any] = {"decode": {"byte": first}, "num_threads": args.threads}
    loader = loader_of(selection, **how)
    state = {**loader.state_dict(), "step": int(0.9 * len(loader))}
    print(f"state: {len(json.dumps(state))} bytes as JSON")
    print(f"state_dict(): {min(seconds(loader.state_dict) for _ in range(9)) * 1e6:.0f} us")

    def fresh() -> None:
        made = loader_of(selection, **how)
        next(iter(made))
        made.close()

    def resumed() -> None:
        made = loader_of(selection, **how)
        made.load_state_dict(state)
        next(iter(made))
        made.close()

    def skipped() -> None:
        dataset = webdataset.WebDataset(str(tar_path), shardshuffle=False)
        next(islice(iter(dataset), int(0.9 * ROWS), None))

    fresh()
    times = [(seconds(fresh), seconds(resumed), seconds(skipped)) for _ in range(args.rounds)]
    starts, resumes, skips = (list(column) for column in zip(*times, strict=True))
    print(f"first batch: fresh {starts[-1] * 1e3:.1f} ms, resumed {resumes[-1] * 1e3:.1f} ms")
    print(f"resumed takes {ratio(resumes, starts)} x the time of a fresh start")
    print(f"webdataset skips in {skips[-1]:.1f} s, {ratio(skips, resumes)} x the time")


def bench_overhead(args: argparse.Namespace, folder: Path) -> None:
    """The loader's own time per sample: nothing is read, nothing decoded."""
    selection = make_numbers(folder)

    for size in (4, 16):
        loader = loader_of(selection, batch_size=size, decode={}, num_threads=args.threads)
        batches = iter(loader)
        next(batches)
        samples = 400 * size
        spent = [
            seconds(lambda: list(islice(batches, 400))) / samples  # noqa: B023  # called at once
            for _ in range(args.rounds)
        ]
        print(f"overhead, batch {size}: {statistics.median(spent) * 1e6:.0f} us per sample")
        loader.close()


class Jpegs(Dataset[torch.Tensor]):
    """What a user would write for torch's own DataLoader."""

    def __init__(self, places: list[Place], decoder: str) -> None:
        self.places = places
        self.decoder = decoder

    def __len__(self) -> int:
        return len(self.places)

    @override
    def __getitem__(self, index: int) -> torch.Tensor:
        data = read_range(self.places[index])
        if self.decoder == "Pillow":
            pixels = np.array(Image.open(io.BytesIO(data)).convert("RGB"))
        else:
            pixels = simplejpeg.decode_jpeg(data)
        return torch.from_numpy(pixels).permute(2, 0, 1)


def places_of(selection: Selection) -> list[Place]:
    refs = [row["image"] for row in selection.rows(range(len(selection)))]
    return [(ref.path.removeprefix("file://"), ref.position, ref.size) for ref in refs]


def read_range(place: Place) -> bytes:
    with Path(place[0]).open("rb") as file:
        return os.pread(file.fileno(), place[2], place[1])


def bench_decode(args: argparse.Namespace, folder: Path) -> None:  # noqa: C901  # five contenders
    """4K pictures to batches, beside a bare loop, torch's DataLoader, and a Grain pipeline."""
    import grain

    selection = make_pictures(folder, args.pictures)
    places = places_of(selection)

    def consume(batches: Any) -> None:
        for batch in batches:
            del batch

    def twin() -> None:
        consume(loader_of(selection, num_threads=args.threads))

    def bare() -> None:
        with ThreadPoolExecutor(args.threads) as pool:
            for _ in pool.map(lambda place: simplejpeg.decode_jpeg(read_range(place)), places):
                pass

    def grain_pipeline() -> None:
        source = TwinRandomAccessSource(selection)
        samples = grain.MapDataset.source(source).shuffle(seed=0)
        options = grain.ReadOptions(num_threads=args.threads, prefetch_buffer_size=8)
        consume(samples.to_iter_dataset(options).batch(BATCH_SIZE))

    def workers(decoder: str) -> Callable[[], None]:
        def run() -> None:
            dataset = Jpegs(places, decoder)
            consume(
                DataLoader(
                    dataset,
                    batch_size=BATCH_SIZE,
                    shuffle=True,
                    num_workers=args.threads,
                    multiprocessing_context="forkserver",
                )
            )

        return run

    contenders = {
        "TwinLoader": twin,
        "bare loop": bare,
        "Grain": grain_pipeline,
        "DataLoader, Pillow": workers("Pillow"),
        "DataLoader, simplejpeg": workers("simplejpeg"),
    }
    twin()
    times: dict[str, list[float]] = {name: [] for name in contenders}
    for _ in range(args.rounds):
        for name, run in contenders.items():
            times[name].append(seconds(run))
    for name, spent in times.items():
        rate = args.pictures / statistics.median(spent)
        print(f"{name}: {rate:.1f} pictures/s; {ratio(spent, times['TwinLoader'])} x our time")


def bench_bucket(args: argparse.Namespace, folder: Path) -> None:
    """4K to the 1024 preset, beside decoding it whole and Pillow's Lanczos."""
    selection = make_pictures(folder, 8)
    contents = list(map(read_range, places_of(selection)))
    ours = DecodeImage(size="1024")
    theirs = DecodeImage(size="1024", reducing_gap=None)

    def whole(data: bytes) -> Any:
        picture = Image.open(io.BytesIO(data)).convert("RGB")
        height, width, _ = ours.shape(data)
        cut = picture.width - picture.height * width / height
        box = (cut / 2, 0, picture.width - cut / 2, picture.height)
        return np.asarray(picture.resize((width, height), Image.Resampling.LANCZOS, box))

    slow, fast = [], []
    for _ in range(args.rounds):
        slow.append(seconds(lambda: list(map(whole, contents))))
        fast.append(seconds(lambda: list(map(ours, contents))))
    apart = [np.abs(ours(data).astype(int) - theirs(data).astype(int)).mean() for data in contents]
    print(f"to a bucket of 1024: {ratio(slow, fast)} x as fast; differs by {max(apart):.2f} of 255")


def bench_memory(args: argparse.Namespace, folder: Path) -> None:
    """Peak memory of 4K pictures, batch 4, prefetch 2, three epochs of 67 steps."""
    selection = make_pictures(folder, 67 * BATCH_SIZE)
    next(iter(loader_of(selection, decode={})))
    base = resident()
    peaks = []
    loader = loader_of(selection, num_threads=args.threads, epochs=3)
    with sampled(resident) as peak:
        for step, batch in enumerate(loader, start=1):
            del batch
            if step % 67 == 0:
                peaks.append(peak[0] - base)
                peak[0] = resident()
    shown = ", ".join(f"{peak / 1e9:.2f}" for peak in peaks)
    print(f"peak above base over {step} steps, epoch by epoch: {shown} GB")


BENCHMARKS = {
    "resume": bench_resume,
    "overhead": bench_overhead,
    "bucket": bench_bucket,
    "memory": bench_memory,
    "decode": bench_decode,
}


def chosen(only: str | None) -> Iterator[str]:
    return (name for name in BENCHMARKS if only in (None, name))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--only", choices=list(BENCHMARKS))
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--pictures", type=int, default=96)
    parser.add_argument("--threads", type=int, default=2)
    args = parser.parse_args()
    for name in chosen(args.only):
        with tempfile.TemporaryDirectory() as folder:
            print(f"-- {name}")
            BENCHMARKS[name](args, Path(folder))
    print(f"load average {os.getloadavg()[0]:.1f} on {os.cpu_count()} CPUs")


if __name__ == "__main__":
    main()
