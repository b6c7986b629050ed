"""Curation on a cluster: the same bytes, also after a kill, and no pictures between nodes."""

import json
import os
import pickle
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from daft_twinwds.testing import encode_jpeg, write_tar
from daft_twinwds.tools.cluster import ClusterJob
from daft_twinwds.tools.curate import CurationReport, curate

EXAMPLE = Path(__file__).parents[2] / "examples" / "curate_on_ray.py"
SHARDS, SAMPLES = 24, 5
ARGUMENTS: dict[str, Any] = {
    "where": "caption.score > 0",
    "min_width": 1000,
    "duplicates": "picture",
}

IN_ITS_OWN_CLUSTER = """
import re, runpy, sys, time
from pathlib import Path
import ray

_, folder, *sys.argv = sys.argv
ray.init(
    num_cpus=2,
    include_dashboard=False,
    object_store_memory=100 * 2**20,
    log_to_driver=False,
    _temp_dir=folder,
    _system_config={"event_stats_print_interval_ms": 200},
)
runpy.run_path(sys.argv[0], run_name="__main__")
time.sleep(1)
(log,) = Path(folder).glob("session_2*/logs/raylet.out")
print(re.findall(r"num bytes created total: (\\d+)", log.read_text())[-1])
ray.shutdown()
"""
"""Runs a script, and prints the bytes that were put into the cluster's object store for it."""


def tree(root: Path) -> dict[str, bytes]:
    return {
        str(path.relative_to(root)): path.read_bytes()
        for path in sorted(root.rglob("*"))
        if path.is_file()
    }


@pytest.fixture(scope="module")
def pictures(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A hundred megabytes; some pictures are there twice, some are small."""
    root = tmp_path_factory.mktemp("curate") / "in"
    rng = np.random.default_rng(0)
    noise = rng.integers(0, 256, (1024, 1024, 3), dtype=np.uint8)
    for shard in range(SHARDS):
        images, texts = [], []
        for sample in range(SAMPLES):
            number = shard * SAMPLES + sample
            pixels = np.roll(noise, number * 7, axis=(0, 1))
            # Tiles of their own make the pictures differ in what they show.
            tiles = np.random.default_rng(number // 2).integers(0, 160, (8, 8, 1), dtype=np.uint8)
            pixels = pixels // 3 + np.kron(tiles, np.ones((128, 128, 1), np.uint8))
            if number % 11 == 0:
                pixels = pixels[:, :900]
            images.append((f"id_{number}.jpg", encode_jpeg(pixels, 97)))
            texts.append((f"id_{number}.json", json.dumps({"score": number % 7}).encode()))
        name = f"part_000000/{shard:06d}.tar"
        write_tar(root / "image" / name, images)
        write_tar(root / "caption" / name, texts)
    return root


@pytest.fixture(scope="module")
def native(pictures: Path) -> tuple[CurationReport, dict[str, bytes]]:
    """What threads of this process make of it."""
    output = pictures.parent / "out"
    report = curate(pictures, output, **ARGUMENTS)
    whole = tree(output)
    shutil.rmtree(output)
    return report, whole


@pytest.fixture(scope="module")
def resumed(
    cluster: str, pictures: Path, native: tuple[CurationReport, dict[str, bytes]]
) -> tuple[dict[str, Any], int]:
    """What a run on a cluster reports, after one on another that was killed in the middle.

    And the bytes that went through its object store.
    """
    output = pictures.parent / "out"
    job = [str(EXAMPLE), str(pictures), str(output)]
    for name, value in ARGUMENTS.items():
        job += [f"--{name.replace('_', '-')}", str(value)]
    environment = {**os.environ, "DAFT_PROGRESS_BAR": "0"}
    log = pictures.parent / "log.txt"
    with log.open("w") as file:
        process = subprocess.Popen(
            [sys.executable, *job, "--address", cluster], env=environment, stdout=file, stderr=file
        )
    try:
        deadline = time.monotonic() + 60
        while not list(output.glob(".curate/looks/*/*.parquet")):
            assert process.poll() is None, log.read_text()
            assert time.monotonic() < deadline, log.read_text()
            time.sleep(0.01)
    finally:
        process.send_signal(signal.SIGKILL)
        process.wait()
    assert process.returncode == -signal.SIGKILL
    assert not (output / "wdinfo.json").exists()

    # Not pytest's own folder: names of sockets have to be short.
    with tempfile.TemporaryDirectory(prefix="ray_", dir="/tmp") as folder:
        done = subprocess.run(
            [sys.executable, "-c", IN_ITS_OWN_CLUSTER, folder, *job, "--address", "auto"],
            env=environment,
            capture_output=True,
            text=True,
            timeout=120,
            check=False,
        )
    assert done.returncode == 0, done.stderr
    *_, report, stored = done.stdout.splitlines()
    return json.loads(report), int(stored)


@pytest.mark.slow
def test_a_killed_run_on_a_cluster_ends_with_the_bytes_of_threads_here(
    resumed: tuple[dict[str, Any], int],
    native: tuple[CurationReport, dict[str, bytes]],
    pictures: Path,
) -> None:
    report, whole = native

    assert tree(pictures.parent / "out") == whole
    ours, theirs = asdict(report), resumed[0]
    assert {"where", "too small", "duplicate"} == ours["dropped"].keys()
    assert 1 <= theirs["looks_taken_over"] <= SHARDS
    changing = ("seconds", "looks_taken_over", "copies_taken_over")
    assert {name: value for name, value in theirs.items() if name not in changing} == {
        name: value for name, value in ours.items() if name not in changing
    }


@pytest.mark.slow
def test_pictures_do_not_go_through_the_object_store(
    resumed: tuple[dict[str, Any], int], native: tuple[CurationReport, dict[str, bytes]]
) -> None:
    report, stored = resumed

    assert report["looks_taken_over"] < SHARDS
    assert native[0].num_bytes > 40 * 10**6
    assert 0 < stored < 10**6


@pytest.mark.slow
def test_what_travels_is_small(
    pictures: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    sizes: list[int] = []

    def run_here(jobs: Sequence[ClusterJob[object]], *, workers: int | None) -> Any:
        with ThreadPoolExecutor(2) as executor:
            for job in jobs:
                pickled = pickle.dumps(job)
                outcome = pickle.dumps(pickle.loads(pickled).run(executor))
                sizes.extend([len(pickled), len(outcome)])
                yield pickle.loads(outcome)

    monkeypatch.setattr("daft_twinwds.tools.cluster.runs_on_ray", lambda: True)
    monkeypatch.setattr("daft_twinwds.tools.cluster.run_on_cluster", run_here)

    report = curate(pictures, tmp_path / "out", **ARGUMENTS)

    assert report.num_kept > 0
    assert len(sizes) == 2 * 2 * SHARDS
    assert max(sizes) < 10_000
    # The paths of one shard after another; its pictures have some megabytes.
    assert sum(sizes) < 10_000 * SHARDS
