"""Scans of 100,000 small samples, against the webdataset package reading the same twins by zip.

Run: python benchmarks/bench_scan.py [--shards 40] [--samples 2500]
"""

import argparse
import json
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import webdataset as wds
from daft import col
from twins import make_small_twins

import daft_twinwds

THRESHOLD = 5.0


def peer(root: Path) -> Iterator[tuple[dict[str, Any], dict[str, Any]]]:
    """Both modalities by zip, as PiD's simple mode and most users' loops do."""
    names = sorted(path.relative_to(root / "image") for path in (root / "image").rglob("*.tar"))
    sides = (
        wds.WebDataset(
            [str(root / side / name) for name in names], shardshuffle=False, empty_check=False
        )
        for side in ("image", "caption")
    )
    return zip(*sides, strict=True)


def peer_list(root: Path) -> int:
    rows = [
        (image["__key__"], json.loads(caption["json"])["prompt"], image["__url__"])
        for image, caption in peer(root)
    ]
    return len(rows)


def peer_count(root: Path) -> int:
    return sum(json.loads(caption["json"])["aesthetic"] > THRESHOLD for _, caption in peer(root))


def ours_list(root: Path) -> int:
    df = daft_twinwds.read_twin_webdataset(root)
    return len(df.select("__key__", col("caption")["prompt"], "image").to_arrow())


def ours_count(root: Path) -> int:
    df = daft_twinwds.read_twin_webdataset(root)
    return df.where(col("caption")["aesthetic"] > THRESHOLD).count_rows()


def best_of(runs: int, function: Callable[[Path], int], root: Path) -> tuple[float, int]:
    seconds = []
    for _ in range(runs):
        start = time.perf_counter()
        result = function(root)
        seconds.append(time.perf_counter() - start)
    return min(seconds), result


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--shards", type=int, default=40)
    parser.add_argument("--samples", type=int, default=2500)
    parser.add_argument("--runs", type=int, default=3)
    args = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        root = make_small_twins(Path(folder), shards=args.shards, samples=args.samples, words=200)
        for task, ours, theirs in (
            ("list key, prompt, picture ref", ours_list, peer_list),
            ("count captions above a number", ours_count, peer_count),
        ):
            our_time, our_rows = best_of(args.runs, ours, root)
            their_time, their_rows = best_of(args.runs, theirs, root)
            assert our_rows == their_rows, (our_rows, their_rows)
            print(
                f"{task}: {our_rows} rows; daft_twinwds {our_time:.2f} s, webdataset "
                f"{their_time:.2f} s: {their_time / our_time:.1f} times as fast"
            )


if __name__ == "__main__":
    main()
