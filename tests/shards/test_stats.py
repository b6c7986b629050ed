"""Counters: of everything that was read, added up over threads."""

import threading
from pathlib import Path

import pytest

from daft_twinwds.shards import local
from daft_twinwds.shards.stats import StorageStats, record, storage_stats


def test_counts_add_up_over_threads() -> None:
    before = storage_stats()

    def work() -> None:
        for _ in range(500):
            record(requests=1, num_bytes=3, retries=2, seconds=0.5)

    threads = [threading.Thread(target=work) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()

    # Tasks of earlier queries may still read local files, which are never tried again.
    assert (storage_stats() - before).retries == 8000


def test_counts_are_taken_off_one_by_one() -> None:
    one = StorageStats(requests=1, bytes=2, retries=3, seconds=4.0)
    two = StorageStats(requests=10, bytes=20, retries=30, seconds=40.0)

    assert two - one == StorageStats(requests=9, bytes=18, retries=27, seconds=36.0)


def test_local_reads_are_counted_once_when_the_file_is_closed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    recorded: list[dict[str, float]] = []
    monkeypatch.setattr(local, "record", lambda **counts: recorded.append(counts))
    path = tmp_path / "a.bin"
    path.write_bytes(bytes(100_000))

    with local.LocalFile(str(path)) as file:
        file.read(0, 1000)
        file.read(5000, 70)
        file.close()

    (came,) = recorded
    assert 0 < came.pop("seconds") < 1
    assert came == {"requests": 2, "num_bytes": 1070}
