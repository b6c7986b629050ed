"""Work that is spread over threads, or given to Daft."""

import threading
import time
from collections.abc import Iterator
from concurrent.futures import Executor
from dataclasses import dataclass

import pytest

from daft_twinwds.errors import TarFormatError
from daft_twinwds.tools import cluster
from daft_twinwds.tools.cluster import run_for_each, run_on_cluster

# Daft's runner here has one process, which does all jobs.
pytestmark = pytest.mark.filterwarnings("ignore:DataFrame.into_partitions not supported")


@dataclass(frozen=True)
class Square:
    number: int

    def run(self, executor: Executor, /) -> tuple[int, str]:
        if self.number == 13:
            raise TarFormatError("/data/0.tar: cut; expected more; copy it again")
        return executor.submit(squared, self.number).result()


def squared(number: int) -> tuple[int, str]:
    return number**2, threading.current_thread().name


def failing(number: int) -> int:
    if number == 3:
        raise TarFormatError("/data/3.tar: cut")
    return number


def test_each_job_is_done_once_by_threads_that_jobs_share() -> None:
    outcomes = list(run_on_cluster([Square(number) for number in range(8)], workers=2))

    assert sorted(value for value, _ in outcomes) == [number**2 for number in range(8)]
    assert len({thread for _, thread in outcomes}) <= 2


def test_errors_about_data_keep_their_kind() -> None:
    with pytest.raises(TarFormatError, match=r"/data/0.tar: cut; expected more"):
        list(run_on_cluster([Square(number) for number in (1, 13, 2)], workers=1))


def test_without_jobs_nothing_is_run() -> None:
    assert list(run_on_cluster([], workers=None)) == []


@pytest.mark.parametrize("on_cluster", [False, True])
def test_every_item_is_worked_on_once(monkeypatch: pytest.MonkeyPatch, on_cluster: bool) -> None:
    monkeypatch.setattr(cluster, "runs_on_ray", lambda: on_cluster)
    monkeypatch.setattr(cluster, "_MOST_JOBS", 7)

    outcomes = list(run_for_each(squared, range(100), total=100, workers=3))

    assert sorted(value for value, _ in outcomes) == [number**2 for number in range(100)]
    assert len({thread for _, thread in outcomes}) <= 3


@pytest.mark.parametrize("on_cluster", [False, True])
def test_an_error_ends_the_work(monkeypatch: pytest.MonkeyPatch, on_cluster: bool) -> None:
    monkeypatch.setattr(cluster, "runs_on_ray", lambda: on_cluster)

    with pytest.raises(TarFormatError, match=r"/data/3.tar: cut"):
        list(run_for_each(failing, range(20), total=20, workers=2))


def test_threads_are_only_some_items_ahead() -> None:
    asked: list[int] = []

    def items() -> Iterator[int]:
        for number in range(1000):
            asked.append(number)
            yield number

    outcomes = run_for_each(squared, items(), total=1000, workers=2)
    next(outcomes)
    time.sleep(0.05)

    assert len(asked) <= 16
    assert len(list(outcomes)) == 999
