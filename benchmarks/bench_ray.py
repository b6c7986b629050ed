"""Scan of 100,000 small samples on Daft's Ray runner, against `ray.data.read_webdataset` and zip.

Both use the same cluster of two CPUs on this machine and end with one Arrow table of keys, prompts
and where the pictures are (Ray Data has read the pictures by then, and gives their sizes). Each is
run once before the clock starts, so that workers and imports are there.

Run: python benchmarks/bench_ray.py [--shards 40] [--samples 2500] [--runs 3]
"""

import argparse
import json
import logging
import os
import tempfile
from pathlib import Path
from typing import Any

import daft
import ray
from bench_scan import best_of
from daft import col
from twins import make_small_twins

import daft_twinwds


def ours(root: Path) -> int:
    df = daft_twinwds.read_twin_webdataset(root)
    return len(df.select("__key__", col("caption")["prompt"], "image").to_arrow())


def read_tars(root: Path, modality: str) -> Any:
    paths = sorted(str(path) for path in (root / modality).rglob("*.tar"))
    return ray.data.read_webdataset(paths, decoder=None)


def picture_rows(row: dict[str, Any]) -> dict[str, Any]:
    return {"__key__": row["__key__"], "size": len(row["jpg"])}


def caption_rows(row: dict[str, Any]) -> dict[str, Any]:
    return {"caption_key": row["__key__"], "prompt": json.loads(row["json"])["prompt"]}


def peer(root: Path) -> int:
    """Twins by place, which is cheaper than a join by key."""
    pictures = read_tars(root, "image").map(picture_rows)
    captions = read_tars(root, "caption").map(caption_rows)
    rows = 0
    for table in pictures.zip(captions).iter_batches(batch_size=None, batch_format="pyarrow"):
        assert table["__key__"] == table["caption_key"]
        rows += len(table)
    return rows


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--shards", type=int, default=40)
    parser.add_argument("--samples", type=int, default=2500)
    parser.add_argument("--runs", type=int, default=3)
    args = parser.parse_args()
    os.environ |= {"RAY_USAGE_STATS_ENABLED": "0", "RAY_ACCEL_ENV_VAR_OVERRIDE_ON_ZERO": "0"}
    ray.init(num_cpus=2, include_dashboard=False, logging_level=logging.ERROR, log_to_driver=False)
    ray.data.DataContext.get_current().enable_progress_bars = False
    ray.data.DataContext.get_current().execution_options.preserve_order = True
    logging.getLogger("ray.data").setLevel(logging.ERROR)
    daft.set_runner_ray()
    with tempfile.TemporaryDirectory() as folder:
        warm_up = make_small_twins(Path(folder) / "few", shards=2, samples=10, words=5)
        root = make_small_twins(
            Path(folder) / "many", shards=args.shards, samples=args.samples, words=200
        )
        assert ours(warm_up) == peer(warm_up) == 20
        our_time, our_rows = best_of(args.runs, ours, root)
        their_time, their_rows = best_of(args.runs, peer, root)
    assert our_rows == their_rows, (our_rows, their_rows)
    print(
        f"list key, prompt, picture: {our_rows} rows on Ray; daft_twinwds {our_time:.2f} s, Ray "
        f"Data {their_time:.2f} s: {their_time / our_time:.1f} times as fast (at least 5 is asked "
        "for)"
    )


if __name__ == "__main__":
    main()
