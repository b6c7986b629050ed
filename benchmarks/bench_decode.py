"""4K JPEGs of twin tars to batches, against a bare loop of as many threads around simplejpeg.

Both read the same byte ranges of the same tars and decode every picture whole; only one of them
makes batches, bounds its memory, and knows what to say about a picture that is broken. Rounds take
turns, so that a machine that others use as well slows both down. Beside the wall clock stands the
time that the process kept CPUs busy, which others disturb less.

The first batches of a pass have fresh memory, later ones that of batches before them: a pass has to
be long to show what training sees.

Run: python benchmarks/bench_decode.py [--pictures 480] [--rounds 5] [--threads 2]
"""

import argparse
import os
import statistics
import tempfile
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import numpy as np
import simplejpeg
from numpy.typing import NDArray

import daft_twinwds
from daft_twinwds.testing import make_twin_dataset
from daft_twinwds.train import Selection, to_torch_iter_dataset

WIDTH, HEIGHT = 3840, 2160
BATCH_SIZE = 4
SHARDS, PER_SHARD = 2, 4
"""Pictures that differ; they are read again and again."""

Place = tuple[str, int, int]
Seconds = tuple[float, float]


def make_pictures(root: Path, pictures: int) -> Selection:
    """Return a selection of ``pictures`` rows, which have a few pictures between them."""
    make_twin_dataset(
        root, num_shards=SHARDS, samples_per_shard=PER_SHARD, image_size=(WIDTH, HEIGHT)
    )
    painted = Selection.from_dataframe(daft_twinwds.read_twin_webdataset(root, ["image"]))
    places = [number % len(painted) for number in range(pictures)]
    return Selection(painted.table.take(places), painted.media)


def places_of(selection: Selection) -> list[Place]:
    refs = [row["image"] for row in selection.rows(range(len(selection)))]
    return [(ref.path, ref.position, ref.size) for ref in refs]


def read_range(place: Place) -> bytes:
    path, position, size = place
    descriptor = os.open(path, os.O_RDONLY)
    try:
        return os.pread(descriptor, size, position)
    finally:
        os.close(descriptor)


def read_and_decode(place: Place) -> NDArray[np.uint8]:
    pixels: NDArray[np.uint8] = simplejpeg.decode_jpeg(read_range(place))
    return pixels


def bare_loop(selection: Selection, threads: int) -> int:
    with ThreadPoolExecutor(threads) as pool:
        shapes = [pixels.shape for pixels in pool.map(read_and_decode, places_of(selection))]
    assert set(shapes) == {(HEIGHT, WIDTH, 3)}
    return len(shapes)


def batches(selection: Selection, threads: int) -> int:
    dataset = to_torch_iter_dataset(selection, batch_size=BATCH_SIZE, num_threads=threads)
    shapes = [batch["image"].shape for batch in dataset]
    assert set(shapes[:-1]) <= {(BATCH_SIZE, 3, HEIGHT, WIDTH)}
    return sum(shape[0] for shape in shapes)


def measure(loop: Callable[[Selection, int], int], selection: Selection, threads: int) -> Seconds:
    wall, busy = time.perf_counter(), time.process_time()
    pictures = loop(selection, threads)
    assert pictures == len(selection), pictures
    return (time.perf_counter() - wall) / pictures, (time.process_time() - busy) / pictures


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--pictures", type=int, default=480)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--threads", type=int, default=2)
    args = parser.parse_args()
    seconds: dict[str, list[Seconds]] = {"batches": [], "bare loop": []}
    with tempfile.TemporaryDirectory() as folder:
        selection = make_pictures(Path(folder), args.pictures)
        for number in range(-1, args.rounds):
            for name, loop in (("batches", batches), ("bare loop", bare_loop)):
                result = measure(loop, selection, args.threads)
                if number >= 0:  # one round warms up
                    seconds[name].append(result)
    for name, results in seconds.items():
        walls, busy = zip(*results, strict=True)
        print(
            f"{name}: {1 / statistics.median(walls):.1f} pictures/s in the median, "
            f"{1 / min(walls):.1f} at best; {statistics.median(busy) * 1000:.1f} ms of CPU each"
        )
    for what, column in (("wall clock", 0), ("CPU", 1)):
        ratios = [
            bare[column] / ours[column]
            for ours, bare in zip(seconds["batches"], seconds["bare loop"], strict=True)
        ]
        print(
            f"as fast as the bare loop, by {what}: {statistics.median(ratios):.2f} in the median "
            f"of {len(ratios)} rounds ({min(ratios):.2f} to {max(ratios):.2f})"
        )
    print(f"load average {os.getloadavg()[0]:.1f} on {os.cpu_count()} CPUs")


if __name__ == "__main__":
    main()
