"""Scans of 100,000 small samples with an index, against the webdataset package reading the tars.

Run: python benchmarks/bench_index.py [--shards 40] [--samples 2500]
"""

import argparse
import tempfile
import time
from pathlib import Path

from bench_scan import THRESHOLD, best_of, peer_count, peer_list
from daft import col
from twins import make_small_twins

import daft_twinwds
from daft_twinwds.tools.index import build_index


def indexed_list(root: Path) -> int:
    df = daft_twinwds.read_twin_webdataset(root, index="require")
    return len(df.select("__key__", col("caption")["prompt"], "image").to_arrow())


def indexed_count(root: Path) -> int:
    df = daft_twinwds.read_twin_webdataset(root, index="require")
    return df.where(col("caption")["aesthetic"] > THRESHOLD).count_rows()


def indexed_pick(root: Path) -> int:
    """A filter that excludes most shards."""
    df = daft_twinwds.read_twin_webdataset(root, index="require")
    return len(df.where(col("__key__").is_in(["id_7", "id_5000"])).select("image").to_arrow())


def count_all(root: Path) -> int:
    return daft_twinwds.read_twin_webdataset(root, index="require").count_rows()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--shards", type=int, default=40)
    parser.add_argument("--samples", type=int, default=2500)
    parser.add_argument("--runs", type=int, default=3)
    args = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        root = make_small_twins(Path(folder), shards=args.shards, samples=args.samples, words=200)
        start = time.perf_counter()
        report = build_index(root)
        seconds = time.perf_counter() - start
        size = sum(path.stat().st_size for path in root.glob(".twin_index/*.parquet"))
        tars = sum(path.stat().st_size for path in root.rglob("*.tar"))
        print(
            f"build: {report.num_rows} rows in {seconds:.1f} s, {size / 1e6:.0f} MB beside "
            f"{tars / 1e6:.0f} MB of tars"
        )
        for task, ours, theirs, least in (
            ("list key, prompt, picture ref", indexed_list, peer_list, 20),
            ("count captions above a number", indexed_count, peer_count, 30),
        ):
            our_time, our_rows = best_of(2 * args.runs, ours, root)
            their_time, their_rows = best_of(args.runs, theirs, root)
            assert our_rows == their_rows, (our_rows, their_rows)
            print(
                f"{task}: {our_rows} rows; daft_twinwds {our_time:.3f} s, webdataset "
                f"{their_time:.2f} s: {their_time / our_time:.0f} times as fast (at least {least} "
                "is asked for)"
            )
        for task, ours in (("count all", count_all), ("pick two keys", indexed_pick)):
            our_time, our_rows = best_of(2 * args.runs, ours, root)
            print(f"{task}: {our_rows} rows; {our_time:.3f} s")


if __name__ == "__main__":
    main()
