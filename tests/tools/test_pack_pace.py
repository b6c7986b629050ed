"""One thread works on files while they are fast, several once they keep one waiting."""

import threading
from collections.abc import Iterator
from dataclasses import dataclass, field

import pytest

from daft_twinwds.errors import StorageError
from daft_twinwds.tools import pack_pace
from daft_twinwds.tools.pack_pace import run_paced


class Clock(threading.local):
    """Seconds that the work of a thread has taken."""

    seconds = 0.0


@dataclass
class Work:
    """Squares numbers; it remembers who did so."""

    clock: Clock
    slow: range = range(0)
    """Items that take a second each."""
    pairs: threading.Barrier | None = None
    """Where slow items wait for one another."""
    fails: int = -1
    taken: list[int] = field(default_factory=list)
    threads: dict[int, int] = field(default_factory=dict)
    """Item -> thread that worked on it."""

    def items(self, count: int) -> Iterator[int]:
        for item in range(count):
            self.taken.append(item)
            yield item

    def __call__(self, item: int) -> int:
        if item == self.fails:
            raise StorageError("cut")
        self.threads[item] = threading.get_ident()
        if item in self.slow:
            self.clock.seconds += 1
            if self.pairs and item > 1:
                self.pairs.wait(timeout=20)
        return item * item

    def run(self, count: int, *, num_files: int = 1, num_workers: int = 2) -> Iterator[int]:
        return run_paced(
            self, self.items(count), num_files=lambda _: num_files, num_workers=num_workers
        )


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    clock = Clock()
    monkeypatch.setattr(pack_pace, "perf_counter", lambda: clock.seconds)
    return clock


def squares(count: int) -> list[int]:
    return [number * number for number in range(count)]


def test_fast_files_are_one_threads_work(clock: Clock) -> None:
    work = Work(clock)

    assert list(work.run(50)) == squares(50)

    assert set(work.threads.values()) == {threading.get_ident()}


def test_many_files_in_a_second_are_fast(clock: Clock) -> None:
    work = Work(clock, slow=range(50))

    assert list(work.run(50, num_files=100_000)) == squares(50)

    assert set(work.threads.values()) == {threading.get_ident()}


def test_slow_files_are_several_threads_work(clock: Clock) -> None:
    work = Work(clock, slow=range(52), pairs=threading.Barrier(2))

    assert list(work.run(52)) == squares(52)

    mine = [item for item, thread in work.threads.items() if thread == threading.get_ident()]
    assert mine == [0, 1], "nobody knows before"


def test_a_first_item_that_takes_its_time_says_nothing(clock: Clock) -> None:
    work = Work(clock, slow=range(1))

    assert list(work.run(50)) == squares(50)

    assert set(work.threads.values()) == {threading.get_ident()}


def test_who_works_changes_with_the_files(clock: Clock) -> None:
    work = Work(clock, slow=range(10, 20))

    assert list(work.run(60)) == squares(60)

    mine = {item for item, thread in work.threads.items() if thread == threading.get_ident()}
    assert mine >= {*range(11), *range(30, 60)}
    assert not mine & {*range(11, 20)}


def test_few_items_are_taken_ahead(clock: Clock) -> None:
    work = Work(clock, slow=range(100))
    outcomes = work.run(100, num_workers=3)

    for number in range(1, 20):
        next(outcomes)
        assert len(work.taken) <= number + 2 * 3


@pytest.mark.parametrize("slow", [range(0), range(100)], ids=["fast", "slow"])
def test_the_first_error_ends_the_work(clock: Clock, slow: range) -> None:
    work = Work(clock, slow=slow, fails=10)

    with pytest.raises(StorageError, match="cut"):
        list(work.run(100))

    assert set(range(10)) <= set(work.threads)
    assert len(work.taken) <= 11 + 2 * 2
